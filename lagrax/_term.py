"""A delay differential equation: a vector field and the delays it looks back by."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import PyTree

from ._lag import AbstractLag, Integral, resolve


class DelayTerm(eqx.Module):
    """The right-hand side of `y'(t) = f(t, y(t), y(t - τ), args)`.

    **Arguments:**

    - `vector_field`: a function `f(t, y, delayed, args)` returning the structure of `y`. `delayed` has the structure of
      `delays`, each leaf replaced by a whole state: the solution that long ago.
    - `delays`: a PyTree of delays, in the units of time. A scalar gives `delayed` as one state, `(1.0, 2.0)` a tuple of two,
      `{"short": 0.5}` a dictionary. A leaf is

        - a positive number;
        - a function `(t, y, args)` that returns the delay, which may depend on time and on the state, and be zero;
        - a [`lagrax.At`][], for the looked-up time itself;
        - a [`lagrax.Each`][], an array of delays for single components, for networks;
        - a [`lagrax.Lag`][] around any of these, with options;
        - a callable module without arguments (a learnable delay), called for its value.

      All are differentiable, in what they close over too.

    ```python
    def hutchinson(t, y, delayed, rate):
        return rate * y * (1 - delayed)

    term = lagrax.DelayTerm(hutchinson, delays=1.0)
    ```
    """

    vector_field: Callable
    delays: PyTree

    def lags(self) -> PyTree[AbstractLag | Integral]:
        """`delays` with every leaf replaced by its kind."""
        return resolve(self.delays)
