"""The loop for all other delays: what a stage sees of the past is looked up while the step is taken."""

from ._loop import integrate as integrate
from ._walk_back import walk_back as walk_back
