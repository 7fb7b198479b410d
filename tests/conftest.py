"""Tests run in double precision, with strict dtype promotion, checked types and a compilation cache kept between runs."""

import gc
import os
import pathlib
import sys

# Most of the time of a test is compilation, and unoptimised machine code computes the same. For processes that tests start
# too, whose numbers are compared to the last bit.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# XLA's older way to make machine code of fused operations takes half the time: 4 instead of 7 s for a ContinuousAdjoint.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import equinox as eqx
import jax
import pytest
from jaxtyping import install_import_hook

# Traced programs are many small objects that stay: looking through all of them for garbage took a fifteenth of the time.
gc.set_threshold(200_000, 20, 100)

# From Python 3.14 on JAX compresses what it caches with zstd; neither reads what the other has written.
CACHE = pathlib.Path(__file__).parent.parent / ".cache" / ("jax" if sys.version_info < (3, 14) else "jax-zstd")

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

with install_import_hook("lagrax", "beartype.beartype"):
    from lagrax import ddesolve  # noqa: F401 (the modules are loaded at the first use of a name)


MAPPINGS = pathlib.Path("/proc/self/maps")


@pytest.fixture(autouse=True)
def room_for_compiled_code():
    """Every compiled program holds memory mappings, of which Linux gives a process 65,530; XLA crashes on the next one."""
    yield
    if MAPPINGS.exists() and MAPPINGS.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
        eqx.clear_caches()
        gc.collect()
