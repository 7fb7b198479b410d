"""Neural differential equations with delays, as Equinox modules."""

from ._conv import IMAGE_SHAPES as IMAGE_SHAPES
from ._conv import PAPER_FILTERS as PAPER_FILTERS
from ._conv import Conv as Conv
from ._conv import ImageField as ImageField
from ._conv import conv1x1 as conv1x1
from ._conv import conv3x3 as conv3x3
from ._conv import image_fields as image_fields
from ._conv import native_conv3x3 as native_conv3x3
from ._conv import winograd_conv3x3 as winograd_conv3x3
from ._delay import LearnableDelay as LearnableDelay
from ._delay import SharedDelay as SharedDelay
from ._form import Form as Form
from ._mlp import MLPField as MLPField
from ._mlp import torch_uniform as torch_uniform
from ._models import AbstractModel as AbstractModel
from ._models import NeuralDDE as NeuralDDE
from ._models import NeuralODE as NeuralODE
from ._models import NeuralODEDDE as NeuralODEDDE
from ._parameters import Driven as Driven
from ._parameters import TimeDependentParameters as TimeDependentParameters
from ._parameters import count_parameters as count_parameters
from ._special import RadialField as RadialField
from ._special import ResidualField as ResidualField
from ._special import representing_dde as representing_dde
from ._special import separating_dde as separating_dde
