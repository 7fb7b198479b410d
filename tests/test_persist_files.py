"""Files of models: written as a whole or not at all; damaged, foreign and hostile ones are refused."""

import contextlib
import hashlib
import json
import os
import stat
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lagrax.saving._persist import ModelFileError, load, save

from .test_persist import Gate, Model, double, make_model, same
from .test_persist import path as path

QUIET = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_failed_write_keeps_the_old_file(path, monkeypatch, broken):
    save(path, [1, jnp.ones(3)])
    before = path.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="disk full"):
        save(path, [2, jnp.ones(3000)])
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]


def test_overwrites_through_links_and_respects_the_umask(path):
    save(path, 1)
    link = path.parent / "link"
    link.symlink_to(path)
    save(link, 2)
    assert link.is_symlink() and load(path) == 2
    plain = path.parent / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")


def test_truncated(path):
    save(path, make_model())
    content = path.read_bytes()
    for length in [*range(0, 400, 7), *range(400, len(content), 101), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match=r"truncated|first line is lost"):
            load(path, classes=(Gate, Model))
    path.write_bytes(content + b"\0")
    with pytest.raises(ModelFileError, match="too long"):
        load(path, classes=(Gate, Model))


def test_flipped_bytes(path):
    save(path, make_model())
    content = path.read_bytes()
    start = content.index(b"\n") + 1
    for position in range(start, len(content), 61):
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        with pytest.raises(ModelFileError, match="corrupted"):
            load(path, classes=(Gate, Model))


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"{}\n", b"[1]\n", b"PK\3\4" * 999, b"[" * 1023 + b"\n", b"\x80\4\x95\n", b'{"format": "gguf"}\n'],
)
def test_foreign_file(path, content):
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="not a model that lagrax saved"):
        load(path)


def write(path, tree, data=b"", **changes):
    """A file with a valid checksum, whatever the tree."""
    header = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    first = {"format": "lagrax model", "version": 1, "lagrax": "0.1.0", "header_bytes": len(header), "data_bytes": len(data)}
    first |= {"sha256": hashlib.sha256(header + data).hexdigest()} | changes
    path.write_bytes(json.dumps(first).encode() + b"\n" + header + data)


def array(text="float32[2]", offset: Any = 0, kind="jax", **more):
    return {kind: text, "offset": offset, **more}


def module(name, **fields):
    return {"class": name, "fields": fields}


