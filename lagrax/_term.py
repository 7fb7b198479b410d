"""A delay differential equation: a vector field and the delays it looks back by."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import PyTree


class DelayTerm(eqx.Module):
    """The right-hand side of `y'(t) = f(t, y(t), y(t - τ), args)`.

    **Arguments:**

    - `vector_field`: a function `f(t, y, delayed, args)` returning the structure of `y`. `delayed` has the structure of
      `delays`, each leaf replaced by a whole state: the solution that long ago.
    - `delays`: a PyTree of positive scalars, in the units of time. A scalar gives `delayed` as one state, `(1.0, 2.0)` a
      tuple of two, `{"short": 0.5}` a dictionary. Leaves are differentiable. A callable module among them (a learnable
      delay) is called without arguments for its value.

    ```python
    def hutchinson(t, y, delayed, rate):
        return rate * y * (1 - delayed)

    term = lagrax.DelayTerm(hutchinson, delays=1.0)
    ```
    """

    vector_field: Callable
    delays: PyTree

    def resolved_delays(self) -> PyTree:
        """`delays` with every module replaced by its value."""
        is_module = lambda leaf: isinstance(leaf, eqx.Module) and callable(leaf)
        return jax.tree.map(lambda leaf: leaf() if is_module(leaf) else leaf, self.delays, is_leaf=is_module)
