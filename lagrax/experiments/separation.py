"""Proposition 1 in two dimensions: a delay equation that makes a disc and the ring around it linearly separable."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.optimize import linprog

from ..nn import separating_dde
from ..runner import (
    Claim,
    Experiment,
    Figure,
    Numbers,
    Outcome,
    Preset,
    Settings,
    Table,
    UsageError,
    figures,
    number,
    of_seeds,
)


@dataclasses.dataclass(frozen=True)
class SeparationNumbers(Numbers):
    r1: float = number(1.0, "radius of the disc")
    r2: float = number(2.0, "inner radius of the ring")
    r3: float = number(3.0, "outer radius of the ring")
    t1: float = number(10.0, "time T = τ at which the features are taken")
    inner: int = number(400, "points in the disc")
    outer: int = number(800, "points in the ring")

    def check(self) -> None:
        if not self.r1 < self.r2 <= self.r3:
            given = f"{self.r1:g}, {self.r2:g}, {self.r3:g}"
            raise UsageError(f"r1, r2, r3 = {given}, expected r1 < r2 ≤ r3: a disc and a ring around it")


class Line(NamedTuple):
    """w·x + b = 0, and how well it separates: the share of points on their side, and the gap between the classes in the
    direction of w, 0 if they overlap."""

    w: np.ndarray
    b: float
    right: float
    gap: float


def run(settings: Settings[SeparationNumbers]) -> Outcome:
    numbers = settings.numbers
    model = separating_dde(numbers.r1, numbers.r2, numbers.t1)
    model = dataclasses.replace(model, **settings.solving)
    solve = eqx.filter_jit(model)
    found: dict[str, list[Line]] = {"before": [], "after": []}
    for seed in range(settings.seeds):
        radii = (numbers.r1, numbers.r2, numbers.r3)
        drawn, is_inner = draw_points(jr.key(seed), numbers.inner, numbers.outer, radii)
        inner = np.asarray(is_inner)
        points, moved = (np.asarray(x, np.float64) for x in (drawn, solve(drawn)))
        for when, x in (("before", points), ("after", moved)):
            found[when].append(best_line(x, inner))
        if seed == 0:
            first = {"before": points, "after": moved}
            figure = _draw(settings, first, inner, {when: lines[0] for when, lines in found.items()})
    metrics = {
        when: {
            "share on the right side": of_seeds(line.right for line in lines),
            "gap": of_seeds(line.gap for line in lines),
        }
        for when, lines in found.items()
    }
    rows = [
        (when, f"{values['share on the right side']['median']:.1%}", f"{values['gap']['median']:.3f}")
        for when, values in metrics.items()
    ]
    table = Table("The best straight line", ("data", "points on their side", "gap between the classes"), rows)
    return Outcome(metrics, [_claim(settings, found)], [figure], [table])


def draw_points(
    key: Array, inner: int, outer: int, radii: tuple[float, float, float]
) -> tuple[Float[Array, "points 2"], Bool[Array, " points"]]:
    """Points uniform in the disc of radius r₁, then in the ring from r₂ to r₃; and which are in the disc."""
    r1, r2, r3 = radii
    radius_key, angle_key = jr.split(key)
    is_inner = jnp.arange(inner + outer) < inner
    low, high = jnp.where(is_inner, 0.0, r2), jnp.where(is_inner, r1, r3)
    radius = jnp.sqrt(low**2 + jr.uniform(radius_key, is_inner.shape) * (high**2 - low**2))
    angle = jr.uniform(angle_key, is_inner.shape, maxval=2 * jnp.pi)
    return radius[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1), is_inner


def best_line(points: np.ndarray, inner: np.ndarray) -> Line:
    """Minimises Σ ξ with ±(w·x + b) ≥ 1 − ξ, ξ ≥ 0: a linear programme whose value is 0 just if a line separates them."""
    count, size = points.shape
    side = np.where(inner, -1.0, 1.0)
    rows = -side[:, None] * np.concatenate([points, np.ones((count, 1))], axis=1)
    cost = np.concatenate([np.zeros(size + 1), np.ones(count)])
    bounds = [(None, None)] * (size + 1) + [(0, None)] * count
    solution = linprog(cost, A_ub=np.concatenate([rows, -np.eye(count)], axis=1), b_ub=-np.ones(count), bounds=bounds).x
    w, b = solution[:size], float(solution[size])
    values = points @ w + b
    gap = values[~inner].min() - values[inner].max()
    return Line(w, b, float(np.mean(values * side > 0)), float(gap / np.linalg.norm(w)) if gap > 0 else 0.0)


def _claim(settings: Settings, found: dict[str, list[Line]]) -> Claim:
    separated = [line.right == 1 and line.gap > 0 for line in found["after"]]
    before = max(line.right for line in found["before"])
    gap = min(line.gap for line in found["after"])
    return Claim(
        "The data are not linearly separable at t = 0, and the special NDDE with T = τ = 10 makes them so.",
        f"Before, no straight line separates them (the one of least hinge loss has {before:.1%} on their side); after, one "
        f"does in {sum(separated)} of {settings.seeds} samples, with a gap of at least {gap:.2f}.",
        all(separated) and before < 1,
    )


def _draw(
    settings: Settings[SeparationNumbers], data: dict[str, np.ndarray], inner: np.ndarray, lines: dict[str, Line]
) -> Figure:
    figure, axes = figures.new(1, 2, width=4.2, height=3.4)
    titles = {"before": "data, t = 0", "after": f"transformed data, t = T = {settings.numbers.t1:g}"}
    for axis, (when, points) in zip(axes[0], data.items(), strict=True):
        for chosen, name, label in ((~inner, "outer", "g(x) = −1, the ring"), (inner, "inner", "g(x) = 1, the disc")):
            axis.scatter(*points[chosen].T, s=9, color=figures.COLOURS[name], label=label, linewidths=0)
        axis.set(title=titles[when], xlabel="h₁")
    w, b = lines["after"].w, lines["after"].b
    height = np.array(axes[0, 1].get_ylim())
    axes[0, 1].plot(-(b + w[1] * height) / w[0], height, color=figures.BLACK, linestyle="--", label="separating line")
    axes[0, 0].set_ylabel("h₂")
    axes[0, 0].set_aspect("equal")
    figures.legend(figure, axes)
    caption = (
        "Left: the data. Right: after h₁' = ‖h(t − τ)‖ − r, h₂' = 0 with T = τ: every point has moved along the first axis "
        "by how far out it started, and a straight line separates the classes."
    )
    return figures.save(figure, settings.folder, "separation", caption)


EXPERIMENT = Experiment(
    name="separation",
    title="Proposition 1: a disc and a ring made separable",
    about="A neural ODE in the plane cannot pull a disc out of the ring around it. The delay equation that Proposition 1 "
    "constructs does; whether a straight line then separates the two is decided by a linear programme.",
    presets={
        "smoke": Preset(SeparationNumbers(inner=60, outer=120)),
        "default": Preset(SeparationNumbers(), seeds=5),
        "paper": Preset(SeparationNumbers(), seeds=5),
    },
    run=run,
)
