"""`report.html` of a fit: the answer first, then what speaks for and against it. No scripts, nothing fetched."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..runner import REPORT, Figure, pages
from ..series import Estimate, SeriesFit
from . import _words as words
from ._words import number, percent

_BADGES = {"identified": "yes", "predictive only": "open", "at bound": "no"}


def page(
    fit: SeriesFit, title: str, figures: Sequence[Figure], folder: Path, files: Sequence[str], config: Mapping[str, Any]
) -> str:
    """The report on a fit, whose figures and files are in `folder`; `config` is shown, folded, at the end."""
    file = folder / REPORT
    given = {key: value for key, value in config.items() if value not in (None, [], {})}
    content = [
        f'<p class="lead">{escape(words.headline(fit))}</p>',
        *(f"<p>{escape(sentence)}</p>" for sentence in words.delays(fit)),
        *(f"<p>{escape(sentence)}</p>" for sentence in words.verdicts(fit)),
        *(f"<p>{escape(note)}</p>" for note in fit.notes),
        f"<p>To go on: <code>lagrax fit --resume {escape(str(folder))}</code></p>" if fit.missing else "",
        f'<div class="figures">{"".join(pages.image(folder, figure, file) for figure in figures)}</div>',
        _estimates(fit, fit.samples.unit),
        _holdout(fit),
        f"<p>{' · '.join(pages.link(folder / name, file, name) for name in files)}</p>",
        pages.folded("Configuration", pages.entries(given)),
    ]
    return pages.page(title, escape(f"lagrax fit · {fit.kind}, {len(fit.samples.t)} samples"), content)


def _estimates(fit: SeriesFit, unit: str) -> str:
    if not fit.delays and not fit.parameters:
        return ""
    rows = [_estimate(delay, unit) for delay in fit.delays] + [_estimate(found, "") for found in fit.parameters]
    spread = "range over members" if fit.kind == "neural" else "95 % interval"
    return pages.table("Estimates", ("estimate", "value", spread, "verdict", "aliases"), rows)


def _estimate(found: Estimate, unit: str) -> Sequence[str]:
    """The cells of a row, as HTML."""
    estimate, low, high = words.with_interval(found)
    interval = "–" if found.low is None else f"{low} to {high}"
    badge = pages.badge(_BADGES.get(found.verdict, "open"), found.verdict) if found.verdict else ""
    aliases = ", ".join(f"{number(alias.value)} ({alias.kind})" for alias in found.aliases)
    value = f"{estimate} {unit}".strip()
    return escape(words.symbol(found.name)), escape(value), escape(interval), badge, escape(aliases)


def _holdout(fit: SeriesFit) -> str:
    rows = []
    for method, score in fit.holdout.scores.items():
        name = f"the {words.model_name(fit)}" if method == "model" else words.METHODS[method]
        badge = pages.badge("yes", "this forecast") if method == fit.chosen else ""
        without = "–" if method != "model" else "missing" if fit.missing else "refused"
        cells = (without, "", "")
        if score is not None:
            cells = (f"{score.mase:.2f}", number(score.rmse), percent(score.coverage95))
        rows.append((escape(name), *cells, badge))
    title = f"Hold-out: {fit.holdout.horizon} samples ahead, {fit.holdout.origins} origins, never seen while fitting"
    explained = (
        "<p>MASE is the mean absolute error over that of repeating the last value one sample ahead: above 1 does not mean "
        "useless, since these forecasts look further.</p>"
    )
    return pages.table(title, ("forecast by", "MASE", "RMSE", "inside the 95 % interval", "given"), rows) + explained
