"""How to integrate: solver, controller, memory, for the solve and for those that adjoints add to it."""

import math
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
from jax import lax
from jaxtyping import Array, Float, PyTree

from ._check import unset_tolerances
from ._method import Method, method_of

UNLIMITED = 2**31 - 1
"""`max_steps` of a solve without a limit."""


class Keep(eqx.Module):
    """What is written down while integrating, decided once: what nobody will read is not kept."""

    output: bool = eqx.field(static=True, default=True)
    """Whether states between mesh points are ever read; if not, the memory holds mesh points alone."""
    steps: bool = eqx.field(static=True, default=True)
    """Whether anything but an adjoint reads the steps; if not, they need not leave the loop that took them."""
    record: bool = eqx.field(static=True, default=False)
    """Whether to write the `Record` that a backward pass needs."""
    slopes: bool = eqx.field(static=True, default=False)
    """Whether the record has the slopes of all stages too, which spare the backward pass evaluations."""
    derivatives: bool = eqx.field(static=True, default=False)
    """Whether the derivative of the output is read, and has to be as accurate as the output."""


class Setup(eqx.Module):
    """How to integrate. Nothing in here is differentiated."""

    solver: dfx.AbstractSolver
    controller: dfx.AbstractStepSizeController
    dt0: Float[Array, ""] | None
    directions: PyTree
    meter: dfx.AbstractProgressMeter
    max_steps: int = eqx.field(static=True)
    method: Method = eqx.field(static=True)
    keep: Keep = Keep()
    memory: int | None = eqx.field(static=True, default=None)
    """How many rows the past has, a power of two; None for all."""

    @property
    def segment(self) -> int:
        """With bounded memory, after how many steps the past is kept for a backward pass: √(steps · rows), so that what is
        kept and what is computed again take equal room, and not less than there are rows."""
        assert self.memory is not None
        return max(self.memory, 2 ** math.ceil(math.log2(self.max_steps * self.memory) / 2))

    @property
    def room(self) -> int:
        """`max_steps`, rounded up to whole segments."""
        return -(-self.max_steps // self.segment) * self.segment

    @property
    def adaptive(self) -> bool:
        return isinstance(self.controller, dfx.AbstractAdaptiveStepSizeController)


def make_setup(
    solver: dfx.AbstractSolver,
    controller: dfx.AbstractStepSizeController,
    dt0: Float[Array, ""] | None,
    max_steps: int,
    *,
    directions: PyTree = None,
    meter: dfx.AbstractProgressMeter = dfx.NoProgressMeter(),
    keep: Keep | None = None,
) -> Setup:
    keep = Keep() if keep is None else keep
    frozen = jax.tree.map(lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, controller)
    return Setup(
        solver=_with_tolerances(solver, controller),
        controller=frozen.wrap(1),
        dt0=dt0,
        directions=directions,
        meter=meter,
        max_steps=max_steps,
        method=method_of(solver, keep.output, keep.derivatives),
        keep=keep,
    )


def _with_tolerances(solver: Any, controller: dfx.AbstractStepSizeController) -> dfx.AbstractSolver:
    """Fills the tolerances of an implicit solver's root finder from the controller, as `diffeqsolve` does."""
    missing = unset_tolerances(solver)
    where = lambda s: [getattr(s.root_finder, name) for name in missing]
    return eqx.tree_at(where, solver, [getattr(controller, name) for name in missing]) if missing else solver
