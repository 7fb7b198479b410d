"""The same problem as array, PyTree, batch, vmap and jit gives the same numbers; one trace per shape."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx
from lagrax._xla import _kernel

from .problems import hutchinson, mackey_glass

CONTROLLER = dfx.PIDController(rtol=1e-6, atol=1e-8)
ARGS = (4.0, 9.65, 2.0)


def solve(history, delays=1.0, field=mackey_glass, args=ARGS, t1=6.0, **kwargs):
    return lx.ddesolve(
        lx.DelayTerm(field, delays), dfx.Tsit5(), 0.0, t1, None, history, args, stepsize_controller=CONTROLLER,
        **{"max_steps": 256, **kwargs},
    )  # fmt: skip


def test_pytree_state_and_delays():
    def field(t, y, delayed, args):
        twice, once = delayed["twice"], delayed["once"][0]
        return {"a": mackey_glass(t, y["a"], once["a"], args), "b": (-twice["b"][0] * y["b"][0],)}

    history = {"a": jnp.array([0.5, 0.7]), "b": (jnp.array(0.3),)}
    sol = solve(history, {"twice": 2.0, "once": [1.0]}, field)

    def flat(t, y, delayed, args):
        twice, once = delayed
        return jnp.append(mackey_glass(t, y[:2], once[:2], args), -twice[2] * y[2])

    expected = solve(jnp.array([0.5, 0.7, 0.3]), (2.0, 1.0), flat)
    np.testing.assert_allclose(sol.ys["a"][0], expected.ys[0, :2], rtol=1e-12)
    np.testing.assert_allclose(sol.ys["b"][0][0], expected.ys[0, 2], rtol=1e-12)
    assert sol.stats["num_steps"] == expected.stats["num_steps"]


def test_jit_vmap_and_loop_agree():
    starts = jnp.linspace(0.3, 1.2, 4)
    ts = jnp.linspace(0, 6, 13)
    one = lambda y: solve(y, saveat=dfx.SaveAt(ts=ts)).ys
    loop = jnp.stack([one(y) for y in starts])
    np.testing.assert_allclose(jax.jit(jax.vmap(one))(starts), loop, rtol=1e-9)
    np.testing.assert_allclose(jax.vmap(jax.jit(one))(starts), loop, rtol=1e-9)


def test_vmap_over_delays_has_own_steps():
    delays = jnp.array([0.3, 0.7, 1.9])
    sol = jax.vmap(lambda tau: solve(0.5, tau, hutchinson, 1.5))(delays)
    alone = [solve(0.5, tau, hutchinson, 1.5) for tau in delays]
    np.testing.assert_allclose(sol.ys[:, 0], [s.ys[0] for s in alone], rtol=1e-9)
    np.testing.assert_array_equal(sol.stats["num_steps"], [s.stats["num_steps"] for s in alone])
    assert len(set(sol.stats["num_steps"].tolist())) == 3


def test_a_lane_that_has_used_all_steps_waits_for_others(monkeypatch):
    """Lane 0 takes its 20 steps in one segment, while the others wait for the next one; then it waits for them, with no
    room for another step."""
    monkeypatch.setattr(_kernel, "AVAILABLE", False)
    saveat, fixed = dfx.SaveAt(ts=jnp.linspace(0.05, 1.99, 9)), dfx.ConstantStepSize()

    def states(tau, max_steps):
        term, options = lx.DelayTerm(lambda t, y, z, args: -z, tau), {"stepsize_controller": fixed, "saveat": saveat}
        ys = lx.ddesolve(term, dfx.Heun(), 0.0, 2.0, 0.1, jnp.cos, max_steps=max_steps, **options).ys
        return jnp.sum(ys), ys

    both = jax.value_and_grad(states, has_aux=True)
    delays = jnp.array([2.5, 0.4])
    found = jax.jit(jax.vmap(lambda tau: both(tau, 20)))(delays)
    alone = jax.jit(lambda tau: both(tau, 40))
    for i, tau in enumerate(delays):
        for lane, expected in zip(jax.tree.leaves(found), jax.tree.leaves(alone(tau)), strict=True):
            np.testing.assert_allclose(lane[i], expected, rtol=1e-12)


def test_batch_in_the_state_shares_steps():
    starts = jnp.linspace(0.3, 1.2, 4)
    batch = solve(starts)
    assert batch.stats["num_steps"].shape == ()
    np.testing.assert_allclose(batch.ys[0], [solve(y).ys[0] for y in starts], rtol=1e-4)


def test_complex_state():
    """y' = i z, z = y(t - 1): real and imaginary part as one real system."""
    with jax.numpy_dtype_promotion("standard"):  # diffrax's controllers mix complex states with real tolerances
        sol = solve(1.0 + 0.5j, field=lambda t, y, z, args: 1j * z - 0.1 * y, args=None)

    def real(t, y, z, args):
        return jnp.stack([-z[1], z[0]]) - 0.1 * y

    expected = solve(jnp.array([1.0, 0.5]), field=real, args=None).ys[0]
    np.testing.assert_allclose([sol.ys[0].real, sol.ys[0].imag], expected, rtol=1e-5)


