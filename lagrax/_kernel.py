"""A loop over small arrays as one kernel of the CPU.

XLA runs the body of a loop as a list of kernels and hands them from thread to thread: 30 to 100 ns each, most of the time
that an equation of a few components takes. A call that carries the attribute `xla_cpu_small_call` it compiles into one
kernel instead. XLA itself gives it to loops that touch less than 1 kB, which no solver does; here the solver's own loops
get it, if all that they compute with is small. A step of Mackey–Glass takes 0.4 instead of 2.9 µs.
"""

import math
import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxlib
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array

SMALL = 256
"""Numbers in an array that counts as small. XLA gives larger sums and products to libraries that a kernel cannot call."""

MANY = 1024
"""Lanes of a batch up to which they are solved one after the other, in one kernel for all. Mackey–Glass, forwards, takes
0.4, 0.7 and 1.0 times as long so as by `vmap` for 5, 100 and 1,000 lanes, a small network 0.3, 0.7 and 1.5 times; gradients
are much the same. Lanes do not wait for each other, and one core does what `vmap` needs two for."""

AVAILABLE = jaxlib.__version__.startswith("0.10.") and os.environ.get("LAGRAX_KERNELS") != "0"
"""Whether the attribute is known to do what is said above, and wanted. Without it XLA compiles loops as it sees fit."""

_ATTRIBUTES = {"xla_cpu_small_call": "true", "inlineable": "false"}

_ELEMENTWISE = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp complex conj convert_element_type copy cos
    cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le lgamma log log1p logistic
    le_to lt lt_to max min mul ne neg nextafter not or pow real reduce_precision rem round rsqrt select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor
