"""Training: an Optax loop with checkpoints, metrics and several seeds at once. Needs the extra `lagrax[train]`."""

from ._checkpoint import CheckpointError as CheckpointError
from ._fit import fit as fit
from ._result import Fit as Fit
from ._seeds import stack as stack
from ._seeds import unstack as unstack
