"""Solves for a state that lies on two devices; fails if numbers or memory are not as they should. Run by `test_large.py`."""

import sys

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import lagrax as lx

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_x64", True)


def field(t, u, then, rate):
    return 0.5 * (sum(jnp.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1)) - 4 * u) + rate * u * (1 - then)


def final(u, rate):
    return lx.ddesolve(lx.DelayTerm(field, 1.0), dfx.Tsit5(), 0.0, 3.0, None, u, rate, max_steps=200).ys[0]


function = jax.grad(lambda u, rate: jnp.mean(final(u, rate) ** 2), (0, 1)) if sys.argv[1:] == ["gradient"] else final
mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
u = 1 + 0.1 * jax.random.normal(jax.random.key(0), (32, 32))
placed = jax.device_put(u, NamedSharding(mesh, PartitionSpec("x", None)))
programs = [jax.jit(function).lower(state, 2.0).compile() for state in (u, placed)]
whole, divided = [program.memory_analysis().temp_size_in_bytes for program in programs]
for found, expected in zip(jax.tree.leaves(programs[1](placed, 2.0)), jax.tree.leaves(programs[0](u, 2.0)), strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
assert divided < 0.65 * whole, (divided, whole)
print(f"{divided / whole:.2f} of the memory on each device")
