"""The paper's results, one module each, found by name."""

import importlib

from .._choices import EXPERIMENTS as NAMES
from .._choices import pick as pick
from ._base import Experiment as Experiment
from ._base import UserError as UserError
from ._options import Options as Options
from ._run import resume as resume
from ._run import start as start


def load(name: str) -> Experiment:
    """The experiment of that name; its module, and what that imports, is loaded only now."""
    pick("experiment", name, (*NAMES, "all"))
    try:
        return importlib.import_module(f".{name.replace('-', '_')}", __name__).EXPERIMENT
    except ImportError as error:
        if error.name in ("matplotlib", "optax"):
            raise UserError(f"{name} needs {error.name}, which is not installed: pip install 'lagrax[train]'") from None
        raise
