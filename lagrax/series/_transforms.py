"""Coordinates in which errors of different sizes compare: the logarithm, the square root, or the values as they are."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

TRANSFORMS = ("none", "sqrt", "log")


class Transform(eqx.Module):
    """u = T(y), its inverse, and the derivative of the inverse."""

    name: str

    def forward(self, y: np.ndarray) -> np.ndarray:
        """In NumPy, NaN for NaN."""
        if self.name == "log":
            return np.log(y)
        return np.sqrt(y) if self.name == "sqrt" else np.asarray(y, float)

    def inverse(self, u: Any) -> Any:
        """y of u, both arrays of JAX or NumPy; never out of range, and never falling: below a root of zero it is zero."""
        xp: Any = np if isinstance(u, np.ndarray) else jnp
        if self.name == "log":
            return xp.exp(xp.clip(u, -80.0, 80.0))
        return xp.maximum(u, 0.0) ** 2 if self.name == "sqrt" else u

    def slope(self, u: Any) -> Any:
        """dy/du."""
        if self.name == "log":
            return jnp.exp(jnp.clip(u, -80.0, 80.0))
        # A square root that reaches zero has no slope there; it is kept away from it by a thousandth.
        return 2 * jnp.maximum(u, 1e-3) if self.name == "sqrt" else jnp.ones_like(u)


def chosen(name: str, y: np.ndarray, record: np.ndarray | None = None) -> Transform:
    """The transform of this name, or the one that suits the values: "log" if they span more than a factor of ten, "sqrt" if
    there are zeros among values that do.

    `y` is what may be looked at, the training part, and `record` all that has to be transformed, by default the same.
    """
    if name not in ("auto", *TRANSFORMS):
        raise ValueError(f"transform = {name!r}, expected auto, {', '.join(TRANSFORMS)}: choose one of those")
    middle = np.nanmedian(np.abs(y))
    wide = np.nanmax(y) > 10 * max(np.nanmin(y), 0.05 * middle)
    # Only whether there are zeros and negatives is taken from the part held out: that tells nothing of when and how many.
    low = np.nanmin(y if record is None else record)
    if name == "auto":
        name = "none" if low < 0 or not wide else ("log" if low > 0 else "sqrt")
    if (name == "log" and low <= 0) or (name == "sqrt" and low < 0):
        raise ValueError(
            f"transform = {name!r} with a value of {low:g}, expected {'positive' if name == 'log' else 'no negative'} "
            "values: choose another transform"
        )
    return Transform(name)
