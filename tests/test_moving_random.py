"""Random systems with delays that move, vanish, are tiny or zero, against `moving_oracle.py`, with their gradients.

One formula, written once for NumPy and JAX, with drawn coefficients: a delay is a sum of terms most of which are zero, so
that a few compiled shapes serve for all systems.
"""

import dataclasses
import functools as ft

import diffrax as dfx
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

from . import moving_oracle
from .test_oracle import PATIENT, along

OBSERVED = 3
"""How many times are observed, besides t1."""

STEP = 2.0**-10
"""The longest step of differences."""

FAR = 100.0
"""How far back a delay looks that a system does not have."""

KINDS = ["constant", "tiny", "zero", "wave", "state", "square", "proportional", "vanishing", "touching zero", "mixture"]


@dataclasses.dataclass(frozen=True)
class Shape:
    """What one compiled program is made for: `lags` are those of `leaf`."""

    components: int
    lags: tuple[str, ...]
    callable_history: bool = False
    y0_given: bool = False
    jumps: bool = False
    solver: str = "Tsit5"
    tolerance: float = 1e-8


MOVING = Shape(3, ("moving", "moving", "at"), callable_history=True, y0_given=True, jumps=True)
MIXED = Shape(2, ("constant", "overlapping", "moving"))
OTHERS = [
    Shape(1, ("moving",), y0_given=True),
    Shape(2, ("at", "overlapping"), callable_history=True, solver="Dopri8"),
    Shape(2, ("bounded", "moving"), y0_given=True, jumps=True, solver="Dopri5"),
    Shape(1, ("overlapping", "overlapping"), callable_history=True, jumps=True),
]


def delay(xp, i, t, y, p, vanishing_at):
    """Delay number i: a sum of terms that are not negative. Of one time and state, or of several."""
    phase = p["frequency of lag"][i] * (t - p["reference"])
    state = y @ p["direction"][i]
    wave = p["wave"][i] * (1 + xp.sin(phase))
    of_state = p["tanh"][i] * (1 + xp.tanh(state)) + p["square"][i] * state**2
    vanishing = p["vanishing"][i] * xp.abs(t - vanishing_at) + p["touching"][i] * xp.sin((t - vanishing_at) / 2) ** 2
    return p["constant"][i] + wave + of_state + p["proportion"][i] * (t - p["start"]) + vanishing


def field(xp, t, y, delayed, on, p):
    """The vector field of every system: `delayed` has one row per delay, `on` says which jumps are over."""
    now = xp.tanh(y) @ p["A"] - p["damping"] * y
    past = xp.einsum("...nd,nde->...e", xp.sin(delayed), p["B"])
    force = p["force"] * xp.sin(p["frequency"] * (t - p["reference"])[..., None])
    return now + past + force + on @ p["switched"]


def history(xp, t, on, p):
    """Of one time, or of several."""
    return p["base"] + p["amplitude"] * xp.cos(p["pace"] * (t - p["reference"])[..., None]) + on @ p["kick"]


def leaf(kind: str, i: int, variables, vanishing_at):
    """Delay number i as a user would write it."""
    constant = variables["args"]["constant"][i]
    move = lambda t, y, p: delay(jnp, i, t, y, p, vanishing_at)
    return {
        "constant": constant,
        "overlapping": lx.Lag(constant, overlap=True),
        "moving": move,
        "bounded": lx.Lag(move, minimum=jax.lax.stop_gradient(constant)),
        "at": lx.At(lambda t, y, p: t - delay(jnp, i, t, y, p, vanishing_at)),
    }[kind]


