"""The kinds of delay, one file each."""

from ._base import AbstractLag as AbstractLag
from ._constant import Constant as Constant
from ._derivative import Derivative as Derivative
from ._each import Each as Each
from ._each import Elements as Elements
from ._integral import Gamma as Gamma
from ._integral import Integral as Integral
from ._integral import Uniform as Uniform
from ._moving import At as At
from ._moving import Moving as Moving
from ._resolve import Lag as Lag
from ._resolve import are_planned as are_planned
from ._resolve import is_lag as is_lag
from ._resolve import resolve as resolve
