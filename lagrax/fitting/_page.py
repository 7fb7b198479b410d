"""`report.html` of a fit: the answer first, then what speaks for and against it. No scripts, nothing fetched."""

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..runner import Figure
from ..runner._report_style import CSS
from ..series import Estimate, SeriesFit
from . import _words as words
from ._words import number, percent

_BADGES = {"identified": "yes", "predictive only": "open", "at bound": "no"}
_OWN_CSS = """
.lead { font-size: 1.2rem; line-height: 1.45; max-width: 46rem; margin: 0 0 .75rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 1.5rem; }
.figures figure { margin: 1rem 0; min-width: 0; } .figures img { width: 100%; }
details { margin: 2rem 0; } summary { cursor: pointer; font-weight: 600; } details dl { margin-top: .75rem; }
.files a { margin-right: 1rem; white-space: nowrap; }
@media (max-width: 40rem) {
  .cards thead, .cards .none { display: none; } .cards, .cards tbody, .cards tr, .cards td { display: block; width: 100%; }
  .cards tr { margin-bottom: .75rem; padding: .6rem 1rem; background: var(--card); border-radius: .6rem; }
  .cards td { display: flex; justify-content: space-between; gap: 1rem; padding: .15rem 0; border: 0; white-space: normal;
    text-align: right; }
  .cards td::before { content: attr(data-label); color: var(--soft); text-align: left; } }
"""
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
<header><p class="eyebrow">lagrax fit · {eyebrow}</p>
<h1>{title}</h1></header>
<main>
{content}
</main>
</body>
</html>
"""


def page(
    fit: SeriesFit, title: str, figures: Sequence[Figure], folder: Path, files: Sequence[str], config: Mapping[str, Any]
) -> str:
    """The report on a fit, whose figures and files are in `folder`; `config` is shown, folded, at the end."""
    unit = fit.samples.unit
    content = [
        f'<p class="lead">{escape(words.headline(fit))}</p>',
        *(f"<p>{escape(sentence)}</p>" for sentence in words.delays(fit)),
        *(f"<p>{escape(sentence)}</p>" for sentence in words.verdicts(fit)),
        *(f"<p>{escape(note)}</p>" for note in fit.notes),
        f'<div class="figures">{"".join(_figure(folder, figure) for figure in figures)}</div>',
        _estimates(fit, unit),
        _holdout(fit),
        f'<p class="files">{"".join(_link(name) for name in files)}</p>',
        _configuration(config),
    ]
    eyebrow = f"{fit.kind}, {len(fit.samples.t)} samples"
    return _PAGE.format(
        title=escape(title), css=CSS + _OWN_CSS, eyebrow=escape(eyebrow), content="\n".join(part for part in content if part)
    )


def _figure(folder: Path, figure: Figure) -> str:
    """Inside the page, so that it can be sent as one file; a click opens the file beside it at its full size."""
    data = base64.b64encode((folder / f"{figure.stem}.png").read_bytes()).decode()
    caption = escape(figure.caption)
    image = f'<a href="{figure.stem}.png"><img alt="{caption}" src="data:image/png;base64,{data}"></a>'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _estimates(fit: SeriesFit, unit: str) -> str:
    if not fit.delays and not fit.parameters:
        return ""
    rows = [_estimate(delay, unit) for delay in fit.delays] + [_estimate(found, "") for found in fit.parameters]
    spread = "range over members" if fit.kind == "neural" else "95 % interval"
    return _table("Estimates", ("estimate", "value", spread, "verdict", "aliases"), rows)


def _estimate(found: Estimate, unit: str) -> Sequence[str]:
    """The cells of a row, as HTML."""
    interval = "–" if found.low is None else f"{number(found.low)} to {number(found.high)}"
    badge = (
        f'<span class="badge {_BADGES.get(found.verdict, "open")}">{escape(found.verdict)}</span>' if found.verdict else ""
    )
    aliases = ", ".join(f"{number(alias.value)} ({alias.kind})" for alias in found.aliases)
    value = f"{number(found.estimate)} {unit}".strip()
    return escape(words.symbol(found.name)), escape(value), escape(interval), badge, escape(aliases)


def _holdout(fit: SeriesFit) -> str:
    rows = []
    for method, score in fit.holdout.scores.items():
        name = f"the {words.model_name(fit)}" if method == "model" else words.METHODS[method]
        badge = '<span class="badge yes">this forecast</span>' if method == fit.chosen else ""
        cells = (
            ("refused", "", "") if score is None else (f"{score.mase:.2f}", number(score.rmse), percent(score.coverage95))
        )
        rows.append((escape(name), *cells, badge))
    title = f"Hold-out: {fit.holdout.horizon} samples ahead, {fit.holdout.origins} origins, never seen while fitting"
    explained = (
        "<p>MASE is the mean absolute error over that of repeating the last value one sample ahead: above 1 does not mean "
        "useless, since these forecasts look further.</p>"
    )
    return _table(title, ("forecast by", "MASE", "RMSE", "inside the 95 % interval", "given"), rows) + explained


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """On a phone each row is a card, in which the columns' names stand before the cells."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    cells = lambda row: "".join(
        f'<td data-label="{escape(column)}">{cell}</td>' if cell else '<td class="none"></td>'
        for column, cell in zip(columns, row, strict=True)
    )
    body = "".join(f"<tr>{cells(row)}</tr>" for row in rows)
    return (
        f'<h3>{escape(title)}</h3><table class="numbers cards"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _link(name: str) -> str:
    return f'<a href="{escape(name)}">{escape(name)}</a>'


def _configuration(config: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in config.items() if value not in (None, [], {})}
    text = lambda value: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    rows = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(text(value))}</dd>" for key, value in shown.items())
    return f"<details><summary>Configuration</summary><dl>{rows}</dl></details>"