def solution(variables, fixed, shape: Shape, adjoint, tolerance: float):
    """(The weighted sum of the states at ts and t1, these states)."""
    p, past = variables["args"] | fixed["constants"], variables["history"] | fixed["constants"]
    jumps = variables.get("jump_ts", jnp.zeros(0))
    is_over = lambda t: (t >= jumps).astype(float)
    past_of = lambda t: history(jnp, t, is_over(t), past)
    vanishing_at = jumps[0] if shape.jumps else 0.0
    lags = {f"{kind} {i}": leaf(kind, i, variables, vanishing_at) for i, kind in enumerate(shape.lags)}
    stack = lambda z: jnp.stack([z[f"{kind} {i}"] for i, kind in enumerate(shape.lags)])
    solution = lx.ddesolve(
        lx.DelayTerm(lambda t, y, z, p: field(jnp, t, y, stack(z), is_over(t), p), lags),
        getattr(dfx, shape.solver)(),
        fixed["t0"],
        fixed["t1"],
        None,
        past_of if shape.callable_history else past["base"],
        p,
        y0=variables.get("y0"),
        jump_ts=variables.get("jump_ts"),
        saveat=dfx.SaveAt(ts=fixed["ts"], t1=True),
        stepsize_controller=dfx.PIDController(rtol=tolerance, atol=tolerance),
        adjoint=adjoint,
    )
    return jnp.sum(solution.ys * fixed["weights"]), solution.ys


@ft.cache
def backward(shape: Shape):
    """(variables, fixed) ↦ ((weighted sum, states), the gradient of the sum), compiled."""
    solve = lambda variables, fixed: solution(variables, fixed, shape, lx.DiscreteAdjoint(), shape.tolerance)
    return jax.jit(jax.value_and_grad(solve, has_aux=True))


@ft.cache
def forward(shape: Shape):
    """(variables, direction, fixed) ↦ the derivative of the weighted sum along the direction, compiled."""
    solve = lambda variables, fixed: solution(variables, fixed, shape, lx.ForwardMode(), shape.tolerance)[0]
    return jax.jit(lambda x, u, fixed: jax.jvp(lambda x: solve(x, fixed), (x,), (u,))[1])


