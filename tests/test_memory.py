"""Bounded memory: the same numbers as with all of the past, forwards and backwards."""

import inspect

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

DISCRETE, SILENT = lx.DiscreteAdjoint(), dfx.NoProgressMeter()


def mackey_glass(parameters, t1, ts=None, adjoint=DISCRETE, **options):
    """β z / (1 + z¹⁰) - γ y, the second delay a tenth of the first; parameters β, γ, τ and the level of the past."""
    beta, gamma, tau, level = parameters
    term = lx.DelayTerm(lambda t, y, z, a: a[0] * z[0] / (1 + z[0] ** 10) - a[1] * z[1], (tau, 0.1 * tau))
    options = dict(stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-6), max_steps=512) | options
    saveat = options.pop("saveat", dfx.SaveAt(t1=True) if ts is None else dfx.SaveAt(ts=ts))
    # As users call it: here in the tests types are checked before.
    solve = inspect.unwrap(lx.ddesolve)
    history, args = (lambda t: level * jnp.cos(0.1 * t)), (beta, gamma)
    return solve(
        term, dfx.Tsit5(), 0.0, t1, options.pop("dt0", None), history, args, saveat=saveat, adjoint=adjoint, **options
    )


PERIODIC = (0.2, 0.1, 14.0, 1.2)
TS = jnp.linspace(0.0, 400.0, 9)


def loss(memory, **options):
    def value(parameters, ts, t1):
        solution = mackey_glass(parameters, t1, memory=memory, saveat=saveat(ts), **options)
        return jnp.sum(solution.ys[0] * jnp.cos(jnp.arange(9.0))) + 3 * solution.ys[1][0]

    saveat = lambda ts: dfx.SaveAt(subs=[dfx.SubSaveAt(ts=ts), dfx.SubSaveAt(t1=True)])
    return value


def test_the_gradient_is_that_of_the_unbounded_solve():
    """Over three segments of 128 steps, with 32 rows; what a function saves is all that is kept."""

    def saved(memory):
        def value(parameters, ts, t1, scale):
            fn = lambda t, y, args: {"wave": jnp.sin(scale * y) * args[0], "pair": jnp.stack([y * t, y**2])}
            saveat = dfx.SaveAt(subs=[dfx.SubSaveAt(t0=True, t1=True, ts=ts, fn=fn), dfx.SubSaveAt(t1=True)])
            solution = mackey_glass(parameters, t1, saveat=saveat, memory=memory)
            ys, end = solution.ys
            loss = jnp.sum(ys["wave"] * jnp.cos(jnp.arange(11.0))) + jnp.sum(ys["pair"] ** 2) + end[0]
            return loss, (ys, end, solution.stats["num_accepted_steps"])

        return value

    inputs = (jnp.array(PERIODIC), TS, jnp.array(400.0), jnp.array(2.0))
    run = lambda memory: jax.jit(jax.value_and_grad(saved(memory), (0, 1, 2, 3), has_aux=True))(*inputs)
    bounded, unbounded = run(32), run(None)
    (_, (_, _, steps)), _ = unbounded
    assert steps > 256
    for a, b in zip(jax.tree.leaves(bounded), jax.tree.leaves(unbounded), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.max(np.abs(b)))


def test_forward_mode_and_lanes():
    inputs = (jnp.array([PERIODIC, (0.2, 0.1, 6.0, 0.5)]), TS, jnp.array([400.0, 60.0]))
    only = lambda memory, **options: lambda p, ts, t1: loss(memory, **options)(p, jnp.minimum(ts, t1), t1)
    backward = jax.jit(jax.vmap(jax.grad(only(32), (0, 2)), (0, None, 0)))(*inputs)
    forward = jax.jit(jax.vmap(jax.jacfwd(only(32, adjoint=lx.ForwardMode()), (0, 2)), (0, None, 0)))(*inputs)
    for a, b in zip(forward, backward, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def test_several_lists_of_times():
    subs = {"a": dfx.SubSaveAt(ts=jnp.array([10.0, 30.0])), "b": dfx.SubSaveAt(t0=True, ts=jnp.array([0.0, 20.0, 40.0]))}
    run = lambda memory: mackey_glass(PERIODIC, 40.0, saveat=dfx.SaveAt(subs=subs), memory=memory).ys
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), run(32), run(None))


@pytest.mark.slow
def test_second_derivatives():
    final = lambda memory: lambda x: mackey_glass((*x, 6.0, 0.5), 60.0, memory=memory, max_steps=256).ys[0]
    hessian = lambda memory: jax.jit(jax.hessian(final(memory)))(jnp.array(PERIODIC[:2]))
    np.testing.assert_allclose(hessian(32), hessian(None), rtol=1e-8)


