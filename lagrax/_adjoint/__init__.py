from ._base import AbstractAdjoint as AbstractAdjoint
from ._continuous import ContinuousAdjoint as ContinuousAdjoint
from ._discrete import DiscreteAdjoint as DiscreteAdjoint
from ._forward import ForwardMode as ForwardMode
from ._piecewise import PiecewiseAdjoint as PiecewiseAdjoint
