"""What every kind of delay is to the solver: a time looked back at."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PyTree


class AbstractLag(eqx.Module):
    """A delayed term's time `α(t, y, args) <= t`, and what the solver may assume about it.

    A further kind of delay is a subclass in a file of its own: it says which time it looks at, and the staged loop does the
    rest. Arrays in it are differentiable.
    """

    minimum: Any = eqx.field(kw_only=True, default=None)
    """A promise that the delay is never shorter: steps are at most this long, and none looks into itself."""
    overlap: bool | None = eqx.field(static=True, kw_only=True, default=None)
    """Whether steps may be longer than the delay. None: what suits the kind."""
    track: bool = eqx.field(static=True, kw_only=True, default=True)
    """Whether steps end where this delay looks at a kink of the solution."""

    @abc.abstractmethod
    def time(self, t: Float[Array, ""], y: PyTree[Array], args: PyTree) -> Float[Array, ""]:
        """α(t, y, args), the time that is looked at from t and the state y."""

    def function(self) -> Callable | None:
        """The function `(t, y, args)` that a user wrote into it, if any: what it closes over is differentiated."""
        return None

    def with_function(self, function: Callable) -> "AbstractLag":
        """This delay with another function in that place."""
        return self

    reads_slope: ClassVar[bool] = False
    """Whether it stands for the derivative of the state at that time, rather than for the state."""

    @property
    def inner(self) -> "AbstractLag":
        """The delay that says where to look, if this is one around another."""
        return self

    @property
    def overlaps(self) -> bool:
        """Whether a step may be longer than this delay, so that its stages look into the step itself."""
        return self.minimum is None if self.overlap is None else self.overlap

    def shortest(self) -> Any:
        """A length that the delay is never shorter than, if it does not overlap."""
        return self.minimum
