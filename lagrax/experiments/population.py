"""The dimensionless population equation x' = r x(t) (1 - x(t - τ)), r = 1.8, τ = 1: one hundred series, fitted on [0, 3] and
predicted beyond. All but the equation is that of `mackey_glass`, too."""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .._solve import ddesolve
from .._term import DelayTerm
from ..nn import AbstractModel, Form, MLPField, NeuralDDE, NeuralODE
from ..runner import Claim, Experiment, Figure, Outcome, Preset, Settings, Table, figures, number, of_seeds
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
    smooth,
    train,
)

DELAY, TRAINING, END = 1.0, 3.0, 8.0
HORIZONS = {"τ": 1.0, "2τ": 2.0, "5τ": 5.0}
"""How far beyond the training interval the test losses look."""


@dataclasses.dataclass(frozen=True)
class SeriesNumbers(FitNumbers):
    sampling: float = number(0.05, "time between two observations", least=1e-4, most=DELAY / 2)
    trajectories: int = number(100, "constant pasts, each with a series")
    decay: bool = number(False, "whether the learning rate falls to zero along half a cosine")


@dataclasses.dataclass(frozen=True)
class System:
    """A scalar equation x' = field(x(t), x(t - 1)) and where its constant pasts are drawn from, uniformly."""

    title: str
    field: Callable
    lowest: float
    highest: float


SYSTEM = System("Population dynamics", lambda y, z: 1.8 * y * (1 - z), 0.1, 1.5)


def observe(system: System, settings: Settings[SeriesNumbers]) -> Series:
    """For each seed, series (times, trajectories, 1) on [0, 8] from constant pasts of its own."""
    numbers = settings.numbers
    ts = jnp.linspace(0, END, 1 + round(END / numbers.sampling))
    count = numbers.trajectories
    exact = dfx.PIDController(rtol=1e-6, atol=1e-6)
    term = DelayTerm(lambda t, y, z, args: system.field(y, z), DELAY)

    @jax.jit
    @jax.vmap
    def one(key):
        past = jr.uniform(key, (count, 1), minval=system.lowest, maxval=system.highest)
        saveat = dfx.SaveAt(ts=ts)
        return ddesolve(term, dfx.Tsit5(), 0.0, END, None, past, saveat=saveat, stepsize_controller=exact).ys

    xs = one(jr.split(jr.key(1), settings.seeds))
    return Series(jnp.broadcast_to(ts, (settings.seeds, *ts.shape)), xs)


def makers(settings: Settings[SeriesNumbers]) -> dict[str, Any]:
    """The paper's nets: two hidden layers of ten units, tanh, no biases in its formulas; ANODE has one more component."""
    net: dict[str, Any] = {"width": 10, "depth": 2, "use_bias": settings.numbers.biases}
    shared = {"t1": TRAINING, "max_steps": settings.numbers.max_steps, **settings.stepping}

    def ndde(key: jax.Array) -> AbstractModel:
        return NeuralDDE(MLPField(1, form=Form.CONCAT, key=key, **net), DELAY, **shared)

    def node(key: jax.Array) -> AbstractModel:
        return NeuralODE(MLPField(1, form=Form.CURRENT, key=key, **net), **shared)

    def anode(key: jax.Array) -> AbstractModel:
        return NeuralODE(MLPField(2, form=Form.CURRENT, key=key, **net), augment=1, **shared)

    return {"NDDE": ndde, "NODE": node, "ANODE": anode}


def run(system: System, settings: Settings[SeriesNumbers]) -> Outcome:
    whole = observe(system, settings)
    steps = int(np.sum(np.asarray(whole.ts[0]) <= TRAINING + 1e-6))
    fits = train(settings, makers(settings), Series(whole.ts[:, :steps], whole.xs[:, :steps]))
    curves = {name: losses(fitted, whole) for name, fitted in fits.items()}
    measured = {name: measure(fitted, curves[name]) for name, fitted in fits.items()}
    drawn = [draw_losses(system, settings, fits, curves), draw_phases(system, settings, fits, measured, whole)]
    return Outcome(measured, claims(settings, measured), drawn, [table(measured)], notes(system, settings))


def losses(fitted: Fit, whole: Series) -> dict[str, np.ndarray]:
    """Mean absolute errors of every snapshot and seed on the training interval and over the horizons beyond it."""
    ts = np.asarray(whole.ts[0])

    @eqx.filter_jit
    @eqx.filter_vmap
    def errors(model, series):
        xs, _ = predict(model, series.ts, series.xs[0])
        return jnp.mean(jnp.abs(xs - series.xs), axis=(1, 2))

    each = [errors(unstack(fitted.snapshots, k), whole) for k in range(len(fitted.snapshot_iterations))]
    error = np.asarray(jnp.stack(each))
    parts = {"training": ts <= TRAINING + 1e-6}
    for name, length in HORIZONS.items():
        parts[name] = (ts > TRAINING + 1e-6) & (ts <= TRAINING + length + 1e-6)
    return {name: error[:, :, inside].mean(axis=-1) for name, inside in parts.items()}


def measure(fitted: Fit, curves: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        # The loss of single iterations jitters, as Adam's steps do at a constant learning rate.
        "training MAE": of_seeds(np.nanmedian(fitted.history["loss"][-100:], axis=0)),
        **{f"test MAE over {name}": of_seeds(curves[name][-1]) for name in HORIZONS},
        **evaluations_at_end(fitted, 100),
        "seconds": fitted.seconds,
    }


