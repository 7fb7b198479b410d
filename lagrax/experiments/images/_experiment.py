"""Images: twelve models of equal size, NODE, NDDE and NODE+NDDE with and without channels of zeros, on real data."""

import dataclasses
import importlib.util
import time
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...datasets import DataError
from ...datasets.images import Images, load
from ...runner import Experiment, Numbers, Outcome, Preset, Settings, Table, UserError, is_first, number, of_seeds
from . import _claims as claims
from . import _classifying as classifying
from . import _models as models
from ._figures import EVALUATIONS, draw, draw_differences

Measured = dict[str, dict[str, Any]]
"""Per data set, per model: what was measured."""


@dataclasses.dataclass(frozen=True)
class ImagesNumbers(Numbers):
    dataset: str = number("digits", "digits, mnist, cifar10, svhn, or several with commas")
    models: str = number("all", "all, or names of the paper's table, with commas")
    data_dir: str = number("", "folder of the publisher's files; empty: where they are looked for, or downloaded to")
    limit_train: int = number(0, "first images to train with; 0: all", least=0)
    limit_test: int = number(0, "first images to test with; 0: all", least=0)
    epochs: int = number(30, "times that each image is trained with")
    batch: int = number(256, "images of an update of Adam")
    learning_rate: float = number(1e-3, "of Adam")
    decay: bool = number(False, "whether the learning rate falls to zero along half a cosine")
    filters: int = number(0, "of a NODE, others in proportion; 0: the paper's", least=0)
    augmentation: str = number("none", "of the training images", choices=classifying.AUGMENTATIONS)
    precision: str = number("float32", "of the network's products", choices=("float32", "bfloat16"))
    minutes: float = number(0.0, "time for all the training; 0: as long as it takes", least=0)
    max_steps: int = number(64, "steps of a solve, at most")
    size: float = number(1.0, "pixels of a side, or a fraction of those there are")
    validation: int = number(0, "last training images that take the place of the test images", least=0)
    first_step: float = number(0.0, "first step that a solve tries; 0: of its own choice", least=0)
    delay: float = number(1.0, "of the models that have one, in units of T = 1", least=0.01)

    def check(self) -> None:
        """Raises for names that do not exist."""
        models.chosen(self.models)
        models.datasets(self.dataset)

    def check_installed(self) -> None:
        if "digits" in models.datasets(self.dataset) and importlib.util.find_spec("sklearn") is None:
            raise UserError("images needs scikit-learn for its digits, which is not installed: pip install 'lagrax[images]'")


def run(settings: Settings[ImagesNumbers]) -> Outcome:
    numbers = settings.numbers
    sets, names = models.datasets(numbers.dataset), models.chosen(numbers.models)
    budget = _Budget(numbers.minutes, len(sets) * len(names))
    measured: Measured = {}
    differences: dict[str, list[claims.Comparison]] = {}
    about = []
    for dataset in sets:
        images = _read(dataset, numbers, settings.progress)
        about.append(_about(dataset, images))
        placed = classifying.place(images, numbers.batch)
        found = {name: measure(settings, dataset, name, placed, budget) for name in names}
        measured[dataset] = {name: model for name, (model, _) in found.items()}
        differences[dataset] = claims.comparisons(measured[dataset], {name: each for name, (_, each) in found.items()})
    tables = [[table(dataset, measured[dataset]), *claims.table(dataset, differences[dataset])] for dataset in sets]
    return Outcome(
        {**measured, "differences": {dataset: claims.plain(differences[dataset]) for dataset in sets}},
        [claim for dataset in sets for claim in claims.claims(settings, dataset, differences[dataset])],
        [*draw_differences(settings, differences), *draw(settings, measured)],
        [*(each for of_set in tables for each in of_set), models.parameters_table()],
        about + notes(settings, measured),
    )


def _read(dataset: str, numbers: ImagesNumbers, progress: bool) -> Images:
    """What the numbers ask for: the first so many, some of the training images in the place of the test images, averaged
    down. The files are the publisher's, wherever `lagrax.datasets.images.load` finds them."""
    try:
        images = load(dataset, numbers.data_dir or None, progress=progress)
        images = images.limited(numbers.limit_train or None, numbers.limit_test or None)
        return images.held_out(numbers.validation).smaller(numbers.size)
    except DataError as error:
        raise UserError(str(error)) from None


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


