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
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array

from ._compat import func, stablehlo

SMALL = 256
"""Numbers in an array that counts as small. XLA gives larger sums and products to libraries that a kernel cannot call."""

MANY = 1024
"""Lanes of a batch up to which they are solved one after the other, in one kernel for all. Mackey–Glass, forwards, takes
0.4, 0.7 and 1.0 times as long so as by `vmap` for 5, 100 and 1,000 lanes, a small network 0.3, 0.7 and 1.5 times; gradients
are much the same. Lanes do not wait for each other, and one core does what `vmap` needs two for."""

TESTED = ("0.10.0", "0.10.1", "0.10.2")
"""The versions of jaxlib in which the attribute is known to do what is said above."""

AVAILABLE = jaxlib.__version__ in TESTED and os.environ.get("LAGRAX_KERNELS") != "0"
"""Whether kernels are made at all. If not, XLA compiles loops as it sees fit, with the same results."""

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
_DTYPES = frozenset(map(np.dtype, _PLAIN.split()))


def in_one_kernel(function: Callable, *args: Any) -> Any:
    """`function(*args)`, of PyTrees, compiled into one kernel if it is small, and as usual otherwise."""
    if not AVAILABLE:
        return function(*args)
    closed, shapes, static = eqx.filter_make_jaxpr(function)(*args)
    inputs = jax.tree.leaves(eqx.filter(args, eqx.is_array))
    outputs = _call(closed, *inputs) if _is_small(closed.jaxpr, set()) else jaxpr_as_fun(closed)(*inputs)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(shapes), outputs), static)


def _call(closed: ClosedJaxpr, *inputs: Any) -> list[Array]:
    """What `closed` computes, in one kernel, of the inputs that it uses."""
    jaxpr = closed.jaxpr.replace(constvars=[], invars=[*closed.jaxpr.constvars, *closed.jaxpr.invars])
    jaxpr, used = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    used_inputs = [x for x, is_used in zip((*closed.consts, *inputs), used, strict=True) if is_used]
    return _kernel_p.bind(*used_inputs, jaxpr=ClosedJaxpr(jaxpr, []), batches=())


# The primitive: `jaxpr` once for each lane of `batches`, (size, axes of the inputs) from the outermost `vmap` to the
# innermost. How lanes are computed is decided when it is lowered, because only then is known where it will run.


def _function(jaxpr: ClosedJaxpr, batches: tuple, in_turn: bool) -> Callable:
    """What the primitive computes, with lanes one after the other or side by side."""
    run: Callable = jaxpr_as_fun(jaxpr)
    for size, axes in reversed(batches):
        run = _in_turn(run, size, axes) if in_turn else jax.vmap(run, axes, axis_size=size)
    return run


def _in_turn(run: Callable, size: int, axes: tuple[int | None, ...]) -> Callable:
    pick = lambda i, x, axis: x if axis is None else lax.dynamic_index_in_dim(x, i, axis, keepdims=False)
    lane = lambda i, inputs: run(*(pick(i, x, axis) for x, axis in zip(inputs, axes, strict=True)))
    return lambda *inputs: lax.map(lambda i: lane(i, inputs), jnp.arange(size, dtype=jnp.int32))


def _shapes(*inputs, jaxpr: ClosedJaxpr, batches: tuple):
    sizes = tuple(size for size, _ in batches)
    return [aval.update(shape=(*sizes, *aval.shape)) for aval in jaxpr.out_avals]


def _batch(inputs, axes, *, jaxpr: ClosedJaxpr, batches: tuple):
    size = next(x.shape[axis] for x, axis in zip(inputs, axes, strict=True) if axis is not None)
    batches = ((size, tuple(axes)), *batches)
    if 0 < math.prod(size for size, _ in batches) <= MANY:
        outputs = _kernel_p.bind(*inputs, jaxpr=jaxpr, batches=batches)
    else:
        outputs = _function(jaxpr, batches, in_turn=False)(*inputs)
    return outputs, [0] * len(outputs)


def _tangent(inputs, tangents, *, jaxpr: ClosedJaxpr, batches: tuple):
    # Only what moves has a tangent: a field whose derivative is written by hand may have none of other inputs.
    moves = [not isinstance(tangent, ad.Zero) for tangent in tangents]

    def run(*moving):
        rest = iter(moving)
        return _function(jaxpr, batches, in_turn=False)(
            *(next(rest) if m else x for m, x in zip(moves, inputs, strict=True))
        )

    pick = lambda values: tuple(x for m, x in zip(moves, values, strict=True) if m)
    return jax.jvp(run, pick(inputs), pick(tangents))


def _lower(context, *inputs, jaxpr: ClosedJaxpr, batches: tuple, in_turn: bool = False):
    if not batches:
        return mlir.core_call_lowering(context, *inputs, name="solve", call_jaxpr=jaxpr)
    return mlir.lower_fun(_function(jaxpr, batches, in_turn))(context, *inputs)


