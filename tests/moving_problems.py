"""Equations with delays that move or vanish, and what is known of their solutions."""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import jax.numpy as jnp
import numpy as np

import lagrax as lx


@dataclasses.dataclass(frozen=True)
class Moving:
    """An equation with parameters, its solution at one time, and the gradient of that (of its first component)."""

    field: Callable
    delays: Any
    interval: tuple[float, float]
    history: Any
    parameters: tuple[float, ...]
    value: Any
    gradient: tuple[float, ...] | None = None
    gradient_at: float | None = None
    y0: Any = None
    """A function of the parameters, where the state at t0 is not the history's."""

    def solve(self, parameters, tolerance=1e-9, solver=None, t1=None, **options):
        """The state at the end (or at t1)."""
        controller = dfx.PIDController(rtol=tolerance, atol=tolerance)
        settings = {"stepsize_controller": controller, "max_steps": 1024} | options
        if self.y0 is not None:
            settings["y0"] = self.y0(parameters)
        t0, end = self.interval
        term = lx.DelayTerm(self.field, self.delays)
        solver = dfx.Tsit5() if solver is None else solver
        dt0 = settings.pop("dt0", None)
        return lx.ddesolve(term, solver, t0, end if t1 is None else t1, dt0, self.history, parameters, **settings)


def _logarithms(t):
    return jnp.stack([jnp.log(t), 1 / t])


def _two(t, y, delayed, p):
    return jnp.stack([y[1], -delayed[1] * y[1] ** 2 * jnp.exp(1 - y[1])])


MOVING = {
    # y(6) by an independent solver; gradients by an independent solver's differences.
    "state-dependent delay": Moving(
        lambda t, y, z, p: -p[0] * z,
        lambda t, y, p: p[1] + p[2] * y**2,
        (0.0, 6.0),
        1.0,
        (1.0, 1.0, 0.25),
        -0.0433198068004,
        (0.5005282, 1.4869727, 0.1803726),
        gradient_at=5.0,
    ),
    "self-referential": Moving(
        lambda t, y, z, p: p[0] * z,
        lx.At(lambda t, y, p: p[1] * y),
        (2.0, 5.5),
        0.5,
        (1.0, 1.0, 1.0),
        4.241412295056518,
        (9.0421075, 8.4415751, 7.0409342),
        y0=lambda p: p[2],
    ),
    "pantograph": Moving(
        lambda t, y, z, p: p[0] * jnp.exp(t / 2) * z + p[1] * y,
        lx.At(lambda t, y, p: p[2] * t),
        (0.0, 2.0),
        1.0,
        (0.5, 0.5, 0.5),
        np.exp(2.0),
        (11.8377026, 11.8377026, 5.8808192),
    ),
    "vanishing": Moving(
        lambda t, y, z, p: 1 - p[0] * z,
        lx.At(lambda t, y, p: jnp.exp(1 - p[1] / t)),
        (0.1, 10.0),
        jnp.log,
        (1.0, 1.0),
        np.log(10.0),
    ),
    "two components": Moving(
        _two, lx.At(lambda t, y, p: jnp.exp(1 - y[1])), (0.1, 5.0), _logarithms, (), np.array([np.log(5.0), 0.2])
    ),
    "back and forth": Moving(
        lambda t, y, z, p: -z, lambda t, y, p: 1.5 + jnp.sin(3 * t) / 1.2, (0.0, 6.0), 1.0, (), 0.447274283577
    ),
}
