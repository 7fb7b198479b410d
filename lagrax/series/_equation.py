"""A mechanism as a least-squares problem: unbounded coordinates for bounded parameters, and the residuals of a window."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._adjoint import ForwardMode
from .._solve import ddesolve
from .._term import DelayTerm
from ._mechanisms import Mechanism
from ._transforms import Transform
from ._windows import Windows


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
