"""What a user says of a table."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Choice:
    """What the user says of a table: columns by name, rows by condition; see `lagrax fit --help`."""

    value: Sequence[str] = ()
    time: str | None = None
    inputs: Sequence[str] = ()
    where: Sequence[str] = ()
    group: str | None = None
    step: float = 1.0
    unit: str | None = None
    date_format: str | None = None
