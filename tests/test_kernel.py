"""Small solves as one kernel: which they are, that they compute the same, and that nothing makes XLA fail."""

import os
import pathlib
import subprocess
import sys

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx
from lagrax._xla import _kernel

from .problems import hutchinson

MARK = 'inlineable="false",xla_cpu_small_call="true"'
pytestmark = pytest.mark.skipif(not _kernel.AVAILABLE, reason="this version of jaxlib is not known to have the attribute")


@pytest.fixture
def forget():
    """Clears what is compiled, before and after a test that changes the rules."""
    clear = lambda: (jax.clear_caches(), eqx.clear_caches())
    clear()
    yield clear
    clear()


def final(field, y0, args, **kwargs):
    fixed = {"stepsize_controller": dfx.ConstantStepSize(), "max_steps": 32}
    return jnp.sum(lx.ddesolve(lx.DelayTerm(field, 0.7), dfx.Tsit5(), 0.0, 2.0, 0.1, y0, args, **(fixed | kwargs)).ys)


def compiled(function, *args):
    """(The compiled program, how many of its calls are single kernels.)"""
    program = jax.jit(function).lower(*args).compile()
    return program, sum(" call(" in line and MARK in line for line in program.as_text().splitlines())


def test_a_small_solve_is_one_kernel_and_its_gradient_two():
    solve = lambda r: final(hutchinson, jnp.array([0.5, 0.6]), r)
    assert compiled(solve, 1.3)[1] == 1
    assert compiled(jax.grad(solve), 1.3)[1] == 2
    assert compiled(jax.vmap(jax.grad(solve)), jnp.linspace(1.0, 2.0, 5))[1] == 2


@pytest.mark.parametrize(
    "delays", [lx.Integral(0.1, 2.0, jnp.cos), (lx.Integral(0.1, 2.0, jnp.cos), lambda t, y, args: 0.5)]
)
def test_so_is_one_with_an_integral_over_its_steps(delays):
    field = lambda t, y, z, args: -args * sum(jax.tree.leaves(z))
    solve = lambda r: lx.ddesolve(lx.DelayTerm(field, delays), dfx.Heun(), 0.0, 1.0, 0.25, jnp.sin, r, max_steps=64).ys[0]
    assert "one_kernel" in str(jax.make_jaxpr(solve)(1.3))
    assert str(jax.make_jaxpr(jax.grad(solve))(1.3)).count("= one_kernel[") == 2


LARGE = {
    "matrix product": lambda t, y, z, args: (y.reshape(3, 4) @ jnp.ones((4, 4), y.dtype)).reshape(-1) * z,
    "many components": lambda t, y, z, args: -jnp.sum(jnp.tile(y, 25) ** 2) * z,
    "scatter": lambda t, y, z, args: y.at[jnp.argmax(y)].set(0.5) - z,
    "sort": lambda t, y, z, args: jnp.sort(y) - z,
    "callback": lambda t, y, z, args: jax.pure_callback(lambda y: -np.asarray(y), y, y) - z,
    "half precision": lambda t, y, z, args: (y.astype(jnp.bfloat16) * z.astype(jnp.bfloat16)).astype(y.dtype),
    "random numbers": lambda t, y, z, args: y - z * jax.random.uniform(jax.random.key(0), y.shape, y.dtype),
    "linear solve": lambda t, y, z, args: jnp.linalg.solve(jnp.eye(12, dtype=y.dtype), y) - z,
}


@pytest.mark.parametrize("name", LARGE)
def test_what_no_kernel_can_do_is_left_to_xla(name):
    solve = lambda y: final(LARGE[name], y, None)
    y0 = jnp.linspace(0.1, 0.2, 12)
    program, kernels = compiled(solve, y0)
    assert kernels == 0 and jnp.isfinite(program(y0))


@pytest.mark.parametrize("adaptive", [False, True])
def test_same_numbers(monkeypatch, forget, adaptive):
    options = {"stepsize_controller": dfx.PIDController(rtol=1e-9, atol=1e-9), "max_steps": 256} if adaptive else {}
    solve = lambda inputs: final(lambda t, y, z, args: args * jnp.sin(y) * (1 - z) + t, *inputs, **options)
    inputs = (jnp.array([0.5, 0.6]), jnp.array(1.3))
    values = lambda: jax.tree.leaves(jax.jit(jax.value_and_grad(solve))(inputs))
    kernel = values()
    forget()
    monkeypatch.setattr(_kernel, "AVAILABLE", False)
    plain = values()
    for one, other in zip(kernel, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7 if adaptive else 1e-12)


