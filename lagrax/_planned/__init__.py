"""The loop for constant delays: what the stages of a step see of the past is looked up before the step is taken."""

from ._bounded import empty_output as empty_output
from ._bounded import integrate_bounded as integrate_bounded
from ._bounded import walk_back_bounded as walk_back_bounded
