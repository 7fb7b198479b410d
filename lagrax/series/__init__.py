"""Time series with an unknown delay: estimates, forecasts and whether to believe them. Needs the extra `lagrax[train]`."""

from ._result import Alias as Alias
from ._result import Estimate as Estimate
from ._result import Forecast as Forecast
from ._result import Holdout as Holdout
from ._result import Profile as Profile
from ._result import Samples as Samples
from ._result import Score as Score
from ._result import SeriesFit as SeriesFit
