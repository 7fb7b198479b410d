"""A delayed derivative: the neutral kind."""

import dataclasses
from typing import Any, ClassVar

from ._base import AbstractLag


class Derivative(AbstractLag):
    """The derivative of the state at a delayed time, `y'(t - τ)`, where other delays give the state itself.

    Kinks of the solution do not smooth out as they are passed on: they are tracked all along. Before t0 it is the derivative
    of the history.

    **Arguments:**

    - `of`: any delay: a number, a function `(t, y, args)`, a [`lagrax.At`][] or a [`lagrax.Lag`][].

    ```python
    delays = {"population": 1.0, "growth": lagrax.Derivative(1.0)}
    ```
    """

    of: Any

    reads_slope: ClassVar[bool] = True

    def time(self, t, y, args):
        return self.of.time(t, y, args)

    def function(self):
        return self.of.function()

    def with_function(self, function):
        return dataclasses.replace(self, of=self.of.with_function(function))

    @property
    def inner(self):
        return self.of

    @property
    def overlaps(self):
        return self.of.overlaps

    def shortest(self):
        return self.of.shortest()
