"""Theorem 2: maps of the line that no neural ODE can represent, represented by neural delay equations."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ..nn import AbstractModel, Form, MLPField, NeuralDDE, NeuralODE
from ..runner import Claim, Experiment, Figure, Numbers, Outcome, Preset, Settings, Table, figures, number, of_seeds
from ..train import stack

MAPS: dict[str, Callable] = {
    "F(x) = −x": lambda x: -x,
    "F(x) = 2x² − 1": lambda x: 2 * x**2 - 1,
    "F(x) = sin 2πx": lambda x: jnp.sin(2 * jnp.pi * x),
}
T = 1.0
"""T = τ: until T, the field sees the input."""


@dataclasses.dataclass(frozen=True)
class UniversalNumbers(Numbers):
    points: int = number(101, "points of the line to train with")
    width: int = number(32, "hidden units of the trained networks")
    iterations: int = number(5000, "updates of Adam")
    widths: tuple[int, ...] = number((4, 8, 16, 32, 64), "hidden units of the networks whose last layer is solved for")


def run(settings: Settings[UniversalNumbers]) -> Outcome:
    numbers = settings.numbers
    train = jnp.linspace(-1, 1, numbers.points)[:, None]
    test = jnp.linspace(-1, 1, 2 * numbers.points + 1)[:, None]
    keys = jr.split(jr.key(0), settings.seeds)
    trained: dict[str, dict[str, np.ndarray]] = {}
    for name, make in {"NODE": _node, "NDDE": _ndde}.items():
        start = eqx.filter_vmap(lambda key, make=make: make(settings, numbers.width, key))(keys)
        trained[name] = {}
        for label, function in MAPS.items():
            begin = time.perf_counter()
            model = _train(start, train, function(train), numbers.iterations)
            trained[name][label] = np.asarray(_ends(model, test))[..., 0]
            settings.say(f"  {name}, {label}: {time.perf_counter() - begin:.1f} s, compiling included")
    solved = {label: _least_squares(settings, function, train, test, keys) for label, function in MAPS.items()}
    x = np.asarray(test)[:, 0]
    targets = {label: np.asarray(function(test))[:, 0] for label, function in MAPS.items()}
    metrics = {label: _metrics(label, trained, solved[label], targets[label], numbers.widths) for label in MAPS}
    drawn = [_draw_maps(settings, x, targets, trained), _draw_widths(settings, metrics)]
    return Outcome(metrics, _claims(settings, metrics), drawn, [_table(metrics, numbers.widths)], [_NOTE])


def _node(settings: Settings, width: int, key: Any) -> NeuralODE:
    return NeuralODE(MLPField(1, width=width, depth=1, form=Form.CURRENT, key=key), t1=T, **settings.solving)


def _ndde(settings: Settings, width: int, key: Any) -> NeuralDDE:
    return NeuralDDE(MLPField(1, width=width, depth=1, form=Form.DELAYED, key=key), T, t1=T, **settings.solving)


@eqx.filter_jit
def _train(models: AbstractModel, x: Any, y: Any, iterations: int) -> AbstractModel:
    """Adam on the mean squared error of h(T), all seeds at once."""
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-2, iterations))
    loss = lambda model: jnp.mean((model(x) - y) ** 2)

    def one(model):
        arrays, rest = eqx.partition(model, eqx.is_inexact_array)

        def step(carry, _):
            arrays, state = carry
            gradient = jax.grad(lambda arrays: loss(eqx.combine(arrays, rest)))(arrays)
            # Optax itself mixes integers and floats.
            with jax.numpy_dtype_promotion("standard"):
                updates, state = optimizer.update(gradient, state, arrays)
                return (optax.apply_updates(arrays, updates), state), None

        (arrays, _), _ = jax.lax.scan(step, (arrays, optimizer.init(arrays)), length=iterations)
        return eqx.combine(arrays, rest)

    return eqx.filter_vmap(one)(models)


@eqx.filter_jit
def _ends(models: AbstractModel, x: Any) -> Any:
    """h(T) of each seed's model at the points x."""
    return eqx.filter_vmap(lambda model: model(x))(models)


