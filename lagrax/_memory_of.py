"""`memory_of`: what a solve will take, asked before it is allocated."""

import dataclasses
import inspect
from typing import Any

import equinox as eqx

from ._bytes import Memory, memory_needed
from ._call import Call, checked_call
from ._layout import laid_out, observed_times
from ._setup import UNLIMITED
from ._solve import ddesolve


def memory_of(*arguments: Any, **options: Any) -> Memory:
    """The memory that `ddesolve(*arguments, **options)` will take, without solving, compiling or allocating anything.

    **Arguments:** those of [`lagrax.ddesolve`][].

    **Returns:**

    An object that prints readably, with bytes as whole numbers: `solve` for the solve alone, `gradient` for the solve with
    its gradient by [`lagrax.DiscreteAdjoint`][] (None where `max_steps` is None), and `rows`, `row`, how many rows the past
    has and what each takes. Arrays that the vector field makes inside itself are not counted. Each lane of a `vmap` takes as
    much, and each tangent of forward mode as much as a solve.
    """
    # The types that tests check at run time are those of `ddesolve`, whose signature is the one place for its defaults.
    bound = inspect.signature(inspect.unwrap(ddesolve)).bind(*arguments, **options)
    bound.apply_defaults()
    bound.arguments.pop("throw")
    found: list[Memory] = []

    def measure(call: Call) -> None:
        problem, setup = laid_out(call)
        keep = dataclasses.replace(setup.keep, slopes=getattr(call.adjoint, "keep_stages", False))
        ts = observed_times(call, problem)
        found.append(memory_needed(problem, dataclasses.replace(setup, keep=keep), ts, _saved(call, len(ts))))

    eqx.filter_eval_shape(measure, checked_call(**bound.arguments))
    return found[0]


def _saved(call: Call, times: int) -> int:
    """How many states are returned."""
    steps = 0 if call.max_steps == UNLIMITED else call.max_steps
    return times + sum(bool(sub.t0) + bool(sub.t1) + (steps // sub.steps if sub.steps else 0) for sub in call.subs)
