"""Images: twelve models of equal size, compared on real data."""

from ._experiment import EXPERIMENT as EXPERIMENT
from ._models import parameters_table as parameters_table
