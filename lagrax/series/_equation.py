"""A mechanism as a least-squares problem: windows of a record, unbounded coordinates for its parameters, and residuals.

A window is a stretch to be predicted, and the observed past that it is predicted from. Nothing after its first sample is
known to its past, so that a model that is fitted on windows is fitted on forecasts.
"""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._adjoint import ForwardMode
from .._solve import ddesolve
from .._term import DelayTerm
from ..nn._sampled import SampledHistory
from ._mechanisms import Mechanism
from ._record import Record
from ._transforms import Transform


class Windows(eqx.Module):
    """Several windows, with times relative to the start of each. Their first sample is the last of their past.

    `start` (w,): absolute times. `past`: a spline through L samples, times ≤ 0. `unit`: what moving its last sample by one
    adds to the coefficients of its pieces. `t` (w, m) ≥ 0 and `y` (w, m, d), zero where `seen` (w, m, d) is false. `inputs`
    (w, L + m − 1, k), linear between `inputs_t` (w, L + m − 1).
    """

    start: Float[Array, " w"]
    past: SampledHistory
    unit: tuple[Float[Array, "w l"], ...]
    t: Float[Array, "w m"]
    y: Float[Array, "w m d"]
    seen: Bool[Array, "w m d"]
    inputs_t: Float[Array, "w n"]
    inputs: Float[Array, "w n k"]

    def past_from(self, start: Float[Array, " d"]) -> SampledHistory:
        """The past of one window, ending in the state `start` instead of the sample. Splines are linear in their samples."""
        move = start - self.y[0]
        moved = (piece + unit[:, None] * move for piece, unit in zip(self.past.coefficients, self.unit, strict=True))
        return eqx.tree_at(lambda past: past.coefficients, self.past, tuple(moved))


def origins(record: Record, past: int, length: int, stride: int, longest: float) -> np.ndarray:
    """Where windows may start: an observed sample with `past` samples, and the time `longest`, before it.

    The last window ends with the record. None sees a gap of more than four steps and a quarter of `longest`, in its past or
    ahead: what a spline has in there was not observed. (Of samples at random times, one gap a tenth longer spoiled a fit.)
    """
    t, seen = record.t, ~np.isnan(record.seen).any(axis=1)
    known = t[~np.isnan(record.seen).all(axis=1)]
    wide = np.diff(known) > max(4 * record.step, longest / 4) * (1 + 1e-9)
    begins, ends = known[:-1][wide], known[1:][wide]

    def whole(i: int) -> bool:
        enough = t[i] - t[i - past + 1] >= longest * (1 - 1e-9)
        return enough and not ((begins < t[i + length - 1]) & (ends > t[i] - longest)).any()

    found = np.arange(len(t) - length, past - 2, -stride)[::-1]
    return np.array([i for i in found if seen[i] and whole(i)], int)


def cut(record: Record, at: np.ndarray, past: int, length: int) -> Windows:
    """The windows that start at the rows `at`, `length` samples long (the first is the last of the past)."""
    t, y, whole = record.t, record.seen, record.u
    exogenous = np.zeros((len(t), 0)) if record.inputs is None else record.inputs
    before = at[:, None] + np.arange(1 - past, 1)
    inside = at[:, None] + np.arange(length)
    both = at[:, None] + np.arange(1 - past, length)
    seen = ~np.isnan(y[inside])
    times = jnp.asarray(t[before] - t[at][:, None])
    last = jnp.zeros((past, 1)).at[-1].set(1.0)
    units = jax.vmap(lambda ts: SampledHistory(ts, last))(times)
    return Windows(
        start=jnp.asarray(t[at]),
        past=jax.vmap(SampledHistory)(times, jnp.asarray(whole[before])),
        unit=tuple(piece[..., 0] for piece in units.coefficients),
        t=jnp.asarray(t[inside] - t[at][:, None]),
        y=jnp.asarray(np.where(seen, y[inside], 0.0)),
        seen=jnp.asarray(seen),
        inputs_t=jnp.asarray(t[both] - t[at][:, None]),
        inputs=jnp.asarray(exogenous[both]),
    )


