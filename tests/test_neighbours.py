"""The floats next to a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lagrax._xla._neighbours import inside, just_after, just_before, previous


@settings(deadline=None)
@given(st.floats(min_value=-1e30, max_value=1e30), st.sampled_from([np.float32, np.float64]))
@example(1.0, np.float64)
@example(-1.0, np.float32)
@example(2.0 - 2**-52, np.float64)
@example(3.0, np.float32)
def test_previous(t, dtype):
    """As NumPy's; next to zero, where XLA has no denormal numbers, one that is less."""
    t = dtype(t)
    found = jax.jit(previous)(jnp.asarray(t))
    if abs(t) * np.finfo(dtype).eps > 4 * np.finfo(dtype).tiny:
        assert found == np.nextafter(t, dtype(-np.inf))
    elif abs(t) >= np.finfo(dtype).tiny:
        assert found < t


def test_zero_and_infinity():
    tiny = np.finfo(np.float64).tiny
    np.testing.assert_array_equal(previous(jnp.array([0.0, np.inf, -np.inf])), [-tiny, np.inf, -np.inf])
    assert just_after(jnp.array(0.0)) == tiny


@pytest.mark.parametrize("t", [-2.0, 0.0, 0.3, 1e6])
def test_neighbours_move_with_the_time(t):
    for neighbour in (just_before, just_after):
        assert jax.grad(neighbour)(t) == 1
    assert just_before(jnp.array(t)) < t < just_after(jnp.array(t))


@pytest.mark.parametrize("t", [-2.0, 0.3, 1.0, 1e6])
def test_a_phase_rounds_to_its_side(t):
    """A field may compute where it is by some operations, which round."""
    phase = lambda s: jnp.floor(7 * ((s + 8 * t) * (1 / (7 * t)))) >= 9
    at = jnp.array(t)
    late, early = (just_after(at), just_before(at)) if t > 0 else (just_before(at), just_after(at))
    assert bool(phase(late)) and not bool(phase(early))


def test_inside_a_step():
    """Off its end, on which the field may jump, but not far in a step of few floats; and after both ends of one of length
    zero."""
    t, t_end = jnp.array(1.0), jnp.array(2.0)
    end = float(just_before(t_end))
    assert 2 - 2e-13 < end < 2
    np.testing.assert_array_equal(inside(jnp.array([1.0, 1.5, 2.0]), t, t_end), [1.0, 1.5, end])
    for floats in (1, 2, 3, 8):
        near = 1 + floats * np.finfo(float).eps
        assert 1 <= float(inside(jnp.array([near]), t, jnp.array(near))[0]) < near
    after = float(just_after(t))
    assert 1 < after < 1 + 1e-13
    np.testing.assert_array_equal(inside(jnp.array([1.0, 1.0]), t, t), [after, after])
