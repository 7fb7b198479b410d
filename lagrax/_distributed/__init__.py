"""Delays that are spread over the past. Integrals whose kernel obeys differential equations become equations of the system
(`_chain.py`); others are integrated over the steps taken (`_sum.py`)."""

from ._expand import WithIntegrals as WithIntegrals
from ._expand import expand as expand
from ._state import Given as Given
from ._state import of_states as of_states
from ._state import with_integrals as with_integrals
