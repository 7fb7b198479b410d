"""The command `lagrax`: one file a command, which parses, calls and prints; what it does is elsewhere in the package.

The rest needs JAX, which takes a second or more to import: it is imported where something is to be computed, and not for
help, the version or a mistyped command.
"""

from ._main import command as command
from ._main import main as main
