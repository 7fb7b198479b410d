"""Series: what is checked first, periods, baselines, scores, aliases; and one fit of a known mechanism."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from lagrax.fitting import _words
from lagrax.series import MECHANISMS, Estimate, Mechanism, Parameter, _identify, _mechanism_fit, _search, fit_series
from lagrax.series._baselines import fit_autoregression
from lagrax.series._equation import cut, origins
from lagrax.series._fit import _uneven
from lagrax.series._identify import aliases, verdict
from lagrax.series._mechanisms import DELAYED_FEEDBACK, Typical, named
from lagrax.series._record import Record, dominant_period, filled
from lagrax.series._result import Profile
from lagrax.series._transforms import Transform, chosen

T = np.arange(60.0)
SINE = 2 + np.sin(2 * np.pi * T / 12)


def record(u, train=None):
    u = np.asarray(u, float).reshape(len(u), -1)
    return Record(np.arange(len(u)) * 1.0, u, u, None, len(u) if train is None else train)


def hutchinson(n, seed, tau=1.0, r=1.8, dt=0.2, noise=0.05, substeps=40):
    """Samples of y' = r y (1 − y(t − τ)) by Heun's method with steps of dt / substeps, and noise of so many deviations."""
    h, lag, burn = dt / substeps, round(tau * substeps / dt), 100 * substeps
    y = np.full(lag + burn + n * substeps + 1, 0.5)
    slope = lambda value, past: r * value * (1 - past)
    for i in range(lag, len(y) - 1):
        first = slope(y[i], y[i - lag])
        y[i + 1] = y[i] + h * (first + slope(y[i] + h * first, y[i + 1 - lag])) / 2
    clean = y[lag + burn :: substeps][:n]
    return dt * np.arange(n), clean + noise * clean.std() * np.random.default_rng(seed).standard_normal(n)


class Stopped(Exception):
    pass


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fit that was stopped before its intervals, and went on; with what it told and knew on the way."""
    stages, known, folder = [], [], tmp_path_factory.mktemp("stages")
    t, y = hutchinson(120, 0)

    def stop(partial):
        known.append(partial)
        if partial.missing[0] == "bootstrap":
            raise Stopped

    def never(*_):
        raise AssertionError("a stage that is done was begun again")

    with pytest.MonkeyPatch.context() as patch:  # fewer of everything: the tests' machine code is not optimised
        patch.setattr(_search, "LANES", 6)
        patch.setattr(_identify, "REPLICATES", 18)
        patch.setattr(_identify, "GRID", 12)
        given = {"model": "hutchinson", "params": {"tau": 2.5, "r": 0.1}, "folder": folder}
        with pytest.raises(Stopped):
            fit_series(t, y, partial=stop, **given)
        for name in ("locate", "profile"):
            patch.setattr(_mechanism_fit, name, never)
        found = fit_series(t, y, progress=lambda *told: stages.append(told), **given)
        with pytest.raises(ValueError, match="holds the stages of another fit"):
            fit_series(t, y + 1.0, **given)
    return found, stages, known


def test_a_known_mechanism_is_identified(fitted):
    found, stages, _ = fitted
    (tau,) = found.delays
    assert abs(tau.estimate - 1) < 0.03 and tau.low < tau.estimate < tau.high < 1.1 * tau.low
    assert tau.verdict == "identified"
    assert {estimate.name for estimate in found.parameters} == {"r", "K"}
    assert abs(found.parameters[0].estimate - 1.8) < 0.1
    assert {stage for stage, _, _ in stages} >= {"training", "fitting", "profile", "bootstrap"}


def test_the_result_has_what_a_report_needs(fitted):
    found, _, _ = fitted
    assert found.kind == "hutchinson" and found.chosen in found.forecasts
    assert found.fitted.shape == found.residuals.shape == found.samples.y.shape
    assert np.nanstd(found.residuals) < 0.2 * found.samples.y.std()
    horizon = found.holdout.horizon
    assert found.forecast.quantiles.shape == (7, horizon, 1) and (np.diff(found.forecast.quantiles, axis=0) >= 0).all()
    assert found.forecast.t[0] == pytest.approx(found.samples.t[-1] + 0.2)
    assert all(found.holdout.scores[name].mase < found.holdout.scores["naive"].mase for name in ("model", "ar"))
    (profile,) = found.profiles
    assert profile.cost.min() >= 0.99 and profile.delays[np.argmin(profile.cost)] == pytest.approx(found.delays[0].estimate)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["delays"][0]["name"] == "tau"


