"""Delays that depend on time and on the state."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp

from ._base import AbstractLag


class Moving(AbstractLag):
    """`α = t - delay(t, y, args)`: what a callable among the delays stands for."""

    delay: Callable

    def time(self, t, y, args):
        return t - jnp.asarray(self.delay(t, y, args), t.dtype)

    def function(self):
        return self.delay

    def with_function(self, function):
        return dataclasses.replace(self, delay=function)


class At(AbstractLag):
    """A delayed term that is given by the time it looks at, rather than by a delay: `y(y(t))`, `y(t/2)`.

    **Arguments:**

    - `at`: a function `(t, y, args)` that returns the time, at most t. Differentiable, with what it closes over.
    - `minimum`, `overlap`, `track`: as in [`lagrax.Lag`][].

    ```python
    pantograph = lagrax.DelayTerm(lambda t, y, delayed, args: -y + delayed / 2, lagrax.At(lambda t, y, args: t / 2))
    ```
    """

    at: Callable

    def time(self, t, y, args):
        return self.at(t, y, args)

    def function(self):
        return self.at

    def with_function(self, function):
        return dataclasses.replace(self, at=function)
