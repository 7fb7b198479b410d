"""Equations of the literature whose delays move and vanish: the test sets of Paul (1994), and of Enright and Hayashi (1997).

Letters are those of the latter: B and D vanish, C depends on the state, F to H are neutral. What has no known solution was
computed by JiTCDDE too, which agrees to seven digits, or (C3) by two solvers at tighter tolerances.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx


@dataclasses.dataclass(frozen=True)
class Equation:
    """y' = field(t, y, delayed) on an interval, and its solution at the end."""

    field: Callable
    delays: Any
    interval: tuple[float, float]
    history: Any
    value: Any
    jump_ts: Any = None
    everyday: bool = False


def _at(function: Callable) -> lx.At:
    return lx.At(lambda t, y, args: function(t, y))


def _pantograph(a: float, b: float, q: float, t: float) -> float:
    """The solution of y' = a y + b y(qt), y(0) = 1, by its power series."""
    terms = np.cumprod([1.0] + [(a + b * q**k) * t / (k + 1) for k in range(60)])
    return float(np.sum(terms))


def _blood(s, t1, decay, loss, k, a):
    """Mahaffy, Bélair and Mackey's model of the production of red blood cells (C3, C4)."""
    return lambda t, y, z: jnp.stack(
        [
            s * z[0][1] - decay * y[0] - loss,
            a / (1 + 0.0382 * y[0] ** 6.96) - k * y[1],
            1 - loss * jnp.exp(decay * y[2]) / (s * z[1][1]),
        ]
    )


def _antibodies(t, y, z):
    """Gatica and Waltman's threshold model (D2): the delay is a component, and zero at first."""
    bound, past = 0.02 * y[0] * y[1] - 0.005 * y[2], z[0] * z[1]
    delay = 1 + (0.03 - y[0] * y[1] - y[2]) * jnp.exp(0.01 * y[3]) / (past + z[2])
    return jnp.stack([-bound, -0.02 * y[0] * y[1] + 0.06 * past, bound, delay])


def _predators(t, y, z):
    """Kuang's predators, and prey whose growth depends on how it grew (E2)."""
    eaten = y[0] ** 2 / (y[0] ** 2 + 1)
    return jnp.stack([y[0] * (1 - z[0][0] - 2.9 * z[1][0]) - y[1] * eaten, y[1] * (eaten - 0.1)])


def _jackiewicz(c: float) -> "Equation":
    """Jackiewicz (1981), solved by sin (H2 to H4): c is the share of the derivative."""

    def field(t, y, z):
        u = t * jnp.sin(t) ** 2
        return jnp.cos(t) * (1 + z[0]) + c * y * z[1] + (1 - c) * jnp.sin(t) * jnp.cos(u) - jnp.sin(t + u)

    return Equation(field, [_square, lx.Derivative(_square)], (0, 1.5), jnp.sin, np.sin(1.5))


def _ten_times(c: float, everyday: bool = False) -> "Equation":
    """The delay vanishes ten times, and ten times reaches back to the start (F3 to F5)."""
    return Equation(
        lambda t, y, z: jnp.exp(-y) + c * (jnp.sin(z) - jnp.sin(1 / (3 + _wave.time(t, y, None)))),
        lx.Derivative(_wave),
        (0, 10),
        lambda t: jnp.log(3 + t),
        np.log(13),
        everyday=everyday,
    )


def _castleton_grimm(t, y, z):
    return -4 * t * y**2 / (4 + jnp.log(jnp.cos(2 * t)) ** 2) + jnp.tan(2 * t) + jnp.arctan(z) / 2


_wave = _at(lambda t, y: t * (1 - jnp.cos(2 * jnp.pi * t)) / 2)
_half, _square = _at(lambda t, y: t / 2), _at(lambda t, y: t * y**2)