def _least_squares(
    settings: Settings[UniversalNumbers], function: Callable, x: Any, test: Any, keys: Any
) -> dict[int, np.ndarray]:
    """h(T) at the test points, by width: hidden layer random, last layer the best for G(x) = (F(x) − x)/T."""
    widths, goal = settings.numbers.widths, (function(x) - x) / T
    widest = [_ndde(settings, max(widths), key) for key in keys]
    fitted = lambda width: [_fitted(model, width, x, goal, key) for model, key in zip(widest, keys, strict=True)]
    return {width: np.asarray(_ends(stack(fitted(width)), test))[..., 0] for width in widths}


def _fitted(model: Any, width: int, x: Any, goal: Any, key: Any) -> NeuralDDE:
    """The model with f ≈ `goal` at x: units that bend at random spots, the first `width` of them summed up by least squares.

    The others get the weight zero, so that one compiled solve serves all widths.
    """
    spots, slopes = jr.uniform(key, (2, model.field.layers[0].weight.shape[0]), x.dtype, -1, 1)
    hidden, bias = 8 * slopes[:, None], -8 * slopes * spots
    features = np.asarray(jnp.tanh(x @ hidden.T + bias), np.float64)[:, :width]
    design = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    # Small singular values would make weights that single precision cannot add up.
    best = jnp.asarray(np.linalg.lstsq(design, np.asarray(goal, np.float64), rcond=1e-5)[0][:, 0], x.dtype)
    weight = jnp.zeros_like(model.field.layers[1].weight).at[0, :width].set(best[:-1])
    where = lambda m: [array for layer in m.field.layers for array in (layer.weight, layer.bias)]
    return eqx.tree_at(where, model, (hidden, bias, weight, best[-1:]))


def monotone_error(target: np.ndarray) -> float:
    """The least root-mean-square error of any nondecreasing function, by pooling adjacent violators."""
    blocks: list[tuple[float, int]] = []
    for value in target.astype(float):
        mean, count = float(value), 1
        while blocks and blocks[-1][0] > mean:
            other, weight = blocks.pop()
            mean, count = (mean * count + other * weight) / (count + weight), count + weight
        blocks.append((mean, count))
    fitted = np.concatenate([np.full(count, mean) for mean, count in blocks])
    return float(np.sqrt(np.mean((fitted - target) ** 2)))


def _metrics(label: str, trained, solved: Mapping[int, np.ndarray], target: np.ndarray, widths) -> dict[str, Any]:
    error = lambda ends: of_seeds(np.sqrt(np.mean((ends - target) ** 2, axis=-1)))
    return {
        "least error of any flow of the line": monotone_error(target),
        "trained": {name: error(ends[label]) for name, ends in trained.items()},
        "least squares": {str(width): error(solved[width]) for width in widths},
    }


def _claims(settings: Settings[UniversalNumbers], metrics: dict[str, Any]) -> list[Claim]:
    widths = [str(width) for width in settings.numbers.widths]
    median = lambda values, width: values["least squares"][width]["median"]
    last = max(median(values, widths[-1]) for values in metrics.values())
    falling = all(median(values, widths[-1]) < median(values, widths[0]) for values in metrics.values())
    ndde = max(values["trained"]["NDDE"]["median"] for values in metrics.values())
    ratio = [min(values["trained"]["NODE"]["seeds"]) / values[_FLOW] for values in metrics.values()]
    enough = settings.preset != "smoke"
    return [
        Claim(
            "If a network approximates G(x) = (F(x) − x)/T, an NDDE of the same dimension models x ↦ F(x) (Theorem 2).",
            f"With f ≈ G by least squares the error of h(T) falls to {last:.1e} or less at {widths[-1]} units, for all "
            f"three maps; trained by Adam, the NDDE reaches {ndde:.1e} or less (medians).",
            falling and last < 1e-2 if enough else None,
        ),
        Claim(
            "The NODEs fail to represent some functions.",
            f"The flow of an ODE on the line is increasing. Trained NODEs stay at {min(ratio):.3f} or more of the least "
            "error that any increasing map has.",
            # The training points are not the test points, so that the bound may be missed by a little.
            min(ratio) > 0.99,
        ),
    ]