def test_forecasts_go_further_than_asked_for(fitted):
    found, _, _ = fitted
    longer = found.predict(found.holdout.horizon + 3, "ar")
    assert longer.t.shape == (found.holdout.horizon + 3,) and np.isfinite(longer.quantiles).all()
    with pytest.raises(ValueError, match="expected one of model"):
        found.predict(5, "magic")
    with pytest.raises(ValueError, match="positive number of samples"):
        found.predict(0)


# --- parts ------------------------------------------------------------------------------------------------------------


def test_what_is_known_on_the_way_says_what_is_missing(fitted):
    found, _, known = fitted
    assert found.missing == () and [partial.missing[0] for partial in known] == list(_mechanism_fit.STAGES[:4])
    first, last = known[0], known[-1]
    assert first.delays == () and first.holdout.scores["model"] is None and first.chosen in ("ar", "seasonal_naive")
    assert first.holdout.scores["ar"] == found.holdout.scores["ar"]
    assert last.delays[0].estimate == found.delays[0].estimate and last.delays[0].low is last.delays[0].verdict is None
    assert np.array_equal(last.profiles[0].cost, found.profiles[0].cost)
    assert last.to_json()["missing"] == ["bootstrap", "forecast"] and found.to_json()["missing"] == []


def test_stages_that_cannot_be_read(tmp_path):
    (tmp_path / "stages.lagrax").write_text("nonsense")
    with pytest.raises(ValueError, match="cannot be read"):
        fit_series(T, SINE, model="hutchinson", folder=tmp_path)
    with pytest.raises(ValueError, match="no folder, expected"):
        fit_series(T, SINE, model="hutchinson", folder=tmp_path / "nowhere")


def test_the_period_of_a_cycle_that_is_no_sine():
    wave = np.exp(3 * np.sin(2 * np.pi * np.arange(300) / 19.3)) + np.random.default_rng(0).normal(0, 1, 300)
    assert dominant_period(wave[:, None]) == pytest.approx(19.3, rel=0.02)
    assert dominant_period(np.arange(50.0)[:, None] ** 2 + 1e-3 * T[:50, None]) is None


def test_uneven_times_are_said():
    t = np.arange(60.0)
    record = lambda t: Record(t, np.zeros((len(t), 1)), np.zeros((len(t), 1)), None, 45)
    assert _uneven([record(t), record(30.4 * t)], None) == [] == _uneven([record(t + 0.1 * np.sin(t))], None)
    (note,) = _uneven([record(t), record(np.delete(t, 20))], None)
    assert "steps of 1 to 2 times the usual one): the neural model and the baselines count in samples" in note
    (note,) = _uneven([record(np.delete(t, 20))], MECHANISMS["nicholson"])
    assert ": the baselines count" in note


def test_no_window_sees_a_long_gap():
    """Splines go across gaps; a window behind one, or before it, would be fitted to what nobody observed."""
    t = np.concatenate([np.arange(40.0), 60 + np.arange(40.0)])  # irregular within, too
    t[10:30] += 0.4 * np.sin(np.arange(20))
    u = np.sin(t)[:, None]
    missing = u.copy()
    missing[60:72] = np.nan
    for seen, torn in ((u, [(39.0, 60.0)]), (missing, [(39.0, 60.0), (79.0, 92.0)])):
        at = origins(Record(t, seen, u, None, len(t)), past=16, length=6, stride=1, longest=10.0)
        assert len(at) > 10
        for begin, end in torn:
            assert not any(t[i + 5] > begin and t[i] - 10.0 < end for i in at)


def test_steps_are_enough_for_windows_that_last_longer_than_those_of_the_first_series():
    def samples(step):
        t = step * np.arange(80)
        u = np.sin(t)[:, None]
        return Record(t, u, u, None, 60)

    ranges = _mechanism_fit.Ranges(np.array([[0.2, 2.0]]), (0.2, 4.0), 2 * np.pi)
    search, *_ = _mechanism_fit._search(
        named("hutchinson", 1), [samples(0.2), samples(1.0)], chosen("none", np.ones(3)), ranges
    )
    equation = search.equation
    assert equation.max_steps >= 4 * float(search.windows.t[:, -1].max()) / float(equation.step)


