"""The floats next to a time: the two sides of a jump."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


def previous(t: Float[Array, "*times"]) -> Float[Array, "*times"]:
    """The last float before t. Not differentiable."""
    t = lax.stop_gradient(t)
    info = jnp.finfo(t.dtype)
    u = info.eps / 2
    # Rounding to nearest does it (Rump, Zimmermann, Boldo and Melquiond, 2009), in fewer operations than `jnp.nextafter`.
    # The neighbours of zero are denormal, which XLA rounds to zero: there the next is further off. Infinities stay.
    return t - jnp.clip(u * (1 + 4 * u) * jnp.abs(t), info.tiny, info.max)


def just_before(t: Float[Array, "*times"]) -> Float[Array, "*times"]:
    """The last float before t, moving with it: where a step that ends at t evaluates the field, so that `t < jump` is still
    true inside the step should the field jump there."""
    return t + (previous(t) - lax.stop_gradient(t))


def just_after(t: Float[Array, "*times"]) -> Float[Array, "*times"]:
    """The first float after t: where a step that starts at t evaluates the field, `t > jump` is true from there on."""
    return -just_before(-t)


def inside(s: Float[Array, "*times"], t: Float[Array, ""], t_end: Float[Array, ""]) -> Float[Array, "*times"]:
    """Times s of the step from t to t_end, kept off its end; in a step of length zero, between two breakpoints that
    coincide, just after both its ends."""
    return jnp.where(t_end > t, jnp.where(s == t_end, just_before(t_end), s), just_after(t))
