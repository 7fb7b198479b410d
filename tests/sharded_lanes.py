"""Solves lanes that lie on two devices, however JAX is told to; prints nothing if all agree. Run by `test_sharding.py`."""

import sys

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import lagrax as lx
from lagrax._xla import _kernel

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_x64", True)

TABLE = jnp.linspace(0.0, 1.0, 1000)
LANES = PartitionSpec("lanes")
FIELDS = {
    "linear": lambda t, y, z, a: -a * z,
    "flat": lambda t, y, z, a: -jnp.sign(z),
    "table": lambda t, y, z, a: -a * z + jnp.where(False, TABLE[(t * 3).astype(int)], 0.0),
}


def solve(field, a, y0):
    options = {"max_steps": 40, "stepsize_controller": dfx.ConstantStepSize()}
    return lx.ddesolve(lx.DelayTerm(field, 1.0), dfx.Heun(), 0.0, 2.5, 0.1, y0, a, **options).ys[0]


def check(name, field, history):
    """`history` makes of the parameter what the solve starts from: a number, an array from outside, or something traced."""
    both = jax.vmap(jax.value_and_grad(lambda a: solve(field, a, history(a))))
    a = jnp.linspace(0.1, 1.2, 6)
    expected = jax.jit(both)(a)
    mesh = jax.make_mesh((2,), ("lanes",), axis_types=(AxisType.Auto,))
    placed = jax.device_put(a, NamedSharding(mesh, LANES))
    split = jax.shard_map(both, mesh=mesh, in_specs=LANES, out_specs=LANES, check_vma=False)
    results = {
        "jit of sharded lanes": jax.jit(both)(placed),
        "shard_map": jax.jit(split)(a),
        "placed": jax.jit(split)(placed),
    }
    for how, found in results.items():
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=f"{name}, {how}")
    if _kernel.AVAILABLE and name == "linear":
        assert "xla_cpu_small_call" in jax.jit(split).lower(placed).as_text(), "each device has a kernel of its own"
        assert "xla_cpu_small_call" not in jax.jit(both).lower(placed).as_text(), "XLA cannot split a kernel"


def check_events():
    """A root finder must raise nothing, least of all of lanes that failed: an error in one of two devices is an abort."""
    event = dfx.Event(lambda t, y, args, **kwargs: y - 0.4, optx.Bisection(1e-9, 1e-9))
    term = lx.DelayTerm(lambda t, y, z, a: -a * z, 1.0)
    steps = {"max_steps": 7, "stepsize_controller": dfx.ConstantStepSize(), "throw": False}
    end = lambda a: lx.ddesolve(term, dfx.Heun(), 0.0, 2.5, 0.1, 1.0, a, event=event, **steps).ts[0]
    lanes = jax.vmap(jax.value_and_grad(end))
    a = jnp.array([0.1, 1.0, 1.0, 1.7])
    mesh = jax.make_mesh((2,), ("lanes",), axis_types=(AxisType.Auto,))
    split = jax.shard_map(lanes, mesh=mesh, in_specs=LANES, out_specs=LANES, check_vma=False)
    for found in (jax.jit(lanes)(jax.device_put(a, NamedSharding(mesh, LANES))), jax.jit(split)(a)):
        np.testing.assert_allclose(found[0], [0.7, 0.6, 0.6, 0.6 / 1.7], rtol=1e-8)
        np.testing.assert_allclose(found[1], [np.nan, -0.6, -0.6, -0.6 / 1.7**2], rtol=1e-8)


check_events()
check("linear", FIELDS["linear"], lambda a: 1.0)
if sys.argv[1:] == ["all"]:
    check("flat", FIELDS["flat"], lambda a: 1.0)
    check("table", FIELDS["table"], lambda a: 1.0)
    outside = jnp.array(1.0)
    check("array made outside", FIELDS["linear"], lambda a: outside)
    check("traced", FIELDS["linear"], lambda a: 1 + a)
