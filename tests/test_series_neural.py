"""Neural models of series: the scan, the steps, the split, no leak from the hold-out; small and hardly trained."""

import json
import subprocess
import sys
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import lagrax as lx
from lagrax.series import _ensemble, _neural_fit, fit_series
from lagrax.series._baselines import fit_autoregression
from lagrax.series._blend import Blend, cautious_share
from lagrax.series._ensemble import optimizer, split
from lagrax.series._forecaster import Forecaster, Rolled
from lagrax.series._neural import Ensemble, Member, SkipField
from lagrax.series._neural_fit import greedy
from lagrax.series._record import Record
from lagrax.series._stages import Stages
from lagrax.series._transforms import Transform


def chaos(n, seed=0):
    """A delayed map with noise: x(i) depends on x(i − 1) and x(i − 7)."""
    rng, x = np.random.default_rng(seed), np.full(n + 50, 0.3)
    x[:8] += 0.1 * rng.standard_normal(8)
    for i in range(7, len(x)):
        x[i] = 0.7 * x[i - 1] + 1.2 * x[i - 7] / (1 + x[i - 7] ** 4) - 0.3 + 0.02 * rng.standard_normal()
    return x[50:]


def test_the_scan_finds_the_lag():
    x = chaos(600)
    x = ((x - x.mean()) / x.std())[:, None]
    seen = lambda rows, lag: x[rows - lag]
    found = greedy(SimpleNamespace(x=x, seen=seen, more=np.zeros((600, 0))), np.arange(20, 590), 16, 5)
    assert found.delays[0] in (6, 7) and len(found.delays) <= 5  # x(i + 1) from x(i − 6)
    lags, errors = found.curves[0]
    assert lags[np.argmin(errors)] == found.delays[0]


def test_steps_are_heuns():
    matrix, constant = np.array([[-0.3, 0.5]]), np.array([0.1])
    member = Member(SkipField(matrix, constant, key=jr.key(0)), jnp.array([0.0], jnp.float32), 4.0)  # τ = 2.5
    assert jnp.allclose(member.delays(), 2.5)
    past = np.random.default_rng(0).standard_normal(6)
    x = list(past)
    look = lambda time: (x[int(np.floor(time))] + x[int(np.floor(time)) + 1]) / 2  # all lookups are half way
    for k in range(5, 9):
        slope = lambda y, time: -0.3 * y + 0.5 * look(time - 2.5) + 0.1
        first = slope(x[k], k)
        x.append(x[k] + (first + slope(x[k] + first, k + 1)) / 2)
    limits = jnp.full((1, 1), -9.0, jnp.float32), jnp.full((1, 1), 9.0, jnp.float32)
    found = member.roll(jnp.asarray(past, jnp.float32)[None, :, None], jnp.zeros((1, 5, 0), jnp.float32), *limits)
    assert np.allclose(found[0, :, 0], x[6:], atol=1e-5)
    by_delay = eqx.filter_grad(
        lambda m: m.roll(jnp.ones((1, 6, 1), jnp.float32), jnp.zeros((1, 5, 0), jnp.float32), *limits).sum()
    )
    assert jnp.isfinite(by_delay(member).raw).all()


def test_what_drifts_is_seen_from_where_it_is():
    """An anchored member that is given a higher past forecasts as much higher, limits included."""
    rng = np.random.default_rng(0)
    member = Member(SkipField(rng.standard_normal((1, 2)), np.ones(1), key=jr.key(0)), jnp.zeros(1, jnp.float32), 4.0, True)
    past = jnp.asarray(rng.standard_normal((1, 6, 1)), jnp.float32)
    roll = lambda up: member.roll(past + up, jnp.zeros((1, 5, 0), jnp.float32), *(jnp.float32([[x]]) + up for x in (-2, 2)))
    assert np.allclose(roll(jnp.float32(100)), roll(jnp.float32(0)) + 100, atol=1e-4)
    cycle = np.sin(np.arange(200.0) / 3)[:, None]
    record = lambda u: Record(np.arange(200.0), u, u, None, 150)
    assert not _neural_fit._drifts([record(cycle)], 26)
    assert _neural_fit._drifts([record(cycle + np.arange(200.0)[:, None] / 20)], 26)
    means = _neural_fit._running_mean(cycle, 26)
    assert np.allclose([means[0], means[9], means[99]], [cycle[0], cycle[:10].mean(0), cycle[74:100].mean(0)])


def test_saved_forecasts_load_in_a_new_process(tmp_path):
    """What a file names is known there without anything having been fitted."""
    u = chaos(90)[:, None]
    record = Record(np.arange(90.0), u, u, None, 70)
    member = Member(SkipField(np.ones((1, 2)), np.ones(1), key=jr.key(0)), jnp.zeros(1, jnp.float32), 4.0)
    stacked = jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, member)
    ensemble = Ensemble(stacked, np.zeros(1), np.ones(1), np.zeros(0), np.ones(0), None, 6, 0.0, 1.0)
    forecaster = Forecaster(Blend(ensemble, fit_autoregression([record]), 0.5), (record,), Transform("none"), 6, 1.1)
    lx.save(tmp_path / "saved.lagrax", {"model": forecaster})
    code = "import lagrax, sys; print(lagrax.load(sys.argv[1])['model'](3).median.tolist())"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "saved.lagrax")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert np.allclose(json.loads(done.stdout), forecaster(3).median, rtol=1e-5)


