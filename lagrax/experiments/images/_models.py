"""The twelve image models of the paper: names, filters, parameters, and the accuracies it reports."""

import functools
from typing import Any

import equinox as eqx
import jax

from ..._choices import pick
from ...nn import IMAGE_SHAPES, PAPER_FILTERS, ImageClassifier, count_parameters
from ...runner import Table

DATASETS = {"cifar10": "CIFAR10", "mnist": "MNIST", "svhn": "SVHN", "digits": "digits"}
"""By name on the command line, as they are called in print."""

Shape = tuple[int, int, int]
"""Channels, height and width."""

DIGITS_FILTERS = 16

MODELS = {(f"A{augment}+{kind}" if augment else kind): (kind, augment) for kind, augment in PAPER_FILTERS}
"""Name → kind and number of channels of zeros, in the order of the paper's tables."""

REPORTED = ("CIFAR10", "MNIST", "SVHN")
ACCURACY = {
    "NODE": ((53.92, 0.67), (96.21, 0.66), (80.66, 0.56)),
    "NDDE": ((55.69, 0.39), (96.22, 0.55), (81.49, 0.09)),
    "NODE+NDDE": ((55.89, 0.71), (97.26, 0.22), (82.60, 0.22)),
    "A1+NODE": ((56.14, 0.48), (97.89, 0.14), (81.17, 0.29)),
    "A1+NDDE": ((56.83, 0.60), (97.83, 0.07), (82.46, 0.28)),
    "A1+NODE+NDDE": ((57.31, 0.61), (98.16, 0.07), (83.02, 0.37)),
    "A2+NODE": ((57.27, 0.46), (98.25, 0.08), (81.73, 0.92)),
    "A2+NDDE": ((58.13, 0.32), (98.22, 0.04), (82.43, 0.26)),
    "A2+NODE+NDDE": ((58.40, 0.31), (98.26, 0.06), (83.73, 0.72)),
    "A4+NODE": ((58.93, 0.33), (98.33, 0.12), (82.72, 0.60)),
    "A4+NDDE": ((59.35, 0.48), (98.31, 0.03), (82.87, 0.55)),
    "A4+NODE+NDDE": ((59.94, 0.66), (98.52, 0.11), (83.62, 0.51)),
}
"""The paper's: per cent, mean and standard deviation over 5 realisations on the data sets of `REPORTED`."""


def chosen(text: str) -> list[str]:
    """The models named in `text`, separated by commas, or all, in the order of the paper's tables."""
    names = list(MODELS) if text == "all" else [pick("image model", name.strip(), list(MODELS)) for name in text.split(",")]
    return [name for name in MODELS if name in names]


def datasets(text: str) -> list[str]:
    """The data sets named in `text`, separated by commas."""
    return list(dict.fromkeys(pick("data set", name.strip(), list(DATASETS)) for name in text.split(",")))


def filters(name: str, dataset: str, wanted: int) -> int:
    """The filters of a model: the paper's, or those in proportion where a NODE has `wanted` of them.

    0 stands for the paper's, and for 16 on the digits, which the paper does not have; their proportions are MNIST's.
    """
    printed = DATASETS[dataset] if DATASETS[dataset] in IMAGE_SHAPES else "MNIST"
    paper, node = (PAPER_FILTERS[model][printed] for model in (MODELS[name], MODELS["NODE"]))
    if not wanted:
        wanted = DIGITS_FILTERS if dataset == "digits" else node
    return max(1, round(wanted * paper / node))


@functools.cache
def parameters(name: str, shape: Shape, count: int) -> int:
    """How many parameters the model has with `count` filters; nothing is allocated."""
    return count_parameters(eqx.filter_eval_shape(lambda: build(name, shape, count, jax.random.key(0))))


def build(name: str, shape: Shape, count: int, key: jax.Array, **settings: Any) -> ImageClassifier:
    kind, augment = MODELS[name]
    return ImageClassifier(kind, shape, count, augment=augment, key=key, **settings)


def parameters_table() -> Table:
    """The paper's table of filters and parameters, counted in the models as they are built here."""
    columns = [name for name in DATASETS if DATASETS[name] in IMAGE_SHAPES]
    cell = lambda name, dataset: f"{(k := filters(name, dataset, 0))}/{parameters(name, IMAGE_SHAPES[DATASETS[dataset]], k)}"
    rows = [(name, *(cell(name, dataset) for dataset in columns)) for name in MODELS]
    return Table("Filters / parameters", ("model", *(DATASETS[name] for name in columns)), rows)


def reported(name: str, dataset: str) -> str:
    """The paper's accuracy, or a dash where it has none."""
    printed = DATASETS[dataset]
    if printed not in REPORTED:
        return "–"
    mean, deviation = ACCURACY[name][REPORTED.index(printed)]
    return f"{mean:.2f} ± {deviation:.2f} %"