@st.composite
def systems(draw, shape: Shape):
    """(variables, fixed), a system of the shape."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed of the coefficients"))
    components = draw(st.integers(1, shape.components), label="components")
    t0 = draw(st.sampled_from([0.0, -7.3, 0.1, 1e3]), label="t0")
    length = draw(st.sampled_from([0.9, 1.7, 2.9]), label="t1 - t0")
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=len(shape.lags)), label="kinds of delay")
    switches, kicks = draw(st.booleans(), label="the field jumps"), draw(st.booleans(), label="the history jumps")

    n, d = len(shape.lags), shape.components
    alive, looked_at = np.arange(d) < components, np.arange(n) < len(kinds)
    normal = lambda scale, *size: scale * rng.standard_normal(size)
    args = {
        "A": normal(0.5, d, d) * alive[:, None] * alive,
        "damping": rng.uniform(0, 1, d) * alive,
        "B": normal(1.2 / np.sqrt(len(kinds) * components), n, d, d) * looked_at[:, None, None] * alive[:, None] * alive,
        "force": normal(0.5, d) * alive,
        "frequency": rng.uniform(0.5, 3, d),
        "switched": normal(1, 2 * shape.jumps, d) * alive * np.array([switches, False] * shape.jumps).reshape(-1, 1),
    }
    args |= draw_lags(rng, shape, kinds, length) | {"direction": normal(1 / np.sqrt(components), n, d) * alive}
    past = {"base": normal(0.7, d)}
    if shape.callable_history:
        kick = normal(0.7, 2 * shape.jumps, d) * alive * np.array([False, kicks] * shape.jumps).reshape(-1, 1)
        past |= {"amplitude": normal(0.5, d) * alive, "pace": rng.uniform(0.5, 2, d), "kick": kick}
    variables = {"args": args, "history": past}
    if shape.jumps:
        kicked = -rng.uniform(0.1, 1) * length if kicks and shape.callable_history else -2 * FAR
        variables["jump_ts"] = t0 + np.array([rng.uniform(0.2, 0.8) * length, kicked])
    variables |= {"y0": normal(0.7, d)} if shape.y0_given else {}
    constants = {"reference": t0 + 0.3, "start": t0}
    fixed = {"constants": constants, "t0": t0, "t1": t0 + length, "weights": normal(1, OBSERVED + 1, d) * alive}
    try:
        solved = moving_oracle.solve(equation(shape, variables, fixed))
    except moving_oracle.TooManyKinks:
        hypothesis.reject()
    t1, ts = observations(rng, solved.kinks, t0, length)
    hypothesis.note(f"{components} components, delays {kinds}, t0 = {t0}, ts = {ts}, t1 = {t1}, kinks {solved.kinks}")
    return variables, fixed | {"t1": t1, "ts": ts}


def draw_lags(rng, shape: Shape, kinds: list[str], length: float) -> dict[str, np.ndarray]:
    """The coefficients of the delays. What a constant cannot be, it is not."""
    n = len(shape.lags)
    names = ["constant", "wave", "tanh", "square", "proportion", "vanishing", "touching"]
    terms = {name: np.zeros(n) for name in names} | {"constant": np.full(n, FAR)}
    terms["frequency of lag"] = rng.uniform(1, 8, n)
    for i, (leaf, kind) in enumerate(zip(shape.lags, kinds, strict=False)):
        often = lambda name, kind=kind: kind == name or (kind == "mixture" and rng.random() < 0.4)
        least = rng.choice([0.0, 0.03, 0.3]) if leaf in ("moving", "at") else 0.2 if leaf == "bounded" else 0.0
        if kind == "constant" or leaf == "constant":
            least = rng.uniform(0.1, 1.0) * length
        elif leaf == "overlapping" or kind in ("tiny", "zero"):
            least = {"tiny": 1e-3, "zero": 0.0}.get(kind, rng.uniform(0.02, 1.0))
        terms["constant"][i] = max(least, 0.1) if leaf == "bounded" else least
        terms["wave"][i] = often("wave") * rng.uniform(0.05, 0.6)
        terms["tanh"][i] = often("state") * rng.uniform(0.05, 0.6)
        terms["square"][i] = often("square") * rng.uniform(0.05, 0.8)
        terms["proportion"][i] = often("proportional") * rng.uniform(0.05, 0.95)
        terms["vanishing"][i] = often("vanishing") * shape.jumps * rng.uniform(0.2, 1.5)
        terms["touching"][i] = often("touching zero") * rng.uniform(0.2, 3.0)
    return terms


def observations(rng, kinks: dict[float, int], t0: float, length: float) -> tuple[float, np.ndarray]:
    """(t1, ts), between the kinks."""
    sharp = np.array(sorted(time for time, level in kinks.items() if time >= t0 and level < 4))
    widths = np.diff(np.append(sharp, t0 + length))
    wide = np.flatnonzero(widths > min(0.05 * length, 0.9 * widths.max()))
    chosen = rng.choice(wide, OBSERVED)
    ts = np.sort(sharp[chosen] + rng.uniform(0.3, 0.7, OBSERVED) * widths[chosen])
    return float(sharp[wide[-1]] + 0.8 * widths[wide[-1]]), ts


def equation(shape: Shape, variables, fixed) -> moving_oracle.Equation:
    """The same system for the oracle."""
    p, past = variables["args"] | fixed["constants"], variables["history"] | fixed["constants"]
    jump_ts = variables.get("jump_ts", np.zeros(0))
    vanishing_at = jump_ts[0] if shape.jumps else 0.0
    before = lambda t, on: (
        history(np, t, on.astype(float), past) if shape.callable_history else past["base"] + 0 * t[..., None]
    )

    def looked_up(t, y):
        still = ["constant", "overlapping"]
        delays = [
            p["constant"][i] + 0 * t if kind in still else delay(np, i, t, y, p, vanishing_at)
            for i, kind in enumerate(shape.lags)
        ]
        return t[:, None] - np.stack(delays, axis=1)

    t0 = np.asarray(fixed["t0"])
    return moving_oracle.Equation(
        field=lambda t, y, delayed, on: field(np, t, y, delayed, on.astype(float), p),
        looked_up=looked_up,
        history=before,
        y0=variables.get("y0", before(t0, t0 >= jump_ts)),
        t0=fixed["t0"],
        t1=fixed["t1"],
        jump_ts=jump_ts,
        slopes=np.zeros(len(shape.lags), bool),
    )


def reference(shape: Shape, variables, fixed) -> np.ndarray:
    """What the oracle says of the states at ts and t1."""
    return moving_oracle.solve(equation(shape, variables, fixed))(np.append(fixed["ts"], fixed["t1"]))


def direction_of(rng, variables):
    """A random direction in which everything moves, coefficients of delays in proportion to themselves."""
    positive = {"constant", "wave", "tanh", "square", "proportion", "vanishing", "touching"}
    draw = lambda x, size: np.clip(rng.standard_normal(np.shape(x)), -2, 2) * size
    args = {name: draw(x, np.minimum(x, 1) if name in positive else 0.5) for name, x in variables["args"].items()}
    rest = {name: x for name, x in variables.items() if name != "args"}
    return {"args": args} | jax.tree.map(lambda x: draw(x, 0.5), rest)


def difference(function, variables, direction) -> tuple[float, float]:
    """The derivative along a direction by central differences, extrapolated twice, and about how wrong it is."""
    moved = lambda h: function(jax.tree.map(lambda x, u: x + h * u, variables, direction))
    steps = STEP / 2 ** np.arange(3)
    coarse, middle, fine = [(moved(h) - moved(-h)) / (2 * h) for h in steps]
    coarser, finer = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
    return (16 * finer - coarser) / 15, abs(finer - coarser)


@dataclasses.dataclass
class Errors:
    """The errors of one system, as shares of what is allowed."""

    value: float
    gradient: float | None
    forward: float

    def check(self):
        assert self.value < 1
        assert self.gradient is None or self.gradient < 1
        assert self.forward < 1


def errors_of(shape: Shape, variables, fixed) -> Errors:
    """Values to 1e-6, gradients to 1e-5 where differences tell them that well, both modes the same to 1e-7."""
    (_, states), gradient = backward(shape)(variables, fixed)
    expected = reference(shape, variables, fixed)
    direction = direction_of(np.random.default_rng(0), variables)
    derivative, size = along(gradient, direction)
    loss = lambda variables: np.sum(fixed["weights"] * reference(shape, variables, fixed))
    correct, uncertain = difference(loss, variables, direction)
    in_forward = forward(shape)(variables, direction, fixed)
    return Errors(
        value=np.max(np.abs(states - expected)) / (1 + np.max(np.abs(expected))) / 1e-6,
        gradient=None if uncertain > 1e-6 * (1 + size) else abs(derivative - correct) / (1 + size) / 1e-5,
        forward=float(abs(in_forward - derivative) / (1 + size) / 1e-7),
    )


EVERYDAY = hypothesis.settings(PATIENT, max_examples=4, derandomize=True)


@pytest.mark.parametrize("shape", [MIXED], ids=["mixed"])
@EVERYDAY
@hypothesis.given(data=st.data())
def test_systems(shape, data):
    errors_of(shape, *data.draw(systems(shape))).check()


SYSTEMS = 50
"""For each shape, in the long run."""


@pytest.mark.slow
@pytest.mark.parametrize("shape", [MOVING, MIXED, *OTHERS], ids=repr)
def test_hundreds_of_systems(shape):
    found = []

    @hypothesis.seed(2026)
    @hypothesis.settings(PATIENT, max_examples=SYSTEMS, print_blob=True)
    @hypothesis.given(data=st.data())
    def check(data):
        found.append(errors_of(shape, *data.draw(systems(shape))))
        found[-1].check()

    check()
    gradients = [errors.gradient for errors in found if errors.gradient is not None]
    print(f"{len(found)} systems, worst error of the values {1e-6 * max(e.value for e in found):.1e}, of {len(gradients)}")
    print(f"gradients {1e-5 * max(gradients):.1e}, between the modes {1e-7 * max(e.forward for e in found):.1e}")
    assert len(found) >= SYSTEMS
    assert len(gradients) > 0.8 * len(found)
