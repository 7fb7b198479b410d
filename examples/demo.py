"""Learn a delay from noisy data, and draw a chaotic attractor: `python -m examples.demo`, or `make example`.

The population in a closed habitat follows Hutchinson's equation, y' = r y (1 − y(t − τ)): it grows at the rate r, and feels
today the crowding of τ days ago. From 60 noisy counts this program learns both r and τ, by following the exact gradient
of the solution with respect to the delay. It ends with the attractor of the Mackey–Glass equation and one figure,
`out/demo.png`. Press Ctrl-C at any time: what has been found so far is drawn.
"""

import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from matplotlib.collections import LineCollection

import lagrax as lx

from .looks import BLUE, GREEN, GREY, LOOKS, ORANGE, plt

jax.config.update("jax_enable_x64", True)

OUT = Path("out")
NAMES = ("r", "τ")
UNITS = ("per day", "days")
TRUE = np.array([1.5, 1.2])
START = 0.6 * TRUE
DAYS = 20.0
NOISE = 0.1
OBSERVED = jnp.linspace(0.0, DAYS, 61)[1:]
FINE = jnp.linspace(0.0, DAYS, 601)
ITERATIONS = 200


# Hutchinson's equation, and what is to be learned in it.


def hutchinson(t, y, delayed, r):
    return r * y * (1 - delayed)


@eqx.filter_jit
def population(raw: Float[Array, "2"], ts: Float[Array, " times"], adjoint: Any) -> Float[Array, " times"]:
    """The population at `ts`. `raw` holds log r and log τ, so that no step of the optimiser makes either negative."""
    r, delay = jnp.exp(raw)
    solution = lx.ddesolve(
        lx.DelayTerm(hutchinson, delay),
        dfx.Tsit5(),
        t0=0.0,
        t1=DAYS,
        dt0=None,
        history=0.5,
        args=r,
        saveat=dfx.SaveAt(ts=ts),
        stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8),
        adjoint=adjoint,
        max_steps=1024,
    )
    return solution.ys


def loss(raw: Float[Array, "2"], counts: Float[Array, " times"]) -> Float[Array, ""]:
    return jnp.mean((population(raw, OBSERVED, lx.DiscreteAdjoint()) - counts) ** 2)


def learn(counts: Float[Array, " times"], path: list[np.ndarray]) -> None:
    """Adam on the loss. Appends (r, τ) after every iteration to `path`, which is whole whenever this is interrupted."""
    optimiser = optax.adam(0.02)

    @eqx.filter_jit
    def iterate(raw, state):
        value, gradient = jax.value_and_grad(loss)(raw, counts)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(raw, updates), state, value

    raw = jnp.log(path[-1])
    state = optimiser.init(raw)
    iterate(raw, state)  # compiles, so that the clock of the progress line measures iterations
    progress = Progress(ITERATIONS)
    for _ in range(ITERATIONS):
        raw, state, value = iterate(raw, state)
        path.append(np.exp(raw))
        r, delay = path[-1]
        progress.step(f"loss {value:.5f}  r {r:.3f}  τ {delay:.3f}")


def standard_errors(raw: Float[Array, "2"]) -> np.ndarray:
    """How far (r, τ) may be off because the counts are noisy: linearised least squares, NOISE² (JᵀJ)⁻¹."""
    curve = lambda raw: population(raw, OBSERVED, lx.ForwardMode())
    jacobian = np.asarray(jax.jacfwd(curve)(raw))
    return np.exp(raw) * NOISE * np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))


# The Mackey–Glass equation, whose attractor for a delay of 17 is a classic of chaos.


def mackey_glass(t, y, delayed, args):
    return 0.2 * delayed / (1 + delayed**10) - 0.1 * y


