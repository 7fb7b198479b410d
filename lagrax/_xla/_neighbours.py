"""Next to a time: the two sides of a jump."""

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


ROUNDINGS, IN_SINGLE = 256, 8
"""How many roundings of a time its sides are away from it, and how many in single precision. A field that computes where it
is, as `sin(2 * pi * (t + shift) / T) > 0` does, rounds a few times, in units of the largest number on the way, and would see
the wrong side of a jump from the next float. (So far away, 6e-14 of t, the field is still that at t to any tolerance. It is
less than what times that lags look at may be off by, `slack_of` in `_staged/_lookup.py`.)"""


def early(t: Float[Array, "*times"]) -> Float[Array, "*times"]:
    """A time hardly before t, on this side of a jump at t. Not differentiable. Infinities stay."""
    t = lax.stop_gradient(t)
    info = jnp.finfo(t.dtype)
    roundings = ROUNDINGS if info.bits == 64 else IN_SINGLE
    return t - jnp.clip(roundings * info.eps * jnp.abs(t), info.tiny, info.max)


def just_before(t: Float[Array, "*times"]) -> Float[Array, "*times"]:
    """A time hardly before t, moving with it: where a step that ends at t evaluates the field, so that `t < jump` is still
    true inside the step should the field jump there."""
    return t + (early(t) - lax.stop_gradient(t))


def just_after(t: Float[Array, "*times"]) -> Float[Array, "*times"]:
    """A time hardly after t: where a step that starts at t evaluates the field, `t > jump` is true from there on."""
    return -just_before(-t)


def inside(s: Float[Array, "*times"], t: Float[Array, ""], t_end: Float[Array, ""]) -> Float[Array, "*times"]:
    """Times s of the step from t to t_end, kept off its end, but in the second half of a step of few floats; in a step of
    length zero, between two breakpoints that coincide, just after both its ends."""
    start, end = lax.stop_gradient((t, t_end))
    half = jnp.minimum(previous(end), start + (end - start) / 2)
    last = t_end + (jnp.maximum(early(end), half) - end)
    return jnp.where(t_end > t, jnp.where((s > last) & (s <= t_end), last, s), just_after(t))
