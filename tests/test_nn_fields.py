"""Vector fields: the paper's four forms, their layers and their initial weights."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from lagrax.nn import Form, MLPField, count_parameters, torch_uniform

KEY = jr.key(0)
NOW, PAST, LONG_AGO = jr.normal(KEY, (3, 5, 2))
INPUTS = {
    Form.CURRENT: (NOW, NOW),
    Form.DELAYED: (PAST, jnp.concatenate([PAST, LONG_AGO], -1)),
    Form.SUM: (NOW + PAST, NOW + PAST + LONG_AGO),
    Form.CONCAT: (jnp.concatenate([NOW, PAST], -1), jnp.concatenate([NOW, PAST, LONG_AGO], -1)),
}


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("use_bias", [True, False])
def test_forms(form, use_bias):
    """W_out σ(W σ(W_in z + b_in) + b) + b_out, z as the form says, for one and two delays, for a batch and one by one."""
    for delayed, z in zip((PAST, {"a": PAST, "b": LONG_AGO}), INPUTS[form], strict=True):
        count = len(jax.tree.leaves(delayed))
        options = {"width": 4, "depth": 2, "activation": jax.nn.relu, "use_bias": use_bias, "num_delays": count}
        field = MLPField(2, form=form, key=KEY, **options)
        expected = z
        for i, layer in enumerate(field.layers):
            expected = expected @ layer.weight.T + (layer.bias if use_bias else 0)
            expected = np.maximum(expected, 0) if i < 2 else expected
        np.testing.assert_allclose(field(0.0, NOW, delayed, None), expected, rtol=1e-12)
        one_by_one = jax.vmap(lambda y, z, field=field: field(0.0, y, z, None))(NOW, delayed)
        np.testing.assert_allclose(one_by_one, expected, rtol=1e-12)


def test_parameter_counts():
    """The paper's fields for the spiral (2-10-2) and the concentric spheres (2-32-32-2), without biases."""
    options = {"use_bias": False, "key": KEY}
    assert count_parameters(MLPField(2, width=10, depth=1, form=Form.SUM, **options)) == 40
    assert count_parameters(MLPField(2, width=32, depth=2, form=Form.DELAYED, **options)) == 64 + 1024 + 64
    assert count_parameters(MLPField(2, width=10, depth=1, form=Form.CONCAT, num_delays=3, key=KEY)) == 90 + 22


def test_time_as_an_input():
    field = MLPField(2, width=4, depth=0, form=Form.CURRENT, use_time=True, key=KEY)
    difference = field(3.0, NOW, None, None) - field(1.0, NOW, None, None)
    np.testing.assert_allclose(difference, jnp.broadcast_to(2 * field.layers[0].weight[:, 2], (5, 2)), rtol=1e-12)


def test_torch_initialisation():
    """Weights and biases fill ±1/√fan_in evenly."""
    field = MLPField(100, width=400, depth=1, form=Form.CURRENT, init=torch_uniform, key=KEY)
    for layer, fan_in in zip(field.layers, (100, 400), strict=True):
        for values in (layer.weight, layer.bias):
            bound, n = fan_in**-0.5, values.size
            assert np.all(np.abs(values) <= bound)
            np.testing.assert_allclose(jnp.sort(values.ravel()), bound * np.linspace(-1, 1, n), atol=4 * bound / np.sqrt(n))
    assert not np.any(np.isin(field.layers[0].bias, field.layers[0].weight))


def test_other_initialisations():
    for init, std in ((jax.nn.initializers.glorot_normal(), (2 / 500) ** 0.5), (jax.nn.initializers.he_normal(), 0.02**0.5)):
        layer = MLPField(100, width=400, depth=1, form=Form.CURRENT, init=init, key=KEY).layers[0]
        np.testing.assert_allclose(jnp.std(layer.weight), std, rtol=0.02)
        np.testing.assert_array_equal(layer.bias, jnp.zeros(400))


@pytest.mark.parametrize("sizes", [{"size": 0, "width": 1, "depth": 1}, {"size": 1, "width": 0, "depth": 1}])
def test_errors(sizes):
    with pytest.raises(ValueError, match="expected size and width >= 1, depth >= 0"):
        MLPField(sizes.pop("size"), key=KEY, **sizes)