def test_forecasts_do_not_know_inputs_ahead_of_their_origin():
    t = np.arange(60.0)
    given = Record(t, np.sin(t)[:, None], np.sin(t)[:, None], np.cos(t)[:, None], 45)
    known = _mechanism_fit._with_inputs_known(cut(given, np.array([20, 40]), 8, 6), 8)
    assert np.allclose(known.inputs[:, :8, 0], np.cos(np.array([[20], [40]]) + np.arange(-7, 1)))
    assert np.allclose(known.inputs[:, 8:, 0], np.cos([[20], [40]]))


def test_intervals_have_digits_that_tell_their_ends_apart():
    shown = lambda *values: _words.with_interval(Estimate("tau", *values))
    assert shown(1.8055, 1.7998, 1.811) == ("1.806", "1.800", "1.811")
    assert shown(13.95, 12.33, 15.6) == ("13.9", "12.3", "15.6")
    assert shown(5.0, None, None) == ("5", "–", "–")


def test_an_autoregression_finds_its_coefficients():
    rng, u = np.random.default_rng(1), np.zeros(2000)
    for i in range(2, len(u)):
        u[i] = 0.3 + 1.2 * u[i - 1] - 0.5 * u[i - 2] + 0.1 * rng.standard_normal()
    found = fit_autoregression([record(u)]).coefficients[0]
    assert np.allclose(found[:3], [0.3, 1.2, -0.5], atol=0.08) and np.all(np.abs(found[3:]) < 0.1)
    gaps = record(u)
    gaps.seen[rng.choice(2000, 100, replace=False)] = np.nan
    gaps = Record(gaps.t, gaps.seen, filled(gaps.t, gaps.seen), None, 2000)
    again = fit_autoregression([gaps]).coefficients[0]
    assert np.allclose(again[:3], [0.3, 1.2, -0.5], atol=0.2) and not np.array_equal(again, found)


def test_aliases_and_verdicts():
    delays = np.geomspace(1, 48, 24)
    cost = 2 - 1.0 * np.exp(-(((delays - 14) / 3) ** 2)) - 1.2 * np.exp(-(((delays - 36) / 4) ** 2))
    found = aliases(Profile("tau", delays, cost), 14.0, 38.0)
    assert [alias.kind for alias in found] == ["period"] and 33 < found[0].value < 40
    assert aliases(Profile("tau", delays, cost), 14.0, None, [found[0].value]) == ()
    to_zero = aliases(Profile("tau", delays, np.where(delays < 2, 0.9, cost)), 14.0, 38.0)
    assert to_zero[0].kind == "zero"
    bounds = (2.0, 28.0)
    assert verdict(14.0, 13.0, 15.0, bounds, found, 0.3) == "identified"
    assert verdict(14.0, 13.0, 15.0, bounds, to_zero[:1], 0.3) == "identified"  # outside the bounds
    assert verdict(14.0, 13.0, 15.0, (1.0, 28.0), to_zero[:1], 0.3) == "predictive only"
    assert verdict(14.0, 6.0, 25.0, bounds, (), 0.3) == verdict(14.0, 13.0, 15.0, bounds, (), 0.95) == "predictive only"
    assert verdict(27.9, 27.8, 28.0, bounds, (), 0.3) == "at bound"


def test_transforms():
    y = np.array([0.5, 2.0, 30.0])
    for name in ("log", "sqrt", "none"):
        way = Transform(name)
        u = jnp.asarray(way.forward(y))
        assert np.allclose(way.inverse(u), y)
        assert np.allclose(way.slope(u), (way.inverse(u + 1e-6) - way.inverse(u - 1e-6)) / 2e-6, rtol=1e-5)
        # The bounds of an interval stay in order, and counts stay counts, where it reaches below zero.
        for below in (np.linspace(-3, 1, 9), jnp.linspace(-3.0, 1.0, 9)):
            assert (np.diff(way.inverse(below)) >= 0).all() and (name == "none" or way.inverse(below)[0] >= 0)
    assert [chosen("auto", values).name for values in (y, y - 0.5, y - 1, np.array([1.0, 2.0]))] == [
        "log",
        "sqrt",
        "none",
        "none",
    ]
    held_out = [chosen("auto", y, np.append(y, more)).name for more in (0.1, np.nan, 0.0, -1.0)]
    assert held_out == ["log", "log", "sqrt", "none"]


