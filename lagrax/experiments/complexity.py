"""What the three adjoints cost as the interval grows: evaluations, memory, time and error for T = nτ."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._adjoint import ContinuousAdjoint, DiscreteAdjoint, PiecewiseAdjoint
from .._adjoint._count import counting
from .._solve import ddesolve
from .._term import DelayTerm
from ..runner import Claim, Experiment, Figure, Numbers, Outcome, Preset, Settings, Table, UsageError, figures, number

ADJOINTS = {"discrete": DiscreteAdjoint(), "continuous": ContinuousAdjoint(), "piecewise": PiecewiseAdjoint()}
DELAY, START, MAX_STEPS = 0.5, (0.0, 1.0), 16384


@dataclasses.dataclass(frozen=True)
class ComplexityNumbers(Numbers):
    lengths: tuple[int, ...] = number((1, 2, 3, 4, 5, 6), "lengths n of the interval, T = nτ")
    repetitions: int = number(31, "times that a gradient is timed, of which the median is taken")

    def check(self) -> None:
        if len(self.lengths) < 2 or tuple(sorted(set(self.lengths))) != self.lengths:
            raise UsageError(f"lengths = {list(self.lengths)}, expected two or more that grow, such as [1, 2, 4]")


QUANTITIES = {
    "backward": "evaluations, backward pass",
    "kept": "numbers kept between passes",
    "seconds": "time of a gradient [s]",
    "error": "relative error of the gradient",
}


def run(settings: Settings[ComplexityNumbers]) -> Outcome:
    random = np.random.default_rng(0)
    weights = tuple(jnp.asarray(random.normal(size=shape) / np.sqrt(shape[1])) for shape in ((10, 2), (2, 10)))
    reference = jax.jit(jax.grad(_loss(settings, ADJOINTS["discrete"], MAX_STEPS), has_aux=True))
    metrics: dict[str, Any] = {name: {} for name in ADJOINTS}
    for n in settings.numbers.lengths:
        begin = time.perf_counter()
        tolerance, t1 = jnp.array(settings.tolerance), jnp.array(n * DELAY)
        exact, _ = reference(weights, tolerance * 1e-4, t1)
        _, stats = reference(weights, tolerance, t1)
        for name in ADJOINTS:
            metrics[name][str(n)] = _measure(settings, name, n, int(stats["num_steps"]), weights, exact)
        settings.say(f"  T = {n} τ: {time.perf_counter() - begin:.1f} s, most of it to compile three gradients")
    return Outcome(metrics, _claims(settings, metrics), [_draw(settings, metrics)], [_table(metrics)], [_NOTE])


def field(t, y, z, weights):
    """The spiral's equation with a network of ten units."""
    return weights[1] @ jnp.tanh(weights[0] @ (y + z))


def _measure(
    settings: Settings[ComplexityNumbers], name: str, n: int, steps: int, weights: Any, exact: Any
) -> dict[str, float]:
    """Both passes of one adjoint, for T = nτ."""
    # Room for just the steps that are taken, so that memory is that of the steps and not of an unused buffer; Algorithm 1
    # stores none, and needs the number as a limit only.
    solve = _loss(settings, ADJOINTS[name], MAX_STEPS if name == "piecewise" else steps)
    loss = lambda weights: solve(weights, settings.tolerance, n * DELAY)
    passes = Passes.of(loss, weights)
    return {
        "forward": passes.stats()["num_evaluations"],
        "backward": backward_evaluations(loss, weights, ADJOINTS[name]),
        "kept": sum(leaf.size for leaf in passes.kept() if eqx.is_inexact_array(leaf)),
        "seconds": _seconds(passes, settings.numbers.repetitions),
        "error": relative_error(passes(), exact),
    }


def _loss(settings: Settings, adjoint: Any, max_steps: int) -> Any:
    """(weights, tolerance, T) -> L(h(T)), and the `stats` of the forward pass."""

    def loss(weights, tolerance, t1):
        solution = ddesolve(
            DelayTerm(field, DELAY),
            settings.solver,
            t0=0.0,
            t1=t1,
            dt0=None,
            history=jnp.array(START),
            args=weights,
            stepsize_controller=dfx.PIDController(rtol=tolerance, atol=tolerance),
            adjoint=adjoint,
            max_steps=max_steps,
        )
        end = jax.tree.map(lambda y: y[-1], solution.ys)
        return jnp.sum((end - 1) ** 2), solution.stats

    return loss


