"""Delay equations with known answers."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Known:
    """An equation, and its exact solution at some times (or reference values good to 14 digits)."""

    name: str
    field: Callable
    delays: Any
    history: Any
    values: dict[float, float]
    args: Any = None
    y0: Any = None


def decay_solution(t, a=1.0, tau=1.0, t0=0.0):
    """y' = -a y(t - τ), y = 1 in the past."""
    return sum((-a) ** k * np.maximum(t - t0 - (k - 1) * tau, 0) ** k / math.factorial(k) for k in range(40))


def jump_solution(t, a=1.0, tau=1.0):
    """y' = -a y(t - τ), y = 0 in the past, y(0) = 1."""
    return sum((-a) ** k * np.maximum(t - k * tau, 0.0) ** k / math.factorial(k) for k in range(40))


def decay(t, y, delayed, a):
    return -a * delayed


def hutchinson(t, y, delayed, r):
    return r * y * (1 - delayed)


def mackey_glass(t, y, delayed, args):
    beta, n, gamma = args
    return beta * delayed / (1 + delayed**n) - gamma * y


KNOWN = [
    Known("decay", decay, 1.0, 1.0, {5.0: 19 / 120, 10.0: 10493 / 518400}, args=1.0),
    Known("decay, jump", decay, 1.0, 0.0, {2.5: -3 / 8, 10.0: 19223 / 362880}, args=1.0, y0=1.0),
    Known("growth", decay, 1.0, 1.0, {5.0: 767 / 40, 10.0: 14640251 / 44800}, args=-1.0),
    Known("sine", decay, math.pi / 2, jnp.sin, {1.0: math.sin(1.0), 10.0: math.sin(10.0)}, args=1.0),
    Known("hutchinson", hutchinson, 1.0, 0.5, {10.0: 1.355564183665298}, args=1.5),
    Known("mackey-glass", mackey_glass, 14.0, 0.5, {100.0: 0.828187747810583}, args=(0.2, 10.0, 0.1)),
]
