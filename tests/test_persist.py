"""Models survive a file bit by bit; files that are not intact models end in one documented error, whatever they hold."""

import enum
import json
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import Array

import lagrax
import lagrax.nn as lxn
from lagrax import DelayTerm
from lagrax.nn import image_fields
from lagrax.saving._persist import ModelFileError, load, save

QUIET = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Gate(eqx.Module):
    weight: Array
    scale: float
    name: str = eqx.field(static=True)
    activation: Callable = jnp.tanh


class Model(eqx.Module):
    gates: tuple[Gate, ...]
    mlp: eqx.nn.MLP
    solver: dfx.AbstractSolver
    controller: dfx.AbstractStepSizeController
    extra: Any


Pair = namedtuple("Pair", ["left", "right"])


class Side(enum.Enum):
    LEFT = 1


def double(x):
    return 2 * x


def make_model(extra=None):
    gates = tuple(Gate(jnp.arange(3.0) / 7 + i, 0.1 * i, "gate", jax.nn.silu) for i in range(2))
    mlp = eqx.nn.MLP(2, 3, 4, 2, key=jax.random.key(0))
    return Model(gates, mlp, dfx.Tsit5(), dfx.PIDController(rtol=1e-4, atol=1e-7), extra)


def bits(array):
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array).tobytes()


def same(a, b):
    """Whether two models are the same: structure, types and bits."""
    leaves_a, tree_a = jax.tree.flatten(a)
    leaves_b, tree_b = jax.tree.flatten(b)
    if tree_a != tree_b:
        return False
    for x, y in zip(leaves_a, leaves_b, strict=True):
        arrays = isinstance(x, jax.Array | np.ndarray | np.generic)
        if type(x) is not type(y) or (arrays and (x.shape, x.dtype, bits(x)) != (y.shape, y.dtype, bits(y))):
            return False
        if not arrays and x is not y and x != y:
            return False
    return True


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.lagrax"


def round_trip(path, item, **kwargs):
    save(path, item)
    return load(path, **kwargs)


def test_nested_modules(path):
    model = make_model(extra={"a": [1, (2.5, None, True)], "b": "text", "c": jnp.ones((2, 0, 3))})
    loaded = round_trip(path, model, classes=(Gate, Model))
    assert same(model, loaded)
    assert type(loaded.solver) is dfx.Tsit5 and loaded.controller.norm is optx.rms_norm
    assert loaded.mlp.width_size == 4 and loaded.gates[0].name == "gate" and loaded.gates[1].activation is jax.nn.silu
    assert jnp.array_equal(loaded.mlp(jnp.ones(2)), model.mlp(jnp.ones(2)))


@pytest.mark.parametrize(
    "item",
    [dfx.Kvaerno5(), dfx.Dopri8(), dfx.ConstantStepSize(), dfx.SaveAt(ts=jnp.arange(3.0)), DelayTerm(jnp.tanh, {"a": 1.0})],
    ids=lambda item: type(item).__name__,
)
def test_pieces_of_a_solve(path, item):
    assert same(item, round_trip(path, item))


def test_enumerations(path):
    item = (lxn.Form.SUM, Side.LEFT)
    loaded = round_trip(path, item, classes=(Side,))
    assert loaded[0] is lxn.Form.SUM and loaded[1] is Side.LEFT


def test_models(path):
    """The models of `lagrax.nn` need no help, and compute the same afterwards."""
    field = lxn.MLPField(2, width=4, depth=1, key=jax.random.key(0))
    model = lxn.NeuralDDE(field, delays=lxn.LearnableDelay(0.7, 0.1, 2.0))
    loaded = round_trip(path, model)
    assert same(model, loaded)
    assert jnp.array_equal(model(jnp.ones(2)), loaded(jnp.ones(2)))
    fields = image_fields("NODE+NDDE", 1, 3, key=jax.random.key(1))
    assert same(fields, round_trip(path, fields))


def test_layers(path):
    keys = jax.random.split(jax.random.key(1), 5)
    layers = [
        eqx.nn.Linear(2, 3, key=keys[0]),
        eqx.nn.Conv2d(1, 2, 3, key=keys[1]),
        eqx.nn.GRUCell(2, 3, key=keys[2]),
        eqx.nn.MultiheadAttention(2, 4, key=keys[3]),
        eqx.nn.LayerNorm(3),
        eqx.nn.Sequential([eqx.nn.Lambda(jax.nn.relu), eqx.nn.Dropout(0.5)]),
        eqx.nn.Identity(),
    ]
    assert same(layers, round_trip(path, layers))


DTYPES = ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(path, dtype):
    raw = np.array([[0, 1, 1], [1, 0, 1]])
    arrays = {"jax": jnp.asarray(raw, dtype), "numpy": np.asarray(raw, jnp.dtype(dtype)), "scalar": jnp.dtype(dtype).type(1)}
    loaded = round_trip(path, arrays)
    assert same(arrays, loaded)
    assert isinstance(loaded["jax"], jax.Array) and type(loaded["numpy"]) is np.ndarray


