"""Reading rows by number, out of small and large buffers, which are read in different ways; reductions by halves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lagrax._xla._buffer import LARGE, read_each
from lagrax._xla._fold import FEW, any_of, first_of, fold, highest_of, largest


@pytest.mark.parametrize("rows", [LARGE // 24, LARGE // 24 + 1])
def test_rows_by_number(rows):
    buffer = jnp.arange(3.0 * rows).reshape(rows, 3)
    numbers = jnp.array([0, rows - 1, 5, 5])
    np.testing.assert_array_equal(jax.jit(read_each)(buffer, numbers), np.asarray(buffer)[np.asarray(numbers)])
    assert ("gather" in str(jax.make_jaxpr(read_each)(buffer, numbers))) == (buffer.nbytes <= LARGE)


@pytest.mark.parametrize("size", [1, 2, 3, 11, FEW + 1])
def test_reductions_by_halves(size):
    rng = np.random.default_rng(size)
    values = rng.integers(0, 5, size).astype(float)
    flags = values > 3
    assert any_of(jnp.asarray(flags)) == np.any(flags)
    assert largest(jnp.asarray(values)) == np.max(values)
    assert int(highest_of(jnp.asarray(values))) == np.argmax(values)
    assert int(first_of(jnp.asarray(flags))) == (np.argmax(flags) if np.any(flags) else size)
    assert fold(jnp.add, jnp.asarray(values)) == np.sum(values)
