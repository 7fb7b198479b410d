"""Gradient of a neural delay equation, against diffrax's gradient of the ordinary one with the same network."""

from collections.abc import Iterator

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from .. import neural
from ..row import AtMost, Row, Side
from ..timing import interleave

DT = 0.1


def neural_ode(repetitions: int) -> Iterator[Row]:
    """One trajectory of the spiral's network, then 100 trajectories of a wider network as one state of shape (100, 2)."""
    batch = np.random.default_rng(1).normal(size=(100, 2)).astype(np.float32)
    yield _row("gradient, neural DDE 2-10-2", (2, 10, 2), neural.START, repetitions)
    yield _row("the same, 2-64-64-2, batch 100", (2, 64, 64, 2), batch, repetitions)


def _row(what: str, sizes: tuple[int, ...], y0: np.ndarray, repetitions: int) -> Row:
    """Both take 25 Tsit5 steps of 0.1 in float32, with room for 32, and are fitted to 25 observations.

    diffrax runs its default adjoint, which stores some steps and computes the others again. That it can be told to store
    them all is measured too, and noted. The observations lie halfway between the steps: with observations at the ends of
    steps, the default adjoint's float32 gradient comes out wrong by several per cent (not so when all steps are stored).
    """
    weights, data = neural.weights(*sizes), neural.observe(np.arange(DT / 2, neural.T, DT))
    arguments = jax.tree.map(jnp.asarray, (weights, y0, data))
    fixed = {"dt0": DT, "controller": dfx.ConstantStepSize()}
    storing_all = dfx.RecursiveCheckpointAdjoint(checkpoints=neural.MAX_STEPS)
    delay = neural.gradient(neural.delay_loss, **fixed)
    ordinary = neural.gradient(neural.ordinary_loss, **fixed)
    stored = neural.gradient(neural.ordinary_loss, adjoint=storing_all, **fixed)
    programs = {
        "lagrax": lambda: delay(*arguments),
        "diffrax": lambda: ordinary(*arguments),
        "diffrax, all stored": lambda: stored(*arguments),
    }
    times = interleave(programs, repetitions)
    (_, delay_steps), delay_gradient = programs["lagrax"]()
    (_, ordinary_steps), ordinary_gradient = programs["diffrax"]()
    exact = lambda loss: neural.exact_gradient(loss, weights, y0, data)
    all_stored = Side(times["diffrax, all stored"])
    return Row(
        name="neural-ode",
        what=what,
        peer="diffrax (neural ODE)",
        target=AtMost(1.0),
        lagrax=Side(times["lagrax"], neural.relative_error(delay_gradient, exact(neural.delay_loss))),
        other=Side(times["diffrax"], neural.relative_error(ordinary_gradient, exact(neural.ordinary_loss))),
        quantity="gradient",
        note=f"{int(delay_steps)} and {int(ordinary_steps)} fixed Tsit5 steps, diffrax with its default adjoint. With "
        f"`checkpoints={neural.MAX_STEPS}`, which stores every step, diffrax takes "
        f"{all_stored.median / np.median(times['diffrax']):.2f} times as long as that.",
        extra={"diffrax, all stored": all_stored.as_json()},
    )
