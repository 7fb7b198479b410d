"""Forward mode: the loop as it is, for `jax.jvp`, `jax.jacfwd` and nested forward derivatives."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._bytes import check_fits
from .._integrate import integrate
from .._planned import integrate_bounded
from .._results import failed
from .._setup import Setup
from .._xla._compat import nondifferentiable_backward
from ._base import AbstractAdjoint, observe, without_tangents
from ._bounded import without_past


class ForwardMode(AbstractAdjoint):
    """Differentiate in forward mode: `jax.jvp`, `jax.jacfwd`, Hessians by forward-over-forward.

    Each tangent travels with the solution, so this suits few inputs and many outputs. The derivative is that of what was
    computed on the frozen mesh with moving breakpoints, the same numbers as [`lagrax.DiscreteAdjoint`][] gives backwards.
    Reverse mode (`jax.grad`) through it is refused: JAX has no reverse rule for the loop.
    """

    def check(self, problem, setup, saveat):
        if problem.network is not None and problem.network.overlaps:
            raise ValueError(
                "got a network whose delays overlap with ForwardMode, expected delays that steps do not exceed: pass "
                "adjoint=lagrax.DiscreteAdjoint() instead, or positive delays without overlap"
            )

    def solve(self, problem, setup, ts):
        setup = _with_forward_rule(setup)
        check_fits(problem, setup, ts, gradient=False)
        if setup.memory is not None:
            trajectory, ys, _ = integrate_bounded(problem, setup, ts)
            trajectory = without_tangents(without_past(trajectory))
            ends = lambda t: (t.y_end, t.t_end)
            *states, ys = _spoil(failed(trajectory.result), _forwards_only((*ends(trajectory), ys)))
            return eqx.tree_at(ends, trajectory, tuple(states)), ys
        trajectory = without_tangents(integrate(problem, setup))
        where = lambda t: (t.past.rows, t.y_end, t.t_end)
        spoilt = _spoil(failed(trajectory.result), _forwards_only(where(trajectory)))
        trajectory = eqx.tree_at(where, trajectory, spoilt)
        return trajectory, observe(trajectory, ts, problem)


def _forwards_only(tree: PyTree) -> PyTree:
    return nondifferentiable_backward(
        tree,
        msg="got a reverse-mode derivative (grad, vjp, jacrev) with ForwardMode, expected a forward one (jvp, jacfwd): pass "
        "adjoint=lagrax.DiscreteAdjoint(), the default, or use jax.jacfwd",
    )


def _with_forward_rule(setup: Setup) -> Setup:
    """The stages of an implicit solver are a loop, which diffrax makes for reverse mode unless told otherwise."""
    solver: Any = setup.solver
    if getattr(solver, "scan_kind", "none such") is not None:
        return setup
    return dataclasses.replace(setup, solver=dataclasses.replace(solver, scan_kind="lax"))


@jax.custom_jvp
def _spoil(bad, states):
    """`states`, whose derivative is NaN if the solve failed."""
    return states


@_spoil.defjvp
def _spoil_jvp(primals, tangents):
    bad, states = primals
    factor = lambda x: jnp.where(bad, jnp.nan, 1.0).astype(x.dtype)
    return _spoil(bad, states), jax.tree.map(lambda tangent: tangent * factor(tangent), tangents[1])
