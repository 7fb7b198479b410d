"""Data sets in their publishers' own formats, read without pickle. Needs the extra `lagrax[images]` to download."""

from . import images as images
from ._formats import DataError as DataError
