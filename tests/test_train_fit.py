"""Training: what comes out of it, several seeds at once, batches, chunks, and what is no longer finite."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import lagrax as lx
from lagrax.train import fit, stack, unstack
from lagrax.train._compiled import Stream, advance, indices, shuffled

from .train_problem import Line, data, loss, optimizer


def run(*, model=None, loss=loss, xy=None, iterations=12, **options):
    model = Line(jr.key(0)) if model is None else model
    xy = data() if xy is None else xy
    return fit(model, loss, xy, optimizer, iterations, **({"key": jr.key(1), "progress": False} | options))


def same(a, b):
    return eqx.tree_equal(a, b) is True or bool(eqx.tree_equal(a, b))


def metrics(result):
    return {name: column for name, column in result.history.items() if name != "seconds"}


def test_equals_a_plain_loop():
    model, xy, state = Line(jr.key(0)), data(), None
    result = run()
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)
    losses = []
    for i in range(12):
        key = jr.fold_in(jr.fold_in(jr.key(1), 0), i)
        objective = lambda p, key=key: loss(eqx.combine(p, rest), xy, key)[0]
        value, gradient = jax.value_and_grad(objective)(parameters)
        with jax.numpy_dtype_promotion("standard"):
            state = optimizer.init(parameters) if state is None else state
            updates, state = optimizer.update(gradient, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
        losses.append(value)
    np.testing.assert_allclose(result.history["loss"], losses, rtol=1e-12)
    np.testing.assert_allclose(result.model.weight, parameters.weight, rtol=1e-12)
    assert result.ended == "finished" and result.iterations == 12 and result.diverged == -1
    assert result.model.name == "line" and result.model.steps == 2
    assert (result.history["forward evaluations"] == 6).all()
    assert result.history["per sign"].shape == (12, 2)
    assert (np.diff(result.history["seconds"]) >= 0).all()


def test_the_given_model_stays_usable():
    model = Line(jr.key(0))
    before = np.array(model.weight)
    run(model=model)
    np.testing.assert_array_equal(model.weight, before)


@pytest.mark.parametrize("batch_size, stacked", [(None, False), (4, True)])
def test_chunks_do_not_change_the_numbers(batch_size, stacked):
    model = stack([Line(jr.key(i)) for i in range(2)]) if stacked else Line(jr.key(0))
    results = [run(model=model, stacked=stacked, batch_size=batch_size, chunk=chunk) for chunk in (1, 5, 12)]
    for other in results[1:]:
        assert same(results[0].model, other.model) and same(metrics(results[0]), metrics(other))


@pytest.mark.parametrize("in_turn", [False, True])
def test_seeds_at_once_equal_seeds_alone(in_turn):
    models = [Line(jr.key(i)) for i in range(3)]
    together = run(model=stack(models), stacked=True, in_turn=in_turn, batch_size=4)
    assert together.history["loss"].shape == (12, 3) and together.history["per sign"].shape == (12, 3, 2)
    for i, (model, key) in enumerate(zip(models, jr.split(jr.key(1), 3), strict=True)):
        alone = run(model=model, key=key, batch_size=4)
        np.testing.assert_allclose(together.history["loss"][:, i], alone.history["loss"], rtol=1e-10)
        np.testing.assert_allclose(unstack(together.model, i).weight, alone.model.weight, rtol=1e-10)


@pytest.mark.parametrize("in_turn", [False, True])
def test_seeds_with_their_own_data(in_turn):
    models = [Line(jr.key(i)) for i in range(2)]
    sets = [data(), jax.tree.map(jnp.negative, data())]
    together = run(model=stack(models), xy=stack(sets), stacked=True, data_stacked=True, in_turn=in_turn, batch_size=4)
    alone = run(model=models[1], xy=sets[1], key=jr.split(jr.key(1), 2)[1], batch_size=4)
    np.testing.assert_allclose(together.history["loss"][:, 1], alone.history["loss"], rtol=1e-10)


@pytest.mark.parametrize("size, batch_size", [(12, 4), (10, 4), (7, 7), (5, 1)])
def test_each_epoch_has_each_sample_once(size, batch_size):
    shuffle = lambda epoch: shuffled(jr.key(0), epoch, size)
    zero = jnp.zeros((), jnp.int32)
    stream, seen = Stream(shuffle(zero), zero, zero), []
    step = jax.jit(lambda stream: (indices(stream, batch_size), advance(stream, batch_size, size, shuffle)))
    for _ in range(3 * size):
        index, stream = step(stream)
        seen.extend(index.tolist())
    epochs = np.array(seen[: 3 * batch_size * (size // batch_size) // size * size]).reshape(-1, size)
    assert len(epochs) >= 2
    for epoch in epochs:
        assert sorted(epoch.tolist()) == list(range(size))
    assert size == 1 or (epochs[0] != epochs[1]).any()


def test_batches_reach_the_loss():
    """The same through `fit`: the metrics say which samples each iteration saw."""
    xy = (jnp.arange(10.0), jnp.zeros(10))
    mean = lambda model, batch, key: (jnp.mean(model * batch[0]), {"samples": batch[0]})
    result = run(model=jnp.array(1.0), loss=mean, xy=xy, batch_size=4, iterations=10)
    assert result.best is None
    for epoch in result.history["samples"].reshape(4, 10):
        assert sorted(epoch.tolist()) == list(range(10))


def test_snapshots_and_best():
    result = run(snapshots=5)
    assert result.snapshot_iterations.tolist() == [0, 5, 10]
    assert result.snapshots.weight.shape == (3, 3) and result.snapshots.steps.shape == (3,)
    assert same(unstack(result.snapshots, 2), run(iterations=10).model)
    lowest = int(np.argmin(result.history["loss"]))
    assert lowest > 0 and same(result.best, run(iterations=lowest).model)


def breaking(at):
    """A loss that is not a number once the model, which moves by 1 in each iteration, has reached `at`."""

    def value(model, batch, key):
        return jnp.where(model["x"] >= model["at"].astype(float), jnp.nan, -model["x"]), {"n": jnp.array(1)}

    return {"x": jnp.zeros(np.shape(at)), "at": jnp.array(at)}, value


def test_divergence_keeps_the_last_good_state():
    model, value = breaking(5)
    result = fit(model, value, None, optax.sgd(1.0), 20, key=jr.key(0), progress=False)
    assert result.ended == "diverged" and result.diverged == 5 and result.iterations == 6
    assert result.model["x"] == 5 and "at iteration 5" in result.message
    assert np.isnan(result.history["loss"][5]) and np.isfinite(result.history["loss"][:5]).all()


def test_other_seeds_go_on():
    model, value = breaking([5, 100, 3])
    result = fit(model, value, None, optax.sgd(1.0), 20, key=jr.key(0), stacked=True, progress=False)
    assert result.ended == "finished" and result.diverged.tolist() == [5, -1, 3]
    assert result.model["x"].tolist() == [5, 20, 3]
    assert np.isfinite(result.history["loss"][:, 1]).all() and np.isnan(result.history["loss"][6:, 0]).all()
    assert result.history["n"][:, 2].tolist() == [1] * 4 + [0] * 16
    assert "seed 0 at iteration 5, seed 2 at iteration 3" in result.message


def test_infinite_parameters_are_not_taken_over():
    steep = lambda model, batch, key: (-1e300 * model, {})
    result = fit(jnp.array(1.0), steep, None, optax.sgd(1e300), 5, key=jr.key(0), progress=False)
    assert result.ended == "diverged" and result.diverged == 0 and result.model == 1.0


def test_time_budget():
    result = run(iterations=10**8, until=0.01)
    assert result.ended == "out of time" and result.iterations < 10**8


@pytest.mark.parametrize("other", [optax.lbfgs(), optax.chain(optax.adam(0.1), optax.contrib.reduce_on_plateau())])
def test_optimizers_that_look_at_the_loss(other):
    square = lambda model, batch, key: (jnp.sum((model - 3.0) ** 2), {})
    result = fit(jnp.zeros(2), square, None, other, 50, key=jr.key(0), progress=False)
    assert result.history["loss"][-1] < 0.1 * result.history["loss"][0]


def test_old_style_keys():
    assert same(run(key=jr.PRNGKey(1)).model, run(key=jr.key(1)).model)


def test_a_delay_equation():
    """A solve that fails does not end the training of the others."""

    def value(rate, batch, key):
        term = lx.DelayTerm(lambda t, y, z, rate: -rate * z, delays=1.0)
        solution = lx.ddesolve(term, dfx.Tsit5(), 0.0, 2.0, None, 1.0, rate, max_steps=64, throw=False)
        return jnp.abs(solution.ys[0] + 0.4), {"forward evaluations": solution.stats["num_evaluations"]}

    result = fit(jnp.array([1.0, jnp.nan]), value, None, optax.adam(0.05), 8, key=jr.key(0), stacked=True, progress=False)
    assert result.diverged.tolist() == [-1, 0] and result.ended == "finished"
    assert result.history["loss"][-1, 0] < result.history["loss"][0, 0]
    assert (result.history["forward evaluations"][:, 0] > 10).all()


def test_progress(capsys):
    run(progress=True, chunk=3)
    printed = capsys.readouterr().err
    *before, last = printed.splitlines()
    assert last.startswith("finished after 12 iterations")
    assert all(line.startswith("compiled in") for line in before)  # said if it took a second, on a busy machine
