"""Derivatives of equations whose delays move: exact for what was computed, breakpoints and sweeps included."""

import dataclasses

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

from .differences import gradient_and_differences
from .moving_problems import MOVING

KNOWN = [name for name, problem in MOVING.items() if problem.gradient is not None]
STATE, PANTOGRAPH = MOVING["state-dependent delay"], MOVING["pantograph"]


def _end(problem, tolerance=1e-9, **options):
    return lambda p: problem.solve(p, tolerance, t1=problem.gradient_at, **options).ys[0]


@pytest.mark.parametrize("name", KNOWN)
def test_known_gradients(name):
    problem = MOVING[name]
    gradient = jax.jit(jax.grad(_end(problem)))(jnp.array(problem.parameters))
    assert np.allclose(gradient, problem.gradient, rtol=0, atol=1e-6)


def test_the_gradient_of_a_delay_that_vanishes():
    problem = dataclasses.replace(MOVING["vanishing"], interval=(0.5, 2.0))
    gradient = jax.jit(jax.grad(_end(problem)))(jnp.array([1.0, 1.001]))
    assert np.allclose(gradient, (-0.2054405, 0.612086), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [STATE, PANTOGRAPH], ids=["located", "overlapping"])
def test_forward_and_backward_are_the_same_numbers(problem):
    parameters = jnp.array(problem.parameters)
    backward = jax.jit(jax.grad(_end(problem, 1e-5)))(parameters)
    forward = jax.jit(jax.jacfwd(_end(problem, 1e-5, adjoint=lx.ForwardMode())))(parameters)
    assert np.allclose(forward, backward, rtol=1e-6)


def test_every_kind_of_argument():
    """t0, t1, ts, y0, the history and a declared jump, of an equation with a located breakpoint of a jump."""
    term = lx.DelayTerm(lambda t, y, z, a: -z + jnp.where(t > a, 0.3, 0.0), lambda t, y, a: 1 + 0.2 * y**2)
    controller = dfx.PIDController(1e-10, 1e-10)

    def loss(x):
        t0, t1, y0, level, jump, time = x
        solution = lx.ddesolve(
            term,
            dfx.Tsit5(),
            t0,
            t1,
            None,
            lambda t: level * jnp.cos(t),
            jump,
            y0=y0,
            jump_ts=jump[None],
            saveat=dfx.SaveAt(t1=True, ts=time[None]),
            stepsize_controller=controller,
            max_steps=512,
        )
        return jnp.sum(solution.ys * jnp.array([1.0, 0.5]))

    gradient, differences = gradient_and_differences(loss, jnp.array([0.1, 4.0, 0.7, 1.2, 1.7, 3.3]))
    assert np.allclose(gradient, differences, rtol=1e-6, atol=1e-6)


def test_equal_delays_of_a_jump_have_gradients_of_their_own():
    """At t = 1 both terms jump, at one time. With c = (1, 2) the state at 2.5 is
    1 - Σ c_i (2.5 - τ_i) + ½ Σ c_i c_j (2.5 - τ_i - τ_j)²."""

    def end(delays):
        term = lx.DelayTerm(lambda t, y, z, a: -z[0] - 2 * z[1], (lambda t, y, a: delays[0], lambda t, y, a: delays[1]))
        controller = dfx.PIDController(1e-10, 1e-10)
        return lx.ddesolve(term, dfx.Tsit5(), 0.0, 2.5, None, 0.0, y0=1.0, stepsize_controller=controller, max_steps=256).ys[
            0
        ]

    value, gradient = jax.jit(jax.value_and_grad(end))(jnp.array([1.0, 1.0]))
    assert abs(value - (1 - 3 * 1.5 + 9 * 0.5**2 / 2)) < 1e-8
    assert np.allclose(gradient, [-2.0, -4.0], rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [STATE, PANTOGRAPH], ids=["located", "overlapping"])
def test_the_hessian(problem):
    parameters = jnp.array(problem.parameters)
    end = _end(problem, 1e-9)
    hessian, gradient = jax.jit(jax.hessian(end))(parameters), jax.jit(jax.grad(end))
    differences = [(gradient(parameters + e) - gradient(parameters - e)) / 2e-4 for e in 1e-4 * np.eye(3)]
    assert np.allclose(hessian, np.stack(differences), rtol=1e-4, atol=1e-4)


def test_a_failed_solve_has_no_gradient():
    loss = lambda p: STATE.solve(p, throw=False, **{"max_steps": 8}).ys[0]
    assert np.all(np.isnan(jax.jit(jax.grad(loss))(jnp.array(STATE.parameters))))


@pytest.mark.slow
def test_lanes_of_gradients():
    parameters = jnp.array([[1.0, 1.0, 0.25], [0.5, 0.2, 0.1]])
    gradient = jax.grad(_end(STATE, 1e-6))
    alone = [jax.jit(gradient)(p) for p in parameters]
    assert np.allclose(jax.jit(jax.vmap(gradient))(parameters), np.stack(alone), rtol=1e-10)


@pytest.mark.parametrize("adjoint", [lx.DiscreteAdjoint(), pytest.param(lx.ForwardMode(), marks=pytest.mark.slow)])
def test_the_derivative_with_respect_to_a_delay_of_zero(adjoint):
    """y' = -y(t - τ) is y' = -(1 + τ) y to first order; y at the start of a step moves with the time looked at, too."""

    def end(delay):
        term = lx.DelayTerm(lambda t, y, z, args: -z, lx.Lag(delay, overlap=True))
        controller = dfx.PIDController(1e-9, 1e-9)
        return lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, None, 1.0, stepsize_controller=controller, adjoint=adjoint).ys[0]

    slope = jax.jit((jax.jacfwd if isinstance(adjoint, lx.ForwardMode) else jax.grad)(end))(0.0)
    assert abs(slope + np.exp(-1)) < 1e-8