EQUATIONS = {
    # The field jumps where the delayed state changes sign.
    "B2": Equation(lambda t, y, z: jnp.where(z < 0, 1.0, -1.0) - y, _half, (0, 3), 1.0, 1 - 6 * np.exp(-3)),
    "C1": Equation(lambda t, y, z: -2 * z * (1 - y**2), lambda t, y, args: 1 + jnp.abs(y), (0, 30), 0.5, 0.995532063803),
    "C3": Equation(
        _blood(0.0031, 6.0, 0.001, 0.0275, 2.8, 6570.0),
        [6.0, lambda t, y, args: 6 + y[2]],
        (0, 300),
        lambda t: jnp.stack([3.325, jnp.where(t < -6, 9.5, 10.0), 120.0]),
        np.array([3.49974429039, 9.99991751303, 119.932858023]),
        jump_ts=[-6.0],
    ),
    "C4": Equation(
        _blood(0.00372, 3.0, 0.1, 0.00178, 6.65, 15600.0),
        [3.0, lambda t, y, args: 3 + y[2]],
        (0, 100),
        np.array([3.5, 10.0, 50.0]),
        np.array([2.40018570556, 122.541778619, 52.7509883175]),
    ),
    "D2": Equation(
        _antibodies,
        lambda t, y, args: y[3],
        (0, 40),
        np.array([5.0, 0.1, 0.0, 0.0]),
        np.array([0.259619473197, 10.4032122566, 4.7403805268, 0.132695506938]),
    ),
    "E2": Equation(
        _predators,
        [0.42, lx.Derivative(0.42)],
        (0, 2),
        lambda t: jnp.stack([0.33 - t / 10, 2.22 + t / 10]),
        np.array([0.350061832682855, 2.243685342142463]),
    ),
    # The derivative that is looked at is, at first, the one that is sought.
    "F1": Equation(
        lambda t, y, z: 2 * jnp.cos(2 * t) * z[0] ** (2 * jnp.cos(t)) + jnp.log(z[1]) - jnp.log(2 * jnp.cos(t)) - jnp.sin(t),
        [_half, lx.Derivative(_half)],
        (0, 1),
        lambda t: jnp.exp(jnp.sin(2 * t)),
        np.exp(np.sin(2)),
        everyday=True,
    ),
    "F3": _ten_times(0.2),
    "F4": _ten_times(0.4),
    "F5": _ten_times(0.6),
    "F3, retarded": Equation(
        lambda t, y, z: jnp.exp(-y) + 0.2 * (jnp.sin(z) - jnp.sin(jnp.log(3 + _wave.time(t, y, None)))),
        _wave,
        (0, 10),
        np.log(3.0),
        np.log(13),
    ),
    # The derivative of the history is -1; where it is looked at, both end at t0.
    "G1": Equation(
        lambda t, y, z: -z, lx.Derivative(lambda t, y, args: y**2 / 4), (0, 1), lambda t: 1 - t, 2.0, everyday=True
    ),
    "G2": Equation(lambda t, y, z: -z, lx.Derivative(_at(lambda t, y: y - 2)), (0, 1), lambda t: 1 - t, 2.0),
    "H2": _jackiewicz(0.1),
    "H3": _jackiewicz(0.3),
    "H4": _jackiewicz(0.5),
    "Jackiewicz": _jackiewicz(0.6),
    "Castleton and Grimm": Equation(
        _castleton_grimm,
        lx.Derivative(_at(lambda t, y: t * y**2 / (1 + y**2))),
        (0, 0.225 * np.pi),
        lambda t: -jnp.log(jnp.cos(2 * t)) / 2,
        -np.log(np.cos(0.45 * np.pi)) / 2,
    ),
    "Feldstein and Neves": Equation(
        lambda t, y, z: z / (2 * jnp.sqrt(t + 1)),
        _at(lambda t, y: y - np.sqrt(2)),
        (0, 2),
        1.0,
        1.25 + (1 - np.sqrt(0.5)) * np.sqrt(3),
    ),
    # Kinks at e and e².
    "y(ln y)": Equation(
        lambda t, y, z: y * z / t,
        _at(lambda t, y: jnp.log(y)),
        (1, 10),
        1.0,
        (np.e / (3 - np.log(10))) ** np.e,
        everyday=True,
    ),
    # Kinks at 2 and 4.
    "y(t/2) from 1": Equation(lambda t, y, z: z, _half, (1, 8), 1.0, 9 + 448 / 48),
    "pantograph": Equation(
        lambda t, y, z: -y + 0.9 * z, _at(lambda t, y: 0.3 * t), (0, 5), 1.0, _pantograph(-1, 0.9, 0.3, 5)
    ),
    # The delay jumps, and vanishes, at every whole number.
    "piecewise constant argument": Equation(
        lambda t, y, z: -0.6 * z, _at(lambda t, y: jnp.floor(t)), (0, 4.5), 1.0, 0.4**4 * 0.7, jump_ts=[1.0, 2.0, 3.0, 4.0]
    ),
    "decaying delay": Equation(
        lambda t, y, z: -z + jnp.cos(t) + jnp.sin(t - 1 - jnp.exp(-t)),
        lambda t, y, args: 1 + jnp.exp(-t),
        (0, 10),
        jnp.sin,
        np.sin(10),
    ),
}


