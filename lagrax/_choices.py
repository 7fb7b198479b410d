"""What the command line lets one choose from, by name, without JAX: so that help and mistakes are answered at once."""

import difflib
from collections.abc import Collection

EXPERIMENTS = (
    "crossing",
    "diagram",
    "separation",
    "spheres",
    "spiral",
    "population",
    "mackey-glass",
    "images",
    "universal",
    "complexity",
)
"""In the order of the paper, which is also that of `lagrax reproduce all`."""
PRESETS = ("smoke", "default", "paper")
MORE_PRESETS = ("reduced",)  # of some experiments
ADJOINTS = ("discrete", "continuous", "piecewise")
SOLVERS = ("heun", "bosh3", "tsit5", "dopri5", "dopri8", "kvaerno3", "kvaerno5")
MODELS = ("nicholson", "hutchinson", "mackey-glass", "delayed-feedback", "predator-prey", "epidemic", "neural")
"""Of `lagrax fit`: known mechanisms, and none."""
TRANSFORMS = ("auto", "log", "sqrt", "none")


class UserError(Exception):
    """Something the user can put right, said in one sentence; the command line prints it without a traceback."""


class UsageError(UserError):
    """What was typed cannot be meant: a name that does not exist, a number out of its limits."""


def pick(what: str, name: str, names: Collection[str]) -> str:
    """`name`, if it is one of `names`; else an error that suggests the nearest."""
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"
    raise UsageError(f"there is no {what} {name!r}: {hint}")
