"""A delay that is spread over the past: an integral of it, weighted by a kernel."""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class AbstractKernel(eqx.Module):
    """A kernel whose integral obeys differential equations of its own, a *chain* of m of them.

    With weights k_1 … k_m, the last of which is the kernel, and k' = R k for a constant matrix R, the integrals
    `J = ∫ k(s) g(t - s) ds` from `lower` to `upper` obey `J' = k(lower) g(t - lower) - k(upper) g(t - upper) + R J`.
    """

    @property
    @abc.abstractmethod
    def length(self) -> int:
        """m, the number of equations."""

    @abc.abstractmethod
    def weights(self, s: Float[Array, "*batch"]) -> Float[Array, "*batch m"]:
        """k_1(s) … k_m(s)."""

    @abc.abstractmethod
    def rates(self) -> Float[Array, "m m"] | None:
        """R; None if it is zero."""

    def reach(self) -> Any:
        """Beyond which s, as an upper bound, the kernel is negligible; None if it does not decay."""
        return None


class Uniform(AbstractKernel):
    """The kernel 1: an [`lagrax.Integral`][] with it is that of the past itself, not its mean."""

    @property
    def length(self):
        return 1

    def weights(self, s):
        return jnp.ones_like(s)[..., None]

    def rates(self):
        return None


class Gamma(AbstractKernel):
    """The density of a gamma distribution, `k(s) = rate^shape s^(shape - 1) exp(-rate s) / (shape - 1)!`.

    Its mean is shape/rate, its standard deviation √shape/rate.

    **Arguments:**

    - `shape`: a positive integer, the number of equations that are added.
    - `rate`: a positive number, one over the units of time. Differentiable.
    """

    shape: Any = eqx.field(static=True)
    rate: Any

    def __check_init__(self):
        if isinstance(self.shape, bool) or not isinstance(self.shape, int) or self.shape < 1:
            raise ValueError(
                f"Gamma has shape = {self.shape!r}, expected a positive integer: for another shape pass its density, "
                "a function of s, as the kernel, with a finite upper bound"
            )

    @property
    def length(self):
        return self.shape

    def weights(self, s):
        rate = jnp.asarray(self.rate, s.dtype)
        base = rate * jnp.exp(-rate * s)
        return jnp.stack([base * (rate * s) ** j / math.factorial(j) for j in range(self.shape)], axis=-1)

    def rates(self):
        return self.rate * (jnp.eye(self.shape, k=-1) - jnp.eye(self.shape))

    def reach(self):
        # At s = reach the density has fallen by e^-50 and more: below the rounding of its integral, 1.
        return (50 + 3 * self.shape) / self.rate


class Integral(eqx.Module):
    """A delayed term that is spread over the past: `∫ k(s) g(t - s, y(t - s), args) ds` for s from `lower` to `upper`.

    What the vector field gets in its place has the structure that `of` returns.

    **Arguments:**

    - `lower`, `upper`: how long ago the integral starts and ends, `0 <= lower < upper`, in the units of time; numbers,
      scalar arrays or modules without arguments (learned). The upper bound may be infinite with a [`lagrax.Gamma`][]
      kernel. Differentiable.
    - `kernel`: [`lagrax.Uniform`][] (1, the default), [`lagrax.Gamma`][], or any function of s that returns a number. The
      first two are solved along as differential equations, which is fast; another one is integrated over all steps that the
      integral covers, at every stage. Differentiable in what it holds or closes over.
    - `of`: g, a function `(t, y, args)` of the time looked at, the state there and the args, that returns a PyTree of
      floating-point arrays; the whole state by default. Differentiable in what it closes over.
    - `kinks`: the s between the bounds at which the function `kernel` kinks or jumps, a tuple of numbers. Differentiable.

    ```python
    recent = lagrax.Integral(0.0, 2.0)                                              # of the state over the last 2
    matured = lagrax.Integral(0.0, jnp.inf, kernel=lagrax.Gamma(3, rate=0.5))       # a delay of mean 6, spread
    window = lagrax.Integral(0.0, 3.0, kernel=lambda s: jnp.exp(-((s - 1) ** 2)), of=lambda t, y, args: y[0] ** 2)
    ```
    """

    lower: Any
    upper: Any
    kernel: Any = Uniform()
    of: Callable | None = None
    kinks: tuple = ()

    @property
    def is_chain(self) -> bool:
        return isinstance(self.kernel, AbstractKernel)

    def value(self, t: Float[Array, ""], y: Any, args: Any) -> Any:
        """g(t, y, args)."""
        return y if self.of is None else self.of(t, y, args)
