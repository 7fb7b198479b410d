"""Figures of the image experiment: curves by epoch, a row for each data set or for each number of augmented channels."""

from typing import Any

import numpy as np

from . import _figures as figures
from ._base import Figure, Settings
from ._image_models import DATASETS, MODELS

LOSSES = {"training loss": "log", "test loss": "log", "accuracy": "linear"}
EVALUATIONS = {"forward evaluations": "linear", "backward evaluations": "linear"}
_UNITS = {"accuracy": "test accuracy (%)"}

Row = tuple[str, dict[str, Any]]
"""What it is of, and the measurements of its models by name."""


def draw(settings: Settings, measured: dict[str, dict[str, Any]]) -> list[Figure]:
    """The paper's panel: losses and accuracy, a row for each data set; then each data set by itself."""
    by_augment = {dataset: _by_augment(dataset, found) for dataset, found in measured.items()}
    first = [rows[0] for rows in by_augment.values()]
    caption = "Training loss, test loss and test accuracy: mean over the seeds, and the range from lowest to highest."
    drawn = [_panel(settings, "curves", first, LOSSES, caption)]
    for dataset, rows in by_augment.items():
        printed = DATASETS[dataset]
        if len(rows) > 1:
            text = f"{printed}, by the number of augmented channels: mean over the seeds, and their range."
            drawn.append(_panel(settings, f"curves-{dataset}", rows, LOSSES, text))
        text = f"{printed}: evaluations of the vector field, forward and backward, averaged over each epoch."
        drawn.append(_panel(settings, f"evaluations-{dataset}", rows, EVALUATIONS, text))
    return drawn


def _by_augment(dataset: str, found: dict[str, Any]) -> list[Row]:
    rows: dict[str, dict[str, Any]] = {}
    for name, measured in found.items():
        augment = MODELS[name][1]
        title = DATASETS[dataset] + (f", {augment} channel{'s' * (augment > 1)} of zeros" if augment else "")
        rows.setdefault(title, {})[name] = measured
    return list(rows.items())


def _panel(settings: Settings, stem: str, rows: list[Row], columns: dict[str, str], caption: str) -> Figure:
    figure, axes = figures.new(len(rows), len(columns), width=3.5, height=2.6)
    for line, (title, found) in zip(axes, rows, strict=True):
        for axis, (key, scale) in zip(line, columns.items(), strict=True):
            for name, measured in found.items():
                # The tests begin before the training, everything else is of an epoch that is over.
                values = measured["by epoch"][key]
                _curve(axis, values[1:] if len(values) > measured["epochs"] else values, MODELS[name][0])
            axis.set(yscale=scale, ylabel=_UNITS.get(key, key))
            axis.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        line[0].set_title(title, loc="left")
    for axis in axes[-1]:
        axis.set_xlabel("epoch")
    figures.legend(figure, axes)
    return figures.save(figure, settings.folder, stem, caption)


def _curve(axis: Any, values: list[list[float]], kind: str) -> None:
    """Values (epochs, seeds), from the end of the first epoch on."""
    if not values:
        return
    finite = np.ma.masked_invalid(np.array(values, float))
    epochs = np.arange(1, len(finite) + 1)
    colour = figures.COLOURS[kind]
    axis.plot(epochs, finite.mean(axis=1), color=colour, label=kind, marker=figures.MARKERS[kind], markersize=3)
    if finite.shape[1] > 1:
        axis.fill_between(epochs, finite.min(axis=1), finite.max(axis=1), color=colour, alpha=0.18, linewidth=0)