def claims(settings: Settings, measured: dict[str, Any]) -> list[Claim]:
    median = lambda name, key: measured[name][key]["median"]
    training = {name: median(name, "training MAE") for name in measured}
    found = [
        Claim(
            "The NDDE reaches a very low training loss, while the NODE's stays at some larger value.",
            ", ".join(f"{name} {value:.3g}" for name, value in training.items())
            + f" (median MAE): the NDDE's is {training['NODE'] / training['NDDE']:.0f} times below the NODE's.",
            judged(settings, training["NDDE"] <= training["NODE"] / 10),
        )
    ]
    for horizon in HORIZONS:
        test = {name: median(name, f"test MAE over {horizon}") for name in measured}
        found.append(
            Claim(
                f"Predicting {horizon} ahead, the NDDE does better than the NODE (and, in the figure, than the ANODE).",
                ", ".join(f"{name} {value:.3g}" for name, value in test.items()) + " (median MAE).",
                judged(settings, test["NDDE"] < min(test["NODE"], test["ANODE"])),
            )
        )
    return found


def table(measured: dict[str, Any]) -> Table:
    names = ("training MAE", *(f"test MAE over {name}" for name in HORIZONS), "forward evaluations", "backward evaluations")
    return ranges_table("Median over the seeds (lowest – highest)", measured, names)


def notes(system: System, settings: Settings[SeriesNumbers]) -> list[str]:
    return [
        f"The paper does not say where its {settings.numbers.trajectories} constant pasts come from. Here they are "
        f"uniform in [{system.lowest:g}, {system.highest:g}], drawn anew for each seed.",
        "Predictions run from t = 0: a test loss compares the model's own continuation of its training interval.",
        "Weights start as PyTorch's linear layers do, uniform in ±1/√fan-in; biases: "
        + ("yes, as PyTorch's layers have." if settings.numbers.biases else "no, as in the formulas of the paper."),
        "The learning rate "
        + ("falls to zero along half a cosine, other than in the paper." if settings.numbers.decay else "is constant."),
        "Training MAE: the median over the last 100 iterations. Test MAE: of the model after the last one.",
    ]


def draw_losses(system: System, settings: Settings, fits: dict[str, Fit], curves: dict[str, Any]) -> Figure:
    figure, axes = figures.new(1, 4, width=3.2)
    for axis, part in zip(axes[0], ("training", *HORIZONS), strict=True):
        for name, fitted in fits.items():
            if part == "training":
                history = smooth(fitted.history["loss"])
                plot_band(axis, np.arange(len(history)), history, figures.COLOURS[name], name)
            else:
                plot_band(axis, fitted.snapshot_iterations, curves[name][part], figures.COLOURS[name], name)
        title = "training loss" if part == "training" else f"test loss, {part} ahead"
        axis.set(xlabel="iteration", ylabel="MAE", yscale="log", title=title)
    figures.legend(figure, axes)
    caption = f"{system.title}: losses during training, median and range over seeds."
    return figures.save(figure, settings.folder, "losses", caption)


def draw_phases(system: System, settings: Settings, fits: dict[str, Fit], measured: dict[str, Any], whole: Series) -> Figure:
    """x(t) against x(t - τ) for ten trajectories: truth solid, model dashed, in training and test."""
    figure, axes = figures.new(2, len(fits), width=3.4, height=3.0, sharex=True, sharey=True)
    ts = np.asarray(whole.ts[0])
    shift = round(DELAY / float(ts[1] - ts[0]))
    for column, (name, fitted) in enumerate(fits.items()):
        seed = median_seed(np.array(measured[name]["training MAE"]["seeds"]))
        true = np.asarray(whole.xs[seed, :, :10, 0])
        found = np.asarray(predict(unstack(fitted.model, seed), whole.ts[seed], whole.xs[seed, 0, :10])[0])[..., 0]
        for row, (stage, inside) in enumerate((("training", ts[shift:] <= TRAINING), ("test", ts[shift:] > TRAINING))):
            axis = axes[row, column]
            for xs, style, colour, label in ((true, "-", "black", "truth"), (found, "--", figures.COLOURS[name], name)):
                now, past = xs[shift:][inside], xs[:-shift][inside]
                axis.plot(past, now, style, color=colour, linewidth=0.9, alpha=0.8)
                axis.plot([], [], style, color=colour, label=label)
            axis.set_title(f"{name}, {stage} (seed {seed})")
            if row == 1:
                axis.set_xlabel("x(t − τ)")
        axes[0, 0].set_ylabel("x(t)")
        axes[1, 0].set_ylabel("x(t)")
    low, high = float(whole.xs.min()), float(whole.xs.max())
    margin = 0.15 * (high - low)
    axes[0, 0].set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin))
    figures.legend(figure, axes)
    caption = f"{system.title}: phase portraits of ten trajectories, truth (solid) and model (dashed)."
    return figures.save(figure, settings.folder, "phases", caption)


def presets(default: SeriesNumbers, takes: str) -> dict[str, Preset[SeriesNumbers]]:
    """Those of one equation: `paper` has the paper's numbers, `default` some others."""
    smoke = SeriesNumbers(iterations=20, trajectories=10, snapshots=2)
    return {
        "smoke": Preset(smoke, seeds=2, tolerance=1e-3, takes="1 min"),
        "default": Preset(default, seeds=5, tolerance=1e-5, takes=takes),
        "paper": Preset(SeriesNumbers(), seeds=5, tolerance=1e-5, takes="6 min"),
    }


EXPERIMENT = Experiment(
    name="population",
    title="Population dynamics",
    about="x' = r x(t) (1 − x(t − 1)) with r = 1.8, from 100 constant pasts, is fitted on [0, 3] by a neural DDE, a neural "
    "ODE and an augmented one. The paper finds that only the NDDE reaches a low training loss, and that it predicts better.",
    # Adam at a constant rate leaves the NDDE jittering: its error ends at half as much if the rate falls.
    presets=presets(SeriesNumbers(decay=True), "6 min"),
    run=ft.partial(run, SYSTEM),
)
