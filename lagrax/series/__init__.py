"""Time series with an unknown delay: estimates, forecasts and whether to believe them. Needs the extra `lagrax[train]`."""

from ._fit import fit_series as fit_series
from ._mechanisms import DELAYED_FEEDBACK as DELAYED_FEEDBACK
from ._mechanisms import EPIDEMIC as EPIDEMIC
from ._mechanisms import HUTCHINSON as HUTCHINSON
from ._mechanisms import MACKEY_GLASS as MACKEY_GLASS
from ._mechanisms import MECHANISMS as MECHANISMS
from ._mechanisms import NICHOLSON as NICHOLSON
from ._mechanisms import PREDATOR_PREY as PREDATOR_PREY
from ._mechanisms import TWO_COLUMN_EPIDEMIC as TWO_COLUMN_EPIDEMIC
from ._mechanisms import Mechanism as Mechanism
from ._mechanisms import Parameter as Parameter
from ._result import Alias as Alias
from ._result import Estimate as Estimate
from ._result import Forecast as Forecast
from ._result import Holdout as Holdout
from ._result import Profile as Profile
from ._result import Samples as Samples
from ._result import Score as Score
from ._result import SeriesFit as SeriesFit
