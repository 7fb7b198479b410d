"""Tables as people have them: text with some separator, dates in some order, Parquet. Plain Python and NumPy, no JAX."""

from ._dates import Calendar as Calendar
from ._select import Selection as Selection
from ._select import select as select
from ._table import Choice as Choice
from ._table import Table as Table
from ._table import read as read
