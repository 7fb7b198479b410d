"""Random systems with every kind of delay, history and jump, against `oracle.py`, and their gradients against differences.

One formula, written once for NumPy and JAX, with drawn coefficients: those of components, delays and jumps that a system
does not have are zero (and lie where nobody looks), so that a few compiled shapes serve for all systems.
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

from . import oracle

OBSERVED = 3
"""How many times are observed, besides t1."""

STEP = 2.0**-11
"""The longest step of differences, relative to the delays and the interval."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """What one compiled program is made for."""

    components: int
    delays: int
    callable_history: bool = False
    y0_given: bool = False
    field_jumps: int = 0
    history_jumps: int = 0
    solver: str = "Tsit5"
    tolerance: float = 1e-9


JUMPING = Shape(3, 4, callable_history=True, y0_given=True, field_jumps=2, history_jumps=2)
MANY = Shape(6, 8, field_jumps=1)
OTHERS = [
    Shape(1, 1),
    Shape(2, 3, y0_given=True, solver="Dopri8"),
    Shape(4, 2, callable_history=True, history_jumps=1, solver="Dopri5"),
    Shape(2, 5, callable_history=True, field_jumps=3),
    Shape(2, 2, y0_given=True, field_jumps=1, solver="Bosh3", tolerance=1e-7),
]


def field(xp, t, y, delayed, on, p):
    """The vector field of every system: `delayed` has one row per delay, `on` says which jumps are over.

    The delays enter in a sum, so that where two of them bring a jump at the same time the solution is still differentiable.
    With coupling it is not, and there is none where that happens.
    """
    now = p["A"] @ xp.tanh(y) - p["damping"] * y
    past = p["B"] @ xp.sin(delayed).ravel()
    coupled = xp.cos(y) * xp.sum(p["coupling"] * delayed, axis=0)
    force = p["force"] * xp.sin(p["frequency"] * (t - p["reference"]))
    return now + past + coupled + force + on @ p["switched"]


def history(xp, t, on, p):
    """Of one time, or of several."""
    return p["base"] + p["amplitude"] * xp.cos(p["pace"] * (t - p["reference"])[..., None]) + on @ p["kick"]


@ft.cache
def program(shape: Shape):
    """(variables, fixed) ↦ ((weighted sum, states at ts and t1), its gradient in the variables), compiled."""

    def solve(variables, fixed):
        p, past = variables["args"] | fixed["constants"], variables["history"] | fixed["constants"]
        jumps = variables.get("jump_ts", jnp.zeros(0))
        is_over = lambda t, strict: jnp.where(strict, t > jumps, t >= jumps).astype(float)
        past_of = lambda t: history(jnp, t, is_over(t, fixed["strict history"]), past)
        solution = lx.ddesolve(
            lx.DelayTerm(
                lambda t, y, z, p: field(jnp, t, y, jnp.stack(z), is_over(t, fixed["strict"]), p), tuple(variables["delays"])
            ),
            getattr(dfx, shape.solver)(),
            variables["t0"],
            variables["t1"],
            None,
            past_of if shape.callable_history else past["base"],
            p,
            y0=variables.get("y0"),
            jump_ts=variables.get("jump_ts"),
            saveat=dfx.SaveAt(ts=variables["ts"], t1=True),
            stepsize_controller=dfx.PIDController(rtol=shape.tolerance, atol=shape.tolerance / 100),
        )
        return jnp.sum(solution.ys * fixed["weights"]), solution.ys

    return jax.jit(jax.value_and_grad(solve, has_aux=True))


@st.composite
def systems(draw, shape: Shape, smooth: bool = True):
    """(variables, fixed), a system of the shape. `smooth`: nothing is observed where the derivative does not exist."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed of the coefficients"))
    kind = draw(st.sampled_from(["any", "commensurate", "nearly equal", "tiny", "long"]), label="delays")
    components = draw(st.integers(1, shape.components), label="components")
    used = draw(st.integers(1, shape.delays), label="number of delays")
    t0 = draw(st.sampled_from([0.0, -7.3, 1e6, -1e3, 0.1]), label="t0")
    length = draw(st.sampled_from([0.7, 1.9, 3.3, 6.1]), label="t1 - t0")
    jumping = [draw(st.booleans(), label="jump") for _ in range(shape.field_jumps + shape.history_jumps)]
    touching = draw(st.booleans(), label="the first jump is on an echo")
    strict = [draw(st.booleans(), label="jumps of the field, the history are written with >") for _ in range(2)]

    n, d, jumps = shape.delays, shape.components, len(jumping)
    delays = np.concatenate([draw_delays(rng, kind, used, length), np.full(n - used, 100.0)])
    jump_ts = t0 + draw_jumps(rng, shape, jumping, delays[:used], length, touching)
    alive, looked_at = np.arange(d) < components, np.arange(n) < used
    of_field = np.arange(jumps) < shape.field_jumps
    normal = lambda scale, *size: scale * rng.standard_normal(size)
    happens = np.array(jumping, bool).reshape(jumps, 1) & alive
    args = {
        "A": normal(0.5, d, d) * alive[:, None] * alive,
        "damping": rng.uniform(0, 1, d) * alive,
        "B": normal(0.8 / np.sqrt(used * components), d, n * d) * alive[:, None] * np.outer(looked_at, alive).ravel(),
        "coupling": normal(0.4 / used, n, d) * looked_at[:, None] * alive,
        "force": normal(0.5, d) * alive,
        "frequency": rng.uniform(0.5, 3, d),
        "switched": normal(1, jumps, d) * happens * of_field[:, None],
    }
    past = {"base": normal(0.7, d)}
    if shape.callable_history:
        kick = normal(0.7, jumps, d) * happens * ~of_field[:, None]
        past |= {"amplitude": normal(0.5, d) * alive, "pace": rng.uniform(0.5, 2, d), "kick": kick}
    variables = {"args": args, "delays": delays, "history": past, "t0": t0, "t1": t0 + length}
    variables |= {"jump_ts": jump_ts} if jumps else {}
    variables |= {"y0": normal(0.7, d)} if shape.y0_given else {}
    fixed = {"constants": {"reference": t0 + 0.3}, "strict": strict[0], "strict history": strict[1]}
    jumps_of_y = np.append(jump_ts[jump_ts < t0] - t0, 0.0)
    corners = np.sort(np.concatenate([(jumps_of_y[:, None] + delays).ravel(), jump_ts - t0]))
    args["coupling"] *= np.min(np.diff(corners[(corners > 0) & (corners < length)]), initial=np.inf) > 8 * STEP * length
    t1, ts = observations(rng, oracle.breakpoints(equation(shape, variables, fixed)), length, smooth)
    fixed["weights"] = normal(1, OBSERVED + 1, d) * alive
    hypothesis.note(f"{components} components, {kind} delays {delays[:used]}, t0 = {t0}, jumps {jump_ts}, ts = {t0 + ts}")
    return variables | {"t1": t0 + t1, "ts": t0 + ts}, fixed