# --- mistakes ---------------------------------------------------------------------------------------------------------

MISTAKES = {
    "the column y is constant": dict(y=np.ones(60)),
    "the column y is constant before the part held out": dict(y=np.where(T < 50, 1.0, SINE)),
    "the time 3 occurs twice": dict(t=np.sort(np.append(T[:-1], 3.0))),
    "the times go back after 5": dict(t=np.where(T == 6, 1.5, T)),
    "got 5 samples, expected at least 12": dict(t=T[:5], y=SINE[:5]),
    "only 1 rows have a value": dict(y=np.where(T == 0, 1.0, np.nan)),
    "y is not an array of numbers": dict(y=["a"] * 60),
    "row 2 has no time": dict(t=np.where(T == 2, np.nan, T)),
    "expected one row for each time": None,
    "expected names of hutchinson: tau, r, K": dict(model="hutchinson", params={"rr": 1.0}),
    "expected one of nicholson": dict(model="blowfly"),
    "describes 2 columns": dict(model="predator-prey"),
    "expected at most a third of that": dict(model="hutchinson", delay_bounds=(1.0, 40.0)),
    "expected 0 < low < high": dict(model="hutchinson", delay_bounds=(5.0, 3.0)),
    r"raised KeyError \('r'\)": dict(model=lambda t, y, z, p: p["r"] * y),
    r"returned shape \(\), expected \(1,\)": dict(model=lambda t, y, z, p: p["r"] * y[0], params={"r": 1.0}),
    "expected low < start < high": dict(model=lambda t, y, z, p: p["r"] * y, params={"r": (1.0, 2.0, 3.0)}),
    "has 1, expected as many": dict(model="hutchinson", delays=2),
    "params without a mechanism": dict(params={"r": 1.0}),
    "horizon = 0": dict(horizon=0),
    "the hold-out has 15 samples": dict(model="hutchinson", horizon=16),
    "holdout = 0.9": dict(holdout=0.9),
    "transform = 'cube'": dict(transform="cube"),
    "expected positive values": dict(transform="log", y=SINE - 2),
    "'log' with a value of 0": dict(transform="log", y=np.where(T == 55, 0.0, SINE)),
    "'sqrt' with a value of -1": dict(transform="sqrt", y=np.where(T == 55, -1.0, SINE)),
}


@pytest.mark.parametrize("sentence", [sentence for sentence, given in MISTAKES.items() if given is not None])
def test_mistakes_are_one_sentence(sentence):
    given = {"t": T, "y": SINE, **MISTAKES[sentence]}
    with pytest.raises(ValueError, match=sentence) as error:
        fit_series(given.pop("t"), given.pop("y"), **given)
    assert "\n" not in str(error.value)


def test_a_mechanism_of_ones_own():
    mine = Mechanism("mine", lambda t, y, z, p: p["k"] * z, (Parameter("k"),))
    assert mine.delays == ("tau",) and mine == mine and hash(mine) == hash(mine)


def test_starts_of_a_feedback_do_not_know_where_the_zero_is():
    starts = lambda y: {parameter.name: parameter.guess(Typical.of(y, 2.0)) for parameter in DELAYED_FEEDBACK.parameters}
    near = starts(SINE)
    for offset in (-300.0, 300.0):
        assert starts(SINE + offset) == pytest.approx({**near, "m": near["m"] + offset})
    still = Typical.of(np.zeros(9), 2.0)
    assert all(parameter.scale(still) > 0 for parameter in DELAYED_FEEDBACK.parameters)


def test_too_few_samples_for_a_network_get_a_baseline():
    t, rng = np.arange(21.0), np.random.default_rng(0)
    found = fit_series(t, np.exp(np.sin(t * 2 * np.pi / 10)) + 0.1 * rng.standard_normal(21), horizon=4)
    assert (
        found.model is None and found.chosen in ("naive", "seasonal_naive", "ar") and found.holdout.scores["model"] is None
    )
    assert "No neural model was fitted: the training part has 16 samples" in found.notes[0]
    assert found.forecast.quantiles.shape == (7, 4, 1) and np.isfinite(found.forecast.quantiles).all()
