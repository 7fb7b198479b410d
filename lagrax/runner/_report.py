"""`report.html`: which runs it is on, and one page on one of them, or on several with an overview before them."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from .._choices import EXPERIMENTS, UserError
from . import _folder, pages
from ._experiment import Claim, Outcome, Table

_BADGES = {True: "yes", False: "no", None: "open"}
_SIZES = ("smoke", "default", "reduced", "paper")
_EYEBROW = "lagrax · reproduction of <cite>Neural Delay Differential Equations</cite>, ICLR 2021"


# --- which runs it is on ----------------------------------------------------------------------------------------------


def joint_report(done: Sequence[Path], out: Path) -> Path:
    """A report on all of them, in `out`."""
    write(done, out / _folder.REPORT)
    return out / _folder.REPORT


def report(paths: Sequence[Path], to: Path | None) -> Path:
    """Writes the report on the finished runs that `paths` are or hold; by default beside what it is about."""
    found = [folder for path in paths for folder in _best(path)]
    others = [folder for path in paths for folder in _all(path) if folder not in found]
    file = to if to is not None else (paths[0] if len(paths) == 1 else Path(".")) / _folder.REPORT
    write(found, file, others)
    return file


def _all(path: Path) -> list[Path]:
    """The runs in the folder of an experiment, or of several, or of one run, which is no folder of runs."""
    return [run for experiment in [path, *(path / name for name in EXPERIMENTS)] for run in _folder.runs(experiment)]


def _best(path: Path) -> list[Path]:
    """A run itself, the best finished run of an experiment's folder, or those of a folder of experiments."""
    if (path / _folder.CONFIG).exists():
        return [path]
    best = []
    for experiment in [path, *(path / name for name in EXPERIMENTS)]:
        finished = [run for run in _folder.runs(experiment) if _folder.has_outcome(run)]
        best += sorted(finished, key=_size)[-1:]  # of equal ones the newest
    if not best:
        raise UserError(f"{path} holds no finished run: `lagrax reproduce crossing` makes one")
    return best


def _size(folder: Path) -> int:
    """The place of a run's preset among the presets, of which the last are the largest."""
    preset = _folder.read_config(folder)["preset"]
    return _SIZES.index(preset) if preset in _SIZES else -1


# --- the page ---------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A finished run: where it is, its config.json, what came out, and in words how long it took."""

    folder: Path
    config: dict[str, Any]
    outcome: Outcome
    duration: str

    @property
    def title(self) -> str:
        return str(self.config.get("title", self.config["experiment"]))


def read(folder: Path) -> Run:
    return Run(folder, _folder.read_json(folder / _folder.CONFIG), *_folder.read_outcome(folder))


def write(folders: Sequence[Path], file: Path, others: Sequence[Path] = ()) -> None:
    """The report on the finished runs in `folders`, in that order; with links to `others`."""
    runs = [read(folder) for folder in folders]
    alone = len(runs) == 1
    title = runs[0].title if alone else "Neural delay differential equations"
    parts = [] if alone else [_overview(runs, file)]
    parts += [_section(run, file, alone) for run in runs]
    if others:
        parts.append(pages.folded(f"{len(others)} other run{'s' * (len(others) > 1)}", _listing(others, file)))
    _folder.write_text(file, pages.page(title, _EYEBROW, parts))


def _overview(runs: Sequence[Run], file: Path) -> str:
    rows = []
    for run in runs:
        counts = Counter((list(_BADGES).index(claim.reproduced), claim.verdict) for claim in run.outcome.claims)
        kinds = list(_BADGES.values())
        badges = " ".join(pages.badge(kinds[kind], f"{text}: {count}") for (kind, text), count in sorted(counts.items()))
        anchor = f'<a href="#{escape(run.config["experiment"])}">{escape(run.title)}</a>'
        own = pages.whole(pages.link(run.folder / _folder.REPORT, file, run.folder.name))
        rows.append((anchor, badges or "–", escape(run.config["preset"]), pages.whole(escape(run.duration)), own))
    return pages.table("", ("experiment", "the paper's statements", "preset", "took", "run"), rows)


def _listing(folders: Sequence[Path], file: Path) -> str:
    rows = []
    for folder in folders:
        config = _folder.read_json(folder / _folder.CONFIG)
        state = "finished" if _folder.is_finished(folder) else _folder.failure(folder) or "not finished"
        target = folder / _folder.REPORT if _folder.is_finished(folder) else folder / _folder.CONFIG
        cells = (str(config.get("experiment", "–")), str(config.get("preset", "–")), state)
        rows.append((pages.link(target, file, folder.name), *(escape(cell) for cell in cells)))
    return pages.table("", ("run", "experiment", "preset", "state"), rows)


def _section(run: Run, file: Path, alone: bool) -> str:
    config, outcome = run.config, run.outcome
    heading = "" if alone else f"<h2>{escape(run.title)}</h2>"
    parts = [
        f'<section id="{escape(config["experiment"])}">{heading}<p class="about">{escape(config.get("about", ""))}</p>',
        _claims(outcome.claims),
        _how_to_compare(run),
        *(f"<p>{escape(note)}</p>" for note in outcome.notes),
        *(pages.image(run.folder, figure, file) for figure in outcome.figures),
        *(_table(table) for table in outcome.tables),
        _configuration(run, file),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _claims(claims: list[Claim]) -> str:
    if not claims:
        return ""
    columns = ("The paper says", "We measured", "Reproduced or not")
    rows = [(escape(c.paper), escape(c.measured), pages.badge(_BADGES[c.reproduced], c.verdict)) for c in claims]
    return pages.table("", columns, rows, style="claims")


def _table(table: Table) -> str:
    return pages.table(table.title, table.columns, [[escape(cell) for cell in row] for row in table.rows])


def _how_to_compare(run: Run) -> str:
    command = run.outcome.comparable_by(run.config["experiment"])
    preset = f"<code>{escape(run.config['preset'])}</code>, or what was set in its place,"
    how = (
        f"<em>Not comparable</em>: the preset {preset} is too small for a verdict. <code>{escape(command)}</code> gives one."
    )
    return f"<p>{how}</p>" if command else ""


def _configuration(run: Run, file: Path) -> str:
    config = run.config
    command = config.get("command", f"lagrax reproduce {config['experiment']} --preset {config['preset']}")
    versions = ", ".join(f"{name} {number}" for name, number in config.get("versions", {}).items())
    shown = {key: config[key] for key in ("preset", "seeds", "adjoint", "solver", "tolerance")} | config["numbers"]
    shown |= {"started": config.get("started", "–"), "took": run.duration, "machine": config.get("machine", "–")}
    files = " · ".join(pages.link(run.folder / name, file, name) for name in (_folder.CONFIG, _folder.METRICS))
    made = f'<p class="made">Made by <code>{escape(command)}</code> <span class="files">{files}</span></p>'
    return made + pages.folded("Configuration", pages.entries(shown | {"versions": versions}))