def draw_delays(rng, kind: str, used: int, length: float) -> np.ndarray:
    first = rng.uniform(0.15, 0.6) * length
    if kind == "commensurate":
        return first * rng.integers(1, 5, used)
    if kind == "nearly equal":
        return first * (1 + rng.choice([0.0, 1e-15, 1e-12, 1e-9, 1e-5], used))
    delays = rng.uniform(0.15, 1.0, used) * length
    if kind == "tiny":
        delays[rng.integers(used)] = rng.uniform(0.01, 0.02) * length
    if kind == "long":
        delays[rng.integers(0, 2, used).astype(bool)] += length
    return delays


def draw_jumps(rng, shape: Shape, jumping, delays, length: float, touching: bool) -> np.ndarray:
    """Times, after t0, of the field's jumps, then of the history's."""
    times = []
    for i, there in enumerate(jumping):
        if i < shape.field_jumps:
            there = there and not (touching and i == 0 and delays[0] >= length)
            time = delays[0] if touching and i == 0 else rng.uniform(0.05, 0.95) * length
            times.append(time if there else 50.0 + i)
        else:
            # The derivative does not exist where an echo begins to matter, at t0.
            tries = -rng.uniform(0.1, 0.9, 20) * np.append(np.full(19, delays.max()), delays.min())
            clear = np.min(np.abs(tries[:, None] + delays), axis=1) > 0.05 * delays.min()
            # Nor where two jumps meet: what is looked up between them is not the sum of what each makes of it.
            earlier = np.array([time for time in times[shape.field_jumps :] if time > -200.0])
            apart = np.min(np.abs(tries[:, None] - earlier), axis=1, initial=np.inf)
            clear &= apart > 8 * STEP * min(delays.min(), length)
            times.append(tries[np.argmax(clear)] if there else -200.0 - i)
    return np.array(times)


def observations(rng, kinks: dict[float, int], length: float, smooth: bool) -> tuple[float, np.ndarray]:
    """(t1, ts), after t0: between the kinks, or else on them, on t0 and on t1."""
    sharp = np.array(sorted(time for time, level in kinks.items() if time >= 0 and level < 3))
    if not smooth:
        return length, np.sort(np.append([0.0, length], rng.choice(sharp, OBSERVED - 2)))
    widths = np.diff(np.append(sharp, length))
    wide = np.flatnonzero(widths > min(0.02 * length, 0.9 * widths.max()))
    chosen = rng.choice(wide, OBSERVED)
    ts = np.sort(sharp[chosen] + rng.uniform(0.3, 0.7, OBSERVED) * widths[chosen])
    return float(sharp[wide[-1]] + 0.8 * widths[wide[-1]]), ts


