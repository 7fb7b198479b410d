"""A loop over small arrays as one kernel of the CPU.

XLA runs the body of a loop as a list of kernels and hands them from thread to thread: 30 to 100 ns each, most of the time
that an equation of a few components takes. A call that carries the attribute `xla_cpu_small_call` it compiles into one
kernel instead. XLA itself gives it to loops that touch less than 1 kB, which no solver does; here the solver's own loops
get it, if all that they compute with is small. A step of Mackey–Glass takes 0.4 instead of 2.9 µs.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jaxlib
from jax.custom_batching import custom_vmap
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun, jaxprs_in_params
from jax.interpreters.partial_eval import dce_jaxpr

from ._pack import Packing

SMALL = 256
"""Numbers in an array that counts as small. XLA gives larger sums and products to libraries that a kernel cannot call."""

AVAILABLE = jaxlib.__version__.startswith("0.10.")
"""Whether the attribute is known to do what is said above. Elsewhere loops are compiled as XLA sees fit."""

_ATTRIBUTES = {"xla_cpu_small_call": "true", "inlineable": "false"}

_ELEMENTWISE = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp complex conj convert_element_type copy cos
    cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le lgamma log log1p logistic
    lt max min mul ne neg nextafter not or pow real reduce_precision rem round rsqrt select_n shift_left
    shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor
"""
_REARRANGING = "broadcast_in_dim concatenate expand_dims iota pad reshape rev slice split squeeze stack transpose"
_REDUCING = "argmax argmin cummax cummin cumprod cumsum reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum"
_CONTROL = "checkpoint closed_call cond custom_jvp_call custom_vjp_call jit pjit remat2 scan while"
_WHOLE = frozenset(f"{_ELEMENTWISE} {_REARRANGING} {_REDUCING} nonbatchable unvmap_all unvmap_any unvmap_max".split())
_NESTED = frozenset(_CONTROL.split())


def in_one_kernel(function: Callable, *args: Any) -> Any:
    """`function(*args)`, of PyTrees, compiled into one kernel if it is small, and as usual otherwise or in a batch."""
    if not AVAILABLE or jax.default_backend() != "cpu":
        return function(*args)
    closed, shapes, static = eqx.filter_make_jaxpr(function)(*args)
    inputs = jax.tree.leaves(eqx.filter(args, eqx.is_array))
    outputs = _marked(closed)(*inputs) if _is_small(closed.jaxpr) else jaxpr_as_fun(closed)(*inputs)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), outputs), static)


def _marked(closed: ClosedJaxpr) -> Callable:
    """The function, of arrays, as a call with the attributes; without them in a batch, and in forward mode."""
    jaxpr = closed.jaxpr.replace(constvars=[], invars=[*closed.jaxpr.constvars, *closed.jaxpr.invars])
    jaxpr, used = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    run = jaxpr_as_fun(ClosedJaxpr(jaxpr, []))

    @jax.custom_jvp
    @custom_vmap
    def marked(*inputs):
        packing = Packing(inputs)
        vectors, large = packing.pack(inputs)

        # XLA fails on a parameter that nobody reads, perhaps because it has simplified the reader away. The inputs that are
        # not used are left out, and the small ones handed back.
        def call(vectors, large):
            return run(*packing.unpack((vectors, large))), vectors, [x for x in large if x.size <= SMALL]

        # The call alone is to carry the attributes, so what it calls has to be traced outside.
        traced = jax.make_jaxpr(jax.jit(call))(vectors, large)
        with set_xla_metadata(**_ATTRIBUTES):
            return jaxpr_as_fun(traced)(*vectors, *large)[: len(jaxpr.outvars)]

    @marked.defjvp
    def tangent(inputs, tangents):
        return jax.jvp(run, inputs, tangents)

    @marked.fun.def_vmap
    def batched(axis_size, in_batched, *inputs):
        axes = [0 if is_batched else None for is_batched in in_batched]
        outputs = jax.vmap(run, in_axes=axes, axis_size=axis_size)(*inputs)
        return outputs, [True] * len(outputs)

    return lambda *inputs: marked(*(x for x, is_used in zip((*closed.consts, *inputs), used, strict=True) if is_used))


def _is_small(jaxpr: Jaxpr) -> bool:
    """Whether everything computed in here is small, and of a kind that can be part of a kernel."""
    return all(_eqn_is_small(eqn) for eqn in jaxpr.eqns)


def _eqn_is_small(eqn: JaxprEqn) -> bool:
    name, sizes = eqn.primitive.name, [math.prod(_shape(var)) for var in (*eqn.invars, *eqn.outvars)]
    if name in _NESTED:
        return all(_is_small(inner) for inner in jaxprs_in_params(eqn.params))
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
