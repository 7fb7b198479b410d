"""A Runge–Kutta method as plain numbers: its tableau, and its dense output as one polynomial per step.

Every solver that diffrax calls Runge–Kutta evaluates the vector field at the nodes `t + c h` and interpolates with a
polynomial in `θ = (s - t)/h` that is linear in the stages. So a step is remembered, whatever the solver, by

    y(t + θ h) ≈ y + Σ_k θ^k Σ_j dense[k-1, j] (h f_j),        0 ≤ θ ≤ 1,

which needs degree + 1 states where the stages need up to 15 (Tsit5: 5 for 8), and is read by Horner's
rule without knowing which solver wrote it.
"""

import dataclasses
import functools as ft
from typing import Any

import diffrax as dfx
import jax
import numpy as np


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


def method_of(solver: Any, output: bool = True) -> Method:
    """The numbers of a diffrax explicit or diagonally implicit Runge–Kutta solver, with dense output or without.

    One object for each class of solvers: programs are compiled anew for every other `Method`.
    """
    known = type(solver), output
    if known not in _METHODS:
        _METHODS[known] = _read_method(solver, output)
    return _METHODS[known]


_METHODS: dict[tuple[type, bool], Method] = {}


def _read_method(solver: Any, output: bool) -> Method:
    if type(solver) is dfx.Euler:
        one, dense = np.ones(1), np.ones((int(output), 1))
        return Method((), one, None, np.zeros(1), dense, 1, reuses_last=False, implicit=False)
    tableau = getattr(solver, "tableau", None)
    if not isinstance(solver, dfx.AbstractERK | dfx.AbstractESDIRK) or not isinstance(tableau, dfx.ButcherTableau):
        raise ValueError(
            f"got solver {type(solver).__name__}, expected an explicit Runge–Kutta (Euler, Heun, Midpoint, Ralston, Bosh3, "
            "Tsit5, Dopri5, Dopri8) or ESDIRK (Kvaerno3, Kvaerno4, Kvaerno5) solver of diffrax: pass one of those"
        )
    order: Any = solver.order(dfx.ODETerm(lambda t, y, args: y))
    method = Method(
        a=tableau.a_lower,
        b=tableau.b_sol,
        b_error=tableau.b_error,
        c=np.concatenate([[0.0], tableau.c]),
        dense=_dense_matrix(solver.interpolation_cls, tableau.b_sol.tobytes())[: None if output else 0],
        order=order,
        reuses_last=tableau.fsal,
        implicit=tableau.implicit,
    )
    return _with_eighth_order_output(method) if output and isinstance(solver, dfx.Dopri8) else method


def _with_eighth_order_output(method: Method) -> Method:
    """Dopri8 with dense output of its own order.

    diffrax's interpolant has a local error of O(h^6) on nonlinear problems, which would make this a method of order 6 for
    delay equations (measured: 6.0 to 6.5). Two rounds of bootstrapping lift it to O(h^8): evaluate the field inside the step
    at the current output, and replace the output by the polynomial with those slopes, with the slopes and the values at both
    ends. The seven further stages, and the new output, are linear in the stages like all others, so only numbers change.
    """
    method = dataclasses.replace(method, end=method.stages - 1)
    # Points for which the coefficients stay small (at most 382; others reach 20,000, and lose as many digits).
    method = _bootstrap(method, np.array([0.08, 0.29, 0.93]))
    return _bootstrap(method, np.array([0.06, 0.21, 0.79, 0.94]))


def _bootstrap(method: Method, points: np.ndarray) -> Method:
    """One round: stages at the `points` of the current output, and the output of degree `len(points) + 3` through them."""
    stages, degree = method.stages + len(points), len(points) + 3
    rows = points[:, None] ** np.arange(1, len(method.dense) + 1) @ method.dense
    a = (*method.a, *(np.pad(row, (0, j)) for j, row in enumerate(rows)))
    b = np.pad(method.b, (0, len(points)))
    # p(θ) = y + Σ_k x_k θ^k with p(1) given by b, and p'(θ) by the stages at 0, 1 and the points.
    powers = np.arange(1, degree + 1)
    slopes_at = np.concatenate([[0.0, 1.0], points])
    system = np.vstack([np.ones(degree), powers * slopes_at[:, None] ** (powers - 1)])
    known = [0, method.end, *range(method.stages, stages)]
    dense = np.linalg.solve(system, np.vstack([b, np.eye(stages)[known]]))
    error = None if method.b_error is None else np.pad(method.b_error, (0, len(points)))
    return dataclasses.replace(method, a=a, b=b, b_error=error, c=np.append(method.c, points), dense=dense)


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
        # One program: operation by operation this compiles fourteen, and takes half of a first solve's time to compile.
        values = jax.jit(jax.vmap(jax.vmap(value, (None, None, 0)), (0, 0, None)))(np.eye(len(b)), b, theta)
    powers = theta[:, None] ** np.arange(1, degree + 1)
    dense = np.linalg.solve(powers, np.asarray(values, np.float64).T)
    kept = np.abs(dense) > 1e-9
    last = int(np.max(np.nonzero(kept.any(axis=1))[0]))
    return np.where(kept, dense, 0.0)[: last + 1]