"""
_REARRANGING = (
    "broadcast_in_dim concatenate expand_dims iota pad reshape rev slice split squeeze stack tile transpose unstack"
)
_REDUCING = "argmax argmin cummax cummin cumprod cumsum reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum"
_CONTROL = "checkpoint closed_call cond custom_jvp_call custom_vjp_call jit pjit remat2 scan while"
_PLAIN = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
_WHOLE = frozenset(f"{_ELEMENTWISE} {_REARRANGING} {_REDUCING} nonbatchable unvmap_all unvmap_any unvmap_max".split())
_NESTED = frozenset(_CONTROL.split())
_DTYPES = frozenset(_PLAIN.split())


def in_one_kernel(function: Callable, *args: Any) -> Any:
    """`function(*args)`, of PyTrees, compiled into one kernel if it is small, and as usual otherwise."""
    if not AVAILABLE:
        return function(*args)
    closed, shapes, static = eqx.filter_make_jaxpr(function)(*args)
    inputs = jax.tree.leaves(eqx.filter(args, eqx.is_array))
    outputs = _call(closed, *inputs) if _is_small(closed.jaxpr) else jaxpr_as_fun(closed)(*inputs)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), outputs), static)


def _call(closed: ClosedJaxpr, *inputs: Array) -> list[Array]:
    """What `closed` computes, in one kernel.

    XLA fails on a parameter that nobody reads. So inputs without use are left out; small ones are handed back, because XLA
    may simplify their use away; and the barrier keeps it from moving constants into the kernel.
    """
    jaxpr = closed.jaxpr.replace(constvars=[], invars=[*closed.jaxpr.constvars, *closed.jaxpr.invars])
    jaxpr, used = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    used_inputs = [x for x, is_used in zip((*closed.consts, *inputs), used, strict=True) if is_used]
    handed_back = [var for var in jaxpr.invars if math.prod(_shape(var)) <= SMALL]
    kernel = ClosedJaxpr(jaxpr.replace(outvars=[*jaxpr.outvars, *handed_back]), [])
    return _kernel_p.bind(*lax.optimization_barrier(used_inputs), jaxpr=kernel)[: len(jaxpr.outvars)]


def _batch(inputs, axes, *, jaxpr: ClosedJaxpr):
    size = next(x.shape[axis] for x, axis in zip(inputs, axes, strict=True) if axis is not None)
    run = jaxpr_as_fun(jaxpr)
    if size > MANY:
        outputs = jax.vmap(run, in_axes=axes)(*inputs)
    else:
        pick = lambda i, x, axis: x if axis is None else lax.dynamic_index_in_dim(x, i, axis, keepdims=False)
        lane = lambda i, *inputs: run(*(pick(i, x, axis) for x, axis in zip(inputs, axes, strict=True)))
        lanes = lambda *inputs: lax.map(lambda i: lane(i, *inputs), jnp.arange(size, dtype=jnp.int32))
        outputs = _call(jax.make_jaxpr(lanes)(*inputs), *inputs)
    return outputs, [0] * len(outputs)


def _tangent(inputs, tangents, *, jaxpr: ClosedJaxpr):
    return jax.jvp(jaxpr_as_fun(jaxpr), inputs, tuple(ad.instantiate_zeros(tangent) for tangent in tangents))


def _lower(context, *inputs, jaxpr: ClosedJaxpr):
    return mlir.core_call_lowering(context, *inputs, name="solve", call_jaxpr=jaxpr)


def _lower_for_cpu(context, *inputs, jaxpr: ClosedJaxpr):
    outputs = _lower(context, *inputs, jaxpr=jaxpr)
    attributes: dict[str, Any] = {name: mlir.ir.StringAttr.get(value) for name, value in _ATTRIBUTES.items()}
    outputs[0].owner.attributes["mhlo.frontend_attributes"] = mlir.ir.DictAttr.get(attributes)
    return outputs


_kernel_p = Primitive("one_kernel")
_kernel_p.multiple_results = True
_kernel_p.def_impl(lambda *inputs, jaxpr: jaxpr_as_fun(jaxpr)(*inputs))
_kernel_p.def_abstract_eval(lambda *inputs, jaxpr: jaxpr.out_avals)
batching.primitive_batchers[_kernel_p] = _batch
ad.primitive_jvps[_kernel_p] = _tangent
mlir.register_lowering(_kernel_p, _lower)
mlir.register_lowering(_kernel_p, _lower_for_cpu, platform="cpu")


def _is_small(jaxpr: Jaxpr) -> bool:
    """Whether everything computed in here is small, and of a kind that can be part of a kernel."""
    return all(_eqn_is_small(eqn) for eqn in jaxpr.eqns)


def _eqn_is_small(eqn: JaxprEqn) -> bool:
    if not all(str(getattr(var.aval, "dtype", None)) in _DTYPES for var in eqn.outvars):
        return False
    name, sizes = eqn.primitive.name, [math.prod(_shape(var)) for var in (*eqn.invars, *eqn.outvars)]
    if name in _NESTED:
        inner = [x for x in jax.tree.leaves(list(eqn.params.values())) if isinstance(x, Jaxpr | ClosedJaxpr)]
        return all(_is_small(x.jaxpr if isinstance(x, ClosedJaxpr) else x) for x in inner)
    if name in ("dynamic_slice", "gather"):
        return sizes[-1] <= SMALL
    if name == "dynamic_update_slice":
        return sizes[1] <= SMALL
    if name == "broadcast_in_dim" and sizes[0] == 1:
        return True
    if name == "dot_general":
        return max(sizes) <= SMALL and _is_matrix_times_vector(eqn)
    return name in _WHOLE and max(sizes) <= SMALL


def _is_matrix_times_vector(eqn: JaxprEqn) -> bool:
    """Or a product of vectors; matrices are multiplied by a library."""
    contracting, batch = eqn.params["dimension_numbers"]
    free = [
        math.prod(size for axis, size in enumerate(_shape(var)) if axis not in (*summed, *shared))
        for var, summed, shared in zip(eqn.invars, contracting, batch, strict=True)
    ]
    summed = math.prod(_shape(eqn.invars[0])[axis] for axis in contracting[0])
    return not batch[0] and min(*free, summed) == 1


def _shape(var: Any) -> tuple[int, ...]:
    return getattr(var.aval, "shape", ())
