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
from ._experiment import Figure

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
    return _PAGE.format(title=escape(title), css=_CSS, eyebrow=eyebrow, content=joined)


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


_CSS = """
:root { --ink: #1c2430; --soft: #5b6675; --line: #dde2e9; --page: #ffffff; --card: #f6f8fa; --link: #0060a0;
  --yes: #0b6b4f; --yes-bg: #dcf3ea; --no: #a33b00; --no-bg: #fde7da; --open: #4d5866; --open-bg: #e9ecf0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #303846; --page: #12161c; --card: #1a2029; --link: #7cc0f5;
    --yes: #7fe0bd; --yes-bg: #12382c; --no: #ffb48a; --no-bg: #45230f; --open: #bcc6d2; --open-bg: #2a323d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; overflow-wrap: break-word; }
.eyebrow { margin: 0; color: var(--soft); font-size: .875rem; }
h1 { margin: .25rem 0 1rem; font-size: 1.9rem; line-height: 1.2; letter-spacing: -.01em; }
h2 { margin: 3rem 0 .5rem; padding-top: 1.5rem; border-top: 1px solid var(--line); font-size: 1.45rem; line-height: 1.25; }
h3 { margin: 2rem 0 .5rem; font-size: 1.05rem; }
.about { font-size: 1.05rem; max-width: 46rem; }
.lead { font-size: 1.2rem; line-height: 1.45; max-width: 46rem; margin: 0 0 .75rem; }
a { color: var(--link); }
table { width: 100%; border-collapse: collapse; font-size: .925rem; }
th { color: var(--soft); font-weight: 600; font-size: .825rem; }
th, td { padding: .5rem .75rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th:first-child, td:first-child { padding-left: 0; }
.claims { margin: 1.25rem 0; table-layout: fixed; }
.claims th:last-child { width: 11rem; }
.numbers { font-variant-numeric: tabular-nums; }
.numbers td:first-child { min-width: 6rem; }
.badge { display: inline-block; padding: .1rem .6rem; border-radius: 1rem; font-size: .825rem; white-space: nowrap; }
.yes { color: var(--yes); background: var(--yes-bg); }
.no { color: var(--no); background: var(--no-bg); }
.open { color: var(--open); background: var(--open-bg); }
figure { margin: 1.75rem 0; }
figure > a { display: block; }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; padding: .75rem; background: #fff;
  border: 1px solid var(--line); border-radius: .6rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 1.5rem; }
.figures figure { margin: 1rem 0; min-width: 0; } .figures img { width: 100%; }
figcaption { margin: .6rem 0 0; color: var(--soft); font-size: .9rem; max-width: 46rem; }
code { padding: .1rem .35rem; border-radius: .3rem; background: var(--card); font-size: .9em; overflow-wrap: anywhere; }
.whole { white-space: nowrap; }
.files { color: var(--soft); font-size: .85rem; white-space: nowrap; }
details { margin: 1rem 0 2rem; } summary { cursor: pointer; font-weight: 600; } details > * + * { margin-top: .75rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.25rem; margin: 0; padding: 1rem 1.25rem;
  background: var(--card); border-radius: .6rem; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
@media (max-width: 40rem) {
  body { padding: 1rem .9rem 3rem; } h1 { font-size: 1.5rem; } img { padding: .25rem; }
  .claims thead { display: none; } .claims, .claims tbody, .claims tr, .claims td { display: block; width: 100%; }
  .claims tr { margin-bottom: 1rem; padding: .75rem 1rem; background: var(--card); border-radius: .6rem; }
  .claims td { padding: .2rem 0; border: 0; }
  .claims td::before { content: attr(data-label); display: block; color: var(--soft); font-size: .78rem; }
  .cards thead, .cards .none { display: none; } .cards, .cards tbody, .cards tr, .cards td { display: block; width: 100%; }
  .cards tr { margin-bottom: .75rem; padding: .6rem 1rem; background: var(--card); border-radius: .6rem; }
  .cards td { display: flex; align-items: start; justify-content: space-between; gap: 1rem;
    padding: .15rem 0; border: 0; text-align: right; }
  .cards td::before { content: attr(data-label); color: var(--soft); text-align: left; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
@media print { body { max-width: none; } figure, tr { break-inside: avoid; } }
"""
"""The reader's own fonts, light or dark as their system is, one column that fits a phone."""