def test_any_number_of_steps_in_a_ring_that_is_used_over_and_over():
    run = lambda **options: jax.jit(lambda p: mackey_glass(p, 2000.0, jnp.linspace(0, 2000.0, 5), **options).ys)
    parameters = jnp.array(PERIODIC)
    bounded = run(memory=64, max_steps=None)(parameters)
    np.testing.assert_allclose(bounded, run(max_steps=8192)(parameters), rtol=1e-12)


def test_kicks_in_bounded_memory():
    def final(ts, sizes, memory):
        impulses = lx.Impulses(ts, lambda t, y, size, args: y + size, sizes)
        return mackey_glass(
            PERIODIC, 300.0, jnp.array([50.0, 210.0, 300.0]), impulses=impulses, memory=memory
        ).ys @ jnp.arange(3.0)

    given = (jnp.array([0.0, 50.0, 50.0, 155.0]), jnp.array([0.1, 0.2, -0.1, 0.3]))
    wanted = jax.jit(jax.value_and_grad(lambda *x: final(*x, None), (0, 1)))(*given)
    bounded = jax.jit(jax.value_and_grad(lambda *x: final(*x, 32), (0, 1)))(*given)
    for a, b in zip(jax.tree.leaves(bounded), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


def test_a_ring_that_is_too_small_says_what_would_do():
    run = jax.jit(
        lambda h, memory: mackey_glass(PERIODIC, 100.0, memory=memory, max_steps=None, dt0=h, **FIXED), static_argnums=1
    )
    failed = run(0.1, 64)
    assert failed.result == lx.RESULTS.memory_reached
    needed = int(failed.stats["memory_needed"])
    assert run(0.1, needed).result == lx.RESULTS.successful
    assert needed == int(run(0.1, needed).stats["memory_needed"]) == 256
    with pytest.raises(eqx.EquinoxRuntimeError, match="memory = 256 would do"):
        mackey_glass(PERIODIC, 100.0, memory=64, dt0=0.1, **FIXED | dict(throw=True))
    gradient = jax.jit(jax.grad(lambda p: mackey_glass(p, 100.0, memory=64, dt0=0.1, **FIXED).ys[0]))
    assert np.all(np.isnan(gradient(jnp.array(PERIODIC))))


FIXED = dict(stepsize_controller=dfx.ConstantStepSize(), throw=False)


def test_auto_fits_the_largest_delay():
    fixed = mackey_glass(PERIODIC, 30.0, memory="auto", dt0=0.1, **FIXED)
    assert fixed.result == lx.RESULTS.successful
    assert fixed.stats["memory"] >= 140
    adaptive = mackey_glass(PERIODIC, 30.0, memory="auto")
    assert adaptive.stats["memory"] == 4096


def test_progress_is_shown_in_both_directions(capsys):
    meter = dfx.TextProgressMeter(minimum_increase=0.0)
    run = lambda p: mackey_glass(p, 200.0, memory=64, progress_meter=meter).ys[0]
    jax.block_until_ready(jax.jit(jax.grad(run))(jnp.array(PERIODIC)))
    jax.effects_barrier()
    assert capsys.readouterr().out.count("100.00%") >= 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(saveat=dfx.SaveAt(dense=True)), "got bounded memory with SaveAt(dense=True)"),
        (dict(saveat=dfx.SaveAt(steps=True)), "got bounded memory with SaveAt(steps=...)"),
        (dict(event=dfx.Event(lambda t, y, args, **_: y > 2)), "got bounded memory with an event"),
        (dict(memory=0), "memory = 0, expected a number of rows"),
        (dict(memory="all"), "memory = 'all', expected a number of rows"),
        (dict(memory=None, max_steps=None), "max_steps = None, expected a positive integer"),
        (dict(adjoint=lx.ContinuousAdjoint()), "got bounded memory with ContinuousAdjoint"),
        (dict(adjoint=lx.PiecewiseAdjoint(num_intervals=1)), "got bounded memory with PiecewiseAdjoint"),
    ],
)
def test_mistakes_are_told_in_one_sentence(options, words):
    with pytest.raises(ValueError) as caught:
        mackey_glass(PERIODIC, 10.0, **dict(memory=64) | options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_gradient_needs_a_number_of_steps():
    with pytest.raises(ValueError, match="got max_steps = None in a solve that is differentiated backwards"):
        jax.grad(lambda p: mackey_glass(p, 10.0, memory=64, max_steps=None).ys[0])(jnp.array(PERIODIC))


def test_a_moving_delay_keeps_all_of_its_past():
    term = lx.DelayTerm(lambda t, y, z, args: -z, lambda t, y, args: 1 + y**2)
    with pytest.raises(ValueError, match="got bounded memory with a delay that moves"):
        lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, None, 1.0, memory=64)


def test_rows_that_are_an_array_are_refused():
    with pytest.raises(ValueError, match=r"memory = array\(\[32, 32\]\), expected a number of rows"):
        mackey_glass(PERIODIC, 1.0, memory=np.array([32, 32]))
