"""`report.html`: one page on one or several runs, without scripts and without anything fetched from elsewhere."""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .._choices import UserError
from . import _folder
from ._outcome import Claim, Figure, Outcome, Table
from ._report_style import CSS

_BADGES = {True: "yes", False: "no", None: "open"}


def write(folders: Sequence[Path], file: Path) -> None:
    """The report on the finished runs in `folders`, in that order."""
    runs = [(folder, _folder.read_json(folder / _folder.CONFIG), *_folder.read_outcome(folder)) for folder in folders]
    titles = [_title(config) for _, config, _, _ in runs]
    title = titles[0] if len(runs) == 1 else "Neural delay differential equations"
    overview = _overview([(config, outcome) for _, config, outcome, _ in runs]) if len(runs) > 1 else ""
    sections = "\n".join(_section(*run, alone=len(runs) == 1) for run in runs)
    page = _PAGE.format(title=escape(title), css=CSS, overview=overview, sections=sections)
    _folder.write_text(file, page)


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
<header><p class="eyebrow">lagrax · reproduction of <cite>Neural Delay Differential Equations</cite>, ICLR 2021</p>
<h1>{title}</h1></header>
<main>
{overview}
{sections}
</main>
</body>
</html>
"""


def _title(config: dict[str, Any]) -> str:
    return str(config.get("title", config["experiment"]))


def _overview(runs: Iterable[tuple[dict[str, Any], Outcome]]) -> str:
    rows = []
    for config, outcome in runs:
        counts = Counter((list(_BADGES).index(claim.reproduced), claim.verdict) for claim in outcome.claims)
        badges = " ".join(
            f'<span class="badge {list(_BADGES.values())[position]}">{text}: {count}</span>'
            for (position, text), count in sorted(counts.items())
        )
        link = f'<a href="#{escape(config["experiment"])}">{escape(_title(config))}</a>'
        rows.append(f"<tr><td>{link}</td><td>{escape(config['preset'])}</td><td>{badges or '–'}</td></tr>")
    head = "<tr><th>experiment</th><th>preset</th><th>the paper's statements</th></tr>"
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'


def _section(folder: Path, config: dict[str, Any], outcome: Outcome, duration: str, *, alone: bool) -> str:
    heading = "" if alone else f"<h2>{escape(_title(config))}</h2>"
    parts = [
        f'<section id="{escape(config["experiment"])}">{heading}<p class="about">{escape(config.get("about", ""))}</p>',
        _claims(outcome.claims),
        *(f"<p>{escape(note)}</p>" for note in outcome.notes),
        *(_figure(folder, figure) for figure in outcome.figures),
        *(_table(table) for table in outcome.tables),
        _configuration(config, duration),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _claims(claims: list[Claim]) -> str:
    if not claims:
        return ""
    rows = "".join(
        f'<tr><td data-label="The paper says">{escape(claim.paper)}</td>'
        f'<td data-label="We measured">{escape(claim.measured)}</td>'
        f'<td data-label="Reproduced"><span class="badge {_BADGES[claim.reproduced]}">{claim.verdict}</span></td></tr>'
        for claim in claims
    )
    head = "<tr><th>The paper says</th><th>We measured</th><th>Reproduced or not</th></tr>"
    return f'<table class="claims"><thead>{head}</thead><tbody>{rows}</tbody></table>'


def _figure(folder: Path, figure: Figure) -> str:
    file = folder / f"{figure.stem}.png"
    try:
        data = base64.b64encode(file.read_bytes()).decode()
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): run the experiment again") from None
    caption = escape(figure.caption)
    source = f"data:image/png;base64,{data}"
    return f'<figure><img alt="{caption}" src="{source}"><figcaption>{caption}</figcaption></figure>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return (
        f'<h3>{escape(table.title)}</h3><div class="scroll"><table class="numbers"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _configuration(config: dict[str, Any], duration: str) -> str:
    entries = {key: config[key] for key in ("preset", "seeds", "adjoint", "solver", "tolerance")}
    entries |= config["numbers"]
    surroundings = {"started": config.get("started", "–"), "duration": duration, "machine": config.get("machine", "–")}
    versions = ", ".join(f"{name} {number}" for name, number in config.get("versions", {}).items())
    entries |= {**surroundings, "versions": versions}
    rows = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(_plain(value))}</dd>" for key, value in entries.items())
    return f"<h3>Configuration</h3><dl>{rows}</dl>"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
