"""Images: twelve models of equal size, NODE, NDDE and NODE+NDDE with and without channels of zeros, on real data."""

import importlib.util
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..datasets import DataError
from ..datasets import images as data
from . import _classification as classification
from . import _image_models as models
from ._base import Claim, Experiment, Outcome, Preset, Settings, Table, UserError, spread
from ._image_figures import draw
from ._options import pick
from ._regression import judged

Measured = dict[str, dict[str, Any]]
"""Per data set, per model: what was measured."""


def run(settings: Settings) -> Outcome:
    numbers = settings.numbers
    sets, names = models.datasets(numbers["dataset"]), models.chosen(numbers["models"])
    budget = _Budget(numbers["minutes"], len(sets) * len(names))
    measured: Measured = {}
    about = []
    for dataset in sets:
        images = read(settings, dataset)
        about.append(_about(dataset, images))
        problem = classification.place(images, numbers["batch"])
        measured[dataset] = {name: measure(settings, dataset, name, problem, budget) for name in names}
    judgements = [claim for dataset in sets for claim in claims(settings, dataset, names, measured[dataset])]
    return Outcome(
        measured,
        judgements,
        draw(settings, measured),
        [*(table(dataset, measured[dataset]) for dataset in sets), models.parameters_table()],
        about + notes(settings, measured),
    )


def check(numbers: Mapping[str, Any]) -> None:
    """Raises for names that do not exist and counts that are not possible."""
    pick("augmentation", numbers["augmentation"], classification.AUGMENTATIONS)
    pick("precision", numbers["precision"], ("float32", "bfloat16"))
    if "digits" in models.datasets(numbers["dataset"]) and importlib.util.find_spec("sklearn") is None:
        raise UserError("images needs scikit-learn for its digits, which is not installed: pip install 'lagrax[images]'")
    models.chosen(numbers["models"])
    for name in ("epochs", "batch", "limit train", "limit test", "filters", "minutes"):
        smallest = 1 if name in ("epochs", "batch") else 0
        if numbers[name] < smallest:
            raise UserError(f"{name} = {numbers[name]}, expected at least {smallest}")


class _Budget:
    """The time that is left, shared evenly by the models still to be trained."""

    def __init__(self, minutes: float, count: int):
        self.end = time.monotonic() + 60 * minutes if minutes else None
        self.count = count

    def next(self) -> float | None:
        """Seconds for the next model, or None for as many as it takes."""
        share = None if self.end is None else max(1.0, (self.end - time.monotonic()) / self.count)
        self.count -= 1
        return share


def read(settings: Settings, dataset: str) -> data.Images:
    numbers = settings.numbers
    try:
        images = data.load(dataset, numbers["data dir"] or None, progress=settings.progress)
        return images.limited(numbers["limit train"] or None, numbers["limit test"] or None)
    except DataError as error:
        raise UserError(str(error)) from None


def measure(settings: Settings, dataset: str, name: str, problem: classification.Problem, budget: _Budget) -> dict[str, Any]:
    """Trains one model on one data set. Losses, accuracies and evaluations by epoch; accuracies in per cent."""
    numbers = settings.numbers
    count = models.filters(name, dataset, numbers["filters"])
    compute = None if numbers["precision"] == "float32" else jnp.dtype(numbers["precision"])
    options = {"max_steps": numbers["max steps"], "compute": compute, **settings.stepping}
    make = lambda key: models.build(name, dataset, count, key, **options)
    position = list(models.MODELS).index(name)
    fitted, epoch = classification.train(settings, f"{dataset}/{name}", make, problem, position, budget.next())
    done = len(fitted.evaluation_iterations)
    by_epoch = lambda values: values[: (done - 1) * epoch].reshape(done - 1, epoch, settings.seeds).mean(axis=1)
    curves = {
        "training loss": by_epoch(fitted.history["loss"]),
        "test loss": fitted.evaluations["test loss"],
        "accuracy": 100 * fitted.evaluations["accuracy"],
        "forward evaluations": by_epoch(fitted.history["forward evaluations"]),
        "backward evaluations": by_epoch(fitted.history["backward evaluations"]),
    }
    last = {key: spread(values[-1]) for key, values in curves.items() if len(values)}
    return {
        **last,
        "mean accuracy": float(np.mean(curves["accuracy"][-1])),
        "deviation of accuracy": float(np.std(curves["accuracy"][-1])),
        "filters": count,
        "parameters": models.parameters(name, dataset, count),
        "epochs": done - 1,
        "by epoch": {key: np.asarray(values, float).tolist() for key, values in curves.items()},
        "images per second": len(problem.train[1]) * settings.seeds * (done - 1) / fitted.seconds,
        "seconds": fitted.seconds,
        "ended": fitted.ended,
    }


def _groups(names: list[str]) -> list[list[str]]:
    """The models with as many channels of zeros, the NODE first."""
    augments = dict.fromkeys(models.MODELS[name][1] for name in names)
    return [[name for name in names if models.MODELS[name][1] == augment] for augment in augments]


