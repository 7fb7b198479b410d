"""A Runge–Kutta method as plain numbers: its tableau, and its dense output as one polynomial per step.

Every solver that diffrax calls Runge–Kutta evaluates the vector field at the nodes `t + c h` and interpolates with a
polynomial in `θ = (s - t)/h` that is linear in the stages. So a step is remembered, whatever the solver, by

    y(t + θ h) ≈ y + Σ_k θ^k Σ_j dense[k-1, j] (h f_j),        0 ≤ θ ≤ 1,

which needs degree + 1 states where the stages need up to 15 (Tsit5: 5 for 8), and is read by Horner's
rule without knowing which solver wrote it.
"""

import dataclasses
import functools as ft

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float


@dataclasses.dataclass(frozen=True, eq=False)
class Method:
    """Butcher tableau (`a`, `b`, `b_error`, `c`) and dense-output matrix of a diffrax solver, in float64 NumPy.

    - `a[i]` combines the stages before stage i + 1; `c[i]` is the node of stage i; `b_error` is None without an estimate.
    - `dense` has shape (degree, stages); its degree is zero where the output is never read.
    - `reuses_last`: the last stage is the first of the next step (FSAL).
    """

    a: tuple[np.ndarray, ...]
    b: np.ndarray
    b_error: np.ndarray | None
    c: np.ndarray
    dense: np.ndarray
    order: int
    reuses_last: bool
    implicit: bool
    end: int = -1
    """The stage evaluated at the end of the step, if `reuses_last`."""

    @property
    def stages(self) -> int:
        return len(self.b)

    @property
    def reach(self) -> float:
        """How many step lengths past its start the method evaluates the field (Kvaerno5: 1.23)."""
        return max(1.0, float(self.c.max()))

    @ft.cached_property
    def probe(self) -> tuple[float, float] | None:
        """Where to test the dense output, as (θ, scale), if the error estimate does not see its error.

        The delayed terms read the dense output, so its error counts. Where its local order is below that of the error
        estimate (Kvaerno5), y' = -y(t - 1) may integrate with an estimate of zero while the output is wrong. The
        test is then the defect `h f(p(θ)) - h p'(θ)` at the θ where it is largest for the first power that the dense output
        does not reproduce; `scale` turns it into the largest error of the output itself.
        """
        degree = len(self.dense)
        if degree == 0 or degree + 1 >= self.order:
            return None
        theta = np.linspace(0, 1, 1001)[1:-1]
        power = degree + 1
        coefficients = self.dense @ (power * self.c ** (power - 1))
        powers = np.arange(1, degree + 1)
        error = theta**power - theta[:, None] ** powers @ coefficients
        defect = power * theta ** (power - 1) - (powers * theta[:, None] ** (powers - 1)) @ coefficients
        worst = np.argmax(np.abs(defect))
        return float(theta[worst]), float(np.max(np.abs(error)) / np.abs(defect[worst]))

    @property
    def nodes(self) -> np.ndarray:
        """The distinct nodes, in order; the first is 0."""
        return np.unique(self.c if self.probe is None else np.append(self.c, self.probe[0]))

    @property
    def node_of(self) -> list[int]:
        """Which of the `nodes` each stage has."""
        return [int(i) for i in np.searchsorted(self.nodes, self.c)]

    @property
    def last_node(self) -> int:
        """The last of the `nodes` inside the step."""
        return int(np.sum(self.nodes <= 1)) - 1


def combine(weights, stages):
    """`Σ_j weights[j] stages[j]` without the zero terms, which XLA fuses where a dot product would be a call.

    (In `lax`: half of the time to trace a solve would go into the operators of `jax.numpy` otherwise.)
    """
    number = lambda w, stage: np.asarray(w, stage.dtype)
    terms = [lax.mul(stage, number(w, stage)) for w, stage in zip(weights, stages, strict=False) if w != 0]
    return ft.reduce(lax.add, terms) if terms else jnp.zeros_like(stages[0])


def node_times(method: Method, t: Float[Array, ""], t_end: Float[Array, ""]) -> Float[Array, " nodes"]:
    """The times of the nodes of the step [t, t_end]."""
    c = jnp.asarray(method.nodes, t.dtype)
    return jnp.where(method.nodes == 1, t_end, t + c * (t_end - t))
