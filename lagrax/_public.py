"""The public names, which `import lagrax` offers and loads at their first use."""

from ._adjoint import ContinuousAdjoint as ContinuousAdjoint
from ._adjoint import DiscreteAdjoint as DiscreteAdjoint
from ._adjoint import ForwardMode as ForwardMode
from ._adjoint import PiecewiseAdjoint as PiecewiseAdjoint
from ._impulses import Impulses as Impulses
from ._lag import AbstractLag as AbstractLag
from ._lag import At as At
from ._lag import Derivative as Derivative
from ._lag import Each as Each
from ._lag import Gamma as Gamma
from ._lag import Integral as Integral
from ._lag import Lag as Lag
from ._lag import Uniform as Uniform
from ._memory_of import memory_of as memory_of
from ._network._graph import Graph as Graph
from ._output._dense import DenseSolution as DenseSolution
from ._results import RESULTS as RESULTS
from ._solve import ddesolve as ddesolve
from ._term import DelayTerm as DelayTerm
from .saving._persist import ModelFileError as ModelFileError
from .saving._persist import load as load
from .saving._persist import save as save
