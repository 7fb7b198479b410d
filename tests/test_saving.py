"""What is saved: times, steps, dense output, functions of the state; and continuing a run."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

from .problems import decay, decay_solution, hutchinson, jump_solution

TIGHT = dfx.PIDController(rtol=1e-10, atol=1e-10)


def solve(saveat, t1=4.0, history=1.0, args=1.0, **kwargs):
    kwargs = {"stepsize_controller": TIGHT, "max_steps": 128, **kwargs}
    return lx.ddesolve(lx.DelayTerm(decay, 1.0), dfx.Tsit5(), 0.0, t1, None, history, args, saveat=saveat, **kwargs)


def test_all_at_once():
    ts = jnp.array([0.5, 1.0, 2.5, 4.0])
    subs = {
        "ends": dfx.SubSaveAt(t0=True, t1=True),
        "times": dfx.SubSaveAt(ts=ts, fn=lambda t, y, args: (t + args, 2 * y)),
        "steps": dfx.SubSaveAt(steps=True),
        "some": dfx.SubSaveAt(steps=3, t1=True),
    }
    sol = solve(dfx.SaveAt(subs=subs))
    np.testing.assert_allclose(sol.ts["ends"], [0, 4])
    np.testing.assert_allclose(sol.ys["ends"], [1, decay_solution(np.array(4.0))], rtol=1e-8)
    np.testing.assert_allclose(sol.ys["times"][0], ts + 1)
    np.testing.assert_allclose(sol.ys["times"][1], 2 * decay_solution(np.asarray(ts)), atol=1e-9)
    count = int(sol.stats["num_accepted_steps"])
    assert sol.ts["steps"].shape == (128,)
    np.testing.assert_allclose(sol.ys["steps"][:count], decay_solution(np.asarray(sol.ts["steps"][:count])), atol=1e-9)
    assert jnp.all(jnp.isinf(sol.ts["steps"][count:])) and jnp.all(jnp.isinf(sol.ys["steps"][count:]))
    np.testing.assert_array_equal(sol.ts["some"][: count // 3], sol.ts["steps"][2:count:3])
    assert sol.ts["some"][-1] == 4.0


def test_steps_end_on_breakpoints():
    sol = solve(dfx.SaveAt(steps=True))
    assert {1.0, 2.0, 3.0, 4.0} <= set(sol.ts.tolist())


def test_dense_output():
    sol = solve(dfx.SaveAt(dense=True))
    ts = jnp.linspace(0, 4, 57)
    np.testing.assert_allclose(jax.vmap(sol.evaluate)(ts), decay_solution(np.asarray(ts)), atol=1e-9)
    np.testing.assert_allclose(jax.vmap(sol.derivative)(ts[1:]), -decay_solution(np.asarray(ts[1:]) - 1), atol=1e-6)
    np.testing.assert_allclose(sol.evaluate(-0.3), 1.0)
    np.testing.assert_allclose(sol.evaluate(1.0, 2.0), sol.evaluate(2.0) - sol.evaluate(1.0))
    assert sol.derivative(0.0, left=False) == pytest.approx(-1.0)


def test_dense_output_is_one_program(caplog):
    """Without a `jit` around it too: operation by operation a first value took a second."""
    sol = solve(dfx.SaveAt(dense=True), max_steps=77)  # a shape that no other test has compiled
    with jax.log_compiles():
        sol.evaluate(0.7)
        sol.evaluate(1.9)
    assert sum(record.getMessage().startswith("Compiling") for record in caplog.records) == 1


def test_gradient_of_dense_output_without_jit():
    """y(5/2) = 1 - 5a/2 + 9a²/8 - a³/48 with respect to a and to the time."""
    value = lambda a, t: solve(dfx.SaveAt(dense=True), args=a).evaluate(t)
    np.testing.assert_allclose(jax.grad(value, argnums=(0, 1))(1.0, 2.5), [-5 / 16, 3 / 8], rtol=1e-7)


def test_dense_output_at_a_jump():
    sol = solve(dfx.SaveAt(dense=True), history=0.0, y0=1.0)
    ts = jnp.linspace(0, 4, 57)
    np.testing.assert_allclose(jax.vmap(sol.evaluate)(ts), jump_solution(np.asarray(ts)), atol=1e-9)
    assert sol.evaluate(-1e-9) == 0.0


@pytest.mark.parametrize("split", [0.4, 2.3])
def test_continuing_a_run(split):
    """In two parts, the first shorter than the delay or longer: the same as in one, to the tolerance."""
    term = lx.DelayTerm(hutchinson, 1.0)
    run = lambda t0, t1, history: lx.ddesolve(
        term, dfx.Tsit5(), t0, t1, None, history, 1.5,
        saveat=dfx.SaveAt(t1=True, dense=True), stepsize_controller=TIGHT, max_steps=256,
    )  # fmt: skip
    first = run(0.0, split, 0.5)
    second = run(split, 5.0, first)
    third = run(5.0, 10.0, second)
    np.testing.assert_allclose(third.ys[0], 1.355564183665298, rtol=1e-8)
    assert second.interpolation.kinks.shape == third.interpolation.kinks.shape


def test_gradient_through_a_continued_run():
    """y(3) = 1 - 3a + 2a² - a³/6, of which the second part knows its past from the first alone."""

    def final(a):
        first = solve(dfx.SaveAt(dense=True), t1=1.7, args=a)
        term = lx.DelayTerm(decay, 1.0)
        return lx.ddesolve(term, dfx.Tsit5(), 1.7, 3.0, None, first, a, stepsize_controller=TIGHT, max_steps=128).ys[0]

    value, slope = jax.jit(jax.value_and_grad(final))(1.5)
    np.testing.assert_allclose([value, slope], [0.4375, 1.875], rtol=1e-7)
