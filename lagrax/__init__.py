"""Delay differential equations in JAX: fast, exact gradients (delays included), on diffrax."""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# The names are loaded, all of them together, when the first is used. Every module of a package waits for its `__init__`, and
# so does the command line: with JAX in here, `lagrax --help` and each mistyped command would take seconds.
if TYPE_CHECKING:
    from . import nn as nn
    from . import series as series
    from ._public import *  # noqa: F403
    from .series import fit_series as fit_series
else:
    from importlib import import_module

    # What is built on the core is loaded by itself: most programs need none of it.
    _PACKAGE_OF = {"nn": "nn", "series": "series", "fit_series": "series"}

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):  # modules, and what Python and its tools ask every package for
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _PACKAGE_OF:
            package = import_module(f".{_PACKAGE_OF[name]}", __name__)
            return package if name == _PACKAGE_OF[name] else getattr(package, name)
        _load()
        try:
            return globals()[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None

    def __dir__() -> list[str]:
        _load()
        return sorted({*globals(), *_PACKAGE_OF})

    def _load() -> None:
        from . import _public

        globals().update({name: item for name, item in vars(_public).items() if not name.startswith("_")})