deep = lambda n: b"[" * n + b"]" * n
HOSTILE = {
    "newer format": (1, b"", dict(version=2, lagrax="9.9"), r"format version 2 \(of lagrax '9.9'\), expected 1"),
    "true version": (1, b"", dict(version=True), "format version True"),
    "length as text": (1, b"", dict(header_bytes="1"), "damaged first line"),
    "negative length": (1, b"", dict(data_bytes=-1), "damaged first line"),
    "no checksum": (1, b"", dict(sha256=None), "damaged first line"),
    "huge length": (1, b"", dict(data_bytes=10**18), "truncated"),
    "system": ({"name": "os.system"}, b"", {}, "model is 'os.system', expected what is known"),
    "own function": ({"name": "lagrax.save"}, b"", {}, "expected what is known"),
    "own private function": ({"name": "lagrax.saving._persist.save"}, b"", {}, "expected what is known"),
    "class to import": (module("subprocess.Popen", args=["x"]), b"", {}, "model is 'subprocess.Popen'"),
    "function as class": (module("jax.nn.relu"), b"", {}, "expected the name of a module"),
    "type as class": (module("jax.numpy.float32"), b"", {}, "expected the name of a module"),
    "builtin as class": (module("eval", x=1), b"", {}, "model is 'eval'"),
    "wrong fields": (module("diffrax.PIDController", rtol=1.0), b"", {}, "load it with the class that it was saved with"),
    "dunder field": (module("diffrax.ConstantStepSize", __class__=1), b"", {}, r"has the fields \['__class__'\]"),
    "huge array": (array(f"float32[{10**17}]"), b"12345678", {}, "expected it inside"),
    "huge product": (array("float64[" + ",".join(["999999999"] * 30) + "]"), b"12345678", {}, "expected it inside"),
    "huge empty": (array(f"float32[0,{10**17}]"), b"", {}, "expected it inside"),
    "long number": (array("float32[" + "9" * 5000 + "]"), b"", {}, "not described as an array"),
    "negative size": (array("float32[-2]"), b"12345678", {}, "not described as an array"),
    "negative offset": (array(offset=-8), b"12345678", {}, "expected it inside, at byte 0"),
    "late offset": (array(offset=4), b"12345678", {}, "expected it inside, at byte 0"),
    "overlap": ([array(), array()], b"12345678", {}, "expected it inside, at byte 8"),
    "bytes left": (array("float32[1]"), b"12345678", {}, "bytes that belong to no array"),
    "object array": (array("object[1]"), b"12345678", {}, "not described as an array"),
    "void array": (array("V8[1]"), b"12345678", {}, "not described as an array"),
    "dimensions": (array("int8[" + "1," * 40 + "1]"), b"1", {}, "not described as an array"),
    "two kinds": (array(numpy="float32[2]"), b"12345678", {}, "not described as an array"),
    "no boolean": (array("bool[1]"), b"\7", {}, "truth values other than"),
    "bad key": ({"key": "rbg", "data": array("float32[1]")}, b"1234", {}, "not a random key"),
    "unknown key": ({"key": "dice", "data": array()}, b"12345678", {}, "of a kind that"),
    "key of nothing": ({"key": "rbg", "data": {}}, b"", {}, "not a random key"),
    "no member": ({"enum": "lagrax.nn.Form", "member": "__class__"}, b"", {}, "expected a member of an enumeration"),
    "no enumeration": ({"enum": "diffrax.Tsit5", "member": "x"}, b"", {}, "expected a member of an enumeration"),
    "enumeration as class": (module("lagrax.nn.Form"), b"", {}, "expected the name of a module"),
    "two tags": ({"tuple": [], "list": []}, b"", {}, "of a kind that"),
    "unhashable key": ({"dict": [[[], 1]]}, b"", {}, "a list as key"),
    "broken pair": ({"dict": [[1]]}, b"", {}, "damaged entry"),
    "complex text": ({"complex": "one"}, b"", {}, "damaged header"),
    "float text": ({"float": "1e5"}, b"", {}, "of a kind that"),
    "constant": (b"NaN", b"", {}, "damaged header"),
    "no JSON": (b"\xff{", b"", {}, "damaged header"),
    "big integer": (b"9" * 9999, b"", {}, "damaged header"),
    "deep": (deep(500), b"", {}, "nested deeper than 100"),
    "very deep": (deep(10**6), b"", {}, "nested deeper|damaged header"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile(path, case):
    tree, data, changes, message = HOSTILE[case]
    write(path, tree, data, **changes)
    with pytest.raises(ModelFileError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_user_name_cannot_replace_a_known_one(path):
    """A file names classes of the caller's without a dot, known ones with one: they never meet."""
    write(path, {"name": "jax.nn.relu"})
    assert load(path, functions=(double,)) is jax.nn.relu


def test_64_bits_need_the_switch(path):
    save(path, jnp.ones(2, jnp.float64))
    with jax.enable_x64(False), pytest.raises(ModelFileError, match="jax_enable_x64"):
        load(path)


@QUIET
@given(data=st.data())
def test_random_mutations(path, data):
    """Raw damage never passes the checksum, unless it leaves the model as it is."""
    model = make_model(extra=[np.arange(4), jax.random.key(1)])
    save(path, model)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, 8))
        content[start : start + length] = data.draw(st.binary(max_size=8))
    path.write_bytes(bytes(content))
    try:
        loaded = load(path, classes=(Gate, Model))
    except ModelFileError:
        return
    assert same(loaded, model)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
tags = [
    "enum",
    "member",
    "tuple",
    "dict",
    "name",
    "class",
    "fields",
    "jax",
    "numpy",
    "scalar",
    "offset",
    "weak",
    "key",
    "data",
    "float",
    "complex",
]
words = [
    "lagrax.nn.Form",
    "SUM",
    "Gate",
    "diffrax.Tsit5",
    "float32[2]",
    "int8[0]",
    "bool[1]",
    "bfloat16[]",
    "rbg",
    "threefry2x32",
    "uint32[2]",
    "inf",
    "os.system",
]
trees = st.recursive(
    scalars | st.sampled_from(words) | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(tags), inner, max_size=4),
    max_leaves=8,
)


@QUIET
@given(tree=trees, data=st.binary(max_size=16))
def test_random_headers(path, tree, data):
    """Any JSON under a valid checksum is a model or the documented error."""
    write(path, tree, data)
    with contextlib.suppress(ModelFileError):
        load(path, classes=(Gate, Model))


def nodes(tree, place=()):
    yield place
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, part in items:
        yield from nodes(part, (*place, key))


@QUIET
@given(data=st.data())
def test_edited_headers(path, data):
    """A model's own header with one node replaced or removed, signed again."""
    save(path, make_model(extra={"a": (np.arange(4), jax.random.key(1))}))
    content = path.read_bytes()
    cut = content.index(b"\n") + 1
    end = cut + json.loads(content[:cut])["header_bytes"]
    tree = [json.loads(content[cut:end])]
    *parents, last = data.draw(st.sampled_from([place for place in nodes(tree) if place]))
    target = tree
    for key in parents:
        target = target[key]
    if len(parents) and data.draw(st.booleans()):
        del target[last]
    else:
        target[last] = data.draw(trees)
    write(path, tree[0], content[end:])
    with contextlib.suppress(ModelFileError):
        load(path, classes=(Gate, Model))
