"""Figures of the image experiment: curves by epoch, a row for each data set or for each number of augmented channels; and
differences of the models' accuracies."""

from typing import Any

import numpy as np

from ...runner import Figure, Settings, figures
from ._claims import Comparison
from ._models import ACCURACY, DATASETS, MODELS, REPORTED

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
        models = [model for _, found in rows for model in found.values()]
        counted = {key: scale for key, scale in EVALUATIONS.items() if all(key in model["by epoch"] for model in models)}
        drawn.append(_panel(settings, f"evaluations-{dataset}", rows, counted, text))
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


def draw_differences(settings: Settings, found: dict[str, list[Comparison]]) -> list[Figure]:
    """A panel for each data set: accuracy of one model minus that of another, with its two intervals; none for one seed."""
    of_sets: dict[str, list[Comparison]] = {}
    for dataset, all_parts in found.items():
        parts = [each for each in all_parts if each.what == "accuracy" and each.difference.seeds]
        of_sets |= {dataset: parts} if parts else {}
    if not of_sets:
        return []
    most = max(map(len, of_sets.values()))
    figure, axes = figures.new(1, len(of_sets), width=4.6, height=1.3 + 0.4 * most)
    for axis, (dataset, parts) in zip(axes[0], of_sets.items(), strict=True):
        for row, each in enumerate(parts):
            _intervals(axis, row, each, dataset)
        axis.axvline(0, color=figures.BLACK, linewidth=0.8)
        axis.set(yticks=range(len(parts)), yticklabels=[each.names for each in parts], ylim=(len(parts) - 0.5, -0.5))
        axis.set(xlabel="difference of test accuracies (points)")
        axis.set_title(DATASETS[dataset], loc="left")
    figures.legend(figure, axes, columns=2)
    caption = "Test accuracy of one model minus that of another, seed by seed, and the difference of the paper's means."
    return [figures.save(figure, settings.folder, "differences", caption)]


def _intervals(axis: Any, row: int, each: Comparison, dataset: str) -> None:
    """One difference: its intervals beside each other, its mean, and the paper's if it has one."""
    bar = {"linewidth": 3, "solid_capstyle": "butt"}
    axis.plot(each.difference.seeds, [row - 0.1] * 2, color=figures.BLUE, label="95 % over seeds", **bar)
    if each.difference.images:
        axis.plot(each.difference.images, [row + 0.1] * 2, color=figures.ORANGE, label="95 % over test images", **bar)
    point = {"color": figures.BLACK, "linestyle": "none"}
    axis.plot(each.difference.mean, row, marker="o", label="mean over the seeds", **point)
    if DATASETS[dataset] in REPORTED:
        first, second = (ACCURACY[name][REPORTED.index(DATASETS[dataset])][0] for name in (each.first, each.second))
        axis.plot(first - second, row, marker="x", label="the paper's", **point)