def _seconds(run: Any, repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


# --- one gradient, which the benchmarks measure so too ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Passes:
    """The two passes of a gradient, compiled apart: `loss(args) -> (value, stats)` with the `stats` of its solve."""

    forwards: Callable
    backwards: Callable
    args: Any

    @classmethod
    def of(cls, loss: Callable, args: Any) -> "Passes":
        def forwards(args):
            _, transpose, stats = jax.vjp(loss, args, has_aux=True)
            return transpose, stats

        return cls(jax.jit(forwards), jax.jit(lambda transpose: transpose(jnp.ones(()))[0]), args)

    def __call__(self) -> Any:
        """The gradient."""
        return self.backwards(self.forwards(self.args)[0])

    def kept(self) -> list[jax.Array]:
        """The arrays that wait for the backward pass."""
        return [leaf for leaf in jax.tree.leaves(self.forwards(self.args)[0]) if eqx.is_array(leaf)]

    def stats(self) -> dict[str, int]:
        return {name: int(value) for name, value in self.forwards(self.args)[1].items()}


def backward_evaluations(loss: Callable, args: Any, adjoint: Any) -> int:
    """How often the backward pass evaluates the vector field. Those of the paper's adjoints are counted in a program of its
    own: the callback by which the number leaves it would be timed otherwise."""
    if isinstance(adjoint, DiscreteAdjoint):
        _, stats = jax.jit(loss)(args)
        return int(stats["num_accepted_steps"] * stats["num_stages"])
    with counting() as found:
        jax.block_until_ready(jax.jit(jax.grad(lambda args: loss(args)[0]))(args))
    return found[-1]


def relative_error(found: Any, exact: Any) -> float:
    flat = lambda tree: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
    return float(np.linalg.norm(flat(found) - flat(exact)) / np.linalg.norm(flat(exact)))


# --- what it says of the paper ----------------------------------------------------------------------------------------


def growth(rows: Mapping[str, Mapping[str, float]], key: str) -> float:
    """The exponent p of a power law nᵖ, by least squares on logarithms, without the shortest interval."""
    chosen = list(rows.items())[1:]
    return float(np.polyfit(np.log([int(n) for n, _ in chosen]), np.log([row[key] for _, row in chosen]), 1)[0])


def _claims(settings: Settings[ComplexityNumbers], metrics: dict[str, Any]) -> list[Claim]:
    lengths = settings.numbers.lengths
    comparable = len(lengths) >= 3
    kept = [metrics["piecewise"][str(n)]["kept"] for n in lengths]
    slope = [(b - a) / (m - k) for k, m, a, b in zip(lengths[:-1], lengths[1:], kept[:-1], kept[1:], strict=True)]
    saved = [metrics["discrete"][str(n)]["kept"] / metrics["piecewise"][str(n)]["kept"] for n in lengths]
    dde, own = (growth(metrics[name], "backward") if comparable else float("nan") for name in ("discrete", "piecewise"))
    return [
        Claim(
            "Algorithm 1 is memory efficient, O(n): only h(0), …, h(nτ) are stored.",
            f"Every further delay length adds {max(slope):g} numbers or less to what it keeps between the passes; a "
            f"state has {len(START)}.",
            max(slope) <= len(START) if comparable else None,
        ),
        Claim(
            "Other DDE solvers store the history states, O(H).",
            f"Keeping the steps takes {saved[0]:.1f} times (n = {lengths[0]}) to {saved[-1]:.1f} times (n = {lengths[-1]}) "
            "the numbers that Algorithm 1 keeps.",
            min(saved) > 1,
        ),
        Claim(
            "The growing dimension of its augmented ODE may lead to heavy time cost.",
            f"Its backward evaluations of f grow as n^{own:.1f}, those of the discrete adjoint as n^{dde:.1f}."
            if comparable
            else "Two lengths are too few for a rate.",
            own > dde + 0.5 if comparable else None,
        ),
    ]


_NOTE = (
    "Evaluations are of f, or of its derivative, for one piece of the solution; the augmented equation of Algorithm 1 takes "
    "several per step. Numbers kept are those of the transposed solve, parameters included, with room "
    "for just the steps that are taken. Errors are against the discrete gradient at a tolerance 10⁴ times smaller."
)


def _table(metrics: dict[str, Any]) -> Table:
    rows = [
        (name, n, f"{row['forward']:,}", f"{row['backward']:,}", f"{row['kept']:,}", f"{row['seconds'] * 1e3:.2f} ms",
         f"{row['error']:.0e}")
        for name, lengths in metrics.items()
        for n, row in lengths.items()
    ]  # fmt: skip
    columns = ("adjoint", "T/τ", "evaluations forward", "backward", "numbers kept", "time", "gradient error")
    return Table("One gradient of L(h(T))", columns, rows)


def _draw(settings: Settings[ComplexityNumbers], metrics: dict[str, Any]) -> Figure:
    figure, axes = figures.new(2, 2, width=3.8, height=2.8, sharex=True)
    lengths = settings.numbers.lengths
    for axis, (key, label) in zip(axes.flat, QUANTITIES.items(), strict=True):
        for name, rows in metrics.items():
            values = [rows[str(n)][key] for n in lengths]
            # Dashed and hollow, so that curves which coincide are both seen.
            look = {"linestyle": "--", "markerfacecolor": "none", "markersize": 8} if name == "continuous" else {}
            axis.plot(lengths, values, color=figures.COLOURS[name], marker=figures.MARKERS[name], label=name, **look)
        axis.set(yscale="linear" if key == "kept" else "log", ylabel=label)
        axis.set_xticks(lengths)
    axes[0, 1].set_ylim(bottom=0)
    for axis in axes[1]:
        axis.set_xlabel("T/τ")
    figures.legend(figure, axes[0, 0])
    caption = (
        "Cost of one gradient as the interval grows, for the exact gradient of the steps (discrete), Theorem 1 (continuous) "
        "and Algorithm 1 (piecewise)."
    )
    return figures.save(figure, settings.folder, "complexity", caption)


EXPERIMENT = Experiment(
    name="complexity",
    title="The cost of the three adjoints",
    about="Measures evaluations, memory, time and error of a gradient by the discrete adjoint, by Theorem 1 and by "
    "Algorithm 1, for T = nτ with growing n, beside the complexity analysis in the paper's appendix.",
    presets={
        "smoke": Preset(ComplexityNumbers((1, 2), 2), solver="bosh3", tolerance=1e-4, takes="20 s"),
        "default": Preset(ComplexityNumbers(repetitions=11), takes="3 min"),
        "paper": Preset(ComplexityNumbers(), takes="3 min"),
    },
    run=run,
    x64=True,
)