def attractor(delay: float = 17.0, t1: float = 2500.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y(t), y(t − τ) and y(t − 2τ) along a solution that has forgotten how it started."""
    solution = lx.ddesolve(
        lx.DelayTerm(mackey_glass, delay),
        dfx.Tsit5(),
        t0=0.0,
        t1=t1,
        dt0=None,
        history=1.2,
        saveat=dfx.SaveAt(dense=True),
        stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8),
    )
    ts = jnp.linspace(500.0, t1, 6001)
    now, once, twice = jax.jit(jax.vmap(jax.vmap(solution.evaluate)))(ts - delay * jnp.arange(3.0)[:, None])
    return np.asarray(now), np.asarray(once), np.asarray(twice)


# What the user sees.


class Progress:
    """One line of progress, rewritten ten times a second in a terminal and printed ten times in all anywhere else."""

    def __init__(self, total: int):
        self.total, self.done, self.start, self.shown = total, 0, time.perf_counter(), -np.inf

    def step(self, message: str) -> None:
        self.done += 1
        now, live, last = time.perf_counter(), sys.stdout.isatty(), self.done == self.total
        due = now - self.shown > 0.1 if live else self.done % max(self.total // 10, 1) == 0
        if not (due or last):
            return
        self.shown, rate = now, self.done / (now - self.start)
        left = (self.total - self.done) / rate
        speed = f"{rate:.{int(rate < 10)}f} it/s  {left:.1f} s left"
        line = f"  {self.done:>{len(str(self.total))}}/{self.total}  {message}  {speed}"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{line[:width]:<{width}}" if live else line, end="" if live and not last else "\n", flush=True)


def table(learned: np.ndarray, errors: np.ndarray | None) -> str:
    lines = [f"  {'':<12}{'true':>8}{'start':>9}{'learned':>10}{'± s.e.':>9}{'error':>9}"]
    for i, (name, unit) in enumerate(zip(NAMES, UNITS, strict=True)):
        spread = "" if errors is None else f"{errors[i]:.3f}"
        off = f"{100 * (learned[i] / TRUE[i] - 1):+.2f} %"
        label = f"{name} [{unit}]"
        lines.append(f"  {label:<12}{TRUE[i]:>8.3f}{START[i]:>9.3f}{learned[i]:>10.3f}{spread:>9}{off:>9}")
    return "\n".join(lines)


def draw(counts: np.ndarray, path: list[np.ndarray], chaos: tuple[np.ndarray, ...] | None) -> Path:
    """Everything found so far on one page: `out/demo.png` and `out/demo.pdf`."""
    with plt.rc_context(LOOKS | {"axes.titlepad": 10, "figure.constrained_layout.h_pad": 0.12}):
        figure = plt.figure(figsize=(10, 7.4))
        panels = figure.subplot_mosaic([["fit", "fit"], ["delay", "chaos"]], width_ratios=[1.3, 1], height_ratios=[1, 1.15])
        _draw_fit(panels["fit"], counts, path)
        _draw_learning(panels["delay"], np.array(path))
        _draw_attractor(panels["chaos"], chaos)
        OUT.mkdir(exist_ok=True)
        figure.savefig(OUT / "demo.pdf")
        figure.savefig(OUT / "demo.png")
        plt.close(figure)
    return OUT / "demo.png"


def _draw_fit(axes, counts, path):
    curve = lambda values: population(jnp.log(values), FINE, lx.DiscreteAdjoint())
    axes.plot(FINE, curve(path[0]), color=ORANGE, lw=1.8, ls="--", label="before learning")
    axes.plot(FINE, curve(path[-1]), color=BLUE, lw=2.2, label="after learning")
    axes.plot(OBSERVED, counts, "o", color="black", ms=4, label="noisy counts", zorder=3, clip_on=False)
    axes.set(title="Hutchinson’s equation  $y' = r\\,y\\,(1 - y(t-τ))$", xlim=(0, DAYS), ylim=(0, None))
    axes.set(xlabel="time $t$ [days]", ylabel="population $y$ [carrying capacity]")
    axes.set_xticks(np.arange(0, DAYS + 1, 2))
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.3, columnspacing=1.5, handletextpad=0.5)


def _draw_learning(axes, path):
    for i, colour in ((0, GREEN), (1, BLUE)):
        axes.axhline(TRUE[i], color=colour, lw=1, ls=":")
        axes.plot(path[:, i], color=colour, lw=2.2)
        axes.annotate(
            f"learned ${NAMES[i]}$ = {path[-1, i]:.3f} {UNITS[i]}",
            (ITERATIONS, TRUE[i]),
            xytext=(0, 6),
            textcoords="offset points",
            ha="right",
            va="bottom",
            color=colour,
        )
    axes.set(title="Learning the delay and the growth rate", xlim=(0, ITERATIONS), ylim=(0.6, 1.8))
    axes.set(xlabel="iterations of Adam", ylabel="$τ$ [days],  $r$ [per day]")
    axes.text(0.98, 0.04, "dotted: the hidden values", transform=axes.transAxes, ha="right", color=GREY)


def _draw_attractor(axes, chaos):
    axes.set(title="Mackey–Glass attractor,  $τ = 17$", xlabel="$y(t - τ)$ [–]", ylabel="$y(t)$ [–]")
    axes.set_aspect("equal", anchor="E")
    if chaos is None:
        axes.text(0.5, 0.5, "not computed (interrupted)", transform=axes.transAxes, ha="center", color=GREY)
        return
    now, once, twice = chaos
    points = np.stack([once, now], axis=1)
    segments = np.stack([points[:-1], points[1:]], axis=1)
    lines = LineCollection(segments, array=twice[1:], cmap="viridis", lw=0.6, rasterized=True)
    axes.add_collection(lines)
    axes.set(xlim=(0.3, 1.4), ylim=(0.3, 1.4), xticks=np.arange(0.4, 1.5, 0.2), yticks=np.arange(0.4, 1.5, 0.2))
    bar = axes.figure.colorbar(lines, cax=axes.inset_axes((0.08, 0.2, 0.3, 0.03)), orientation="horizontal")
    bar.set_label("$y(t - 2τ)$ [–]")
    bar.set_ticks([0.5, 1.0])
    bar.outline.set_visible(False)


def main() -> None:
    print("Hutchinson's equation: making noisy counts with hidden r and τ …", flush=True)
    curve = population(jnp.log(TRUE), OBSERVED, lx.DiscreteAdjoint())
    counts = np.asarray(curve + NOISE * jax.random.normal(jax.random.key(0), curve.shape))
    path, errors, chaos = [START], None, None
    try:
        print(f"Learning both from {len(counts)} counts (compiling takes a few seconds) …", flush=True)
        learn(counts, path)
        errors = standard_errors(jnp.log(path[-1]))
        assert np.all(np.abs(path[-1] - TRUE) < 4 * errors)
        print("Solving the Mackey–Glass equation …", flush=True)
        chaos = attractor()
    except KeyboardInterrupt:
        print(f"\nInterrupted after {len(path) - 1} iterations: drawing what there is …", flush=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # drawing takes seconds, and another Ctrl-C must not lose the figure
    print(f"\n{table(path[-1], errors)}\n", flush=True)
    print(f"Figure: {draw(counts, path, chaos)} (and .pdf)")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted before there was anything to draw.")
