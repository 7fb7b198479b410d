"""The public names, which `import lagrax` offers and loads at their first use."""

from . import nn as nn
from ._adjoint import AbstractAdjoint as AbstractAdjoint
from ._adjoint import ContinuousAdjoint as ContinuousAdjoint
from ._adjoint import DiscreteAdjoint as DiscreteAdjoint
from ._adjoint import ForwardMode as ForwardMode
from ._adjoint import PiecewiseAdjoint as PiecewiseAdjoint
from ._persist import ModelFileError as ModelFileError
from ._persist import load as load
from ._persist import save as save
from ._solution import RESULTS as RESULTS
from ._solution import DenseSolution as DenseSolution
from ._solve import ddesolve as ddesolve
from ._term import DelayTerm as DelayTerm
