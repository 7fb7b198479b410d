"""Delay differential equations in JAX: fast, exact gradients (delays included), on diffrax."""

from ._adjoint import AbstractAdjoint as AbstractAdjoint
from ._adjoint import ContinuousAdjoint as ContinuousAdjoint
from ._adjoint import DiscreteAdjoint as DiscreteAdjoint
from ._adjoint import ForwardMode as ForwardMode
from ._adjoint import PiecewiseAdjoint as PiecewiseAdjoint
from ._solution import RESULTS as RESULTS
from ._solution import DenseSolution as DenseSolution
from ._solve import ddesolve as ddesolve
from ._term import DelayTerm as DelayTerm
from ._xla import fuse_small_loops as fuse_small_loops