@pytest.mark.parametrize("many", [1024, pytest.param(2, marks=pytest.mark.slow)])
def test_lanes_one_by_one_and_in_step(monkeypatch, forget, many):
    """With steps of their own, one level of `vmap` or two, some inputs shared by all; alone they compute the same."""
    monkeypatch.setattr(_kernel, "MANY", many)

    def solve(rate, y0, delay):
        controller = dfx.PIDController(rtol=1e-8, atol=1e-8)
        term = lx.DelayTerm(hutchinson, delay)
        return lx.ddesolve(term, dfx.Tsit5(), 0.0, 3.0, None, y0, rate, stepsize_controller=controller, max_steps=128).ys[0]

    gradient = jax.value_and_grad(solve, argnums=(0, 1, 2))
    rates, starts = jnp.array([0.4, 1.3, 2.1]), jnp.array([0.2, 0.9, 0.5, 0.4])
    batched = jax.jit(jax.vmap(jax.vmap(gradient, (None, 0, None)), (0, None, None)))(rates, starts, 0.8)
    alone = [[jax.tree.leaves(jax.jit(gradient)(rate, y0, 0.8)) for y0 in starts] for rate in rates]
    np.testing.assert_allclose(np.stack(jax.tree.leaves(batched), -1), np.array(alone), rtol=1e-6)


UNREAD = {
    "no argument": lambda t, y, z, args: -z,
    "one of three": lambda t, y, z, args: -args[1] * z,
    "simplified away": lambda t, y, z, args: jnp.where(jnp.arange(2) < 5, -z, args[0] * args[2]),
    "a large one simplified away": lambda t, y, z, args: -z + jnp.where(False, args[3][(t * 3).astype(int)], 0.0),
    "its first element alone": lambda t, y, z, args: -z + 0.0 * args[3][0],
    "flat": lambda t, y, z, args: -jnp.sign(z),
    "constant": lambda t, y, z, args: jnp.ones(2),
}


@pytest.mark.parametrize("name", UNREAD)
def test_arguments_that_nobody_reads(name):
    """XLA aborts on a parameter of a kernel that nothing reads."""
    args, table = (jnp.float32(1.0), jnp.array(2.0), jnp.arange(3.0)[:2]), jnp.linspace(0.0, 1.0, 1000)
    solve = lambda args, y0, table: final(UNREAD[name], y0, (*args, table))
    with jax.numpy_dtype_promotion("standard"):
        program, kernels = compiled(jax.value_and_grad(solve, (0, 1)), args, jnp.ones(2), table)
        value, (_, slopes) = program(args, jnp.ones(2), table)
    assert kernels == 2 and jnp.isfinite(value) and jnp.all(jnp.isfinite(slopes))
    if name in ("flat", "constant"):
        np.testing.assert_allclose(slopes, 1.0)  # y(2) = y0 + what does not depend on it


def test_derivatives_written_by_hand_are_asked_of_what_moves():
    """A field with a `custom_vjp` of its arguments alone has second derivatives in y0, in a kernel too."""
    scaled = jax.custom_vjp(lambda a: 2 * a)
    scaled.defvjp(lambda a: (2 * a, None), lambda _, bar: (2 * bar,))
    solve = lambda y0: final(lambda t, y, z, args: -scaled(args) * z**2, y0, 0.5)
    gradient, step = jax.jit(jax.grad(solve)), 1e-5
    differences = (gradient(1.0 + step) - gradient(1.0 - step)) / (2 * step)
    np.testing.assert_allclose(jax.jit(jax.hessian(solve))(1.0), differences, rtol=1e-8)


def test_kinds_of_operations_with_all_optimisations():
    """As users compile, in a process of its own: XLA stops the whole process where it meets what a kernel cannot do."""
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""}
    script = pathlib.Path(__file__).parent / "kernel_operations.py"
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
