"""Pages, and pieces of them: figures, tables, folded lists. Without scripts and without anything fetched from elsewhere."""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .._choices import UserError
from ._outcome import Figure
from ._report_style import CSS

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · lagrax</title>
<style>{css}</style>
</head>
<body>
<header><p class="eyebrow">{eyebrow}</p>
<h1>{title}</h1></header>
<main>
{content}
</main>
</body>
</html>
"""


def page(title: str, eyebrow: str, content: Sequence[str]) -> str:
    """`eyebrow` and `content` are HTML, the title is text."""
    joined = "\n".join(part for part in content if part)
    return _PAGE.format(title=escape(title), css=CSS, eyebrow=eyebrow, content=joined)


def link(target: Path, page: Path, text: str) -> str:
    """A link from the file `page` to another one."""
    address = Path(os.path.relpath(target, page.parent)).as_posix()
    return f'<a href="{escape(quote(address))}">{escape(text)}</a>'


def image(folder: Path, figure: Figure, page: Path) -> str:
    """A figure with its caption: inside the page, so that it can be sent as one file, stacked on a phone. A click opens the
    file beside it at its full size."""
    wide, narrow = folder / f"{figure.stem}.png", folder / f"{figure.stem}-narrow.png"
    caption = escape(figure.caption)
    shown = f'<img alt="{caption}" src="{_data(wide)}">'
    if narrow.exists():
        shown = f'<picture><source media="(max-width: 40rem)" srcset="{_data(narrow)}">{shown}</picture>'
    address = escape(quote(Path(os.path.relpath(wide, page.parent)).as_posix()))
    files = " · ".join(link(wide.with_suffix(suffix), page, suffix[1:].upper()) for suffix in (".png", ".pdf"))
    caption = f'{caption} <span class="files">{files}</span>'
    return f'<figure><a href="{address}">{shown}</a><figcaption>{caption}</figcaption></figure>'


def _data(file: Path) -> str:
    try:
        return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): run the experiment again") from None


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], style: str = "numbers cards") -> str:
    """Cells are HTML. On a phone each row is a card, in which the columns' names stand before the cells."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    cells = lambda row: "".join(
        f'<td data-label="{escape(column)}"><div>{cell}</div></td>' if cell else '<td class="none"></td>'
        for column, cell in zip(columns, row, strict=True)
    )
    body = "".join(f"<tr>{cells(row)}</tr>" for row in rows)
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    return f'{heading}<table class="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def badge(kind: str, text: str) -> str:
    """`kind` is "yes", "no" or "open"."""
    return f'<span class="badge {kind}">{escape(text)}</span>'


def whole(text: str) -> str:
    """HTML that is not broken into lines."""
    return f'<span class="whole">{text}</span>'


def folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def entries(given: Mapping[str, Any]) -> str:
    """A list of names and values."""
    text = lambda value: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    rows = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(text(value))}</dd>" for key, value in given.items())
    return f"<dl>{rows}</dl>"
