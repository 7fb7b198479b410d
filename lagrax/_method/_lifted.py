"""Dense output of a higher order than the method brings along."""

import dataclasses

import numpy as np

from ._tableau import Method


def with_eighth_order_output(method: Method) -> Method:
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


def with_lifted_output(method: Method) -> Method:
    """A fifth-order method whose dense output has a derivative of that order, for equations that look at it.

    Two more stages, at 1/3 and 2/3 of the step (a symmetric triple of points would be singular). A neutral equation then
    keeps the order of the method: 5.2 to 5.6 measured for Tsit5, 3.97 without.
    """
    if not method.reuses_last or method.implicit or method.order != 5:
        return method
    method = dataclasses.replace(method, end=method.stages - 1)
    return _bootstrap(method, np.array([1 / 3, 2 / 3]))


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
