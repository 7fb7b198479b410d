"""A method read off diffrax's solver."""

import functools as ft
from typing import Any

import diffrax as dfx
import jax
import numpy as np

from ._lifted import with_eighth_order_output, with_lifted_output
from ._tableau import Method


def method_of(solver: Any, output: bool = True, lifted: bool = False) -> Method:
    """The numbers of a diffrax explicit or diagonally implicit Runge–Kutta solver, with dense output (`lifted` for reading
    derivatives) or without.

    One object for each class of solvers: programs are compiled anew for every other `Method`.
    """
    known = type(solver), output, lifted
    if known not in _METHODS:
        method = _read_method(solver, output)
        _METHODS[known] = with_lifted_output(method) if lifted else method
    return _METHODS[known]


_METHODS: dict[tuple[type, bool, bool], Method] = {}


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
    return with_eighth_order_output(method) if output and isinstance(solver, dfx.Dopri8) else method


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
