"""Solutions against exact ones, and the order of convergence across breakpoints."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest

import lagrax as lx

from .problems import KNOWN, decay, decay_solution, jump_solution

TIGHT = dfx.PIDController(rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("solver", [dfx.Tsit5(), dfx.Dopri5(), dfx.Dopri8()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("problem", KNOWN, ids=lambda p: p.name)
def test_known_values(problem, solver):
    ts = jnp.array(list(problem.values))
    sol = lx.ddesolve(
        lx.DelayTerm(problem.field, problem.delays), solver, 0.0, ts[-1], None, problem.history, problem.args,
        y0=problem.y0, saveat=dfx.SaveAt(ts=ts), stepsize_controller=TIGHT, max_steps=4096,
    )  # fmt: skip
    np.testing.assert_allclose(sol.ys, list(problem.values.values()), rtol=1e-8)


def test_whole_trajectory():
    ts = jnp.linspace(0, 6, 301)
    solve = lambda history, y0: lx.ddesolve(
        lx.DelayTerm(decay, 1.0), dfx.Tsit5(), 0.0, 6.0, None, history, 1.0,
        y0=y0, saveat=dfx.SaveAt(ts=ts), stepsize_controller=TIGHT,
    ).ys  # fmt: skip
    np.testing.assert_allclose(solve(1.0, None), decay_solution(np.asarray(ts)), atol=1e-10)
    np.testing.assert_allclose(solve(0.0, 1.0), jump_solution(np.asarray(ts)), atol=1e-10)


def two_delays(t, y, delayed, args):
    short, long = delayed
    return 3 * y * (1 - short) + 0.3 * jnp.sin(3 * long)


def solve_two_delays(solver, controller, dt, ts):
    """Fixed steps never fall on the breakpoints or on the lookups: the delays 0.73 and 1.19 do not fit the grid."""
    history = lambda t: 0.6 + 0.2 * jnp.cos(2 * t)
    return lx.ddesolve(
        lx.DelayTerm(two_delays, (0.73, 1.19)), solver, 0.0, 4.0, dt, history, None,
        saveat=dfx.SaveAt(ts=ts), stepsize_controller=controller, max_steps=4096,
    ).ys  # fmt: skip


# (diffrax's VeryChord takes rounding for divergence where the field is linear in y, as here, and fixed steps cannot shrink.)
KVAERNO5 = dfx.Kvaerno5(root_finder=optx.Newton(rtol=1e-11, atol=1e-11))

ORDERS = [
    (dfx.Euler(), 1, 400),
    (dfx.Heun(), 2, 400),
    (dfx.Midpoint(), 2, 400),
    (dfx.Ralston(), 2, 400),
    (dfx.Bosh3(), 3, 200),
    (dfx.Tsit5(), 5, 80),
    (dfx.Dopri5(), 5, 80),
    (dfx.Dopri8(), 8, 40),
    # Hermite interpolation of the past limits this ESDIRK method of order 5 to 4.
    (KVAERNO5, 4, 320),
]


@pytest.fixture(scope="module")
def reference():
    ts = jnp.linspace(0, 4, 401)
    return ts, solve_two_delays(dfx.Dopri8(), dfx.PIDController(rtol=1e-14, atol=1e-14, dtmax=0.02), None, ts)


@pytest.mark.parametrize("solver, order, count", ORDERS, ids=lambda x: type(x).__name__ if hasattr(x, "order") else None)
def test_order_across_breakpoints(solver, order, count, reference):
    """Maximum error over the whole trajectory, between and across breakpoints, for the steps 4/count and half of that."""
    ts, exact = reference
    solve = jax.jit(lambda dt: solve_two_delays(solver, dfx.ConstantStepSize(), dt, ts))
    coarse, fine = (float(jnp.max(jnp.abs(solve(4.0 / n) - exact))) for n in (count, 2 * count))
    assert fine > 1e-13, "rounding hides the order"
    assert np.log2(coarse / fine) >= order - 0.3, (coarse, fine)


@pytest.mark.parametrize("solver", [dfx.Kvaerno3(), dfx.Kvaerno4(), dfx.Kvaerno5()], ids=lambda s: type(s).__name__)
def test_stiff(solver):
    """A fast relaxation onto a slow delay equation: y' = -1000 (y - z) with z' = -z(t - 1) exact."""

    def field(t, y, delayed, rate):
        return {"slow": -delayed["slow"], "fast": -rate * (y["fast"] - y["slow"])}

    start = {"slow": jnp.array(1.0), "fast": jnp.array(0.0)}
    sol = lx.ddesolve(
        lx.DelayTerm(field, 1.0), solver, 0.0, 5.0, None, start, 1e3,
        stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-8), max_steps=4096,
    )  # fmt: skip
    np.testing.assert_allclose(sol.ys["slow"][0], 19 / 120, rtol=1e-6)
    slope = -decay_solution(np.array(4.0))
    np.testing.assert_allclose(sol.ys["fast"][0], 19 / 120 - slope / 1e3, rtol=1e-4)
    assert sol.stats["num_steps"] < 2000  # an explicit solver's stability would ask for more


@pytest.mark.parametrize("name", ["decay", "decay, jump", "sine", "hutchinson", "mackey-glass"])
def test_float32(name):
    problem = next(p for p in KNOWN if p.name == name)
    single = lambda x: None if x is None else (jnp.float32(x) if not callable(x) else x)
    t1, value = list(problem.values.items())[-1]
    args = tuple(map(jnp.float32, problem.args)) if isinstance(problem.args, tuple) else jnp.float32(problem.args)
    sol = lx.ddesolve(
        lx.DelayTerm(problem.field, jnp.float32(problem.delays)), dfx.Tsit5(), jnp.float32(0), jnp.float32(t1), None,
        single(problem.history), args, y0=single(problem.y0), stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-6),
    )  # fmt: skip
    assert sol.ys.dtype == jnp.float32
    np.testing.assert_allclose(sol.ys[0], value, rtol=1e-4, atol=2e-5)


def test_late_times_in_float32():
    """Breakpoints are told apart by index: at t = 100 a float32 cannot resolve 1e-6."""
    t0 = jnp.float32(100)
    sol = lx.ddesolve(
        lx.DelayTerm(decay, jnp.float32(0.3)), dfx.Tsit5(), t0, jnp.float32(101.5), None, jnp.float32(1), jnp.float32(1),
        stepsize_controller=dfx.PIDController(rtol=1e-5, atol=1e-5),
    )  # fmt: skip
    np.testing.assert_allclose(sol.ys[0], decay_solution(np.array(1.5), tau=0.3), atol=3e-5)
