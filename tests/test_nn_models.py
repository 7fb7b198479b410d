"""The models: what they compute, under every transformation, and how they complain."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import lagrax as lx
from lagrax.nn import Driven, Form, MLPField, NeuralDDE, NeuralODE, NeuralODEDDE, TimeDependentParameters

from .nn_models import TIGHT, make, mlp

X = jr.normal(jr.key(5), (4, 2))


@pytest.mark.parametrize("name", ["NODE", "NDDE, two learned delays", "NODE+NDDE"])
def test_transformations(name):
    """jit and vmap change nothing, and a batch in the state differs from one under vmap by the tolerance."""
    model = make(name)
    plain = jnp.stack([model(x) for x in X[:2]])
    np.testing.assert_allclose(eqx.filter_jit(lambda m, x: m(x))(model, X[0]), plain[0], rtol=1e-12)
    mapped = jax.vmap(model)(X)
    np.testing.assert_allclose(mapped[:2], plain, rtol=1e-10)
    np.testing.assert_allclose(model(X), mapped, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["ANODE", "A+NODE+NDDE, learned delay"])
def test_sequences(name):
    model, ts = make(name), jnp.array([0.0, 0.4, 1.3])
    ys = model.sequence(ts, X)
    assert ys.shape == (3, *X.shape)
    np.testing.assert_allclose(ys[-1], model(X)[..., :2], rtol=1e-6)
    np.testing.assert_allclose(eqx.filter_jit(model.sequence)(ts, X), ys, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(model.sequence, (None, 0), 1)(ts, X), ys, rtol=1e-5, atol=1e-6)


def test_ode():
    """A NeuralODE is diffrax's solution, and never sees a past."""
    field = mlp(Form.CURRENT)

    def watchful(t, y, delayed, args):
        assert delayed is None
        return field(t, y, delayed, args)

    model = NeuralODE(watchful, t1=2.0, stepsize_controller=TIGHT)
    term = dfx.ODETerm(lambda t, y, args: field(t, y, None, args))
    expected = dfx.diffeqsolve(term, dfx.Tsit5(), 0.0, 2.0, None, X, stepsize_controller=TIGHT).ys[0]
    np.testing.assert_allclose(model(X), expected, rtol=1e-8)


def test_ode_then_dde():
    """h' = -h up to 0 from h(-1) = x, then h' = h(t - 1): e h(t) / x = 1 + e - e^-t on [0, 1], and one piece more."""
    decay, echo = lambda t, y, delayed, args: -y, lambda t, y, delayed, args: delayed
    model = NeuralODEDDE(decay, echo, 1.0, t1=1.0, stepsize_controller=TIGHT)
    ts = jnp.array([-1.0, -0.5, 0.0, 0.5, 1.0, 1.5])
    first = lambda t: np.exp(-1) + 1 - np.exp(-t)
    second = lambda t: first(1.0) + (np.exp(-1) + 1) * (t - 1) + np.exp(-(t - 1)) - 1
    expected = [1, np.exp(-0.5), np.exp(-1), first(0.5), first(1.0), second(1.5)]
    np.testing.assert_allclose(model.sequence(ts, X[0]), np.outer(expected, X[0]), rtol=1e-8)
    np.testing.assert_allclose(model(X[0]), first(1.0) * X[0], rtol=1e-8)


def test_ode_then_dde_starts_at_the_longest_delay():
    start = lambda delays: NeuralODEDDE(mlp(Form.CURRENT), mlp(Form.SUM), delays).solve(X).t0
    assert start((0.5, 2.0)) == -2.0
    assert start({"short": jnp.array(0.5), "long": jnp.array(3.0)}) == -3.0


def test_augmentation():
    """Zeros are appended, stay where the field leaves them, and a sequence is without them. Images have them as channels."""
    shapes = []

    def still(t, y, delayed, args):
        shapes.append(y.shape)
        return jnp.zeros_like(y)

    for model in (NeuralODE(still, augment=2), NeuralDDE(still, 1.0, augment=2), NeuralODEDDE(still, still, 1.0, augment=2)):
        np.testing.assert_array_equal(model(X), jnp.concatenate([X, jnp.zeros((4, 2))], axis=-1))
        np.testing.assert_array_equal(model.sequence(jnp.array([0.5, 1.0]), X), jnp.stack([X, X]))
    image = jr.normal(jr.key(0), (5, 3, 4, 4))
    for axis in (-3, 1):
        model = NeuralDDE(still, 1.0, augment=2, axis=axis)
        features = model(image)
        np.testing.assert_array_equal(features[:, :3], image)
        np.testing.assert_array_equal(features[:, 3:], jnp.zeros((5, 2, 4, 4)))
        assert model.sequence(jnp.array([0.5, 1.0]), image).shape == (2, *image.shape)
    assert set(shapes) == {(4, 4), (5, 5, 4, 4)}


def test_initial_function():
    """h' = h(t - 1) over a past of (t + 1) x."""
    model = NeuralDDE(lambda t, y, delayed, args: delayed, 1.0, history=lambda t, x: (1 + t) * x, stepsize_controller=TIGHT)
    np.testing.assert_allclose(model(X), 1.5 * X, rtol=1e-10)