def _lower_for_cpu(context, *inputs, jaxpr: ClosedJaxpr, batches: tuple):
    """A call of a function whose one parameter is the tuple of all inputs, and which hands some of them back.

    XLA lists the buffers of a kernel by the operands of its operations, and aborts on a parameter that none of them has, be
    it that XLA itself simplified the last use away. Of a tuple one element that is read puts all on the list (XLA's own
    calls of this kind, made of loops, have one tuple too), and what is handed back is read: nothing can simplify a result.
    A program for several devices has its tuples taken apart, so there a number of every element is handed back. (Not
    always, because a buffer that is read so and then written to has to be copied.)
    """
    module, ir = context.module_context, mlir.ir
    if not inputs or not _runs_whole(module):
        return _lower(context, *inputs, jaxpr=jaxpr, batches=batches)
    # The barrier keeps XLA from moving constants into the kernel, and so from leaving their places unread.
    packed = stablehlo.tuple(stablehlo.OptimizationBarrierOp(inputs).results)
    kernel: Any = func.FuncOp("kernel", ir.FunctionType.get([packed.type], []), ip=module.ip)
    kernel.attributes["sym_visibility"] = ir.StringAttr.get("private")
    module.symbol_table.insert(kernel)
    block = kernel.add_entry_block()
    with ir.InsertionPoint(block):
        parts = [stablehlo.get_tuple_element(block.arguments[0], i) for i in range(len(inputs))]
        outputs = _lower(context, *parts, jaxpr=jaxpr, batches=batches, in_turn=True)
        parts.sort(key=lambda part: math.prod(part.type.shape))
        returned = [*outputs, *map(_first_number, parts if _devices(module) > 1 else parts[:1])]
        func.ReturnOp(returned)
    types = [x.type for x in returned]
    kernel.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([packed.type], types))
    call = func.CallOp(types, ir.FlatSymbolRefAttr.get(kernel.name.value), [packed])
    attributes: dict[str, Any] = {name: ir.StringAttr.get(value) for name, value in _ATTRIBUTES.items()}
    call.operation.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(attributes)
    return list(call.results)[: len(outputs)]


def _devices(module: mlir.ModuleContext) -> int:
    place = module.axis_context
    return place.mesh.size if isinstance(place, mlir.SPMDAxisContext) else place.num_devices


def _first_number(array: Any) -> Any:
    shape = array.type.shape
    if math.prod(shape) <= 1:
        return array
    ones = mlir.dense_int_array([1] * len(shape))
    return stablehlo.slice(array, mlir.dense_int_array([0] * len(shape)), ones, ones)


def _runs_whole(module: mlir.ModuleContext) -> bool:
    """Whether the program is for this version of XLA, and each device runs all of it on its own part of the data: what XLA
    splits over devices by itself, it cannot split inside a kernel."""
    place = module.axis_context
    if isinstance(place, mlir.SPMDAxisContext):
        alone = frozenset(place.manual_axes) == frozenset(place.mesh.axis_names)
    else:
        alone = isinstance(place, mlir.ShardingContext) and _devices(module) == 1
    return alone and not module.lowering_parameters.for_export


_kernel_p = Primitive("one_kernel")
_kernel_p.multiple_results = True
_kernel_p.def_impl(lambda *inputs, jaxpr, batches: _function(jaxpr, batches, in_turn=False)(*inputs))
_kernel_p.def_abstract_eval(_shapes)
batching.primitive_batchers[_kernel_p] = _batch
ad.primitive_jvps[_kernel_p] = _tangent
mlir.register_lowering(_kernel_p, _lower)
mlir.register_lowering(_kernel_p, _lower_for_cpu, platform="cpu")


def _is_small(jaxpr: Jaxpr, known: set[int]) -> bool:
    """Whether everything computed in here is small, and of a kind that can be part of a kernel.

    `known` are the identities of those looked at before: a function like `jnp.where` is one, called at a hundred places.
    """
    if id(jaxpr) in known:
        return True
    known.add(id(jaxpr))
    return all(_eqn_is_small(eqn, known) for eqn in jaxpr.eqns)


def _eqn_is_small(eqn: JaxprEqn, known: set[int]) -> bool:
    if not all(getattr(var.aval, "dtype", None) in _DTYPES for var in eqn.outvars):
        return False
    name, sizes = eqn.primitive.name, [math.prod(_shape(var)) for var in (*eqn.invars, *eqn.outvars)]
    if name in _NESTED:
        return all(_is_small(inner, known) for inner in _inside(eqn))
    if name in ("dynamic_slice", "gather", "slice"):
        return sizes[-1] <= SMALL
    if name == "dynamic_update_slice":
        return sizes[1] <= SMALL
    if name == "empty2" or (name == "broadcast_in_dim" and sizes[0] == 1):
        return True
    if name == "dot_general":
        return max(sizes) <= SMALL and _is_matrix_times_vector(eqn)
    return name in _WHOLE and max(sizes) <= SMALL


def _inside(eqn: JaxprEqn) -> list[Jaxpr]:
    """What `eqn` calls: a parameter of it, or several in a tuple."""
    given = [x for value in eqn.params.values() for x in (value if isinstance(value, tuple) else (value,))]
    return [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in given if isinstance(x, (Jaxpr, ClosedJaxpr))]


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
