"""Switching JAX between single and double precision, which it keeps as one setting for the whole process."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def double_precision() -> Iterator[None]:
    """Within this block new JAX arrays are float64; what is compiled inside has to be called inside."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