def test_a_blend_has_the_smallest_share_that_is_as_good_as_the_best():
    truth = np.random.default_rng(1).standard_normal((50, 4, 1))
    error = np.random.default_rng(2).standard_normal(truth.shape)
    rolled = lambda ahead: Rolled(np.arange(50), ahead, truth)
    share = lambda one, other: cautious_share(rolled(one), rolled(other), Transform("none"), np.ones(1))
    assert share(truth + error, truth - 3 * error) == pytest.approx(0.75)
    assert share(truth + error, truth) == 0 and share(truth, truth + error) == 1
    # Better in one block of ten only, and hardly worse elsewhere: that may be chance. Better in most: it is not.
    here = np.arange(50)[:, None, None]
    assert share(np.where(here < 5, truth, truth + 1.01 * error), truth + error) == 0
    assert share(np.where(here < 45, truth, truth + error), truth + error) > 0.8


def test_members_do_not_train_on_what_they_validate():
    rows = np.arange(30, 230)
    found, owner = split(rows, 12, 5)
    for training, validation in zip(found.training, found.validation, strict=True):
        targets = lambda at: set((at[:, None] + np.arange(1, 13)).ravel().tolist())
        assert not targets(training) & targets(validation) and len(set(validation)) == 40
    assert set(owner) == set(range(5)) and all(owner[rows == row] == 0 for row in (30, 49, 130, 149))


def test_delays_learn_faster():
    member = Member(SkipField(np.ones((1, 2)), np.ones(1), key=jr.key(0)), jnp.array([0.5], jnp.float32), 4.0)
    parameters = jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else None, member)
    with jax.numpy_dtype_promotion("standard"):
        gradient = jax.tree.map(jnp.ones_like, parameters)
        updates, _ = optimizer().update(gradient, optimizer().init(parameters), parameters)
    ratio = (updates.raw[0] + 3 * 4e-3 * 1e-3 * 0.5) / (updates.field.matrix[0, 0] + 4e-3 * 1e-3)
    assert ratio == pytest.approx(3.0, rel=1e-3)


def test_a_training_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(_ensemble, "KEEP_SECONDS", 0.0)
    rng = np.random.default_rng(0)
    member = Member(SkipField(np.ones((1, 2)), np.ones(1), key=jr.key(0)), jnp.array([0.5], jnp.float32), 4.0)
    arrays, rest = eqx.partition(member, eqx.is_inexact_array)
    members = eqx.combine(jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), arrays), rest)
    data = [jnp.asarray(x, jnp.float32) for x in (rng.standard_normal((60, 1)), np.ones((60, 1)), np.zeros((60, 0)))]
    data += [jnp.full((60, 1), limit, jnp.float32) for limit in (-9.0, 9.0)]
    rows, _ = split(np.arange(6, 55), 3, 2)

    class Stopped(Exception):
        pass

    def stop(share):
        if share > 0.4:
            raise Stopped

    def run(folder, tell):
        stages = Stages(folder, "", lambda *_: None, lambda _: None)
        training = _ensemble.Training(tuple(data), 3, 6, np.inf, stages)
        given = {"key": jr.key(1), "iterations": 100, "patience": 100, "name": "training"}
        return _ensemble.train(members, rows, training, tell=tell, **given)

    whole = run(None, lambda share: None)
    with pytest.raises(Stopped):
        run(tmp_path, stop)
    shares: list[float] = []
    assert eqx.tree_equal(run(tmp_path, shares.append), whole) and shares == [0.5, 0.75, 1.0]
    shares.clear()
    assert eqx.tree_equal(run(tmp_path, shares.append), whole) and shares == []


@pytest.fixture(scope="module")
def twice():
    """The same series with two different hold-outs."""
    y = chaos(160)
    other = y.copy()
    other[120:] = y[120:][::-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_neural_fit, "ITERATIONS", 75)
        return [
            fit_series(np.arange(160.0), values, season=10, horizon=6, seeds=2, transform="none") for values in (y, other)
        ]


def test_the_hold_out_does_not_leak(twice):
    first, second = twice
    assert first.settings["validation"] == second.settings["validation"] and first.chosen == second.chosen
    assert first.holdout.scores["model"].mase != second.holdout.scores["model"].mase
    for one, other in zip(first.profiles, second.profiles, strict=True):
        assert np.array_equal(one.cost, other.cost)


def test_delays_of_a_network_are_never_identified(twice):
    found = twice[0]
    assert found.kind == "neural" and found.delays and all(delay.verdict != "identified" for delay in found.delays)
    assert found.forecasts["model"].quantiles.shape == (7, 6, 1) and np.isfinite(found.fitted[40:]).all()
    assert found.predict(9, "model").t[-1] == 168.0
