"""Tests run in double precision, with strict dtype promotion, checked types and a compilation cache kept between runs."""

import os
import pathlib

# Most of the time of a test is compilation, and unoptimised machine code computes the same. For processes that tests start
# too, whose numbers are compared to the last bit.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

import jax
from jaxtyping import install_import_hook

CACHE = pathlib.Path(__file__).parent.parent / ".cache" / "jax"

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

with install_import_hook("lagrax", "beartype.beartype"):
    import lagrax  # noqa: F401
