"""`python -m lagrax` is the command `lagrax`."""

from .cli import command

command()
