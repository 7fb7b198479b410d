"""Early stopping on a validation, and delays that learn at a rate of their own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from lagrax.train import fit, stack


class Point(eqx.Module):
    """Something that can be called, as models can, and that optax.multi_transform therefore cannot label."""

    x: jax.Array
    delay: jax.Array

    def __call__(self):
        return self.x


def to_ten(model, batch, key):
    return jnp.sum((model() - 10.0) ** 2) + 0.0 * model.delay, {}


def three(model):
    """Lowest on the way to ten."""
    return {"error": jnp.abs(model.x - 3.0), "other": jnp.zeros(2)}


def point(x):
    return Point(jnp.asarray(x), jnp.asarray(1.0))


def run(model, iterations=400, **options):
    given = {"key": jr.key(0), "progress": False, "evaluate": three, "evaluate_every": 4, "validation": "error"}
    return fit(model, to_ten, jnp.zeros(1), optax.sgd(0.005), iterations, **(given | options))


def path(start, iterations):
    """Gradient descent on (x − 10)², by hand."""
    return 10 + (start - 10) * (1 - 0.01) ** np.arange(iterations + 1)


def test_training_ends_when_validation_no_longer_improves():
    result = run(point(0.0), patience=20)
    evaluated = path(0.0, 400)[::4]
    best = int(np.argmin(abs(evaluated - 3)))
    assert result.ended == "no longer improving" and result.iterations == 4 * best + 20
    assert float(result.best.x) == pytest.approx(evaluated[best], rel=1e-5)
    assert float(result.model.x) == pytest.approx(path(0.0, 400)[result.iterations], rel=1e-5)
    assert result.message.startswith("no longer improving after ")


def test_without_patience_only_the_best_is_kept():
    result = run(point(0.0), iterations=60, batch_size=1)
    assert result.ended == "finished" and result.iterations == 60
    evaluated = path(0.0, 60)[::4]
    assert float(result.best.x) == pytest.approx(evaluated[np.argmin(abs(evaluated - 3))], rel=1e-5)


def test_each_seed_has_its_own_best_and_the_last_one_ends_it():
    starts = (2.0, -5.0)
    result = run(stack([point(start) for start in starts]), stacked=True, patience=12)
    bests = [int(np.argmin(abs(path(start, 400)[::4] - 3))) for start in starts]
    assert result.iterations == 4 * max(bests) + 12
    np.testing.assert_allclose(
        result.best.x, [path(s, 400)[4 * best] for s, best in zip(starts, bests, strict=True)], rtol=1e-5
    )


def test_resumed_it_ends_alike(tmp_path):
    whole = run(point(0.0), patience=20)
    best = whole.iterations - 20
    for stop in (best - 6, best + 5):  # before and after the lowest
        part = run(point(0.0), iterations=stop, patience=20, folder=tmp_path, resume=True)
        assert part.ended == "finished"
    again = run(point(0.0), patience=20, folder=tmp_path, resume=True)
    assert again.ended == whole.ended and again.iterations == whole.iterations
    assert eqx.tree_equal(again.best, whole.best) and eqx.tree_equal(again.model, whole.model)
    longer = run(point(0.0), patience=40, folder=tmp_path, resume=True)
    assert longer.iterations == whole.iterations + 20


@pytest.mark.parametrize(
    "options, part",
    [
        ({"evaluate": None, "evaluate_every": None}, "validation without evaluate"),
        ({"validation": 3}, "validation = 3, expected the name"),
        ({"validation": None, "patience": 5}, "patience = 5 without validation"),
        ({"patience": 0}, "patience = 0, expected a positive whole number"),
        ({"validation": "eror"}, "expected it among these"),
        ({"validation": "other"}, "with shape (2,), expected ()"),
    ],
)
def test_mistakes(options, part):
    with pytest.raises(ValueError, match="expected") as error:
        run(point(0.0), **options)
    assert part in str(error.value)