def claims(settings: Settings, dataset: str, names: list[str], measured: dict[str, Any]) -> list[Claim]:
    """The paper's statements, each to hold in every group of equally augmented models that has a NODE and others."""
    groups = [group for group in _groups(names) if len(group) > 1 and models.MODELS[group[0]][0] == "NODE"]
    if not groups or any(not measured[name]["epochs"] for group in groups for name in group):
        return []
    printed = models.DATASETS[dataset]
    losses = {key: lambda name, key=key: measured[name][key]["median"] for key in ("training loss", "test loss")}
    accuracy = lambda name: measured[name]["mean accuracy"]
    best = [max(group, key=accuracy) for group in groups]
    found = [
        Claim(
            f"{printed}: the NDDEs and their extensions reach lower training and test losses than the NODEs/ANODEs.",
            f"Training: {_listed(groups, losses['training loss'], '{:.4f}')}. "
            f"Test: {_listed(groups, losses['test loss'], '{:.4f}')}.",
            judged(settings, all(loss(n) < loss(g[0]) for loss in losses.values() for g in groups for n in g[1:])),
        ),
        Claim(
            f"{printed}: their test accuracies are much higher than those of the NODEs/ANODEs.",
            f"{_listed(groups, accuracy, '{:.2f} %')}.",
            judged(settings, all(accuracy(n) >= accuracy(g[0]) for g in groups for n in g[1:])),
        ),
    ]
    if all(len(group) == 3 for group in groups):
        text = f"The best of each group: {', '.join(best)}."
        right = all(name.endswith("NODE+NDDE") for name in best)
        found.append(Claim(f"{printed}: NODE+NDDE exhibits the best performance.", text, judged(settings, right)))
    return found


def _listed(groups: list[list[str]], value: Callable[[str], float], form: str) -> str:
    return "; ".join(", ".join(f"{name} {form.format(value(name))}" for name in group) for group in groups)


def table(dataset: str, measured: dict[str, Any]) -> Table:
    rows = []
    for name, found in measured.items():
        cell = lambda key, form, found=found: form.format(found[key]["median"]) if key in found else "–"
        rows.append(
            (
                name,
                f"{found['filters']}/{found['parameters']}",
                f"{found['mean accuracy']:.2f} ± {found['deviation of accuracy']:.2f} %",
                models.reported(name, dataset),
                cell("training loss", "{:.4f}"),
                cell("test loss", "{:.4f}"),
                f"{cell('forward evaluations', '{:.0f}')} / {cell('backward evaluations', '{:.0f}')}",
                f"{found['images per second']:.0f}",
            )
        )
    columns = (
        "model", "filters/parameters", "accuracy", "the paper's", "training loss", "test loss", "evaluations", "images/s",
    )  # fmt: skip
    return Table(
        f"{models.DATASETS[dataset]} after the last epoch: accuracy as mean ± deviation over the seeds, else medians",
        columns,
        rows,
    )


def _about(dataset: str, images: data.Images) -> str:
    sizes = f"{len(images.train_labels)} images to train with, {len(images.test_labels)} to test"
    return f"{models.DATASETS[dataset]}: {sizes}. {' '.join(images.notes)}".rstrip()


def notes(settings: Settings, measured: Measured) -> list[str]:
    numbers = settings.numbers
    found = [
        "Images are standardised by the mean and deviation of the training images, channel by channel; the paper does not "
        f"say how it scales them. Augmentation of the data: {numbers['augmentation']}. Weights start as PyTorch's do.",
        "Accuracies are of the last epoch, not of the best one.",
    ]
    if "digits" in measured or numbers["filters"]:
        found.append(
            f"Smaller models than the paper's: {numbers['filters'] or models.DIGITS_FILTERS} filters in a NODE, and in the "
            "others in the proportions of its table. With fewer filters the linear layer has a larger share of the "
            "parameters, so that models are of equal size only among those with as many channels of zeros."
        )
    if "digits" in measured:
        found.append("The digits are scikit-learn's, 8×8 pixels, and not in the paper.")
    unfinished = lambda of: [name for name, model in of.items() if model["ended"] != "finished"]
    early = [f"{name} on {dataset}" for dataset in measured for name in unfinished(measured[dataset])]
    if early:
        found.append(f"Stopped before the last epoch, for lack of time: {', '.join(early)}.")
    return found


_PAPER = {
    "dataset": "digits", "models": "all", "data dir": "", "limit train": 0, "limit test": 0, "epochs": 30, "batch": 256,
    "learning rate": 1e-3, "decay": False, "filters": 0, "augmentation": "none", "precision": "float32", "minutes": 0.0,
    "max steps": 64,
}  # fmt: skip
_SMOKE = {
    **_PAPER,
    "limit train": 128,
    "limit test": 64,
    "epochs": 2,
    "batch": 64,
    "filters": 6,
    "models": "NODE,NDDE,NODE+NDDE",
}

EXPERIMENT = Experiment(
    name="images",
    title="Images: MNIST, CIFAR10, SVHN",
    about="Convolutional NODEs, NDDEs and NODE+NDDEs with 0, 1, 2 or 4 channels of zeros and about as many parameters each "
    "classify images. The paper finds higher accuracies with delays, and the highest with NODE+NDDE. Without other data "
    "(--dataset) it runs on scikit-learn's small digits.",
    presets={
        "smoke": Preset(_SMOKE, seeds=2, tolerance=1e-2, solver="dopri5"),
        "default": Preset({**_PAPER, "epochs": 8, "batch": 64}, seeds=5, tolerance=1e-3, solver="dopri5"),
        "paper": Preset(_PAPER, seeds=5, tolerance=1e-3, solver="dopri5"),
    },
    run=run,
    check=check,
)
