"""Concentric spheres: can a flow in the plane pull a disc out of the annulus around it?"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float

from ..nn import AbstractModel, Form, MLPField, NeuralDDE, NeuralODE
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
from ..train import Fit, unstack
from ._training import evaluations, evaluations_at_end, judged, ranges_table, train_seeds
from .separation import draw_points

T1 = 1.0
RADII = (0.5, 1.0, 1.5)


@dataclasses.dataclass(frozen=True)
class SpheresNumbers(Numbers):
    inner: int = number(1000, "points in the disc")
    outer: int = number(2000, "points in the annulus")
    epochs: int = number(5, "times that each point is trained with")
    batch: int = number(64, "points of an update of Adam")
    learning_rate: float = number(1e-3, "of Adam")
    biases: bool = number(True, "whether the networks have biases")
    max_steps: int = number(64, "steps of a solve, at most")

    @property
    def batches_per_epoch(self) -> int:
        return -(-(self.inner + self.outer) // self.batch)

    def check(self) -> None:
        points = self.inner + self.outer
        if self.batch > points:
            raise UsageError(f"batch = {self.batch}, expected at most {points}, the points of inner and outer together")


class Classifier(eqx.Module):
    """A flow of the plane and a linear function of where it ends."""

    flow: AbstractModel
    head: eqx.nn.Linear

    def __call__(self, x: Float[Array, "batch 2"], adjoint: Any = None) -> tuple[Float[Array, " batch"], dict[str, Any]]:
        """(The scores of a batch of points, the `stats` of the solve)."""
        solution = self.flow.solve(x, adjoint=adjoint, throw=False)
        ys: Any = solution.ys
        return self.score(ys[0]), solution.stats

    def score(self, features: Float[Array, "*batch 2"]) -> Float[Array, "*batch"]:
        weight, bias = self.line()
        return features @ weight + bias

    def line(self) -> tuple[Float[Array, "2"], Float[Array, ""]]:
        """(w, b) of the head's score w·h + b."""
        bias: Any = self.head.bias
        return self.head.weight[0], bias[0]


def makers(settings: Settings[SpheresNumbers]) -> dict[str, Any]:
    """Nets of 32-32 ReLU units: f(x(t)) and f(x(t - τ)) with τ = T = 1."""
    numbers = settings.numbers
    shared = {"t1": T1, "max_steps": numbers.max_steps, **settings.stepping}
    net: dict[str, Any] = {"width": 32, "depth": 2, "activation": jax.nn.relu, "use_bias": numbers.biases}

    def ndde(key: Array) -> Classifier:
        flow = NeuralDDE(MLPField(2, form=Form.DELAYED, key=jr.fold_in(key, 0), **net), T1, **shared)
        return Classifier(flow, eqx.nn.Linear(2, 1, key=jr.fold_in(key, 1)))

    def node(key: Array) -> Classifier:
        flow = NeuralODE(MLPField(2, form=Form.CURRENT, key=jr.fold_in(key, 0), **net), **shared)
        return Classifier(flow, eqx.nn.Linear(2, 1, key=jr.fold_in(key, 1)))

    return {"NDDE": ndde, "NODE": node}


def run(settings: Settings[SpheresNumbers]) -> Outcome:
    numbers = settings.numbers
    keys = jr.split(jr.key(2), settings.seeds)
    points, is_inner = jax.vmap(lambda key: draw_points(key, numbers.inner, numbers.outer, RADII))(keys)
    targets = jnp.where(is_inner, 1.0, -1.0)
    fits = {name: train(settings, name, make, (points, targets)) for name, make in makers(settings).items()}
    measured = {name: measure(settings, fitted, points, targets) for name, fitted in fits.items()}
    drawn = [
        draw_evolution(settings, fits, points[0], targets[0]),
        draw_flows(settings, fits, measured, points[0], targets[0]),
    ]
    return Outcome(measured, claims(settings, measured), drawn, [table(measured)], notes(settings))


