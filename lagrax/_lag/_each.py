"""An array of delays, each of which reads one component of the state."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from ._base import AbstractLag


class Each(AbstractLag):
    """An array of delays, each for one component of the state: a delay on every connection of a network.

    `of(y)` is broadcast against `delays`, and element e of what the vector field gets is `of(y(t - delays[e]))[e]`. For a
    state of N nodes, `Each(tau)` with `tau` of shape (N, N) gives `delayed[i, j] = y[j](t - tau[i, j])`; for a list of
    connections, `Each(tau, of=lambda y: y[senders])` gives `delayed[e] = y[senders[e]](t - tau[e])`.

    One component is read per element, whatever the size of the state. Steps are no longer than the shortest delay, unless a
    delay is 0 or `lagrax.Lag(lagrax.Each(...), overlap=True)` says so. Up to 16 elements are solved as so many numbers, with
    steps that end on every breakpoint; with more of them kinks are left to error control.

    **Arguments:**

    - `delays`: an array of delays of any shape, positive or zero, or a module called without arguments for it.
      Differentiable, each of them.
    - `of`: a function of the state that selects components of it, and computes nothing; by default the whole state, which
      then is one array.
    - `minimum`, `overlap`, `track`: as in [`lagrax.Lag`][].

    ```python
    delays = {"axons": lagrax.Each(lengths / velocity, of=lambda y: y["rate"][senders]), "synapse": 0.01}
    ```
    """

    delays: Any
    of: Any = None

    def time(self, t, y, args):
        return t - jnp.asarray(self.delays, t.dtype)

    @property
    def overlaps(self):
        if self.overlap is not None:
            return self.overlap
        return not isinstance(self.delays, jax.core.Tracer) and bool(np.any(np.asarray(self.delays) == 0))

    def shortest(self):
        return jnp.min(self.delays)


class Elements(AbstractLag):
    """`Each`, with the places in the flat state that it selects: `senders[e]` for element e of an array of this `shape`."""

    delays: Any
    senders: Int[Array, " e"]
    valid: Bool[Array, ""]
    """Whether `of` selected, where that is only known at run time."""
    shape: tuple[int, ...] = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def time(self, t, y, args):
        return t - jnp.asarray(self.delays, t.dtype)

    @property
    def overlaps(self):
        return bool(self.overlap)

    def shortest(self):
        return jnp.min(self.delays)
