"""The paper's results, one module each, found by name."""

import importlib

from .._choices import EXPERIMENTS as NAMES
from .._choices import pick
from ..runner import Experiment, UserError


def load(name: str) -> Experiment:
    """The experiment of that name; its module, and what that imports, is loaded only now."""
    pick("experiment", name, (*NAMES, "all"))
    try:
        return importlib.import_module(f".{name.replace('-', '_')}", __name__).EXPERIMENT
    except ImportError as error:
        if error.name in ("matplotlib", "optax"):
            raise UserError(f"{name} needs {error.name}, which is not installed: pip install 'lagrax[train]'") from None
        raise