def measure(
    settings: Settings, dataset: str, name: str, images: classifying.PlacedImages, budget: _Budget
) -> tuple[dict[str, Any], claims.Each]:
    """Trains one model on one data set. Losses, accuracies and evaluations by epoch; accuracies in per cent. Then the last
    test, image by image, which is in `test.npz` as well."""
    numbers = settings.numbers
    count = models.filters(name, dataset, numbers.filters)
    compute = None if numbers.precision == "float32" else jnp.dtype(numbers.precision)
    first = numbers.first_step or None
    options = {"max_steps": numbers.max_steps, "dt0": first, "compute": compute, "delay": numbers.delay, **settings.stepping}
    make = lambda key: models.build(name, images.shape, count, key, **options)
    fitted, each, epoch = classifying.train(settings, f"{dataset}/{name}", make, images, budget.next())
    if is_first():
        np.savez_compressed(settings.folder / dataset / name / "test.npz", loss=each["loss"], right=each["right"])
    done = len(fitted.evaluation_iterations)
    by_epoch = lambda values: values[: (done - 1) * epoch].reshape(done - 1, epoch, settings.seeds).mean(axis=1)
    curves = {
        "training loss": by_epoch(fitted.history["loss"]),
        "test loss": fitted.evaluations["test loss"],
        "accuracy": 100 * fitted.evaluations["accuracy"],
        **{key: by_epoch(fitted.history[key]) for key in EVALUATIONS if key in fitted.history},
    }
    last = {key: of_seeds(values[-1]) for key, values in curves.items() if len(values)}
    measured = {
        **last,
        "mean accuracy": float(np.mean(curves["accuracy"][-1])),
        "deviation of accuracy": float(np.std(curves["accuracy"][-1], ddof=1)) if settings.seeds > 1 else None,
        "filters": count,
        "parameters": models.parameters(name, images.shape, count),
        "epochs": done - 1,
        "by epoch": {key: np.asarray(values, float).tolist() for key, values in curves.items()},
        "images per second": len(images.train[1]) * settings.seeds * (done - 1) / fitted.seconds,
        "seconds": fitted.seconds,
        "ended": fitted.ended,
    }
    return measured, each


def table(dataset: str, measured: dict[str, Any]) -> Table:
    rows = []
    for name, found in measured.items():
        cell = lambda key, form, found=found: form.format(found[key]["median"]) if key in found else "–"
        rows.append(
            (
                name,
                f"{found['filters']}/{found['parameters']}",
                _accuracy(found),
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
        f"{models.DATASETS[dataset]} after the last epoch: mean accuracy ± standard deviation over the seeds, else medians",
        columns,
        rows,
    )


def _accuracy(found: dict[str, Any]) -> str:
    deviation = found["deviation of accuracy"]
    return f"{found['mean accuracy']:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}") + " %"


def _about(dataset: str, images: Images) -> str:
    *_, height, width = images.train_images.shape
    sizes = f"{len(images.train_labels)} images of {height}×{width} pixels to train with, {len(images.test_labels)} to test"
    return f"{models.DATASETS[dataset]}: {sizes}. {' '.join(images.notes)}".rstrip()


def notes(settings: Settings, measured: Measured) -> list[str]:
    numbers = settings.numbers
    found = [
        "Images are standardised by the mean and deviation of the training images, channel by channel; the paper does not "
        f"say how it scales them. Augmentation of the data: {numbers.augmentation}. Weights start as PyTorch's do.",
        "Accuracies are of the last epoch, not of the best one. Seed i of every model has the same batches. A difference "
        "has two 95 % intervals: by Student's t over the seeds, and by a bootstrap over the test images of the difference "
        "averaged over the seeds. A verdict needs both on the same side of zero; a training loss has the first alone.",
    ]
    if "digits" in measured or numbers.filters:
        found.append(
            f"Smaller models than the paper's: {numbers.filters or models.DIGITS_FILTERS} filters in a NODE, and in the "
            "others in the proportions of its table. With fewer filters the linear layer has a larger share of the "
            "parameters, so that models are of equal size only among those with as many channels of zeros."
        )
    if numbers.first_step:
        found.append(f"Solves try a first step of {numbers.first_step:g}; the tolerance decides whether it is taken.")
    if numbers.delay != 1:
        found.append(f"Delays are {numbers.delay:g}, the paper's 1, as long as the flow.")
    if "digits" in measured:
        found.append("The digits are scikit-learn's, 8×8 pixels, and not in the paper.")
    unfinished = lambda of: [name for name, model in of.items() if model["ended"] != "finished"]
    early = [f"{name} on {dataset}" for dataset in measured for name in unfinished(measured[dataset])]
    if early:
        found.append(f"Stopped before the last epoch, for lack of time: {', '.join(early)}.")
    return found


_SMOKE = ImagesNumbers(limit_train=128, limit_test=64, epochs=2, batch=64, filters=6, models="NODE,NDDE,NODE+NDDE")
_REDUCED = ImagesNumbers(
    dataset="mnist,cifar10,svhn",
    limit_train=10_000,
    size=0.5,
    filters=23,
    epochs=6,
    batch=32,
    learning_rate=3e-3,
    decay=True,
    max_steps=16,
    first_step=1.0,  # often within the tolerance at once: 7 evaluations, where one of the solver's choice takes 21
)

EXPERIMENT = Experiment(
    name="images",
    title="Images: MNIST, CIFAR10, SVHN",
    about="Convolutional NODEs, NDDEs and NODE+NDDEs with 0, 1, 2 or 4 channels of zeros and about as many parameters each "
    "classify images. The paper finds higher accuracies with delays, and the highest with NODE+NDDE. Without other data "
    "(--dataset) it runs on scikit-learn's small digits.",
    presets={
        "smoke": Preset(_SMOKE, 2, "dopri5", 1e-2, "1 min"),
        "default": Preset(ImagesNumbers(epochs=8, batch=64), 5, "dopri5", 1e-3, "20 min"),
        "reduced": Preset(_REDUCED, 5, "dopri5", 1e-3, "hours"),
        "paper": Preset(ImagesNumbers(), 5, "dopri5", 1e-3, "an hour (digits) to days"),
    },
    run=run,
)
