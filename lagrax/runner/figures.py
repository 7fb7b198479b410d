"""One look for all figures: colours with a fixed meaning, saved as PNG and PDF.

Matplotlib belongs to the extra `train`; it is imported when the first figure is made.
"""

import io
import math
from pathlib import Path
from typing import Any

from .._choices import UserError
from ._experiment import Figure
from ._folder import write_bytes

BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000",
)  # fmt: skip
"""Okabe and Ito's colours, which readers with any colour vision tell apart."""

COLOURS = {
    "NODE": RED, "NDDE": BLUE, "ANODE": GREEN, "NODE+NDDE": PINK, "data": BLACK,
    "discrete": BLUE, "continuous": RED, "piecewise": GREEN,
    "inner": SKY, "outer": ORANGE,
}  # fmt: skip
"""By meaning: models, adjoints, and the two classes of points."""

_PHONE = 4.0
"""Inches across a phone: 400 pixels, at which letters of 10 points are legible."""

MARKERS = {"NODE": "s", "NDDE": "o", "ANODE": "^", "NODE+NDDE": "D", "discrete": "o", "continuous": "s", "piecewise": "^"}

_STYLE = {
    "figure.dpi": 110, "figure.constrained_layout.use": True, "savefig.dpi": 180, "savefig.facecolor": "white",
    "font.size": 10, "axes.titlesize": 10.5, "axes.labelsize": 10, "legend.fontsize": 9, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "grid.linewidth": 0.6,
    "axes.axisbelow": True, "lines.linewidth": 1.6, "lines.markersize": 5, "pdf.fonttype": 42,
}  # fmt: skip


def new(rows: int = 1, columns: int = 1, width: float = 3.4, height: float = 2.8, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes, of `width` × `height` inches each; always an array of shape (rows, columns).

    `options` are those of `matplotlib.figure.Figure.subplots`. No window is opened and no global state is kept.
    """
    matplotlib, figure_class = _matplotlib()
    with matplotlib.rc_context(_STYLE):
        figure = figure_class(figsize=(columns * width, rows * height))
        return figure, figure.subplots(rows, columns, squeeze=False, **options)


def legend(figure: Any, axes: Any, columns: int = 4, scale: float = 1.0) -> None:
    """The legend of `axes` (one, or an array whose entries are merged) above the whole figure, where it covers no data.

    `scale` enlarges its markers, where those of the data are dots.
    """
    entries: dict[str, Any] = {}
    for axis in getattr(axes, "flat", [axes]):
        handles, labels = axis.get_legend_handles_labels()
        entries |= {label: handle for handle, label in zip(handles, labels, strict=True) if label not in entries}
    matplotlib, _ = _matplotlib()
    with matplotlib.rc_context(_STYLE):
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside upper center",
            ncols=min(columns, len(entries)),
            markerscale=scale,
        )


def save(figure: Any, folder: Path, stem: str, caption: str) -> Figure:
    """Writes `<stem>.png` and `<stem>.pdf`, the same bytes for the same figure, and returns the entry for the outcome."""
    for axes in figure.axes:
        _label_plainly(axes)
    all_metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": "lagrax", "Description": caption},
        "pdf": {"Creator": "lagrax", "Title": stem, "CreationDate": None},
    }
    for ending, metadata in all_metadata.items():
        _write(figure, folder / f"{stem}.{ending}", metadata)
    if _stack(figure):
        _write(figure, folder / f"{stem}-narrow.png", all_metadata["png"])
    return Figure(stem, caption)


def _write(figure: Any, file: Path, metadata: dict[str, Any]) -> None:
    matplotlib, _ = _matplotlib()
    content = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(content, format=file.suffix[1:], metadata=metadata)
    write_bytes(file, content.getvalue())


def _stack(figure: Any) -> bool:
    """Puts the panels of a wide figure below each other, as many in a row as a phone can show. Whether it was wide."""
    panels = [axes for axes in figure.axes if axes.get_subplotspec() is not None]
    rows, columns, *_ = panels[0].get_subplotspec().get_geometry()
    width, height = (size / count for size, count in zip(figure.get_size_inches(), (columns, rows), strict=True))
    beside = max(1, round(_PHONE / width))
    if beside >= columns:
        return False
    below = -(-len(panels) // beside)
    grid = figure.add_gridspec(below, beside)
    for number, axes in enumerate(panels):
        axes.set_subplotspec(grid[divmod(number, beside)])
        axes.tick_params(labelbottom=True, labelleft=True)  # which shared axes have at the border only
    for legend in figure.legends:
        legend.set_ncols(min(2, len(legend.get_texts())))
    figure.set_size_inches(beside * width, below * height)
    return True


def _label_plainly(axes: Any) -> None:
    """Ticks such as 0.2 and 0.5 on a logarithmic axis with less than two powers of ten, where matplotlib writes 5×10⁻¹."""
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log" and math.floor(math.log10(high)) <= math.ceil(math.log10(low)):
        from matplotlib.ticker import LogLocator, NullLocator

        within_a_decade = high < 10 * low
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 2.5, 3, 4, 5, 7) if within_a_decade else (1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")


def _matplotlib() -> tuple[Any, Any]:
    try:
        import matplotlib
        from matplotlib.figure import Figure as MatplotlibFigure
    except ImportError:
        raise UserError("figures need matplotlib, which is not installed: pip install 'lagrax[train]'") from None
    return matplotlib, MatplotlibFigure
