"""Two classes in the plane that no flow of an ordinary equation can part: a disc, and the ring around it."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float


def draw_points(
    key: Array, inner: int, outer: int, radii: tuple[float, float, float]
) -> tuple[Float[Array, "points 2"], Bool[Array, " points"]]:
    """Points uniform in the disc of radius r₁, then in the ring from r₂ to r₃; and which are in the disc."""
    r1, r2, r3 = radii
    radius_key, angle_key = jr.split(key)
    is_inner = jnp.arange(inner + outer) < inner
    low, high = jnp.where(is_inner, 0.0, r2), jnp.where(is_inner, r1, r3)
    radius = jnp.sqrt(low**2 + jr.uniform(radius_key, is_inner.shape) * (high**2 - low**2))
    angle = jr.uniform(angle_key, is_inner.shape, maxval=2 * jnp.pi)
    return radius[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1), is_inner
