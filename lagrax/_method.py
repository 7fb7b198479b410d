"""A Runge–Kutta method as plain numbers: its tableau, and its dense output as one polynomial per step.

Every solver that diffrax calls Runge–Kutta evaluates the vector field at the nodes `t + c h` and interpolates with a
polynomial in `θ = (s - t)/h` that is linear in the stages. So a step is remembered, whatever the solver, by

    y(t + θ h) ≈ y + Σ_k θ^k Σ_j dense[k-1, j] (h f_j),        0 ≤ θ ≤ 1,

which needs degree + 1 states where the stages need up to 15 (Tsit5: 5 for 8, Dopri8: 7 for 15), and is read by Horner's
rule without knowing which solver wrote it.
"""

import dataclasses
import functools as ft

import diffrax as dfx
import jax
import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Method:
    """Butcher tableau (`a`, `b`, `b_error`, `c`) and dense-output matrix of a diffrax solver, in float64 NumPy.

    - `a[i]` combines the stages before stage i + 1; `c[i]` is the node of stage i; `b_error` is None without an estimate.
    - `dense` has shape (degree, stages).
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

    @property
    def stages(self) -> int:
        return len(self.b)

    @property
    def reach(self) -> float:
        """How many step lengths past its start the method evaluates the field (Kvaerno5: 1.23)."""
        return max(1.0, float(self.c.max()))

    @property
    def nodes(self) -> np.ndarray:
        """The distinct nodes, in order; the first is 0."""
        return np.unique(self.c)

    @property
    def node_of(self) -> list[int]:
        """Which of the `nodes` each stage has."""
        return [int(i) for i in np.searchsorted(self.nodes, self.c)]

    @property
    def last_node(self) -> int:
        """The last of the `nodes` inside the step."""
        return int(np.sum(self.nodes <= 1)) - 1


def method_of(solver: dfx.AbstractSolver) -> Method:
    """The numbers of a diffrax explicit or diagonally implicit Runge–Kutta solver."""
    if type(solver) is dfx.Euler:
        one = np.ones(1)
        return Method((), one, None, np.zeros(1), np.ones((1, 1)), 1, reuses_last=False, implicit=False)
    tableau = getattr(solver, "tableau", None)
    if not isinstance(solver, dfx.AbstractERK | dfx.AbstractESDIRK) or not isinstance(tableau, dfx.ButcherTableau):
        raise ValueError(
            f"got solver {type(solver).__name__}, expected an explicit Runge–Kutta (Euler, Heun, Midpoint, Ralston, Bosh3, "
            "Tsit5, Dopri5, Dopri8) or ESDIRK (Kvaerno3, Kvaerno4, Kvaerno5) solver of diffrax: pass one of those"
        )
    return Method(
        a=tableau.a_lower,
        b=tableau.b_sol,
        b_error=tableau.b_error,
        c=np.concatenate([[0.0], tableau.c]),
        dense=_dense_matrix(solver.interpolation_cls, tableau.b_sol.tobytes()),
        order=solver.order(dfx.ODETerm(lambda t, y, args: y)),
        reuses_last=tableau.fsal,
        implicit=tableau.implicit,
    )


@ft.lru_cache
def _dense_matrix(interpolation_cls, b_bytes: bytes) -> np.ndarray:
    """Reads the dense output off diffrax's interpolant by feeding it one unit stage at a time.

    The interpolant is evaluated at Chebyshev points of [-1, 1], where the monomial basis is well conditioned (the
    coefficients come out to about 1e-14), and higher powers whose coefficients vanish for every stage are dropped.
    """
    b = np.frombuffer(b_bytes)
    degree = 8
    theta = np.cos(np.pi * (np.arange(degree) + 0.5) / degree)

    def value(stage, end, s):
        return interpolation_cls(t0=0.0, t1=1.0, y0=np.zeros(()), y1=end, k=stage).evaluate(s)

    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        values = jax.vmap(jax.vmap(value, (None, None, 0)), (0, 0, None))(np.eye(len(b)), b, theta)
    powers = theta[:, None] ** np.arange(1, degree + 1)
    dense = np.linalg.solve(powers, np.asarray(values, np.float64).T)
    kept = np.abs(dense) > 1e-9
    last = int(np.max(np.nonzero(kept.any(axis=1))[0]))
    return np.where(kept, dense, 0.0)[: last + 1]