def equation(shape: Shape, variables, fixed) -> oracle.Equation:
    """The same system for the oracle."""
    p, past = variables["args"] | fixed["constants"], variables["history"] | fixed["constants"]
    past_of = (
        (lambda t, on: history(np, t, on, past))
        if shape.callable_history
        else (lambda t, on: past["base"] + 0 * t[..., None])
    )
    jump_ts = variables.get("jump_ts", np.zeros(0))
    return oracle.Equation(
        field=lambda t, y, delayed, on: field(np, t, y, delayed, on.astype(float), p),
        delays=variables["delays"],
        history=lambda t, on: past_of(t, on.astype(float)),
        y0=variables.get("y0", past_of(np.asarray(variables["t0"]), (variables["t0"] >= jump_ts).astype(float))),
        t0=variables["t0"],
        t1=variables["t1"],
        jump_ts=jump_ts,
    )


def reference(shape: Shape, variables, fixed) -> np.ndarray:
    """What the oracle says of the states at ts and t1."""
    return oracle.solve(equation(shape, variables, fixed), np.append(variables["ts"], variables["t1"]))


def directions(rng, variables) -> dict[str, dict]:
    """A random direction for each kind of variable; times move by the smallest delay, so that their order stays."""
    length = variables["t1"] - variables["t0"]
    short = min(np.min(variables["delays"]), length)
    sizes = {"delays": np.minimum(variables["delays"], length), "jump_ts": short, "t0": short, "t1": short, "ts": short}
    nothing = jax.tree.map(np.zeros_like, variables)
    draw = lambda x, size: np.clip(rng.standard_normal(np.shape(x)), -2, 2) * size
    return {
        kind: nothing | {kind: jax.tree.map(lambda x, kind=kind: draw(x, sizes.get(kind, 1.0)), value)}
        for kind, value in variables.items()
    }


def difference(function, variables, direction) -> float:
    """The derivative along a direction: central differences, extrapolated to steps of length zero (Richardson)."""
    moved = lambda h: function(jax.tree.map(lambda x, u: x + h * u, variables, direction))
    coarse, fine = [(moved(h) - moved(-h)) / (2 * h) for h in (STEP, STEP / 2)]
    return (4 * fine - coarse) / 3


def along(gradient, direction) -> tuple[float, float]:
    """The derivative along a direction, and the size of the terms it is the sum of."""
    terms = [np.asarray(g * u).ravel() for g, u in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)]
    terms = np.concatenate(terms)
    return np.sum(terms), np.sum(np.abs(terms))


def check_values(shape: Shape, variables, fixed, states) -> float:
    """The error of the states, relative to their size, is at most a hundred tolerances."""
    expected = reference(shape, variables, fixed)
    error = np.max(np.abs(states - expected)) / (1 + np.max(np.abs(expected)))
    assert error < 100 * shape.tolerance
    return float(error)


def check_gradient(shape: Shape, variables, fixed, gradient) -> float:
    """The derivative along a direction in which everything moves, by differences of the oracle: its error is 1e-9, that of
    lagrax's own values, which its meshes add to as they change, would be 1e-6."""
    parts = directions(np.random.default_rng(0), variables).values()
    direction = jax.tree.map(lambda *parts: sum(parts), *parts)
    loss = lambda variables: np.sum(fixed["weights"] * reference(shape, variables, fixed))
    derivative, size = along(gradient, direction)
    error = abs(difference(loss, variables, direction) - derivative) / (1 + size)
    assert error < 1000 * shape.tolerance
    return float(error)


# A busy machine draws slowly, which is no fault of the strategies.
PATIENT = hypothesis.settings(deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
EVERYDAY = hypothesis.settings(PATIENT, max_examples=6, derandomize=True)


@pytest.mark.parametrize("shape", [JUMPING, MANY], ids=["jumping", "many"])
@EVERYDAY
@hypothesis.given(data=st.data())
def test_systems(shape, data):
    variables, fixed = data.draw(systems(shape))
    (_, states), gradient = program(shape)(variables, fixed)
    check_values(shape, variables, fixed, states)
    check_gradient(shape, variables, fixed, gradient)


@pytest.mark.parametrize("shape", [JUMPING, MANY], ids=["jumping", "many"])
@EVERYDAY
@hypothesis.given(data=st.data())
def test_values_on_kinks(shape, data):
    variables, fixed = data.draw(systems(shape, smooth=False))
    (_, states), _ = program(shape)(variables, fixed)
    check_values(shape, variables, fixed, states)


SYSTEMS = 400
"""For each shape, in the long run."""


@pytest.mark.slow
@pytest.mark.parametrize("shape", [JUMPING, MANY, *OTHERS], ids=repr)
def test_thousands_of_systems(shape):
    errors = []

    @hypothesis.seed(2026)
    @hypothesis.settings(PATIENT, max_examples=SYSTEMS, print_blob=True)
    @hypothesis.given(data=st.data())
    def check(data):
        variables, fixed = data.draw(systems(shape))
        (_, states), gradient = program(shape)(variables, fixed)
        value = check_values(shape, variables, fixed, states)
        errors.append((value, check_gradient(shape, variables, fixed, gradient)))

    check()
    print(f"{len(errors)} systems, worst error of the values {max(errors)[0]:.1e}, of the gradients", end=" ")
    print(f"{max(error for _, error in errors):.1e}")
    assert len(errors) >= SYSTEMS
