"""A delay that is one number."""

from typing import Any

import jax.numpy as jnp

from ._base import AbstractLag


class Constant(AbstractLag):
    """`α = t - delay`. Steps are no longer than the delay, unless it overlaps."""

    delay: Any

    def time(self, t, y, args):
        return t - jnp.asarray(self.delay, t.dtype)

    @property
    def overlaps(self):
        return bool(self.overlap)

    def shortest(self):
        return self.delay
