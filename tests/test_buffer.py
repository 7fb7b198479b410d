"""Reading rows by number, out of small and large buffers, which are read in different ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lagrax._xla._buffer import LARGE, read_each


@pytest.mark.parametrize("rows", [LARGE // 24, LARGE // 24 + 1])
def test_rows_by_number(rows):
    buffer = jnp.arange(3.0 * rows).reshape(rows, 3)
    numbers = jnp.array([0, rows - 1, 5, 5])
    np.testing.assert_array_equal(jax.jit(read_each)(buffer, numbers), np.asarray(buffer)[np.asarray(numbers)])
    assert ("gather" in str(jax.make_jaxpr(read_each)(buffer, numbers))) == (buffer.nbytes <= LARGE)