_FLOW = "least error of any flow of the line"
_NOTE = (
    "The paper proves Theorem 2 and shows no experiment for it; maps, widths and training are chosen here. Until T = τ the "
    "field only sees the input, h(T) = x + T f(x), so that fitting the NDDE is ordinary regression of f on G. The line "
    "gives a sharp comparison: the best increasing map is computed exactly, by pooling adjacent violators."
)


def _table(metrics: dict[str, Any], widths: Sequence[int]) -> Table:
    columns = ("map", "any flow", "NODE trained", "NDDE trained", *(f"NDDE, {width} units" for width in widths))
    rows = []
    for label, values in metrics.items():
        medians = [values["trained"][name]["median"] for name in ("NODE", "NDDE")]
        medians += [values["least squares"][str(width)]["median"] for width in widths]
        rows.append((label, f"≥ {values[_FLOW]:.3f}", *(f"{median:.1e}" for median in medians)))
    return Table("Root-mean-square error of h(T), median over seeds", columns, rows)


def _draw_maps(settings: Settings[UniversalNumbers], x: np.ndarray, targets: dict[str, np.ndarray], trained) -> Figure:
    figure, axes = figures.new(1, len(targets), width=2.9, height=2.9, sharey=True)
    for axis, (label, target) in zip(axes[0], targets.items(), strict=True):
        axis.plot(x, target, color=figures.COLOURS["data"], linewidth=3.5, alpha=0.35, label="F(x)")
        for name, ends in trained.items():
            for seed, end in enumerate(ends[label]):
                axis.plot(x, end, color=figures.COLOURS[name], linewidth=1.2, label=name if seed == 0 else None)
        axis.set(title=label, xlabel="x = h(0)")
    axes[0, 0].set_ylabel("h(T)")
    figures.legend(figure, axes[0, 0])
    caption = (
        f"Three maps of the line, and what trained models of {settings.numbers.width} hidden units make of them; one "
        "curve per seed. The NODE's is increasing whatever its parameters, the NDDE's need not be."
    )
    return figures.save(figure, settings.folder, "maps", caption)


def _draw_widths(settings: Settings[UniversalNumbers], metrics: dict[str, Any]) -> Figure:
    figure, axes = figures.new(width=4.6, height=3.2)
    axis = axes[0, 0]
    widths = settings.numbers.widths
    styles = zip(metrics.items(), ("o", "s", "^"), ("-", "--", ":"), strict=True)
    for (label, values), marker, line in styles:
        rows = [values["least squares"][str(width)] for width in widths]
        medians = [row["median"] for row in rows]
        axis.plot(widths, medians, color=figures.COLOURS["NDDE"], marker=marker, linestyle=line, label=label)
        axis.fill_between(
            widths, [r["min"] for r in rows], [r["max"] for r in rows], color=figures.COLOURS["NDDE"], alpha=0.1
        )
    axis.set(xscale="log", yscale="log", xlabel="hidden units of f", ylabel="root-mean-square error of h(T)")
    axis.set_xticks(widths, [str(width) for width in widths])
    axis.minorticks_off()
    figures.legend(figure, axis, columns=3)
    caption = "The NDDE's error falls as the network that approximates G grows: median and range over seeds."
    return figures.save(figure, settings.folder, "widths", caption)


EXPERIMENT = Experiment(
    name="universal",
    title="Theorem 2: universal approximation",
    about="Fits maps of the line that change the order of points, such as x ↦ −x. The flow of an ODE cannot represent them; "
    "a delay equation with T = τ does as soon as its network f approximates G(x) = (F(x) − x)/T.",
    presets={
        "smoke": Preset(UniversalNumbers(21, 16, 20, (4, 16)), solver="bosh3", tolerance=1e-3, takes="15 s"),
        "default": Preset(UniversalNumbers(iterations=1500), seeds=3, tolerance=1e-4, takes="40 s"),
        "paper": Preset(UniversalNumbers(), seeds=5, tolerance=1e-4, takes="2 min"),
    },
    run=run,
)
