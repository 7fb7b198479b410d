"""A two-dimensional series with delay, fitted by a neural ODE and a neural DDE (the paper's spiral)."""

import dataclasses
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._solve import ddesolve
from .._term import DelayTerm
from ..nn import AbstractModel, Form, MLPField, NeuralDDE, NeuralODE
from ..runner import Claim, Experiment, Outcome, Preset, Settings, Table, figures, number, of_seeds, range_of
from ..train import Fit, unstack
from ._training import (
    FitNumbers,
    Series,
    evaluations_at_end,
    judged,
    median_seed,
    plot_band,
    predict,
    ranges_table,
    repeat,
    smooth,
    train,
)

DELAY, T1 = 0.5, 2.5
MATRIX = ((-1.0, 1.0), (-1.0, -1.0))
START = (0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class SpiralNumbers(FitNumbers):
    iterations: int = number(5000, "updates of Adam")
    sampling: float = number(0.1, "time between two observations", least=1e-4, most=T1)
    snapshots: int = number(100, "models kept during training")
    max_steps: int = number(64, "steps of a solve, at most")


def observe(sampling: float) -> Series:
    """x' = A tanh(x(t) + x(t - τ)), x = (0, 1) for t ≤ 0, every `sampling` up to t = 2.5."""
    ts = jnp.linspace(0, T1, 1 + round(T1 / sampling))
    matrix = jnp.array(MATRIX)
    term = DelayTerm(lambda t, y, z, args: matrix @ jnp.tanh(y + z), DELAY)
    exact = dfx.PIDController(rtol=1e-6, atol=1e-6)
    past = jnp.array(START)
    solution = ddesolve(term, dfx.Tsit5(), 0.0, T1, None, past, saveat=dfx.SaveAt(ts=ts), stepsize_controller=exact)
    ys: Any = solution.ys
    return Series(ts, ys)


def makers(settings: Settings[SpiralNumbers]) -> dict[str, Any]:
    """W_out tanh(W_in x) and W_out tanh(W_in (x(t) + x(t - τ))); the paper's formulas have no biases."""
    numbers = settings.numbers
    shared = {"t1": T1, "max_steps": numbers.max_steps, **settings.stepping}
    net: dict[str, Any] = {"width": 10, "depth": 1, "use_bias": numbers.biases}

    def node(key: jax.Array) -> AbstractModel:
        return NeuralODE(MLPField(2, form=Form.CURRENT, key=key, **net), **shared)

    def ndde(key: jax.Array) -> AbstractModel:
        return NeuralDDE(MLPField(2, form=Form.SUM, key=key, **net), DELAY, **shared)

    return {"NDDE": ndde, "NODE": node}


def run(settings: Settings[SpiralNumbers]) -> Outcome:
    series = observe(settings.numbers.sampling)
    fits = train(settings, makers(settings), repeat(series, settings.seeds))
    measured = {name: measure(fitted, series) for name, fitted in fits.items()}
    drawn = [draw_fits(settings, fits, measured, series), draw_evaluations(settings, fits)]
    return Outcome(measured, claims(settings, measured), drawn, [table(measured)], notes(settings, measured))


def measure(fitted: Fit, series: Series) -> dict[str, Any]:
    """Final errors of each seed, over both components and of each, and the number of evaluations at the end."""
    xs, _ = eqx.filter_jit(eqx.filter_vmap(lambda model: predict(model, series.ts, series.xs[0])))(fitted.model)
    errors = np.abs(np.asarray(xs - series.xs))
    return {
        "MAE": of_seeds(errors.mean(axis=(1, 2))),
        "lowest MAE": of_seeds(np.nanmin(fitted.history["loss"], axis=0)),
        "MAE of x1": of_seeds(errors[:, :, 0].mean(axis=1)),
        "MAE of x2": of_seeds(errors[:, :, 1].mean(axis=1)),
        **evaluations_at_end(fitted, 100),
        "seconds": fitted.seconds,
    }


def claims(settings: Settings, measured: dict[str, Any]) -> list[Claim]:
    node, ndde = measured["NODE"], measured["NDDE"]
    prefers = np.median(np.array(node["MAE of x1"]["seeds"]) / np.array(node["MAE of x2"]["seeds"]))
    return [
        Claim(
            "The NDDE approaches a much lower loss than the NODE.",
            "MAE, median (lowest – highest): "
            + ", ".join(f"{name} {range_of(measured[name]['MAE'])}" for name in measured)
            + ".",
            judged(settings, ndde["MAE"]["median"] < node["MAE"]["median"]),
        ),
        Claim(
            "The NODE's loss always stays at a larger value, e.g. 0.25.",
            f"Lowest MAE that any NODE seed reached: {node['lowest MAE']['min']:.3g}; median of the lowest "
            f"{node['lowest MAE']['median']:.3g}.",
            judged(settings, node["lowest MAE"]["min"] > 0.2),
        ),
        Claim(
            "The NODE prefers to fit x₂.",
            f"Its errors are {node['MAE of x1']['median']:.3g} in x₁ and {node['MAE of x2']['median']:.3g} in x₂ (medians); "
            f"median ratio {prefers:.2f}.",
            judged(settings, prefers > 1.1),
        ),
    ]


def table(measured: dict[str, Any]) -> Table:
    names = ("MAE", "lowest MAE", "MAE of x1", "MAE of x2", "forward evaluations", "backward evaluations")
    return ranges_table("Median over the seeds (lowest – highest)", measured, names)


def notes(settings: Settings[SpiralNumbers], measured: dict[str, Any]) -> list[str]:
    stuck = sum(error > 0.05 for error in measured["NDDE"]["MAE"]["seeds"])
    return [
        f"Weights start as PyTorch's linear layers do, uniform in ±1/√fan-in; biases: "
        f"{'yes' if settings.numbers.biases else 'no, as in the formulas of the paper'}.",
        f"{stuck} of {settings.seeds} NDDE seeds ended above an MAE of 0.05.",
    ]


def draw_fits(settings: Settings, fits: dict[str, Fit], measured: dict[str, Any], series: Series) -> figures.Figure:
    """The paper's figure: series, phase plane, parameters and loss, one row per model."""
    figure, axes = figures.new(2, 4, width=3.3, height=2.7)
    fine = jnp.linspace(0, T1, 251)
    for row, (name, fitted) in enumerate(fits.items()):
        colour = figures.COLOURS[name]
        seed = median_seed(np.array(measured[name]["MAE"]["seeds"]))
        xs = np.asarray(predict(unstack(fitted.model, seed), fine, series.xs[0])[0])
        time, plane, parameters, loss = axes[row]
        for i, style in enumerate(("-", "--")):
            time.plot(series.ts, series.xs[:, i], "os"[i], color="black", markersize=3, label=f"x{'₁₂'[i]}, data")
            time.plot(fine, xs[:, i], style, color=colour, label=f"x{'₁₂'[i]}, {name}")
        time.set(xlabel="t", ylabel=f"{name}: x(t)", title="series")
        plane.plot(series.xs[:, 0], series.xs[:, 1], "o", color="black", markersize=3, label="data")
        plane.plot(xs[:, 0], xs[:, 1], color=colour, label=name)
        plane.set(xlabel="x₁", ylabel="x₂", title=f"phase plane (median seed {seed})")
        kept = jax.tree.leaves(unstack_snapshots(fitted.snapshots, seed))
        weights = np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in kept], axis=1)
        parameters.plot(fitted.snapshot_iterations, weights, color=colour, alpha=0.5, linewidth=0.8)
        parameters.set(xlabel="iteration", ylabel="parameters", title=f"parameters (seed {seed})")
        history = smooth(fitted.history["loss"])
        plot_band(loss, np.arange(len(history)), history, colour, name)
        loss.set(xlabel="iteration", ylabel="MAE", yscale="log", title="loss (median, range)")
        time.legend(ncols=2, loc="upper right", fontsize=7)
        time.set_ylim(top=1.75)
        plane.legend(loc="best", fontsize=8)
    low = min(axis.get_ylim()[0] for axis in axes[:, 3])
    high = max(axis.get_ylim()[1] for axis in axes[:, 3])
    for axis in axes[:, 3]:
        axis.set_ylim(low, high)
    return figures.save(
        figure, settings.folder, "spiral", "NDDE (top) and NODE (bottom): series, phase plane, parameters and loss."
    )


