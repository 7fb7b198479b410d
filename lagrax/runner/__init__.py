"""What runs an experiment, from its configuration to its report, whatever the experiment is.

An experiment is a value of `Experiment`: its numbers, a frozen dataclass with limits; its presets; and a function from
`Settings` to an `Outcome`. `start` gives it a folder, `resume` goes on in one, and both write a report.
"""

from .._choices import UsageError as UsageError
from .._choices import UserError as UserError
from ._configuration import Configuration as Configuration
from ._configuration import Options as Options
from ._configuration import configure as configure
from ._execute import check as check
from ._execute import is_first as is_first
from ._execute import join as join
from ._execute import plan as plan
from ._execute import resume as resume
from ._execute import start as start
from ._experiment import Claim as Claim
from ._experiment import Experiment as Experiment
from ._experiment import Figure as Figure
from ._experiment import Numbers as Numbers
from ._experiment import Outcome as Outcome
from ._experiment import Preset as Preset
from ._experiment import Settings as Settings
from ._experiment import Table as Table
from ._experiment import number as number
from ._experiment import of_seeds as of_seeds
from ._experiment import range_of as range_of
from ._experiment import shown as shown
from ._folder import REPORT as REPORT
from ._folder import read_outcome as read_outcome
from ._report import joint_report as joint_report
from ._report import report as report
