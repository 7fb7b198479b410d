"""Delays of a derivative, and delays spread over the past, against JiTCDDE."""

from collections.abc import Callable, Iterator
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .. import dispatch
from ..precision import double_precision
from ..row import Faster, Row, Side
from ..timing import interleave

RATE, SHARE = np.pi / np.sqrt(3) + 1 / 20, np.sqrt(3) / (2 * np.pi) - 1 / 25
NEUTRAL_END, NEUTRAL_EXACT = 40.0, 0.804413836197132
SPREAD_END = 20.0
OWN_EQUATIONS = "equations of its own"


def kinds(repetitions: int) -> Iterator[Row]:
    with double_precision():
        for ours, theirs in ((1e-6, 1e-7), (1e-9, 1e-8)):  # at which errors are about equal
            yield _neutral(ours, theirs, repetitions)
        for name in (OWN_EQUATIONS, "over the steps"):
            yield _distributed(name, repetitions)


def _solve(term: lx.DelayTerm, t1: float, past: Any, tolerance: float, max_steps: int) -> Any:
    controller = dfx.PIDController(rtol=tolerance, atol=tolerance)
    options = {"stepsize_controller": controller, "max_steps": max_steps, "throw": False}
    compiled = jax.jit(lambda t1: lx.ddesolve(term, dfx.Tsit5(), 0.0, t1, None, past, **options).ys[0])
    return lambda: compiled(t1)


def neutral_logistic(tolerance: float) -> Callable[[], Any]:
    field = lambda t, y, z, args: RATE * y * (1 - z[0] - SHARE * z[1])
    return _solve(lx.DelayTerm(field, (1.0, lx.Derivative(1.0))), NEUTRAL_END, lambda t: 2 + t, tolerance, 1024)


def spread(name: str, tolerance: float) -> Callable[[], Any]:
    """y′ = −½ ∫ y over [0, π], solved by cos."""
    kernel = lx.Uniform() if name == OWN_EQUATIONS else lambda s: jnp.ones_like(s)
    term = lx.DelayTerm(lambda t, y, z, args: -z / 2, lx.Integral(0.0, np.pi, kernel))
    return _solve(term, SPREAD_END, jnp.cos, tolerance, 256)


def _neutral(ours: float, theirs: float, repetitions: int) -> Row:
    from .. import with_jitcdde

    peer, solve = with_jitcdde.NeutralLogistic(RATE, SHARE, theirs), neutral_logistic(ours)
    times = interleave({"lagrax": solve, "JiTCDDE": lambda: peer(NEUTRAL_END)}, repetitions)
    return Row(
        name="kinds",
        what=f"neutral logistic to t = 40, at {ours:g}",
        peer="JiTCDDE",
        target=Faster(5),
        lagrax=Side(times["lagrax"], abs(float(solve()) - NEUTRAL_EXACT)),
        other=Side(times["JiTCDDE"], abs(peer(NEUTRAL_END) - NEUTRAL_EXACT)),
        quantity="y(40)",
        note=f"Kuang's equation, a kink at every whole number. Tolerances {ours:g} and {theirs:g}. "
        + dispatch.by_default("compare.kinds:neutral_logistic", ours),
    )


def _distributed(name: str, repetitions: int) -> Row:
    from .. import with_jitcdde

    ours, theirs = 1e-6, 1e-6
    peer, solve = with_jitcdde.Spread(theirs), spread(name, ours)
    times = interleave({"lagrax": solve, "JiTCDDE": lambda: peer(SPREAD_END)}, repetitions)
    exact = np.cos(SPREAD_END)
    return Row(
        name="kinds",
        what=f"distributed delay to t = 20, {name}",
        peer="JiTCDDE",
        target=Faster(5),
        lagrax=Side(times["lagrax"], abs(float(solve()) - exact)),
        other=Side(times["JiTCDDE"], abs(peer(SPREAD_END) - exact)),
        quantity="y(20)",
        note=f"y′ = −½ ∫ y(t − s) ds over [0, π]; JiTCDDE with its `quadrature`, {with_jitcdde.Spread.POINTS} Gauss points. "
        f"Tolerances {ours:g} and {theirs:g}. " + dispatch.by_default("compare.kinds:spread", name, ours),
    )
