"""Two trajectories that cross: x'(t) = −2 x(t − τ) from ±1, with and without a delay."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from ..nn import NeuralDDE, NeuralODE
from ..runner import Claim, Experiment, Figure, Numbers, Outcome, Preset, Settings, Table, figures, number

STARTS = (-1.0, 1.0)


@dataclasses.dataclass(frozen=True)
class CrossingNumbers(Numbers):
    t1: float = number(1.0, "end of the trajectories", least=1, most=1000)
    points: int = number(201, "times at which they are drawn", least=2, most=10**6)


def run(settings: Settings[CrossingNumbers]) -> Outcome:
    t1 = settings.numbers.t1
    ts = np.linspace(0, t1, settings.numbers.points)
    shared = {"t1": t1, **settings.solving}
    ode = NeuralODE(lambda t, x, past, args: -2 * x, **shared)
    dde = NeuralDDE(lambda t, x, past, args: -2 * past, 1.0, **shared)
    paths = {name: np.asarray(model.sequence(jnp.asarray(ts), jnp.asarray(STARTS))) for name, model in _named(ode, dde)}
    at_one = {name: [float(np.interp(1.0, ts, path[:, i])) for i in range(2)] for name, path in paths.items()}
    gaps = {name: path[:, 1] - path[:, 0] for name, path in paths.items()}
    metrics = {
        name: {"x(1) from -1": low, "x(1) from 1": high, "smallest gap": float(gaps[name].min())}
        for name, (low, high) in at_one.items()
    }
    rows = [(name, *(f"{value:+.6f}" for value in values.values())) for name, values in metrics.items()]
    table = Table("x'(t) = −2 x(t − τ)", ("equation", "x(1) from −1", "x(1) from 1", "smallest gap"), rows)
    return Outcome(metrics, _claims(at_one, gaps), [_draw(settings, ts, paths)], [table])


def _named(ode: NeuralODE, dde: NeuralDDE):
    return [("ODE, τ = 0", ode), ("DDE, τ = 1", dde)]


def _claims(at_one: dict[str, list[float]], gaps: dict[str, np.ndarray]) -> list[Claim]:
    (ode, dde), (ode_gap, dde_gap) = at_one.values(), gaps.values()
    swapped = lambda ends: bool(np.allclose(ends, [-start for start in STARTS], atol=1e-3))
    return [
        Claim(
            "With τ = 1 the flow maps −1 to 1 and 1 to −1, along trajectories that intersect.",
            f"x(1) = {dde[0]:+.5f} and {dde[1]:+.5f}; their difference changes its sign: {_yes(dde_gap.min() < 0)}.",
            swapped(dde) and bool(dde_gap.min() < 0),
        ),
        Claim(
            "The ODE cannot: its trajectories do not intersect.",
            f"x(1) = {ode[0]:+.5f} and {ode[1]:+.5f}; the smallest distance between the two is {ode_gap.min():.3f}.",
            not swapped(ode) and bool(ode_gap.min() > 0),
        ),
    ]


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _draw(settings: Settings, ts: np.ndarray, paths: dict[str, np.ndarray]) -> Figure:
    figure, axes = figures.new(1, 2, sharey=True)
    for axis, (name, path) in zip(axes[0], paths.items(), strict=True):
        for column, start, colour in zip(path.T, STARTS, (figures.BLUE, figures.RED), strict=True):
            past = -1.0 if "DDE" in name else 0.0
            axis.plot([past, 0], [start, start], color=colour, linestyle=":", label=None)
            axis.plot(ts, column, color=colour, label=f"x(0) = {start:g}".replace("-", "−"))
            axis.plot(0, start, "o", color=colour)
            axis.plot(1, np.interp(1.0, ts, column), ">", color=colour)
        axis.set(title=name, xlabel="time t", xlim=(-1.08, float(ts[-1]) + 0.08), xticks=(-1, -0.5, 0, 0.5, 1))
    axes[0, 0].set_ylabel("x(t)")
    figures.legend(figure, axes[0, 0])
    caption = (
        "Left: the trajectories of x' = −2x from −1 and 1 keep apart. Right: those of x' = −2x(t − 1) intersect, and map −1 "
        "to 1 and 1 to −1 at t = 1. Dotted: the initial function."
    )
    return figures.save(figure, settings.folder, "crossing", caption)


EXPERIMENT = Experiment(
    name="crossing",
    title="Trajectories that intersect",
    about="Solves x'(t) = −2 x(t − τ) from −1 and from 1, with τ = 1 and τ = 0. In one dimension trajectories of an ODE "
    "keep their order; those of a delay equation may cross, so that it represents x ↦ −x.",
    presets={name: Preset(CrossingNumbers()) for name in ("smoke", "default", "paper")},
    run=run,
)
