"""Large states: memory is announced as it will be, refused if there is not enough, and divided over devices."""

import inspect
import os
import pathlib
import subprocess
import sys

import diffrax as dfx
import jax
import jax.numpy as jnp
import pytest

import lagrax as lx
from lagrax import _bytes
from lagrax._adjoint._count import counting

HERE = pathlib.Path(__file__).parent


def diffusion(t, u, then, args):
    return 0.3 * (jnp.roll(u, 1) + jnp.roll(u, -1) - 2 * u) + u * (1 - then)


def arguments(size=1000, delays=1.0, dtype=jnp.float64):
    return lx.DelayTerm(diffusion, delays), dfx.Tsit5(), 0.0, 2.0, None, 1 + jnp.arange(size, dtype=dtype) / size


def solve(*problem, **options):
    return inspect.unwrap(lx.ddesolve)(*problem, **options)


def test_buffers_are_counted():
    one = lx.memory_of(*arguments(), max_steps=500)
    assert (one.rows, one.row) == (500, (2 + 5 * 1000) * 8)
    buffer = one.rows * one.row
    assert buffer < one.solve < 1.05 * buffer and 2 * buffer < one.gradient < 2.2 * buffer
    half = lx.memory_of(*arguments(dtype=jnp.float32), max_steps=500)
    assert half.row == one.row // 2 and abs(2 * half.solve - one.solve) < 1e-2 * one.solve
    # A ring, of a solve without limit; stages that are kept; a delay that moves.
    ring = lx.memory_of(*arguments(), max_steps=None, memory=32)
    assert ring.rows == 32 and ring.gradient is None and ring.solve < 0.1 * one.solve
    kept = lx.memory_of(*arguments(), max_steps=500, adjoint=lx.DiscreteAdjoint(keep_stages=True))
    assert kept.gradient - one.gradient == 501 * 7 * 1000 * 8
    moving = lx.memory_of(*arguments(delays=lambda t, y, args: 1 + 0.1 * t), max_steps=500)
    assert buffer < moving.solve < 1.1 * buffer
    assert str(one).endswith("(the past: 500 rows of 40 kB)")


def test_what_xla_will_allocate():
    problem = arguments()
    run = jax.jit(lambda y: solve(*problem[:-1], y, max_steps=200).ys)
    analysis = run.lower(problem[-1]).compile().memory_analysis()
    announced = lx.memory_of(*problem, max_steps=200).solve
    assert 0.9 < (analysis.temp_size_in_bytes + analysis.output_size_in_bytes) / announced < 1.2


def test_too_large_for_this_machine():
    with pytest.raises(ValueError, match=r"got a solve that takes 80 TB .*expected at most the .* free: pass a smaller"):
        solve(*arguments(), max_steps=2_000_000_000)
    assert _bytes.available() > 2**20


def test_room_for_the_solve_but_not_for_its_gradient(monkeypatch):
    needed = lx.memory_of(*arguments(), max_steps=500)
    monkeypatch.setattr(_bytes, "available", lambda: (needed.solve + needed.gradient) // 2)
    final = lambda y, **options: solve(*arguments()[:-1], y, max_steps=500, **options).ys[0, 0]
    y = arguments()[-1]
    jax.eval_shape(final, y)
    with pytest.raises(ValueError, match=r"got a gradient that takes 4\d.* MB \(the past: 500 rows of 40 kB\)"):
        jax.eval_shape(jax.grad(final), y)
    # With a ring of 16 rows there is enough for both.
    jax.eval_shape(jax.grad(lambda y: final(y, memory=16)), y)
    monkeypatch.setattr(_bytes, "available", lambda: 2**20)
    with pytest.raises(ValueError, match="got a gradient that takes"):
        jax.eval_shape(jax.grad(lambda y: final(y, memory=16)), y)
    monkeypatch.setattr(_bytes, "CHECKED", False)
    jax.eval_shape(jax.grad(final), y)


def test_nothing_asked_is_zero_in_a_large_solve():
    """A backward pass over rows that are large is left out if nothing depends on them."""
    saveat = dfx.SaveAt(ts=jnp.array([0.5, 2.0]))
    value_of = lambda y: solve(*arguments(400)[:-1], y, max_steps=100, saveat=saveat).ys[1, 0]
    with counting() as found:
        gradient = jax.jit(jax.grad(lambda y, scale: scale * value_of(y)))
        zero, _ = (gradient(arguments(400)[-1], scale).block_until_ready() for scale in (0.0, 1.0))
    assert jnp.all(zero == 0)
    none, some = found
    assert none == 0 and some > 0


@pytest.mark.parametrize("which", ["small", pytest.param("large", marks=pytest.mark.slow)])
def test_in_processes_of_their_own(which):
    """Small: a sharded state on two devices. Large: 102,400 components, the growth of the process as announced."""
    users = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""} if which == "large" else {}
    for script in (
        ["sharded_state.py"] if which == "small" else ["sharded_state.py gradient", "peak.py solve", "peak.py gradient"]
    ):
        name, *options = script.split()
        command = [sys.executable, HERE / name, *options]
        done = subprocess.run(command, env={**os.environ, **users}, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
