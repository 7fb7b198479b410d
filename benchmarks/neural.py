"""Neural delay and ordinary differential equations with the same network, fitted to the paper's spiral.

The data is the paper's: y' = A tanh(y(t) + y(t − ½)), y = (0, 1) for t ≤ 0, up to T = 2.5; the loss is the mean absolute
error. The delay model is y' = net(y(t) + y(t − ½)), the ordinary one y' = net(y).
"""

from itertools import pairwise
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .precision import double_precision

DELAY, T = 0.5, 2.5
START = np.array([0.0, 1.0], np.float32)
RTOL, ATOL = 1e-3, 1e-6
MAX_STEPS = 32


class Data(NamedTuple):
    times: Any
    values: Any


def adaptive(rtol: float = RTOL, atol: float = ATOL) -> dfx.PIDController:
    return dfx.PIDController(rtol=rtol, atol=atol)


def weights(*sizes: int) -> list[np.ndarray]:
    """The matrices of a network without biases, the same in every run and for every library."""
    random = np.random.default_rng(0)
    return [(random.normal(size=(to, of)) / np.sqrt(of)).astype(np.float32) for of, to in pairwise(sizes)]


def network(weights: list[Any], x: Any) -> Any:
    for matrix in weights[:-1]:
        x = jnp.tanh(x @ matrix.T)
    return x @ weights[-1].T


def observe(times: np.ndarray) -> Data:
    """The spiral at some times, solved in double precision at 1e-10."""
    matrix = np.array([[-1.0, 1.0], [-1.0, -1.0]])
    with double_precision():
        term = lx.DelayTerm(lambda t, y, z, args: matrix @ jnp.tanh(y + z), DELAY)
        saveat, controller = dfx.SaveAt(ts=jnp.asarray(times, float)), adaptive(1e-10, 1e-10)
        past = jnp.asarray(START, float)
        solution = lx.ddesolve(term, dfx.Tsit5(), 0.0, T, None, past, saveat=saveat, stepsize_controller=controller)
        return Data(times.astype(np.float32), np.asarray(solution.ys, np.float32))


def delay_loss(weights, y0, data: Data, dt0=None, controller=None, max_steps=MAX_STEPS) -> Any:
    """(Mean absolute error, number of steps) of the neural DDE, by lagrax."""
    solution = lx.ddesolve(
        lx.DelayTerm(lambda t, y, z, weights: network(weights, y + z), DELAY),
        dfx.Tsit5(),
        t0=0.0,
        t1=T,
        dt0=dt0,
        history=y0,
        args=weights,
        saveat=dfx.SaveAt(ts=data.times),
        stepsize_controller=adaptive() if controller is None else controller,
        max_steps=max_steps,
    )
    return _mean_absolute_error(solution.ys, data), solution.stats["num_steps"]


def ordinary_loss(weights, y0, data: Data, dt0=None, controller=None, max_steps=MAX_STEPS, adjoint=None) -> Any:
    """(Mean absolute error, number of steps) of the neural ODE, by diffrax."""
    solution = dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, weights: network(weights, y)),
        dfx.Tsit5(),
        t0=0.0,
        t1=T,
        dt0=dt0,
        y0=y0,
        args=weights,
        saveat=dfx.SaveAt(ts=data.times),
        stepsize_controller=adaptive() if controller is None else controller,
        adjoint=dfx.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
        max_steps=max_steps,
    )
    return _mean_absolute_error(solution.ys, data), solution.stats["num_steps"]


def gradient(loss, **options: Any) -> Any:
    """Jitted: (weights, y0, data) -> ((loss, number of steps), gradient with respect to the weights)."""
    return jax.jit(jax.value_and_grad(lambda *given: loss(*given, **options), has_aux=True))


def exact_gradient(loss, weights: list[np.ndarray], y0: np.ndarray, data: Data, max_steps: int = 1024) -> list[np.ndarray]:
    """The gradient in double precision at 1e-10."""
    with double_precision():
        arguments = jax.tree.map(lambda x: jnp.asarray(x, float), (weights, y0, data))
        (_, steps), found = gradient(loss, controller=adaptive(1e-10, 1e-10), max_steps=max_steps)(*arguments)
        assert steps < max_steps, "the reference needs more steps"
        return [np.asarray(matrix) for matrix in found]


def relative_error(found: Any, exact: Any) -> float:
    """‖found − exact‖ / ‖exact‖ over all the matrices together."""
    flat = lambda matrices: np.concatenate([np.asarray(matrix, np.float64).ravel() for matrix in matrices])
    return float(np.linalg.norm(flat(found) - flat(exact)) / np.linalg.norm(flat(exact)))


def _mean_absolute_error(ys: Any, data: Data) -> Any:
    """`ys` is indexed by time first, then (in a batch) by trajectory; all trajectories are fitted to the same data."""
    return jnp.mean(jnp.abs(ys - data.values.reshape(len(ys), *[1] * (ys.ndim - 2), -1)))
