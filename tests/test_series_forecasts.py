"""Forecasts of series: limits, scores, intervals, and who is chosen."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from lagrax.fitting import _run, _words
from lagrax.series import Estimate, Holdout, Score, fit_series
from lagrax.series._assemble import _best, _doubt
from lagrax.series._baselines import Autoregression, SeasonalNaive, fit_autoregression
from lagrax.series._forecaster import Rolled, missed, residual_quantiles, score, truth_of
from lagrax.series._record import Record
from lagrax.series._transforms import Transform


def test_limits_of_forecasts_grow_with_what_is_known():
    u = np.arange(100.0)[:, None] ** 2
    record = Record(np.arange(100.0), u, u, None, 40)
    (low, high), end = record.limits(np.array([10, 39, 80])), 39.0**2
    assert low[:, 0].tolist() == [-end / 2, -end / 2, -(80.0**2) / 2]
    assert high[:, 0].tolist() == [1.5 * end, 1.5 * end, 1.5 * 80.0**2]
    # Of a straight line that has left the range of the training part far behind, the next samples are foreseen.
    line = np.arange(100.0)[:, None] + 0.1 * np.sin(np.arange(100.0))[:, None]
    record = Record(np.arange(100.0), line, line, None, 40)
    ahead = fit_autoregression([record.training()]).ahead(record, np.array([95]), 4)
    assert np.allclose(ahead[0], line[96:], atol=0.1)


def test_forecasts_of_baselines_do_not_read_ahead():
    u = np.random.default_rng(2).standard_normal((40, 2))
    changed = u.copy()
    changed[21:] = 9.0
    record = lambda values: Record(np.arange(40.0), values, values, None, 20)
    for method in (SeasonalNaive(7), Autoregression(np.array([[0.1, 0.5, -0.2], [0.0, 0.9, 0.0]]))):
        one, other = (
            method.ahead(Record(np.arange(40.0), values, values, None, 20), np.array([20]), 9) for values in (u, changed)
        )
        assert np.array_equal(one, other)
    assert np.array_equal(SeasonalNaive(7).ahead(record(u), np.array([20]), 9)[0, [0, 6, 7]], u[[14, 20, 14]])


def test_scores_count_what_they_say():
    u = np.arange(10.0)[:, None]
    rolled = Rolled(np.array([2, 5]), np.zeros((2, 3, 1)), truth_of(u, np.array([2, 5]), 3))
    assert rolled.truth[:, :, 0].tolist() == [[3, 4, 5], [6, 7, 8]]
    quantiles = np.stack([np.full((2, 3, 1), q) for q in (-9.0, -2, -1, 0, 1, 2, 6.5)])
    found = score(rolled, quantiles, Transform("none"), np.array([2.0]))
    assert found.mase == pytest.approx(5.5 / 2) and found.coverage95 == pytest.approx(4 / 6)
    assert found.rmse == pytest.approx(np.sqrt(np.mean(np.array([3, 4, 5, 6, 7, 8.0]) ** 2)))


def test_a_last_value_is_chosen_only_beyond_chance():
    rng = np.random.default_rng(6)
    plan = SimpleNamespace(transform=Transform("none"), scale=np.ones(1))
    rolled = lambda errors: Rolled(np.arange(len(errors)), np.zeros_like(errors), errors)
    errors = rng.standard_normal((100, 3, 1))
    best = lambda naive, **others: _best(
        {"ar": 1.0, "naive": 0.5, **others}, {"ar": rolled(errors), "naive": rolled(naive)}, plan
    )
    assert best(0.8 * errors) == "naive" and best(0.8 * errors, model=0.4) == "model"
    once = np.where(np.arange(100)[:, None, None] < 10, 0.5, 1.01) * errors  # better in one block of ten only
    assert best(once) == "ar" and best(once, model=0.9) == "model" and best(once, model=1.0) == "ar"


def test_residual_quantiles_of_normal_errors():
    errors = np.random.default_rng(3).standard_normal((4000, 5, 1)) * np.arange(1, 6)[None, :, None]
    rolled = Rolled(np.arange(-4005, -5), np.zeros_like(errors), errors)
    found = residual_quantiles(missed(rolled, 10**9, 1.0), np.array([0]))[:, 0]
    assert np.allclose(found[[0, -1], 0, 0], [-1.96, 1.96], atol=0.15) and found[-1, 4, 0] == pytest.approx(9.8, rel=0.1)
    # The k-th of n stands for k / (n + 1).
    rolled = Rolled(np.arange(-40, -1), np.zeros((39, 1, 1)), np.arange(39.0).reshape(39, 1, 1))
    assert np.allclose(
        residual_quantiles(missed(rolled, 10**9, 1.0), np.array([0]))[:, 0, 0, 0], [-19, -16, -10, 0, 10, 16, 19]
    )


def test_windows_that_overlap_count_as_fewer():
    errors = np.random.default_rng(5).standard_normal((60, 24, 1))
    width = lambda stride: np.ptp(
        residual_quantiles(missed(Rolled(stride * np.arange(-90, -30), 0 * errors, errors), 10**9, 1.0), np.array([0])),
        axis=0,
    )[0, :, 0]
    assert (width(1)[6:-3] > width(24)[6:-3]).all() and np.allclose(width(1)[:1], width(24)[:1])


def test_intervals_are_of_what_was_known_and_of_late():
    errors = np.random.default_rng(4).standard_normal((400, 3, 1))
    errors[200:] *= 4.0
    rolled = Rolled(np.arange(-300, 100), np.zeros_like(errors), errors)
    width = lambda rolled, widen=1.0: np.ptp(residual_quantiles(missed(rolled, 200, widen), np.array([-110, 60])), axis=0)
    found = width(rolled)
    assert np.allclose(found[0], 4, atol=1) and np.allclose(found[1], 16, atol=4)
    # What is known at row 60 are errors on rows up to 60: later ones change nothing.
    later = rolled.origins[:, None] + np.arange(1, 4) > 60
    changed = dataclasses.replace(rolled, truth=np.where(later[..., None], 1e3, errors))
    assert later.any() and np.array_equal(width(changed), found)
    # Errors on rows that a method was fitted to are multiplied by as much as they are larger elsewhere.
    assert np.allclose(width(rolled, 2.0)[0], 2 * found[0])
    assert (found[1] < width(rolled, 2.0)[1]).all() and (width(rolled, 2.0)[1] < 1.9 * found[1]).all()


def test_what_was_hardly_ever_seen_is_not_more_certain():
    """Errors of the longer horizons are known from fewer and fewer origins, and at last from none."""
    errors = np.random.default_rng(8).standard_normal((12, 20, 1)) / np.arange(1, 21)[:, None]
    errors[np.arange(12)[:, None] + np.arange(20) >= 14] = np.nan
    rolled = Rolled(np.arange(-13, -1), np.zeros_like(errors), errors)
    found = residual_quantiles(missed(rolled, 40, 1.0), np.array([30]))[:, 0, :, 0]
    assert np.isnan(errors[:, 15]).all() and (np.ptp(found, axis=0) > 0).all()
    assert (np.diff(np.ptp(found, axis=0)[6:]) >= 0).all() and (np.diff(found, axis=0) >= 0).all()


def test_gaps_of_the_training_part_do_not_know_what_comes_after_it():
    t, y = np.arange(120.0), np.random.default_rng(1).normal(size=120)
    y[80:95] = np.nan
    later = np.where(t >= 95, y + 100, y)
    fits = [fit_series(t, values, horizon=5, transform="none", seeds=1, minutes=1e-9) for values in (y, later)]
    assert fits[0].settings["validation"]["ar"] == fits[1].settings["validation"]["ar"]
    assert fits[0].settings["period"] == fits[1].settings["period"]


def test_what_cannot_be_compared_is_said():
    t, y = np.arange(120.0), np.random.default_rng(2).normal(size=120)
    fit = fit_series(t, y, horizon=59, holdout=0.5)
    assert fit.chosen == "ar" and "too short to compare forecasts" in fit.notes[-1]
    y[66:119] = np.nan
    fit = fit_series(t, y, horizon=20, holdout=0.45)
    assert all(score is None for score in fit.holdout.scores.values())
    assert "too little data to compare" in _words.headline(fit)
    long = np.sin(np.arange(180) / 5) + 0.1 * np.random.default_rng(3).normal(size=180)
    fit = fit_series(np.arange(180.0), long, horizon=90, holdout=0.5, seeds=1)
    assert fit.model is None and "too short to look 90 ahead" in fit.notes[-2]


def test_a_network_that_is_no_better_is_not_praised():
    samples, none = SimpleNamespace(unit=""), Score(np.nan, np.nan, np.nan)
    score = lambda mase: dataclasses.replace(none, mase=mase)
    fit = lambda model: SimpleNamespace(
        kind="neural", chosen="ar", missing=(), samples=samples,
        holdout=Holdout(5, 20, {"model": score(model), "naive": score(2.0), "ar": score(0.621)}),
    )  # fmt: skip
    words = lambda model: _words.headline(fit(model)).removeprefix("The neural delay model forecasts ")
    assert words(0.621).startswith("as well as an autoregression: 0.62 (the last value 2.00), 5 samples ahead")
    assert words(0.619).startswith("as well as an autoregression: 0.62")
    assert words(0.5).startswith("best: 0.50 against an autoregression 0.62")
    assert words(0.7).startswith("An autoregression forecasts better than the neural delay model: 0.62 against 0.70")


def test_the_series_that_a_forecast_goes_on_from_is_called_by_its_name():
    t = np.arange(24.0)
    noisy = lambda seed: np.exp(np.sin(t)) + 0.1 * np.random.default_rng(seed).standard_normal(24)
    found = fit_series([t, t], [noisy(0), noisy(1)], horizon=3)
    groups = (("2", 0, 24), ("1", 24, 48))  # cages, as they come in a file
    named = _run._labelled(found, SimpleNamespace(groups=groups, unit="days", input_names=()))
    assert found.notes[-1].endswith("the last of the series, 2.")
    assert named.notes[-1].endswith("the last of the series, 1.") and named.notes[:-1] == found.notes[:-1]
    assert named.samples.groups == groups


def test_an_equation_that_forecasts_worse_than_none_is_doubted():
    judged, open_ = (Estimate("tau", 5.0, 4.5, 5.5, verdict) for verdict in ("identified", None))
    scores = lambda model, ar: {name: Score(mase, 1.0) for name, mase in (("model", model), ("ar", ar))}
    (said,) = _doubt("hutchinson", (judged,), scores(0.83, 0.33))
    assert said.startswith("This delay is that of the equation; an autoregression without it forecasts")
    assert "(MASE 0.33 against 0.83)" in said
    assert _doubt("mine", (judged, judged), scores(0.83, 0.33))[0].startswith("These delays are")
    assert not _doubt("hutchinson", (judged,), scores(0.4, 0.33)) and not _doubt("neural", (judged,), scores(0.83, 0.33))
    assert not _doubt("hutchinson", (open_,), scores(0.83, 0.33))  # on the way, without a verdict
    assert not _doubt("hutchinson", (judged,), {**scores(0.83, 0.33), "model": None})
