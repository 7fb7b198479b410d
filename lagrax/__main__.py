"""`python -m lagrax` is the command `lagrax`."""

import sys

from .cli import main

sys.exit(main())