def train(settings: Settings[SpheresNumbers], name: str, make: Any, data: Any) -> Fit:
    numbers = settings.numbers
    epoch = settings.numbers.batches_per_epoch

    def loss(model, batch, key):
        x, target = batch
        score, stats = model(x, settings.adjoint)
        return jnp.mean(optax.huber_loss(score, target)), evaluations(settings, stats)

    iterations = numbers.epochs * epoch
    return train_seeds(settings, name, make, loss, data, iterations, jr.key(3), batch_size=numbers.batch, snapshots=epoch)


def measure(settings: Settings[SpheresNumbers], fitted: Fit, points, targets) -> dict[str, Any]:
    """Losses by epoch and, at the end, the share of points on the right side of the head's line."""
    epoch = settings.numbers.batches_per_epoch
    losses = fitted.history["loss"].reshape(-1, epoch, settings.seeds).mean(axis=1)
    scores, _ = eqx.filter_jit(eqx.filter_vmap(lambda model, x: model(x)))(fitted.model, points)
    right = np.mean(np.sign(np.asarray(scores)) == np.asarray(targets), axis=1)
    return {
        "loss by epoch": [of_seeds(losses[k]) for k in range(len(losses))],
        "loss": of_seeds(losses[-1]),
        "separated": of_seeds(right),
        **evaluations_at_end(fitted, epoch),
        "seconds": fitted.seconds,
    }


def claims(settings: Settings, measured: dict[str, Any]) -> list[Claim]:
    node, ndde = measured["NODE"], measured["NDDE"]
    pairs = list(zip(ndde["loss by epoch"], node["loss by epoch"], strict=True))
    text = ", ".join(f"{a['median']:.3g} : {b['median']:.3g}" for a, b in pairs)
    return [
        Claim(
            "The NDDE achieves lower losses with the faster speed.",
            f"Median loss by epoch, NDDE : NODE: {text}.",
            judged(settings, all(a["median"] < b["median"] for a, b in pairs)),
        ),
        Claim(
            "The NDDE directly separates the two clusters in the original 2-D space.",
            f"After training a line separates {100 * ndde['separated']['median']:.1f} % of the points "
            f"({100 * ndde['separated']['min']:.1f} to {100 * ndde['separated']['max']:.1f} % over the seeds).",
            judged(settings, ndde["separated"]["median"] >= 0.999),
        ),
        Claim(
            "The NODE struggles to break the annulus apart.",
            f"After training a line separates {100 * node['separated']['median']:.1f} % of the points "
            f"({100 * node['separated']['min']:.1f} to {100 * node['separated']['max']:.1f} %).",
            judged(settings, node["separated"]["median"] < ndde["separated"]["median"]),
        ),
    ]


def table(measured: dict[str, Any]) -> Table:
    names = ("loss", "separated", "forward evaluations", "backward evaluations")
    return ranges_table("After the last epoch, median over the seeds (lowest – highest)", measured, names)


def notes(settings: Settings[SpheresNumbers]) -> list[str]:
    return [
        "Points are uniform in area, drawn anew for each seed. Huber loss between the head's score and ±1.",
        f"Weights start as PyTorch's linear layers do; biases in the nets: {'yes' if settings.numbers.biases else 'no'}.",
    ]


def draw_evolution(settings: Settings, fits: dict[str, Fit], points, targets) -> Figure:
    """Where the points of seed 0 end, epoch by epoch."""
    count = len(next(iter(fits.values())).snapshot_iterations)
    figure, axes = figures.new(len(fits), count, width=2.3, height=2.4)
    for row, (name, fitted) in enumerate(fits.items()):
        for column in range(count):
            axis = axes[row, column]
            model = unstack(unstack(fitted.snapshots, column), 0)
            features = np.asarray(_ends(model.flow, points))
            scatter(axis, features, targets, name == "NDDE" and column == 0)
            draw_line(axis, model)
            axis.set_title(f"epoch {column}" if row == 0 else "")
            axis.tick_params(labelsize=7)
        axes[row, 0].set_ylabel(f"{name}: h₂(T)")
    for axis in axes[-1]:
        axis.set_xlabel("h₁(T)")
    figures.legend(figure, axes, scale=4)
    caption = "Features of the NDDE (top) and the NODE (bottom) during training, with the line of the head (seed 0)."
    return figures.save(figure, settings.folder, "evolution", caption)


