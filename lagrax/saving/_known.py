"""The classes and functions that a saved model may name: of JAX, diffrax and its relatives, and of lagrax."""

import contextlib
import enum
import importlib
import inspect
import sys
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from .._xla._compat import use_stepsize_tol

_NAMESPACES = ("lagrax", "lagrax.nn", "equinox.nn", "diffrax", "optimistix", "lineax")
_JAX_NN = (
    "relu relu6 sigmoid softplus silu gelu elu selu celu leaky_relu log_sigmoid soft_sign softmax log_softmax hard_tanh "
    "hard_sigmoid hard_silu mish glu squareplus identity standardize logsumexp"
)
_JNP = "tanh sin cos tan exp expm1 log log1p abs square sqrt arctan arcsinh sinh cosh sign sum mean"
DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]


def known() -> dict[str, Any]:
    """The classes and functions that a file may name without the caller's help.

    Functions of lagrax itself are limited to `lagrax.nn`, which only computes: a model calls its functions, and a file must
    not be able to have `save` called.
    """
    found: dict[str, Any] = {f"jax.nn.{name}": getattr(jax.nn, name) for name in _JAX_NN.split()}
    found |= {f"jax.numpy.{name}": getattr(jnp, name) for name in [*_JNP.split(), *DTYPES]}
    found |= {f"numpy.{name}": getattr(np, name) for name in DTYPES if name != "bfloat16"}
    found |= {f"optimistix.{name}": getattr(optx, name) for name in ("rms_norm", "max_norm", "two_norm")}
    found["diffrax.save_y"] = dfx.SubSaveAt(t1=True).fn
    found["diffrax.use_stepsize_tol"] = use_stepsize_tol
    found["equinox.nn.identity"] = inspect.signature(eqx.nn.MLP).parameters["final_activation"].default
    dir(sys.modules["lagrax"])  # loads its names, which are not there before their first use; nor are these
    for package in ("lagrax.nn", "lagrax.series"):
        with contextlib.suppress(ImportError):  # an extra is not installed
            importlib.import_module(package)
    own = [name for name in list(sys.modules) if name.startswith("lagrax.")]
    for namespace in dict.fromkeys((*_NAMESPACES, *own)):
        for name, item in list(vars(sys.modules[namespace]).items()) if namespace in sys.modules else ():
            if _is_plain_class(item) or (namespace.startswith("lagrax.nn") and _is_own_function(item)):
                found.setdefault(f"{namespace}.{name}", item)
    return found


def _is_plain_class(item: Any) -> bool:
    """Whether item is a class whose instances can be put together without running code of its own."""
    return isinstance(item, type) and issubclass(item, eqx.Module | enum.Enum) and item is not enum.Enum


def _is_own_function(item: Any) -> bool:
    return callable(item) and not isinstance(item, type) and getattr(item, "__module__", "").startswith("lagrax.nn")