def test_one_trace_per_shape():
    traces = 0

    def field(t, y, delayed, args):
        nonlocal traces
        traces += 1
        return hutchinson(t, y, delayed, args)

    @eqx.filter_jit
    def run(history, rate):
        return solve(history, field=field, args=rate).ys

    run(jnp.array(0.5), jnp.array(1.5))
    first = traces
    run(jnp.array(0.6), jnp.array(1.2))
    assert traces == first
    run(jnp.array([0.5, 0.6]), jnp.array(1.5))
    assert traces == 2 * first


def test_the_buffers_are_updated_in_place():
    """No copy of the history inside the loops: that is what keeps the cost per step from growing with `max_steps`."""
    run = jax.jit(jax.grad(lambda y: solve(y, max_steps=1000).ys[0]))
    text = run.lower(jnp.array(0.5)).compile().as_text()
    entry = text.index("ENTRY")
    bodies = text[:entry]
    for buffer in ("f64[1001,7]", "f64[1008]", "s32[1001,8]"):
        assert buffer in bodies
        copies = [line for line in bodies.splitlines() if "copy(" in line and buffer in line.split("copy(")[0]]
        assert not copies, copies


@pytest.mark.parametrize("count", [1, 20])
def test_many_delays(count):
    """Twenty delays: the sum of the terms is a known one-delay equation when all delays are equal."""
    delays = tuple(jnp.full(count, 1.0))
    field = lambda t, y, delayed, args: -sum(delayed) / count
    np.testing.assert_allclose(solve(1.0, delays, field, None, t1=5.0).ys[0], 19 / 120, rtol=1e-5)


def test_twenty_generic_delays():
    """The kinks are not enumerated (53,130 of them to level 5) and the cost stays bounded."""
    delays = list(0.5 + jnp.sqrt(jnp.arange(1.0, 21.0)) / 5)
    field = lambda t, y, delayed, args: -sum(jnp.tanh(z) for z in delayed) / 10
    tight = dfx.PIDController(rtol=1e-10, atol=1e-10)
    run = lambda controller: lx.ddesolve(
        lx.DelayTerm(field, delays), dfx.Dopri5(), 0.0, 5.0, None, 1.0, stepsize_controller=controller, max_steps=4096
    )  # fmt: skip
    coarse, fine = run(CONTROLLER), run(tight)
    assert coarse.stats["num_steps"] < 400
    np.testing.assert_allclose(coarse.ys, fine.ys, atol=1e-6)


def test_new_numbers_do_not_compile_again():
    """Plain floats in times, delays, history and arguments are values, not part of the program."""
    traces = 0

    def field(t, y, delayed, args):
        nonlocal traces
        traces += 1
        return -args * delayed

    for a, tau, history, t1 in ((1.0, 1.0, 1.0, 2.0), (0.5, 0.7, 0.3, 2.5)):
        lx.ddesolve(lx.DelayTerm(field, tau), dfx.Tsit5(), 0.0, t1, None, history, a)
        first = traces if traces and a == 1.0 else first
    assert traces == first
