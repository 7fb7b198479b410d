"""The figures of a fit, each narrow enough to be read on a phone: what was fitted, what is forecast, what to doubt."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from ..runner import Figure, figures
from ..series import Forecast, Profile, SeriesFit
from ..tables import Calendar
from ._words import METHODS, number, symbol

_WIDTH = 5.0  # inches; at 400 pixels its letters are 11 pixels high
_HEIGHT = 2.9
_RECENT = 300  # samples shown of a long record


@dataclasses.dataclass(frozen=True)
class View:
    """How columns and times are shown: as dates if there is a calendar, else as numbers in a unit."""

    names: Sequence[str]
    unit: str
    calendar: Calendar | None

    def when(self, t: np.ndarray) -> np.ndarray:
        return t if self.calendar is None else self.calendar.moments(t)

    def label(self, axes: Any) -> None:
        """The axis of time below a column of axes."""
        axis = axes[-1, 0]
        if self.calendar is None:
            axis.set_xlabel(f"time ({self.unit})" if self.unit else "time")
            axis.locator_params(axis="x", nbins=6)
            return
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=3, maxticks=6)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))


@dataclasses.dataclass(frozen=True)
class Page:
    """A fit, and the folder that its figures go to."""

    fit: SeriesFit
    folder: Path
    view: View

    @property
    def last(self) -> slice:
        """The rows of the last group, which the forecast goes on from."""
        _, start, end = self.fit.samples.groups[-1]
        return slice(start, end)


def draw(fit: SeriesFit, folder: Path, calendar: Calendar | None) -> list[Figure]:
    """Draws what there is to draw, as PNG and PDF in the folder; of a fit that is not finished, no residuals."""
    page = Page(fit, folder, View(fit.samples.names, fit.samples.unit, calendar))
    makers: tuple[Callable[[Page], Figure | None], ...] = (forecast, fitted, profiles, phases, autocorrelation, quantiles)
    makers = (forecast, profiles) if fit.missing else makers
    return [figure for maker in makers if (figure := maker(page)) is not None]


def forecast(page: Page) -> Figure:
    """The end of the record, and the fan of the chosen forecast beside the medians of others."""
    fit, samples, rows = page.fit, page.fit.samples, page.last
    rivals = [name for name in ("model", "ar") if name in fit.forecasts and name != fit.chosen]
    others: dict[str, Forecast] = {str(name): fit.forecasts[name] for name in rivals}
    figure = draw_forecast(page.view, samples.t[rows], samples.y[rows], fit.forecast, others)
    caption = (
        f"Forecast of {len(fit.forecast.t)} samples by {METHODS[fit.chosen]}: median, and intervals that hold 50, 80, 95 % "
        "of the values if the future is like the past."
    )
    return figures.save(figure, page.folder, "forecast", caption)


def draw_forecast(view: "View", t: np.ndarray, y: np.ndarray, fan: Forecast, others: Mapping[str, Forecast]) -> Any:
    """A figure of the end of a record, t (n,) and y (n, d), with a forecast and the medians of others."""
    recent = slice(-max(3 * len(fan.t), 30), None)
    names = view.names[:4]
    figure, axes = figures.new(len(names), 1, width=_WIDTH, height=_HEIGHT, sharex=True)
    for column, (axis, name) in enumerate(zip(axes[:, 0], names, strict=True)):
        axis.plot(view.when(t[recent]), y[recent, column], ".-", color=figures.BLACK, lw=1, ms=3, label="data")
        when = view.when(fan.t)
        for low, high, alpha in ((0.025, 0.975, 0.18), (0.1, 0.9, 0.25), (0.25, 0.75, 0.35)):
            pair = [fan.quantiles[int(np.argmin(np.abs(fan.levels - level))), :, column] for level in (low, high)]
            axis.fill_between(when, *pair, color=figures.SKY, alpha=alpha, lw=0, label="95 %" if low == 0.025 else None)
        axis.plot(when, fan.median[:, column], color=figures.BLUE, lw=1.8, label="median")
        for method, other in others.items():
            axis.plot(view.when(other.t), other.median[:, column], "--", color=figures.RED, lw=1.1, label=METHODS[method])
        axis.set(ylabel=name)
    view.label(axes)
    figures.legend(figure, axes, columns=4)
    return figure


def fitted(page: Page) -> Figure:
    """The record and what the model says of it, a window ahead; the latest part of a long one."""
    fit, samples = page.fit, page.fit.samples
    rows = slice(max(page.last.start, page.last.stop - _RECENT), page.last.stop)
    names = samples.names[:4]
    figure, axes = figures.new(len(names), 1, width=_WIDTH, height=_HEIGHT, sharex=True)
    for column, (axis, name) in enumerate(zip(axes[:, 0], names, strict=True)):
        when = page.view.when(samples.t[rows])
        axis.plot(when, samples.y[rows, column], ".", color=figures.BLACK, ms=3.5, label="data")
        axis.plot(when, fit.fitted[rows, column], color=figures.BLUE, lw=1.3, label="fitted")
        axis.set(ylabel=name)
    page.view.label(axes)
    figures.legend(figure, axes)
    part = f"The last {_RECENT} samples" if page.last.stop - page.last.start > _RECENT else "The record"
    caption = f"{part}, and what the model predicts from the past before each window."
    return figures.save(figure, page.folder, "fit", caption)


def profiles(page: Page) -> Figure | None:
    """The loss over each delay, with the estimate, its interval and its aliases."""
    fit = page.fit
    if not fit.profiles:
        return None
    figure, axes = figures.new(len(fit.profiles), 1, width=_WIDTH, height=_HEIGHT)
    for axis, profile in zip(axes[:, 0], fit.profiles, strict=True):
        _profile(axis, page, profile)
    figures.legend(figure, axes, columns=3)
    known = (
        "The loss over the delay, all else fitted anew at each. A low place is not yet the delay: aliases, explaining the "
        "data without being it, are marked."
    )
    neural = "The error of predicting with one more delay, over where that is; training then moves the delays a little."
    caption = neural if fit.kind == "neural" else known
    return figures.save(figure, page.folder, "profile", caption)


def _profile(axis: Any, page: Page, profile: Profile) -> None:
    unit = page.fit.samples.unit
    axis.plot(profile.delays, profile.cost, color=figures.BLUE, label="loss")
    found = next((delay for delay in page.fit.delays if delay.name == profile.name), None)
    of = "error over its lowest" if page.fit.kind == "neural" else "loss over the estimate's"
    axis.set(xlabel=f"{symbol(profile.name)} ({unit})" if unit else symbol(profile.name), ylabel=of)
    if np.nanmax(profile.cost) > 20 * np.nanmin(profile.cost) > 0:
        axis.set_yscale("log")
    if found is None:
        return
    if found.low is not None:
        axis.axvspan(found.low, found.high, color=figures.GREEN, alpha=0.25, lw=0)
    axis.axvline(found.estimate, color=figures.GREEN, lw=1.8, label=f"{symbol(profile.name)} = {number(found.estimate)}")
    for alias in found.aliases:
        height = float(np.interp(alias.value, profile.delays, profile.cost))
        axis.plot([alias.value], [height], "v", color=figures.RED, ms=8, label="alias", zorder=5)
        axis.annotate(alias.kind, (alias.value, height), (0, 9), textcoords="offset points", ha="center", color=figures.RED)
    axis.margins(y=0.18)


def phases(page: Page) -> Figure | None:
    """y(t) against y(t − τ) for each delay: the curve that an equation with that delay has to follow."""
    fit, samples, rows = page.fit, page.fit.samples, page.last
    delays = fit.delays[:3]
    if not delays:
        return None
    figure, axes = figures.new(len(delays), 1, width=_WIDTH, height=3.4)
    t, name = samples.t[rows], samples.names[0]
    for axis, delay in zip(axes[:, 0], delays, strict=True):
        for values, style in (
            (samples.y[rows, 0], {"color": figures.BLACK, "marker": ".", "ms": 3, "lw": 0.5, "alpha": 0.7, "label": "data"}),
            (fit.fitted[rows, 0], {"color": figures.BLUE, "lw": 1.0, "alpha": 0.8, "label": "fitted"}),
        ):
            known = np.isfinite(values)
            if known.sum() < 2:
                continue
            past = np.interp(t - delay.estimate, t[known], values[known], left=np.nan)
            axis.plot(past[-1000:], values[-1000:], **style)
        axis.locator_params(nbins=6)
        axis.set(xlabel=f"{name}, {symbol(delay.name)} = {number(delay.estimate)} before", ylabel=name)
    figures.legend(figure, axes)
    caption = "The state against the state one delay before."
    return figures.save(figure, page.folder, "phase", caption)


def autocorrelation(page: Page) -> Figure | None:
    """What is left in the residuals: nothing, if the model has it all."""
    rows = [page.fit.residuals[start:end, 0] for _, start, end in page.fit.samples.groups]
    residuals = max(rows, key=len)
    known = np.isfinite(residuals)
    if known.sum() < 8:
        return None
    lags = np.arange(1, min(41, known.sum() // 2))
    values = np.array([_correlation(residuals, lag) for lag in lags])
    figure, axes = figures.new(1, 1, width=_WIDTH, height=_HEIGHT)
    axis, bound = axes[0, 0], 1.96 / np.sqrt(known.sum())
    axis.axhspan(-bound, bound, color=figures.SKY, alpha=0.25, lw=0, label="95 % of pure noise")
    axis.vlines(lags, 0, values, color=figures.BLUE, lw=2)
    axis.axhline(0, color=figures.BLACK, lw=0.8)
    axis.set(xlabel="lag (samples)", ylabel="autocorrelation", title=f"residuals of {page.fit.samples.names[0]}")
    figures.legend(figure, axes)
    outside = int(np.sum(np.abs(values) > bound))
    caption = (
        f"Autocorrelation of the residuals: {outside} of {len(lags)} lags are outside the band that holds 95 % of them for "
        "pure noise. Residuals of neighbouring samples share a window, so that short lags are correlated anyway."
    )
    return figures.save(figure, page.folder, "autocorrelation", caption)


def _correlation(values: np.ndarray, lag: int) -> float:
    """NaN if no two samples so far apart are known."""
    centred = values - np.nanmean(values)
    products = centred[lag:] * centred[:-lag]
    return float(np.nanmean(products) / np.nanvar(values)) if np.isfinite(products).any() else np.nan


def quantiles(page: Page) -> Figure | None:
    """The residuals' quantiles against a normal distribution's."""
    residuals = page.fit.residuals[:, 0]
    known = np.sort(residuals[np.isfinite(residuals)])
    if known.size < 8 or known.std() == 0:
        return None
    chosen = np.unique(np.linspace(0, known.size - 1, min(known.size, 1000)).round().astype(int))
    normal = np.array([NormalDist().inv_cdf((position + 0.5) / known.size) for position in chosen])
    scaled = ((known - known.mean()) / known.std())[chosen]
    figure, axes = figures.new(1, 1, width=_WIDTH, height=_HEIGHT)
    axis = axes[0, 0]
    axis.plot(normal[[0, -1]], normal[[0, -1]], color=figures.BLACK, lw=1, label="normal")
    axis.plot(normal, scaled, ".", color=figures.BLUE, ms=4, label="residuals")
    axis.set(xlabel="normal quantile", ylabel="residual (standard deviations)")
    figures.legend(figure, axes)
    caption = (
        "Quantiles of the residuals against a normal distribution. Where the ends leave the line, large errors are commoner."
    )
    return figures.save(figure, page.folder, "quantiles", caption)
