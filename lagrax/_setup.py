"""How to integrate: solver, controller, memory. Checked here, for the solve and for those that adjoints add to it."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
from jax import lax
from jaxtyping import Array, Float, PyTree

from ._check import concrete
from ._compat import use_stepsize_tol
from ._method import Method, method_of


class Setup(eqx.Module):
    """How to integrate. Nothing in here is differentiated."""

    solver: dfx.AbstractSolver
    controller: dfx.AbstractStepSizeController
    dt0: Float[Array, ""] | None
    directions: PyTree
    meter: dfx.AbstractProgressMeter
    max_steps: int = eqx.field(static=True)
    method: Method = eqx.field(static=True)
    hand_over: bool = eqx.field(static=True, default=True)
    """Whether anything but an adjoint reads the steps; if not, they need not leave the loop that took them."""
    record: bool = eqx.field(static=True, default=False)
    """Whether to write down `links`, which a backward pass needs."""
    keep_stages: bool = eqx.field(static=True, default=False)
    """With `record`, whether to write down the slopes of all stages too, which spare the backward pass evaluations."""

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
    output: bool = True,
    hand_over: bool = True,
) -> Setup:
    """`output`: whether the states between mesh points are ever read; if not, the memory holds mesh points alone."""
    frozen = jax.tree.map(lambda x: lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, controller)
    return Setup(
        solver=_with_tolerances(solver, controller),
        controller=frozen.wrap(1),
        dt0=dt0,
        directions=directions,
        meter=meter,
        max_steps=max_steps,
        method=method_of(solver, output),
        hand_over=hand_over,
    )


def check_steps(solver: dfx.AbstractSolver, controller: dfx.AbstractStepSizeController, dt0: Any) -> None:
    """The solver, the controller and the first step must go together."""
    if isinstance(controller, dfx.ClipStepSizeController):
        raise ValueError(
            "got ClipStepSizeController, expected a controller without times of its own: pass the one inside it, and its "
            "jump_ts (and step_ts) as ddesolve(..., jump_ts=...), where steps end exactly on them"
        )
    method, adaptive = method_of(solver), isinstance(controller, dfx.AbstractAdaptiveStepSizeController)
    if dt0 is None and not (adaptive or isinstance(controller, dfx.StepTo)):
        raise ValueError("dt0 is None, expected the step size when steps are fixed: pass dt0 or an adaptive controller")
    step = None if dt0 is None else concrete(dt0)
    if step is not None and not step > 0:
        raise ValueError(f"dt0 = {dt0}, expected a positive step: time runs forwards")
    if adaptive and method.b_error is None:
        raise ValueError(
            f"{type(solver).__name__} has no error estimate, expected one for adaptive steps: pass dt0 and "
            "stepsize_controller=diffrax.ConstantStepSize()"
        )
    _with_tolerances(solver, controller)


def _with_tolerances(solver: dfx.AbstractSolver, controller: dfx.AbstractStepSizeController) -> dfx.AbstractSolver:
    """Fills the tolerances of an implicit solver's root finder from the controller, as `diffeqsolve` does."""
    if not isinstance(solver, dfx.AbstractImplicitSolver):
        return solver
    finder: Any = solver.root_finder
    missing = [name for name in ("rtol", "atol", "norm") if getattr(finder, name, None) is use_stepsize_tol]
    if missing and not isinstance(controller, dfx.AbstractAdaptiveStepSizeController):
        raise ValueError(
            f"{type(solver).__name__} has a root finder without {', '.join(missing)} and steps are fixed, expected explicit "
            "tolerances: pass root_finder=optimistix.Newton(rtol=..., atol=...)"
        )
    where = lambda s: [getattr(s.root_finder, name) for name in missing]
    return eqx.tree_at(where, solver, [getattr(controller, name) for name in missing]) if missing else solver
