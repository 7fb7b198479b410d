"""The only door to other packages' private names: when one of them moves, this is the file to mend.

Checked against equinox 0.13, diffrax 0.7 and JAX 0.9 to 0.10 (the ranges pinned in `pyproject.toml`).
"""

from diffrax._root_finder import use_stepsize_tol as use_stepsize_tol
from equinox.internal import nondifferentiable as nondifferentiable
from equinox.internal import nondifferentiable_backward as nondifferentiable_backward
from equinox.internal import unvmap_any as unvmap_any
from equinox.internal import unvmap_max as unvmap_max
from equinox.internal import while_loop as while_loop
from jaxlib.mlir.dialects import func as func
from jaxlib.mlir.dialects import stablehlo as stablehlo