def test_bit_patterns(path):
    """Signed zeros, subnormals, infinities and NaNs with their payloads."""
    words = np.array([0x80000000, 1, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7FA00000], np.uint32)
    array = jnp.asarray(words.view(np.float32))
    assert bits(round_trip(path, array)) == bits(array) == words.tobytes()


def test_layouts_and_byte_order(path):
    array = np.arange(12.0).reshape(3, 4)
    assert np.array_equal(round_trip(path, array.T), array.T)
    assert np.array_equal(round_trip(path, array[::2, ::-1]), array[::2, ::-1])
    assert np.array_equal(round_trip(path, array.astype(">f4")), array.astype("<f4"))


def test_plain_values(path):
    item = [
        0.1,
        float("inf"),
        -0.0,
        10**30,
        complex(-0.0, float("inf")),
        "ä\n\0",
        np.float64(0.1),
        jnp.dtype("bfloat16"),
        jnp.float32,
        np.int8,
        {(1, "b"): ()},
    ]
    loaded = round_trip(path, item)
    assert loaded == item and [type(x) for x in loaded] == [type(x) for x in item]
    assert np.isnan(round_trip(path, float("nan")))


def test_weak_scalars_stay_weak(path):
    weak, strong = jnp.asarray(1.5), jnp.asarray(1.5, jnp.float64)
    loaded = round_trip(path, (weak, strong))
    assert (loaded[0].weak_type, loaded[1].weak_type) == (weak.weak_type, strong.weak_type) == (True, False)


def test_random_keys(path):
    keys = {"new": jax.random.split(jax.random.key(3), 2), "other": jax.random.key(4, impl="rbg")}
    loaded = round_trip(path, keys)
    for name, key in keys.items():
        assert loaded[name].dtype == key.dtype
        assert jnp.array_equal(jax.random.key_data(loaded[name]), jax.random.key_data(key))


def test_own_classes_and_functions(path):
    item = Pair(Gate(jnp.ones(2), 1.0, "g", double), jax.jit(double))
    loaded = round_trip(path, item, classes=(Pair, Gate), functions=(double,))
    assert type(loaded) is Pair and loaded.left.activation is double and loaded.right is double
    with pytest.raises(ModelFileError, match=r"model is 'Pair'.*pass it in classes"):
        load(path)
    with pytest.raises(ModelFileError, match=r"model.left.activation is 'double'.*functions"):
        load(path, classes=(Pair, Gate))


def test_nothing_is_initialised(path):
    class Loud(eqx.Module):
        x: float

        def __init__(self, x):
            self.x = x
            calls.append(x)

        def __check_init__(self):
            calls.append("checked")

    calls: list = []
    save(path, Loud(1.0))
    calls.clear()
    assert load(path, classes=(Loud,)).x == 1.0 and not calls


def test_header_is_text(path):
    save(path, make_model())
    lines = path.read_bytes().split(b"\n")
    first = json.loads(lines[0])
    assert first["format"] == "lagrax model" and first["version"] == 1 and first["lagrax"] == lagrax.__version__
    header = path.read_bytes()[len(lines[0]) + 1 :][: first["header_bytes"]].decode()
    assert json.loads(header)["class"] == "Model"
    for text in ('"class": "equinox.nn.MLP"', '"jax": "float64[4,2]"', '"width_size": 4', '"name": "jax.nn.silu"'):
        assert text in header


UNSUPPORTED = {
    "lambda": (lambda: Gate(jnp.ones(1), 1.0, "g", lambda x: x), r"model\.activation is a lambda.*make it a function"),
    "closure": (lambda: [_closing(2)], r"model\[0\] is the function inner with variables"),
    "object": (lambda: {"a": object()}, r"model\['a'\] is a object, expected an array"),
    "method": (lambda: [[].append], r"model\[0\] is a builtin_function_or_method"),
    "words": (lambda: np.array(["a"]), "model has dtype <U1, expected one of bool"),
    "set": (lambda: ({1},), r"model\[0\] is a set"),
}


def _closing(k):
    def inner(x):
        return k * x

    return inner


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_cannot_be_saved(path, case):
    make, message = UNSUPPORTED[case]
    with pytest.raises(TypeError, match=message):
        save(path, make())
    assert not path.exists()


def test_tracers_and_cycles(path):
    with pytest.raises(TypeError, match="model is being traced"):
        jax.jit(lambda x: save(path, x))(1.0)
    cycle: list = []
    cycle.append(cycle)
    with pytest.raises(TypeError, match="nested deeper than 100"):
        save(path, cycle)


def test_a_model_loads_where_nothing_but_lagrax_was_imported(tmp_path):
    """What it is made of is loaded at its first use, and nobody has used it there."""
    model = lxn.NeuralDDE(lxn.MLPField(1, width=2, depth=1, key=jax.random.key(0)), 0.7, t1=1.3)
    save(tmp_path / "model.lagrax", model)
    code = (
        "import jax, lagrax, sys; jax.config.update('jax_enable_x64', True); print(type(lagrax.load(sys.argv[1])).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "model.lagrax")], capture_output=True, text=True)
    assert done.stdout == "NeuralDDE\n", done.stderr