class Bounds(eqx.Module):
    """Lower and upper bounds (p,) of all parameters, delays first, and what a real one is measured in (p,)."""

    low: Float[Array, "*lanes p"]
    high: Float[Array, "*lanes p"]
    scale: Float[Array, "*lanes p"]

    def values(self, theta: Float[Array, " p"]) -> Float[Array, " p"]:
        """Parameters from unbounded coordinates: sigmoid between two bounds, exp above one, linear without."""
        finite = jnp.where(jnp.isfinite(self.high), self.high, self.low + self.scale)
        between = self.low + (finite - self.low) * jax.nn.sigmoid(theta)
        above = jnp.where(jnp.isfinite(self.low), self.low, 0.0) + self.scale * jnp.exp(jnp.clip(theta, -50.0, 50.0))
        return jnp.where(jnp.isfinite(self.high), between, jnp.where(jnp.isfinite(self.low), above, self.scale * theta))

    def coordinates(self, values: Float[Array, " p"]) -> Float[Array, " p"]:
        """The inverse of `values`; what lies outside is moved just inside."""
        low = jnp.where(jnp.isfinite(self.low), self.low, 0.0)
        share = jnp.clip((values - low) / (jnp.where(jnp.isfinite(self.high), self.high, low + 1.0) - low), 1e-3, 1 - 1e-3)
        above = jnp.log(jnp.maximum(values - low, 1e-12 * self.scale) / self.scale)
        logit = jnp.log(share) - jnp.log1p(-share)
        return jnp.where(jnp.isfinite(self.high), logit, jnp.where(jnp.isfinite(self.low), above, values / self.scale))


class Equation(eqx.Module):
    """The mechanism in the coordinates u = transform(y), and how to solve it on a window."""

    mechanism: Mechanism = eqx.field(static=True)
    transform: Transform = eqx.field(static=True)
    with_inputs: bool = eqx.field(static=True)
    step: Float[Array, ""]
    max_steps: int = eqx.field(static=True)

    def unpack(self, values: Float[Array, " p"]) -> tuple[Any, dict[str, Array]]:
        """The delays (one, or a tuple) and the dict of parameters."""
        count = len(self.mechanism.delays)
        delays = values[0] if count == 1 else tuple(values[i] for i in range(count))
        return delays, {parameter.name: values[count + i] for i, parameter in enumerate(self.mechanism.parameters)}

    def predict(self, values: Float[Array, " p"], start: Float[Array, " d"], window: Windows) -> Float[Array, "m d"]:
        """u at the times of one window, from u at its start, the observed past before it, and the parameters.

        Steps of equal length, so that all windows, starts and replicates take as many; they end on breakpoints too.
        Differentiable in forward mode.
        """
        delays, parameters = self.unpack(values)
        past = window.past_from(start)
        inputs = dfx.LinearInterpolation(window.inputs_t, window.inputs) if self.with_inputs else None
        field = _Field(self, inputs, window.start)
        solution = ddesolve(
            DelayTerm(field, delays), dfx.Bosh3(), jnp.zeros((), start.dtype), window.t[-1], self.step, past, parameters,
            saveat=dfx.SaveAt(ts=window.t[1:]), stepsize_controller=dfx.ConstantStepSize(),
            adjoint=ForwardMode(), max_steps=self.max_steps, throw=False,
        )  # fmt: skip
        ahead: Any = solution.ys
        return jnp.concatenate([start[None], ahead])

    def residuals(self, values, start, window: Windows, sd: Float[Array, " d"]) -> Float[Array, " r"]:
        miss = (self.predict(values, start, window) - window.y) / sd
        return jnp.where(window.seen, miss, 0.0).reshape(-1)


class _Field(eqx.Module):
    """f in the transformed coordinates: u' = f(t, g(u), g(u_τ)) / g'(u) with g the inverse of the transform."""

    equation: Equation
    inputs: dfx.LinearInterpolation | None
    start: Float[Array, ""]

    def __call__(self, t, u, delayed, parameters):
        transform = self.equation.transform
        time = self.start + t
        y, past = transform.inverse(u), jax.tree.map(transform.inverse, delayed)
        more = () if self.inputs is None else (self.inputs.evaluate(t),)
        slope = self.equation.mechanism.field(time, y, past, parameters, *more)
        return jnp.asarray(slope) / transform.slope(u)
