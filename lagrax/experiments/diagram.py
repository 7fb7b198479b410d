"""The sketch of NODE and NDDE as feature extractors, drawn over solutions of two small equations."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..nn import NeuralDDE, NeuralODE
from ..runner import Experiment, Figure, Numbers, Outcome, Preset, Settings, figures, number

DELAY, END, START = 1.0, 2.6, 1.0


@dataclasses.dataclass(frozen=True)
class DiagramNumbers(Numbers):
    points: int = number(201, "times at which the trajectories are drawn", least=2, most=10**6)


def run(settings: Settings[DiagramNumbers]) -> Outcome:
    ts = np.linspace(0, END, settings.numbers.points)
    shared = {"t1": END, **settings.solving}
    models = {
        "NODE": NeuralODE(lambda t, h, past, args: -0.9 * h, **shared),
        "NDDE": NeuralDDE(lambda t, h, past, args: -1.3 * past, DELAY, **shared),
    }
    paths = {name: np.asarray(model.sequence(jnp.asarray(ts), jnp.array([START])))[:, 0] for name, model in models.items()}
    metrics = {name: {"h(T)": float(path[-1])} for name, path in paths.items()}
    return Outcome(metrics, [], [_draw(settings, ts, paths)], [], ["A sketch: it carries no statement to be checked."])


def _draw(settings: Settings, ts: np.ndarray, paths: dict[str, np.ndarray]) -> Figure:
    figure, axes = figures.new(2, 1, width=8.0, height=2.7)
    for axis, (name, path) in zip(axes[:, 0], paths.items(), strict=True):
        _frame(axis, name)
        _trajectory(axis, ts, path, name)
        _head(axis, float(path[-1]))
    caption = (
        "The neural ODE starts from the initial value h(0), the neural delay equation from the initial function φ(t) on "
        "[−τ, 0]. Both act as feature extractors: a following layer processes the feature h(T), with a given loss function."
    )
    return figures.save(figure, settings.folder, "diagram", caption)


def _frame(axis: Any, name: str) -> None:
    """A bare time axis with the equation above it."""
    axis.set(xlim=(-2.6, 7.2), ylim=(-1.75, 1.9))
    axis.axis("off")
    axis.annotate("", (END + 0.55, -1.35), (-1.35, -1.35), arrowprops=_arrow(figures.BLACK))
    axis.text(END + 0.62, -1.35, "t", va="center")
    marks = {0.0: "0", END: "T"} | ({-DELAY: "−τ"} if name == "NDDE" else {})
    for time, label in marks.items():
        axis.plot([time, time], [-1.42, -1.28], color=figures.BLACK, linewidth=1)
        axis.text(time, -1.7, label, ha="center", va="center")
    equation = "h′(t) = f(h(t), t; w)" if name == "NODE" else "h′(t) = f(h(t), h(t − τ), t; w)"
    axis.text(1.35, 1.62, f"{name}:  {equation}", ha="center", va="center", color=figures.COLOURS[name], fontsize=11)


def _trajectory(axis: Any, ts: np.ndarray, path: np.ndarray, name: str) -> None:
    colour = figures.COLOURS[name]
    axis.plot(ts, path, color=colour, linewidth=2.2)
    axis.plot(ts[-1], path[-1], "o", color=colour, markersize=7)
    if name == "NODE":
        axis.plot(0, START, "o", color=colour, markersize=7)
        axis.text(-0.12, START + 0.28, "initial value h(0)", ha="right", va="center")
        _input(axis, -0.12)
    else:
        axis.plot([-DELAY, 0], [START, START], color=figures.BLACK, linewidth=3.4, solid_capstyle="round")
        axis.text(-DELAY / 2, START + 0.28, "initial function φ(t)", ha="center", va="center")
        _input(axis, -DELAY - 0.1)
        _look_back(axis, ts, path)


def _input(axis: Any, end: float) -> None:
    _box(axis, -2.1, START, "input\nx", 0.8)
    axis.annotate("", (end, START), (-1.68, START), arrowprops=_arrow(figures.BLACK))


def _look_back(axis: Any, ts: np.ndarray, path: np.ndarray) -> None:
    """An arrow from a past state to the present one whose slope depends on it."""
    now = 1.75
    past, present = float(np.interp(now - DELAY, ts, path)), float(np.interp(now, ts, path))
    axis.plot([now - DELAY, now], [past, present], "o", color=figures.BLACK, markersize=4)
    curve = {**_arrow(figures.BLACK), "connectionstyle": "arc3,rad=-0.45", "linestyle": "--"}
    axis.annotate("", (now, present), (now - DELAY, past), arrowprops=curve)
    axis.text(now - DELAY - 0.1, past - 0.05, "h(t − τ)", ha="right", va="top", fontsize=9)
    axis.text(now, present - 0.13, "h(t)", ha="center", va="top", fontsize=9)


def _head(axis: Any, end: float) -> None:
    """From the feature h(T) to the layer and the loss."""
    axis.text(END + 0.05, end + 0.3, "feature h(T)", ha="center", va="center")
    axis.annotate("", (4.3, 0.2), (END + 0.14, end), arrowprops=_arrow(figures.BLACK))
    _box(axis, 4.85, 0.2, "layer", 1.1)
    axis.annotate("", (5.95, 0.2), (5.4, 0.2), arrowprops=_arrow(figures.BLACK))
    _box(axis, 6.5, 0.2, "loss L", 1.1)


def _box(axis: Any, x: float, y: float, text: str, width: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = (x - width / 2 + 0.05, y - 0.3), width - 0.1, 0.6
    axis.add_patch(FancyBboxPatch(*shape, boxstyle="round,pad=0.05", facecolor="#f3f5f8", edgecolor=figures.BLACK))
    axis.text(x, y, text, ha="center", va="center", linespacing=1.1)


def _arrow(colour: str) -> dict[str, Any]:
    return {"arrowstyle": "-|>", "color": colour, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}


EXPERIMENT = Experiment(
    name="diagram",
    title="NODE and NDDE as feature extractors",
    about="The sketch that introduces the two models: from an initial value or an initial function along a trajectory to a "
    "feature, which a layer and a loss function process.",
    presets={name: Preset(DiagramNumbers()) for name in ("smoke", "default", "paper")},
    run=run,
)
