"""Neural delay and ordinary differential equations with the same network, fitted to the paper's spiral.

The data is the paper's: y' = A tanh(y(t) + y(t − ½)), y = (0, 1) for t ≤ 0, observed every 0.1 up to T = 2.5, and the loss
is the mean absolute error. The delay model is y' = net(y(t) + y(t − ½)), the ordinary one y' = net(y).
"""

from itertools import pairwise
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .precision import double_precision

DELAY, T, DT = 0.5, 2.5, 0.1
START = np.array([0.0, 1.0], np.float32)
RTOL, ATOL = 1e-3, 1e-6
MAX_STEPS = 32

Weights = list[Any]


def adaptive(rtol: float = RTOL, atol: float = ATOL) -> dfx.PIDController:
    return dfx.PIDController(rtol=rtol, atol=atol)


def times() -> np.ndarray:
    return np.linspace(0, T, 26, dtype=np.float32)


def weights(*sizes: int) -> list[np.ndarray]:
    """The matrices of a network without biases, the same in every run and for every library."""
    random = np.random.default_rng(0)
    return [(random.normal(size=(to, of)) / np.sqrt(of)).astype(np.float32) for of, to in pairwise(sizes)]


def network(weights: Weights, x: Any) -> Any:
    for matrix in weights[:-1]:
        x = jnp.tanh(x @ matrix.T)
    return x @ weights[-1].T


def observations() -> np.ndarray:
    """The paper's data, solved in double precision at 1e-10."""
    matrix = np.array([[-1.0, 1.0], [-1.0, -1.0]])
    with double_precision():
        term = lx.DelayTerm(lambda t, y, z, args: matrix @ jnp.tanh(y + z), DELAY)
        saveat = dfx.SaveAt(ts=jnp.asarray(times(), float))
        solution = lx.ddesolve(
            term, dfx.Dopri8(), 0.0, T, None, jnp.asarray(START, float), saveat=saveat,
            stepsize_controller=adaptive(1e-10, 1e-10),
        )  # fmt: skip
        return np.asarray(solution.ys, np.float32)


def delay_loss(weights, y0, data, solver=None, dt0=None, controller=None, max_steps=MAX_STEPS) -> Any:
    """Mean absolute error of the neural DDE, by lagrax."""
    solution = lx.ddesolve(
        lx.DelayTerm(lambda t, y, z, weights: network(weights, y + z), DELAY),
        dfx.Tsit5() if solver is None else solver,
        t0=0.0,
        t1=T,
        dt0=dt0,
        history=y0,
        args=weights,
        saveat=dfx.SaveAt(ts=jnp.asarray(times(), y0.dtype)),
        stepsize_controller=adaptive() if controller is None else controller,
        max_steps=max_steps,
        throw=False,
    )
    return _mean_absolute_error(solution.ys, data), solution.stats["num_steps"]


def ordinary_loss(weights, y0, data, solver=None, dt0=None, controller=None, max_steps=MAX_STEPS, **options) -> Any:
    """Mean absolute error of the neural ODE, by diffrax."""
    solution = dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, weights: network(weights, y)),
        dfx.Tsit5() if solver is None else solver,
        t0=0.0,
        t1=T,
        dt0=dt0,
        y0=y0,
        args=weights,
        saveat=dfx.SaveAt(ts=jnp.asarray(times(), y0.dtype)),
        stepsize_controller=adaptive() if controller is None else controller,
        max_steps=max_steps,
        throw=False,
        **options,
    )
    return _mean_absolute_error(solution.ys, data), solution.stats["num_steps"]


def gradient(loss, **options: Any) -> Any:
    """Jitted: (weights, y0, data) -> ((loss, number of steps), gradient with respect to the weights)."""
    return jax.jit(jax.value_and_grad(lambda *given: loss(*given, **options), has_aux=True))


def exact_gradient(loss, weights, y0, data) -> list[np.ndarray]:
    """The gradient in double precision, eighth order, at 1e-10."""
    with double_precision():
        arguments = jax.tree.map(lambda x: jnp.asarray(x, float), (list(weights), y0, data))
        find = gradient(loss, solver=dfx.Dopri8(), controller=adaptive(1e-10, 1e-10), max_steps=1024)
        return [np.asarray(matrix) for matrix in find(*arguments)[1]]


def relative_error(found: Any, exact: Any) -> float:
    """‖found − exact‖ / ‖exact‖ over all the matrices together."""
    flat = lambda matrices: np.concatenate([np.asarray(matrix, np.float64).ravel() for matrix in matrices])
    return float(np.linalg.norm(flat(found) - flat(exact)) / np.linalg.norm(flat(exact)))


def _mean_absolute_error(ys: Any, data: Any) -> Any:
    """`ys` is indexed by time first, then (in a batch) by trajectory; all trajectories are fitted to the same data."""
    return jnp.mean(jnp.abs(ys - data.reshape(len(ys), *[1] * (ys.ndim - 2), -1)))
