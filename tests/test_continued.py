"""Solves that continue each other, each kicked by hand at its start, are one solve with impulses."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

CUTS = (1.3, 2.9)
P = jnp.array([1.0, 1.0, 0.25, 1.0, 0.3])
"""A rate, the two parameters of the delay, the history, the size of the kicks."""

TERMS = {
    "moving": lx.DelayTerm(lambda t, y, z, p: -p[0] * z, lambda t, y, p: p[1] + p[2] * y**2),
    "neutral": lx.DelayTerm(
        lambda t, y, z, p: -p[0] * z[0] + 0.3 * z[1], (lambda t, y, p: p[1] + p[2] * y**2, lx.Derivative(0.8))
    ),
    "distributed": lx.DelayTerm(
        lambda t, y, z, p: -p[0] * z[0] - 0.5 * z[1],
        (lambda t, y, p: p[1] + p[2] * y**2, lx.Integral(0.0, 0.9, lambda s: jnp.exp(-s))),
    ),
    "constant": lx.DelayTerm(lambda t, y, z, p: -p[0] * z[0] * z[1], (1.0, 0.7)),
}


def options(tolerance):
    return {"stepsize_controller": dfx.PIDController(rtol=tolerance, atol=tolerance), "max_steps": 512}


def chained(term, p, tolerance=1e-9):
    """The last of the solves."""
    history, y0, start = p[3], None, 0.0
    for end in (*CUTS, 5.0):
        save = dfx.SaveAt(t1=True, dense=True)
        history = lx.ddesolve(term, dfx.Tsit5(), start, end, None, history, p, y0=y0, saveat=save, **options(tolerance))
        y0, start = history.ys[0] + p[4], end
    return history


def at_once(term, p, tolerance=1e-9):
    kicks = lx.Impulses(jnp.array(CUTS), lambda t, y, p: y + p[4])
    save = dfx.SaveAt(t1=True, dense=True)
    return lx.ddesolve(term, dfx.Tsit5(), 0.0, 5.0, None, p[3], p, impulses=kicks, saveat=save, **options(tolerance))


def test_a_third_solve_knows_of_the_kinks_before_the_second():
    """Without them it was wrong by 400 tolerances."""
    final = lambda solve: jax.jit(lambda p: solve(TERMS["moving"], p).ys[0])(P)
    np.testing.assert_allclose(final(chained), final(at_once), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TERMS)
def test_three_solves_are_one_with_impulses(kind):
    """In value, gradient and kinks; the gradient was wrong by 1e-4."""

    def final(solve):
        def loss(p):
            solution = solve(TERMS[kind], p)
            return solution.ys[0], (solution.interpolation.levels, solution.interpolation.kinks)

        return jax.jit(jax.value_and_grad(loss, has_aux=True))

    (value, kinks), gradient = final(chained)(P)
    (expected, others), derivative = final(at_once)(P)
    np.testing.assert_allclose(value, expected, atol=1e-8)
    np.testing.assert_allclose(gradient, derivative, atol=1e-6)
    if kind != "constant":  # where none are handed on that no delay reaches
        # They know of the same kinks, and how rough these are.
        np.testing.assert_allclose(found(*kinks), found(*others), atol=1e-6)


def found(levels, times):
    """The kinks that are some, in order of their times."""
    pairs = np.stack([times, levels], axis=1)[np.isfinite(times)]
    return pairs[np.argsort(pairs[:, 0])]
