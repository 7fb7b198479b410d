"""Random systems with delays of every kind in one PyTree, against `moving_oracle.py`, with their gradients.

As in `test_moving_random.py` one formula, with drawn coefficients, serves for all systems of a shape. Delays are constant,
of time and state, vanishing, or of the derivative; integrals have a uniform, a gamma or any other kernel.
"""

import dataclasses
import functools as ft
import math

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

from . import moving_oracle
from .test_moving_random import Errors, difference, direction_of, observations
from .test_oracle import along

SLOPES = ("slope", "moving slope", "vanishing slope")
INTEGRALS = ("uniform", "gamma", "endless gamma", "kernel", "tent")
GAMMA = 3
"""The shape of gamma kernels."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """What one compiled program is made for: `leaves` are those of `leaf`, delays before integrals."""

    components: int
    leaves: tuple[str, ...]
    y0_given: bool = False
    jumps: bool = False
    solver: str = "Tsit5"
    tolerance: float = 1e-8


EVERY = Shape(2, ("constant", "moving", "slope", "gamma", "kernel"))
SHAPES = [
    EVERY,
    Shape(3, ("vanishing", "moving slope", "uniform", "endless gamma"), y0_given=True),
    Shape(1, ("moving", "vanishing slope", "tent"), jumps=True),
    Shape(2, ("constant", "slope", "uniform", "gamma"), jumps=True, y0_given=True, solver="Dopri8"),
    Shape(2, ("moving slope", "uniform", "tent", "kernel"), y0_given=True, solver="Dopri5"),
]


def delay(xp, kind: str, i: int, t, y, p):
    """Delay number i, of one time and state or of several."""
    still = p["constant"][i] + 0 * t
    phase = p["frequency of lag"][i] * (t - p["reference"])
    if kind in ("constant", "slope"):
        return still
    if kind == "vanishing slope":  # at t0 alone: kinks of derivatives would gather without end where it vanishes later
        return (0.2 + p["wave"][i]) * (t - p["start"])
    if kind == "vanishing":
        return p["wave"][i] * xp.sin(phase / 3) ** 2
    return still + p["wave"][i] * (1 + xp.sin(phase)) + p["tanh"][i] * (1 + xp.tanh(y @ p["direction"][i]))


def kernel(xp, kind: str, i: int, s, p):
    """The kernel of integral number i."""
    rate = p["rate"][i]
    if kind == "uniform":
        return xp.ones_like(s)
    if kind in ("gamma", "endless gamma"):
        return rate**GAMMA * s ** (GAMMA - 1) * xp.exp(-rate * s) / math.factorial(GAMMA - 1)
    bump = xp.exp(-rate * (s - p["centre"][i]) ** 2)
    return bump if kind == "kernel" else bump + xp.abs(s - p["kink"][i])


def integrand(xp, i: int, t, y, p):
    return xp.tanh(y * p["gain"][i]) + 0.2 * xp.cos(t - p["reference"])[..., None] * y


def field(xp, t, y, delayed, on, p):
    """`delayed` has one row for each delay and integral, `on` says which jumps are over."""
    now = xp.tanh(y) @ p["A"] - p["damping"] * y
    past = xp.einsum("...nd,nde->...e", xp.sin(delayed), p["B"])
    return now + past + p["force"] * xp.sin(2 * (t - p["reference"])[..., None]) + on @ p["switched"]


def history(xp, t, on, p):
    return p["base"] + p["amplitude"] * xp.cos(p["pace"] * (t - p["reference"])[..., None]) + on @ p["kick"]


def history_slope(t, p):
    return -p["amplitude"] * p["pace"] * np.sin(p["pace"] * (t - p["reference"])[..., None])


def leaf(kind: str, i: int, p):
    """Delay or integral number i as a user would write it."""
    move = lambda t, y, p: delay(jnp, kind, i, t, y, p)
    if kind not in INTEGRALS:
        of = p["constant"][i] if kind in ("constant", "slope") else move
        return lx.Derivative(of) if kind in SLOPES else of
    of = lambda t, y, p: integrand(jnp, i, t, y, p)
    weights = lambda s: kernel(jnp, kind, i, s, p)
    kernels = {"uniform": lx.Uniform(), "gamma": lx.Gamma(GAMMA, p["rate"][i])}
    lower, upper = p["lower"][i], p["upper"][i]
    if kind == "endless gamma":
        return lx.Integral(lower, jnp.inf, lx.Gamma(GAMMA, p["rate"][i]), of)
    return lx.Integral(lower, upper, kernels.get(kind, weights), of, kinks=(p["kink"][i],) if kind == "tent" else ())


def solution(variables, fixed, shape: Shape, adjoint):
    """(The weighted sum of the states at ts and t1, these states)."""
    p, past = variables["args"] | fixed["constants"], variables["history"] | fixed["constants"]
    jumps = variables.get("jump_ts", jnp.zeros(0))
    is_over = lambda t: (t >= jumps).astype(float)
    names = [f"{kind} {i}" for i, kind in enumerate(shape.leaves)]
    solved = lx.ddesolve(
        lx.DelayTerm(
            lambda t, y, z, p: field(jnp, t, y, jnp.stack([z[name] for name in names]), is_over(t), p),
            {name: leaf(kind, i, p) for i, (name, kind) in enumerate(zip(names, shape.leaves, strict=True))},
        ),
        getattr(dfx, shape.solver)(),
        fixed["t0"],
        fixed["t1"],
        None,
        lambda t: history(jnp, t, is_over(t), past),
        p,
        y0=variables.get("y0"),
        jump_ts=variables.get("jump_ts"),
        saveat=dfx.SaveAt(ts=fixed["ts"], t1=True),
        stepsize_controller=dfx.PIDController(rtol=shape.tolerance, atol=shape.tolerance),
        adjoint=adjoint,
        max_steps=1024,
    )
    return jnp.sum(solved.ys * fixed["weights"]), solved.ys


@ft.cache
def backward(shape: Shape):
    """(variables, fixed) ↦ ((weighted sum, states), the gradient of the sum), compiled."""
    solve = lambda variables, fixed: solution(variables, fixed, shape, lx.DiscreteAdjoint())
    return jax.jit(jax.value_and_grad(solve, has_aux=True))


@ft.cache
def forward(shape: Shape):
    """(variables, direction, fixed) ↦ the derivative of the weighted sum along the direction, compiled."""
    solve = lambda variables, fixed: solution(variables, fixed, shape, lx.ForwardMode())[0]
    return jax.jit(lambda x, u, fixed: jax.jvp(lambda x: solve(x, fixed), (x,), (u,))[1])


def system(shape: Shape, seed: int):
    """(variables, fixed), a system of the shape; None if it has too many kinks."""
    rng = np.random.default_rng(seed)
    n, d, jumps = len(shape.leaves), shape.components, 2 * shape.jumps
    normal = lambda scale, *size: scale * rng.standard_normal(size)
    t0, length = rng.choice([0.0, -7.3, 0.1, 50.0]), rng.choice([0.9, 1.7, 2.5])
    strength = np.array([0.3 if kind in SLOPES else 0.6 for kind in shape.leaves])
    mixing = normal(1, n, d, d)
    mixing *= (strength / np.linalg.norm(mixing, axis=(1, 2)))[:, None, None]
    lower = rng.uniform(0.05, 0.6, n)
    upper = lower + rng.uniform(0.2, 2.0, n)
    args = {
        "A": normal(0.4, d, d),
        "damping": rng.uniform(0, 1, d),
        "B": mixing,
        "force": normal(0.5, d),
        "switched": normal(1, jumps, d) * np.array([True, False] * shape.jumps).reshape(-1, 1),
        "constant": rng.uniform(0.3, 1.2, n),
        "wave": rng.uniform(0.05, 0.6, n),
        "tanh": rng.uniform(0.05, 0.3, n),
        "frequency of lag": rng.uniform(1, 5, n),
        "direction": normal(1 / np.sqrt(d), n, d),
        "rate": rng.uniform(0.5, 3, n),
        "centre": rng.uniform(0, 2, n),
        "lower": lower,
        "upper": upper,
        "kink": lower + rng.uniform(0.2, 0.8, n) * (upper - lower),
        "gain": normal(1, n, d),
    }
    kick = normal(0.7, jumps, d) * np.array([False, True] * shape.jumps).reshape(-1, 1)
    past = {"base": normal(0.7, d), "amplitude": normal(0.5, d), "pace": rng.uniform(0.5, 2, d), "kick": kick}
    variables = {"args": args, "history": past}
    if shape.jumps:
        variables["jump_ts"] = t0 + np.array([rng.uniform(0.2, 0.8), -rng.uniform(0.1, 1)]) * length
    variables |= {"y0": normal(0.7, d)} if shape.y0_given else {}
    constants = {"reference": t0 + 0.3, "start": t0}
    fixed = {"constants": constants, "t0": t0, "t1": t0 + length, "weights": normal(1, 4, d)}
    try:
        solved = moving_oracle.solve(equation(shape, variables, fixed), longest=0.1)
    except moving_oracle.TooManyKinks:
        return None
    times = np.array(sorted(time for time, level in solved.kinks.items() if level < 2))
    if np.min(np.diff(times), initial=1.0) < 0.001 * length:
        return None  # differences move kinks past one another
    t1, ts = observations(rng, solved.kinks, t0, length)
    return variables, fixed | {"t1": t1, "ts": ts}


def summed(shape: Shape, i: int, p) -> moving_oracle.Sum:
    """Integral number i for the oracle, in parts over which the kernel is smooth and slow."""
    kind, lower, upper = shape.leaves[i], p["lower"][i], p["upper"][i]
    upper = lower + 60 / p["rate"][i] if kind == "endless gamma" else upper
    edges = np.linspace(lower, upper, 25 if kind == "endless gamma" else 3)
    edges = np.sort(np.append(edges, p["kink"][i])) if kind == "tent" else edges
    return moving_oracle.Sum(
        edges=edges,
        kernel=lambda s: kernel(np, kind, i, s, p),
        of=lambda t, y: integrand(np, i, t, y, p),
    )


def equation(shape: Shape, variables, fixed) -> moving_oracle.Equation:
    """The same system for the oracle."""
    p, past = variables["args"] | fixed["constants"], variables["history"] | fixed["constants"]
    jump_ts = variables.get("jump_ts", np.zeros(0))
    lags = [i for i, kind in enumerate(shape.leaves) if kind not in INTEGRALS]
    sums = [i for i, kind in enumerate(shape.leaves) if kind in INTEGRALS]
    assert lags + sums == list(range(len(shape.leaves)))

    def looked_up(t, y):
        edges = lambda i: ["lower", "kink", "upper"] if shape.leaves[i] == "tent" else ["lower", "upper"]
        ends = [t - p[name][i] for i in sums for name in edges(i)]
        return np.stack([t - delay(np, shape.leaves[i], i, t, y, p) for i in lags] + ends, axis=1)

    t0 = np.asarray(fixed["t0"])
    return moving_oracle.Equation(
        field=lambda t, y, delayed, on: field(np, t, y, delayed, on.astype(float), p),
        looked_up=looked_up,
        history=lambda t, on: history(np, t, on.astype(float), past),
        y0=variables.get("y0", history(np, t0, (t0 >= jump_ts).astype(float), past)),
        t0=fixed["t0"],
        t1=fixed["t1"],
        jump_ts=jump_ts,
        slopes=np.array([shape.leaves[i] in SLOPES for i in lags]),
        history_slope=lambda t, on: history_slope(t, past),
        sums=tuple(summed(shape, i, p) for i in sums),
    )


def reference(shape: Shape, variables, fixed) -> np.ndarray:
    """What the oracle says of the states at ts and t1."""
    return moving_oracle.solve(equation(shape, variables, fixed), longest=0.1)(np.append(fixed["ts"], fixed["t1"]))


def errors_of(shape: Shape, variables, fixed, modes: bool) -> Errors:
    """Values to 1e-6, gradients to 1e-5 where differences tell them that well, both modes the same to 1e-7."""
    (_, states), gradient = backward(shape)(variables, fixed)
    expected = reference(shape, variables, fixed)
    direction = direction_of(np.random.default_rng(0), variables)
    derivative, size = along(gradient, direction)
    loss = lambda variables: np.sum(fixed["weights"] * reference(shape, variables, fixed))
    correct, uncertain = difference(loss, variables, direction)
    in_forward = forward(shape)(variables, direction, fixed) if modes else derivative
    return Errors(
        value=np.max(np.abs(states - expected)) / (1 + np.max(np.abs(expected))) / 1e-6,
        gradient=None if uncertain > 1e-6 * (1 + size) else abs(derivative - correct) / (1 + size) / 1e-5,
        forward=float(abs(in_forward - derivative) / (1 + size) / 1e-7),
    )


def drawn(shape: Shape, count: int):
    """The first systems of the shape that are not left out."""
    found, seed = [], 0
    while len(found) < count:
        one = system(shape, seed)
        found += [] if one is None else [(seed, *one)]
        seed += 1
    return found


@pytest.mark.slow
def test_systems():
    for _, variables, fixed in drawn(EVERY, 2):
        errors_of(EVERY, variables, fixed, modes=False).check()


SYSTEMS = 42
"""For each shape, in the long run."""


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(shape.leaves))
def test_hundreds_of_systems(shape):
    found = []
    for seed, variables, fixed in drawn(shape, SYSTEMS):
        found.append((errors_of(shape, variables, fixed, modes=len(found) < 5), seed))
        print(seed, found[-1][0], flush=True)
    for errors, _ in found:
        errors.check()
    assert sum(errors.gradient is not None for errors, _ in found) > 0.8 * len(found)