@eqx.filter_jit
def _ends(flow: AbstractModel, points: Float[Array, "points 2"]) -> Float[Array, "points 2"]:
    return flow(points)


@eqx.filter_jit
def _paths(flow: AbstractModel, points: Float[Array, "points 2"]) -> Float[Array, "times points 2"]:
    return flow.sequence(jnp.linspace(0, T1, 21), points)


def draw_flows(settings: Settings, fits: dict[str, Fit], measured: dict[str, Any], points, targets) -> Figure:
    figure, axes = figures.new(1, 2 + len(fits), width=3.2, height=3.0)
    for name in fits:
        curves = measured[name]["loss by epoch"]
        epochs = np.arange(1, len(curves) + 1)
        axes[0, 0].plot(epochs, [c["median"] for c in curves], marker="o", color=figures.COLOURS[name], label=name)
        low, high = ([c[end] for c in curves] for end in ("min", "max"))
        axes[0, 0].fill_between(epochs, low, high, color=figures.COLOURS[name], alpha=0.18, linewidth=0)
    axes[0, 0].set(xlabel="epoch", ylabel="Huber loss", title="training loss", yscale="log", xticks=epochs)
    axes[0, 0].legend()
    scatter(axes[0, 1], np.asarray(points), targets, True)
    axes[0, 1].set(title="data", xlabel="x₁", ylabel="x₂")
    some = np.concatenate([np.arange(40), np.arange(40) + int(np.sum(np.asarray(targets) > 0))])
    for axis, (name, fitted) in zip(axes[0, 2:], fits.items(), strict=True):
        model = unstack(fitted.model, 0)
        path = np.asarray(_paths(model.flow, points[some]))
        for k, target in enumerate(np.asarray(targets)[some]):
            axis.plot(*path[:, k].T, color=figures.COLOURS["inner" if target > 0 else "outer"], linewidth=0.7)
        scatter(axis, path[-1], np.asarray(targets)[some], False, size=8)
        draw_line(axis, model)
        axis.set(title=f"flow of the {name}", xlabel="h₁", ylabel="h₂")
    figures.legend(figure, axes[0, 1], scale=4)
    return figures.save(
        figure, settings.folder, "flows", "Training losses, the data, and the flows after training (seed 0)."
    )


def scatter(axis: Any, at: np.ndarray, targets: Any, labelled: bool, size: float = 2.0) -> None:
    for name, sign in (("outer", -1), ("inner", 1)):
        chosen = at[np.asarray(targets) == sign]
        label = name if labelled else None
        axis.scatter(*chosen.T, s=size, color=figures.COLOURS[name], label=label, rasterized=True, linewidths=0)


def draw_line(axis: Any, model: Classifier) -> None:
    """Where the head's score is zero."""
    weight, bias = model.line()
    (a, b), c = np.asarray(weight), float(bias)
    limits = (axis.get_xlim(), axis.get_ylim())
    point = -c * np.array([a, b]) / (a * a + b * b)
    axis.axline(point, point + np.array([-b, a]), color="black", linewidth=0.9, linestyle=":")
    axis.set(xlim=limits[0], ylim=limits[1])


EXPERIMENT = Experiment(
    name="spheres",
    title="Concentric spheres",
    about="A disc inside an annulus is classified by the end point of a flow of the plane and a line. The paper finds that "
    "the NDDE reaches lower losses faster and separates the two in the plane, where the NODE struggles to break the "
    "annulus.",
    presets={
        "smoke": Preset(SpheresNumbers(inner=60, outer=120, epochs=2), seeds=2, tolerance=1e-3, takes="40 s"),
        "default": Preset(SpheresNumbers(), seeds=5, tolerance=1e-3, solver="dopri5", takes="40 s"),
        "paper": Preset(SpheresNumbers(), seeds=5, tolerance=1e-3, solver="dopri5", takes="40 s"),
    },
    run=run,
)
