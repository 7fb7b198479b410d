"""The loop for networks: delays by the thousand, each of which reads one component of the state."""

from ._loop import integrate as integrate
from ._walk_back import walk_back as walk_back