def unstack_snapshots(snapshots: Any, seed: int) -> Any:
    """The weights of one seed over the snapshots: arrays (snapshots, ...)."""
    return jax.tree.map(lambda leaf: leaf[:, seed], eqx.filter(snapshots, eqx.is_inexact_array))


def draw_evaluations(settings: Settings, fits: dict[str, Fit]) -> figures.Figure:
    keys = [key for key in ("forward", "backward") if all(f"{key} evaluations" in fit.history for fit in fits.values())]
    figure, axes = figures.new(1, len(keys), width=4.2)
    for axis, key in zip(axes[0], keys, strict=True):
        for name, fitted in fits.items():
            counts = smooth(fitted.history[f"{key} evaluations"].astype(float))
            plot_band(axis, np.arange(len(counts)), counts, figures.COLOURS[name], name)
        axis.set(xlabel="iteration", ylabel="evaluations", title=f"{key} pass")
    figures.legend(figure, axes)
    return figures.save(
        figure, settings.folder, "evaluations", "Evaluations of the vector field per iteration, median and range over seeds."
    )


EXPERIMENT = Experiment(
    name="spiral",
    title="A 2-D series with delay",
    about="x' = A tanh(x(t) + x(t − ½)) is fitted by a neural DDE and a neural ODE of ten hidden units. The paper finds "
    "that the NDDE reaches a much lower loss, and that the NODE prefers to fit the second component.",
    presets={
        "smoke": Preset(SpiralNumbers(iterations=40, snapshots=4), seeds=2, tolerance=1e-3, takes="20 s"),
        "default": Preset(SpiralNumbers(iterations=2000), seeds=5, tolerance=1e-3, takes="30 s"),
        "paper": Preset(SpiralNumbers(), seeds=5, tolerance=1e-3, takes="1 min"),
    },
    run=run,
)
