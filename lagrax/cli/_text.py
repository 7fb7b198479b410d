"""What commands print: tables and paragraphs that fit the terminal."""

import shutil
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runner import Table

_WIDEST = 100  # columns


def print_table(table: "Table") -> None:
    """Title, column names and rows; cells that would make it wider than the terminal go on in the next line."""
    rows = [table.columns, *table.rows]
    widths = _fitting([_natural(column) for column in zip(*rows, strict=True)], _width() - 2)
    if table.title:
        print(wrapped(table.title, ""))
    for row in rows:
        cells = [_lines(cell, width) for cell, width in zip(row, widths, strict=True)]
        for i in range(max(map(len, cells))):
            parts = ((cell[i] if i < len(cell) else "").ljust(width) for cell, width in zip(cells, widths, strict=True))
            print("  " + "  ".join(parts).rstrip())


def _natural(column: Sequence[str]) -> tuple[int, int]:
    """The width of the widest cell, and of the widest word, which is not broken."""
    return max(map(len, column)), max(len(word) for cell in column for word in cell.split(" "))


def _fitting(natural: Sequence[tuple[int, int]], width: int) -> list[int]:
    """Widths that add up to `width` if they can: the widest columns give way first."""
    widths = [widest for widest, _ in natural]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        room = [each - word for each, (_, word) in zip(widths, natural, strict=True)]
        if not any(room):
            break
        widths[max((i for i in range(len(widths)) if room[i]), key=lambda i: widths[i])] -= 1
    return widths


def _lines(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]


def wrapped(text: str, indent: str) -> str:
    """A paragraph."""
    return textwrap.fill(text, _width(), initial_indent=indent, subsequent_indent=indent)


def _width() -> int:
    return max(40, min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST))
