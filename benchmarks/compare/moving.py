"""Delays that move: one equation against JiTCDDE, and what a staged step and its gradient cost."""

from collections.abc import Callable, Iterator
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .. import dispatch
from .. import mackey_glass as mg
from ..precision import double_precision
from ..row import AtMost, Faster, Row, Side
from ..timing import interleave

T1, EXACT, TOLERANCE = 6.0, -0.0433198068004, 1e-6

EQUALLY_ACCURATE = ((1e-6, 3e-7), (1e-7, 1e-8))
"""Tolerances of lagrax and of JiTCDDE with which their errors are alike, lagrax's the smaller."""

LONG, SHORT, MAX_STEPS = 40.0, 0.05, 1024


def moving(repetitions: int) -> Iterator[Row]:
    with double_precision():
        for ours, theirs in EQUALLY_ACCURATE:
            yield _against_jitcdde(ours, theirs, repetitions)
        yield _step(repetitions)
        yield _gradient("gradient, state-dependent delay", _state, AtMost(4.0), "without overlap", repetitions)
        yield _gradient("gradient, vanishing delay", _pantograph, AtMost(10.0), "all steps overlapping", repetitions)


def _solve(term: lx.DelayTerm, t1: Any, past: Any, args: Any, tolerance=TOLERANCE, max_steps: int = 256) -> dfx.Solution:
    controller = dfx.PIDController(rtol=tolerance, atol=tolerance)
    return lx.ddesolve(
        term, dfx.Tsit5(), 0.0, t1, None, past, args, stepsize_controller=controller, max_steps=max_steps, throw=False
    )


def _state(parameters: Any, tolerance: float = TOLERANCE) -> dfx.Solution:
    """y' = −a y(t − b − c y²)."""
    term = lx.DelayTerm(lambda t, y, z, p: -p[0] * z, lx.Lag(lambda t, y, p: p[1] + p[2] * y**2))
    return _solve(term, T1, 1.0, parameters, tolerance)


def _pantograph(parameters: Any, tolerance: float = TOLERANCE) -> dfx.Solution:
    """y' = a exp(t/2) y(qt) + b y, solved by exp t."""
    a = lambda t, y, z, p: p[0] * jnp.exp(t / 2) * z + p[1] * y
    return _solve(lx.DelayTerm(a, lx.At(lambda t, y, p: p[2] * t)), 2.0, 1.0, parameters, tolerance)


def state_dependent(tolerance: float) -> Callable[[], Any]:
    """The solve that is compared, compiled: (y(6), the steps it took)."""

    def solve(parameters):
        solution = _state(parameters, tolerance)
        return solution.ys[0], solution.stats["num_steps"]

    compiled, parameters = jax.jit(solve), jnp.array([1.0, 1.0, 0.25])
    return lambda: compiled(parameters)


def _against_jitcdde(ours: float, theirs: float, repetitions: int) -> Row:
    from .. import with_jitcdde

    peer, solve = with_jitcdde.StateDependent(theirs), state_dependent(ours)
    times = interleave({"lagrax": solve, "JiTCDDE": lambda: peer(T1)}, repetitions)
    return Row(
        name="moving",
        what=f"state-dependent delay to t = 6, at {ours:g}",
        peer="JiTCDDE",
        target=Faster(3),
        lagrax=Side(times["lagrax"], abs(float(solve()[0]) - EXACT)),
        other=Side(times["JiTCDDE"], abs(peer(T1) - EXACT)),
        quantity="y(6)",
        note="y′ = −y(t − 1 − y²/4). JiTCDDE has the tolerance at which its error is about that of lagrax, "
        f"{theirs:g}: it does not look for the breakpoints of such a delay. "
        + dispatch.by_default("compare.moving:state_dependent", ours),
        extra={"lagrax steps": int(solve()[1])},
    )


def _step(repetitions: int) -> Row:
    """Mackey–Glass with its delay as a function, which is staged, and as a number, which is planned."""
    field = lambda t, y, z, p: mg.BETA * z / (1 + z**mg.EXPONENT) - mg.GAMMA * y
    delays = {"staged": lambda t, y, p: p + 0 * y, "planned": None}

    def run(kind):
        term = lambda p: lx.DelayTerm(field, p if delays[kind] is None else delays[kind])
        compiled = jax.jit(lambda p, t1: _solve(term(p), t1, mg.PAST, p, max_steps=MAX_STEPS).stats["num_steps"])
        return lambda t1: compiled(jnp.asarray(mg.DELAY), jnp.asarray(t1))

    runs = {kind: run(kind) for kind in delays}
    programs = {(kind, t1): lambda kind=kind, t1=t1: runs[kind](t1) for kind in runs for t1 in (LONG, SHORT)}
    times = interleave(programs, repetitions)
    steps = {key: int(program()) for key, program in programs.items()}
    per_step = lambda kind: (times[kind, LONG] - times[kind, SHORT]) / (steps[kind, LONG] - steps[kind, SHORT])
    return Row(
        name="moving",
        what="a step, delay as a function",
        peer="itself, as a number",
        target=AtMost(3.5),
        lagrax=Side(per_step("staged")),
        other=Side(per_step("planned")),
        unit="step",
        note=f"Mackey–Glass to t = {LONG:g}: {steps['staged', LONG]} and {steps['planned', LONG]} attempted steps, the time "
        "of a few steps taken off both. As a function, steps may overlap, and breakpoints are searched for.",
    )


def _gradient(what: str, solve: Any, target: Any, kind: str, repetitions: int) -> Row:
    parameters = jnp.array([1.0, 1.0, 0.25] if solve is _state else [0.5, 0.5, 0.5])
    value = jax.jit(lambda p: solve(p).ys[0])
    gradient = jax.jit(jax.grad(lambda p: solve(p).ys[0]))
    times = interleave({"gradient": lambda: gradient(parameters), "value": lambda: value(parameters)}, repetitions)
    found, step = np.asarray(gradient(parameters)), 1e-5
    basis = step * np.eye(3)
    tight = jax.jit(lambda p: solve(p, 1e-10).ys[0])
    differences = np.array([(tight(parameters + e) - tight(parameters - e)) / (2 * step) for e in basis])
    return Row(
        name="moving",
        what=what,
        peer="itself, forwards",
        target=target,
        lagrax=Side(times["gradient"], float(np.max(np.abs(found - differences)))),
        other=Side(times["value"]),
        quantity="gradient",
        note=f"Three parameters, {kind}, at 1e-6; errors are against central differences at 1e-10.",
    )
