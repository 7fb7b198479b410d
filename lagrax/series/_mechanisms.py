"""Known mechanisms: delay equations whose parameters and delays have a meaning, ready to be fitted."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Typical:
    """Of data: their size, the value in their middle, how far they are from it, and their dominant period / 2π."""

    level: float
    middle: float
    spread: float
    time: float

    @classmethod
    def of(cls, y: np.ndarray, time: float) -> "Typical":
        level, middle = float(np.median(np.abs(y))) or 1.0, float(np.median(y))
        return cls(level, middle, float(np.median(np.abs(y - middle))) or float(np.std(y)) or level, time)


class Parameter(eqx.Module):
    """A parameter, and where to start looking for it: at `start` · sizeᵃ · timeᵇ, with `units` = (a, b).

    `size` is that of the data, and `time` their dominant period / 2π, so that a start suits data in any units. `like` says
    which size: "level", the usual distance from zero; "spread", that from their middle, also where all values are
    raised; "middle", this value itself.
    `low`, `high`: bounds, in the units of the data; (0, ∞) for what is positive, (−∞, ∞) for any real number.
    """

    name: str
    start: float = 1.0
    units: tuple[float | int, float | int] = (0.0, 0.0)
    low: float = 0.0
    high: float = float("inf")
    like: str = "level"

    def guess(self, typical: Typical) -> float:
        size = {"level": typical.level, "spread": typical.spread, "middle": typical.middle}[self.like]
        return self.start * size ** self.units[0] * typical.time ** self.units[1]

    def scale(self, typical: Typical) -> float:
        """What it is measured in while it is looked for; never zero."""
        size = typical.level if self.like == "level" else typical.spread
        return abs(self.start * size ** self.units[0] * typical.time ** self.units[1]) or 1.0


class Mechanism(eqx.Module):
    """A delay equation with named parameters: `field(t, y, delayed, params)`, or `(t, y, delayed, params, inputs)`.

    - `field`: y' of shape (d,), from the state y (d,), the delayed state (a tuple of them if there are several delays) and a
      dict of parameters, all in the units of the data; `inputs` (m,) are the exogenous columns at time t.
    - `parameters`: a tuple of `Parameter`.
    - `delays`: the names of the delays.
    - `columns`: how many columns of data it describes, or None for any number.
    - `transform`: "log", "sqrt", "none" or "auto": in which coordinates errors are compared, and the equation is solved.
    """

    name: str
    field: Callable
    parameters: tuple[Parameter, ...]
    delays: tuple[str, ...] = ("tau",)
    columns: int | None = 1
    transform: str = "auto"


def _nicholson(t, y, delayed, p):
    return p["P"] * delayed * jnp.exp(-delayed / p["N0"]) - p["delta"] * y


def _hutchinson(t, y, delayed, p):
    return p["r"] * y * (1 - delayed / p["K"])


def _mackey_glass(t, y, delayed, p):
    z = jnp.maximum(delayed / p["theta"], 1e-12)
    return p["beta"] * delayed / (1 + z ** p["n"]) - p["gamma"] * y


def _delayed_feedback(t, y, delayed, p):
    return -p["a"] * (y - p["m"]) - p["b"] * jnp.tanh((delayed - p["m"]) / p["s"])


def _predator_prey(t, y, delayed, p):
    (prey, predator), (past_prey, past_predator) = y, delayed
    return jnp.stack(
        [
            p["r"] * prey * (1 - prey / p["K"]) - p["a"] * prey * predator,
            p["b"] * past_prey * past_predator - p["m"] * predator,
        ]
    )


def _epidemic(t, y, delayed, p):
    return p["beta"] * delayed * (1 - y / p["N"]) - p["gamma"] * y


def _two_column_epidemic(t, y, delayed, p):
    (susceptible, infectious), (past_susceptible, past_infectious) = y, delayed
    incidence = p["beta"] * susceptible * infectious
    return jnp.stack([-incidence, p["beta"] * past_susceptible * past_infectious - p["gamma"] * infectious])


NICHOLSON = Mechanism(
    "nicholson", _nicholson, (Parameter("P", 3.0, (0, -1)), Parameter("N0", 0.5, (1, 0)), Parameter("delta", 1.0, (0, -1)))
)
"""Nicholson's blowflies (Gurney, Blythe & Nisbet 1980): N' = P N(t − τ) exp(−N(t − τ)/N0) − δ N."""

HUTCHINSON = Mechanism("hutchinson", _hutchinson, (Parameter("r", 1.0, (0, -1)), Parameter("K", 1.0, (1, 0))))
"""The delayed logistic equation (Hutchinson 1948): N' = r N (1 − N(t − τ)/K)."""

