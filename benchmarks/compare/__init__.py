"""The comparisons, one file each. A comparison takes a number of repetitions and yields rows as they are measured."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..row import Row
from .compile_time import compile_time
from .images import images
from .kinds import kinds
from .long_runs import long_runs
from .max_steps import max_steps
from .moving import moving
from .networks import networks
from .neural_ode import neural_ode
from .single import single
from .spiral import spiral
from .sweep import sweep


@dataclass(frozen=True)
class Comparison:
    """What can be asked for with `--only`, and the packages (as imported) that it needs besides lagrax's own."""

    measure: Callable[[int], Iterator[Row]]
    packages: tuple[str, ...] = ()


COMPARISONS = {
    "spiral": Comparison(spiral, ("torch", "torchdde")),
    "single": Comparison(single, ("jitcdde",)),
    "sweep": Comparison(sweep, ("jitcdde",)),
    "moving": Comparison(moving, ("jitcdde",)),
    "networks": Comparison(networks, ("jitcdde",)),
    "kinds": Comparison(kinds, ("jitcdde",)),
    "neural-ode": Comparison(neural_ode),
    "long-runs": Comparison(long_runs),
    "max-steps": Comparison(max_steps),
    "compile-time": Comparison(compile_time),
    "images": Comparison(images, ("torch", "torchdiffeq")),
}