def test_user_module_and_args():
    class Field(eqx.Module):
        matrix: jax.Array

        def __call__(self, t, y, delayed, args):
            return args * (delayed["a"] + delayed["b"]) @ self.matrix

    model = NeuralDDE(Field(jnp.eye(2)), {"a": 1, "b": np.float32(2.0)}, t1=1.0)
    np.testing.assert_allclose(model(X, args=0.25), 1.5 * X, rtol=1e-12)
    # Numbers are frozen: only the matrix is trained.
    assert jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)) == [model.field.matrix]


def test_evaluations_are_counted():
    calls = []

    def counted(field):
        def call(t, y, delayed, args):
            jax.debug.callback(lambda: calls.append(1))
            return field(t, y, delayed, args)

        return call

    model = NeuralODEDDE(counted(mlp(Form.CURRENT)), counted(mlp(Form.CONCAT)), 0.4)
    solution = model.solve(X)
    jax.effects_barrier()
    assert solution.stats["num_evaluations"] == len(calls) > 20


def test_fixed_steps_and_settings():
    options = {"solver": dfx.Heun(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.25, "max_steps": 8, "t1": 1}
    solution = NeuralDDE(mlp(Form.SUM), 1.0, **options).solve(X)
    assert solution.stats["num_steps"] == 4 and solution.stats["max_steps"] == 8


def test_dense_and_failing_solutions():
    model = make("A+NDDE")
    solution = model.solve(X, dense=True)
    np.testing.assert_allclose(solution.evaluate(1.3), model(X), rtol=1e-12)
    assert solution.evaluate(0.5).shape == (4, 3)
    unfinished = NeuralODE(mlp(Form.CURRENT), max_steps=1, stepsize_controller=TIGHT).solve(X, throw=False)
    assert unfinished.result == lx.RESULTS.max_steps_reached


def test_time_dependent_parameters():
    """h' = w h, w' = -w: h(t) = x exp(w(0) (1 - e^-t))."""

    class Growth(eqx.Module):
        rate: jax.Array

        def __call__(self, t, y, delayed, args):
            return self.rate * y

    field = TimeDependentParameters(Growth(jnp.array(0.7)), lambda t, w, delayed, args: -w)
    model = NeuralODE(field, t1=2.0, stepsize_controller=TIGHT)
    np.testing.assert_allclose(model(X), X * np.exp(0.7 * (1 - np.exp(-2.0))), rtol=1e-9)
    state = model.solve(X).ys
    assert isinstance(state, Driven)
    np.testing.assert_allclose(state.w, [[0.7 * np.exp(-2.0)]], rtol=1e-9)


def test_parameters_at_rest():
    """With w' = 0 a wrapped field is the field, in a model of two fields whichever is wrapped."""
    still = lambda t, w, delayed, args: jnp.zeros_like(w)
    wrap = lambda field: TimeDependentParameters(field, still)
    before, after = mlp(Form.CURRENT), mlp(Form.CONCAT, 1)
    plain = NeuralODEDDE(before, after, 0.4, stepsize_controller=TIGHT)(X)
    for fields in ((wrap(before), after), (before, wrap(after))):
        np.testing.assert_allclose(NeuralODEDDE(*fields, 0.4, stepsize_controller=TIGHT)(X), plain, rtol=1e-8)


def test_float32():
    field = MLPField(2, width=3, depth=1, dtype=jnp.float32, key=jr.key(0))
    assert NeuralDDE(field, 0.4)(X.astype(jnp.float32)).dtype == jnp.float32


DELAY_FREE = NeuralODE(mlp(Form.CURRENT), augment=1, axis=1)


@pytest.mark.parametrize(
    "mistake, message",
    [
        (lambda: NeuralODE(mlp(Form.CURRENT), t1=0.0), "t1 = 0.0, expected a positive finite time"),
        (lambda: NeuralODE(mlp(Form.CURRENT), augment=-1), "augment = -1, expected a number of components"),
        (lambda: DELAY_FREE(X[0]), r"augment = 1 got an input of shape \(2,\), expected an array that has axis 1"),
        (lambda: DELAY_FREE({"x": X}), "augment = 1 got an input of type dict, expected an array"),
        (lambda: make("NDDE").sequence(1.0, X), r"ts has shape \(\), expected \(n,\)"),
        (lambda: make("NDDE").sequence(jnp.zeros(0), X), r"ts has shape \(0,\), expected \(n,\)"),
        (lambda: NeuralODE(mlp(Form.CONCAT))(X), "Form.CONCAT got no delayed states, expected at least one"),
        (lambda: NeuralDDE(mlp(Form.CONCAT), (1.0, 2.0))(X), "made an input of 6 components, expected 4"),
        (lambda: NeuralDDE(mlp(Form.SUM), -1.0)(X), "delays = -1.0, expected a positive finite number"),
    ],
)
def test_errors(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()
