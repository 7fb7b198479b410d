"""The loop for constant delays: what the stages of a step see of the past is looked up before the step is taken."""

from ._loop import integrate as integrate
from ._walk_back import walk_back as walk_back