MACKEY_GLASS = Mechanism(
    "mackey-glass",
    _mackey_glass,
    (
        Parameter("beta", 2.0, (0, -1)),
        Parameter("gamma", 1.0, (0, -1)),
        Parameter("n", 6.0, low=1.0, high=60.0),
        Parameter("theta", 1.0, (1, 0)),
    ),
)
"""Mackey & Glass (1977): y' = β y(t − τ) / (1 + (y(t − τ)/θ)ⁿ) − γ y."""

DELAYED_FEEDBACK = Mechanism(
    "delayed-feedback",
    _delayed_feedback,
    (
        Parameter("a", 0.5, (0, -1)),
        Parameter("b", 1.0, (1, -1), low=-float("inf"), like="spread"),
        Parameter("m", 1.0, (1, 0), low=-float("inf"), like="middle"),
        Parameter("s", 1.0, (1, 0), like="spread"),
    ),
    transform="none",
)
"""Relaxation to m with a saturating delayed feedback, against deviations if b > 0:
y' = −a (y − m) − b tanh((y(t − τ) − m)/s)."""

PREDATOR_PREY = Mechanism(
    "predator-prey",
    _predator_prey,
    (
        Parameter("r", 1.0, (0, -1)),
        Parameter("K", 4.0, (1, 0)),
        Parameter("a", 1.0, (-1, -1)),
        Parameter("b", 1.0, (-1, -1)),
        Parameter("m", 1.0, (0, -1)),
    ),
    columns=2,
)
"""Prey x and predators p that take τ to mature (Wangersky & Cunningham 1957):
x' = r x (1 − x/K) − a x p, p' = b x(t − τ) p(t − τ) − m p."""

EPIDEMIC = Mechanism(
    "epidemic", _epidemic, (Parameter("beta", 2.0, (0, -1)), Parameter("N", 3.0, (1, 0)), Parameter("gamma", 1.0, (0, -1)))
)
"""One column, the infectious, with incubation τ (Cooke 1979): I' = β I(t − τ) (1 − I/N) − γ I."""

TWO_COLUMN_EPIDEMIC = Mechanism(
    "epidemic",
    _two_column_epidemic,
    (Parameter("beta", 1.0, (-1, -1)), Parameter("gamma", 0.5, (0, -1))),
    columns=2,
)
"""Two columns, susceptible and infectious: S' = −β S I, I' = β S(t − τ) I(t − τ) − γ I."""

MECHANISMS = {
    mechanism.name: mechanism
    for mechanism in (NICHOLSON, HUTCHINSON, MACKEY_GLASS, DELAYED_FEEDBACK, PREDATOR_PREY, EPIDEMIC)
}


def named(name: str, columns: int) -> Mechanism:
    """The mechanism of this name, for this many columns."""
    if name not in MECHANISMS:
        raise ValueError(f"model = {name!r}, expected one of {', '.join(MECHANISMS)} or neural: choose one of those")
    found = TWO_COLUMN_EPIDEMIC if name == "epidemic" and columns == 2 else MECHANISMS[name]
    if found.columns not in (None, columns):
        raise ValueError(
            f"the model {name} describes {found.columns} column{'s' if found.columns != 1 else ''}, and {columns} were "
            "given, expected as many: choose the columns that it describes"
        )
    return found


def of_field(field: Callable, params: dict[str, Any] | None, delays: int) -> Mechanism:
    """A user's vector field, with parameters that start where `params` says: a number, or (start, low, high)."""
    parameters = tuple(_given(name, value) for name, value in (params or {}).items())
    names = ("tau",) if delays == 1 else tuple(f"tau{i + 1}" for i in range(delays))
    return Mechanism(getattr(field, "__name__", type(field).__name__), field, parameters, names, columns=None)


def _given(name: str, value: Any) -> Parameter:
    numbers: Sequence[Any] = value if isinstance(value, tuple | list) else (value, -float("inf"), float("inf"))
    try:
        start, low, high = (float(number) for number in numbers)
    except (TypeError, ValueError):
        raise ValueError(f"params[{name!r}] = {value!r}, expected a start or (start, low, high): give numbers") from None
    if not low < start < high:
        raise ValueError(f"params[{name!r}] = {value!r}, expected low < start < high: move the start or widen the bounds")
    return Parameter(name, start, low=low, high=high)
