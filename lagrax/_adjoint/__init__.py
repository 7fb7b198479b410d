from ._base import AbstractAdjoint as AbstractAdjoint
from ._discrete import DiscreteAdjoint as DiscreteAdjoint
from ._forward import ForwardMode as ForwardMode
