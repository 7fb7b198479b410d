"""Forward mode: the loop as it is, for `jax.jvp`, `jax.jacfwd` and nested forward derivatives."""

from .._loop import integrate
from ._base import AbstractAdjoint, observe, without_tangents


class ForwardMode(AbstractAdjoint):
    """Differentiate in forward mode: `jax.jvp`, `jax.jacfwd`, Hessians by forward-over-forward.

    Each tangent travels with the solution, so this suits few inputs and many outputs. The derivative is that of what was
    computed on the frozen mesh with moving breakpoints, the same numbers as [`lagrax.DiscreteAdjoint`][] gives backwards.
    Reverse mode (`jax.grad`) through it is not possible: JAX has no reverse rule for the loop.
    """

    def solve(self, problem, setup, ts):
        trajectory = without_tangents(integrate(problem, setup))
        return trajectory, observe(trajectory, ts, problem)