def _solve(equation: Equation, solver: dfx.AbstractSolver, tolerance: float) -> dfx.Solution:
    field = lambda t, y, z, args: equation.field(t, y, z)
    start, end = (float(t) for t in equation.interval)
    jumps = None if equation.jump_ts is None else jnp.array(equation.jump_ts)
    controller = dfx.PIDController(rtol=tolerance, atol=tolerance)
    term = lx.DelayTerm(field, equation.delays)
    return lx.ddesolve(term, solver, start, end, None, equation.history, jump_ts=jumps, stepsize_controller=controller)


def _cases():
    for name, equation in EQUATIONS.items():
        yield pytest.param(name, dfx.Tsit5(), marks=() if equation.everyday else pytest.mark.slow, id=name)
        yield pytest.param(name, dfx.Dopri8(), marks=pytest.mark.slow, id=f"{name}-Dopri8")


@pytest.mark.parametrize("name, solver", list(_cases()))
def test_equations_of_the_literature(name, solver):
    equation = EQUATIONS[name]
    found = _solve(equation, solver, 1e-9).ys[0]
    assert np.max(np.abs(found - equation.value) / (1 + np.abs(equation.value))) < 1e-7


def test_a_step_that_sees_its_own_derivative_is_repeated_and_not_shortened():
    """Each sweep gains a factor of 0.6, however short the step: with ten at most, 131 steps were rejected for it, and with
    `Dopri8` the solve stood still at t = 5.5."""
    solution = _solve(EQUATIONS["F5"], dfx.Dopri5(), 1e-9)
    assert abs(solution.ys[0] - EQUATIONS["F5"].value) < 1e-7
    assert int(solution.stats["num_rejected_steps"]) < 20


@pytest.mark.slow
def test_kinks_that_a_field_makes_of_its_own_are_left_to_error_control():
    """C2, with the absolute value of a state that changes sign: a kink that no delay leads to is not stepped on."""
    field = lambda t, y, z: jnp.stack([-2 * z[0], (jnp.abs(z[0]) - jnp.abs(y[0])) / (1 + jnp.abs(z[0]))])
    equation = Equation(field, lambda t, y, args: y[1], (0, 40), np.array([1.0, 0.5]), np.array([0.3390577, 0.6428967]))
    errors = [np.max(np.abs(_solve(equation, dfx.Tsit5(), tolerance).ys[0] - equation.value)) for tolerance in (1e-6, 1e-9)]
    assert errors[1] < 1e-5 and errors[1] < errors[0] / 10
