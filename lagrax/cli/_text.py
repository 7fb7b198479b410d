"""What commands print: tables and paragraphs as wide as the terminal."""

import shutil
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..experiments._base import Table


def print_table(table: "Table") -> None:
    print(table.title)
    rows = [table.columns, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def wrapped(text: str, indent: str) -> str:
    width = min(shutil.get_terminal_size((110, 24)).columns, 120)
    return textwrap.fill(text, max(width, 40), initial_indent=indent, subsequent_indent=indent)
