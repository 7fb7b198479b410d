"""Saving a model to one file and loading it again, without trusting the file.

A file has three parts: one line of JSON that says what it is (format, versions, lengths, checksum); the model as indented
JSON, in which classes and functions are names and arrays are references; the arrays' bytes, little-endian, in the order in
which the JSON mentions them. Names are looked up among the classes and functions that exist already and never imported, and
no code of theirs runs: a module is put together field by field, without `__init__`.
"""

import dataclasses
import enum
import hashlib
import inspect
import json
import math
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import __version__
from ._files import replacing
from ._known import DTYPES, known

_FORMAT, _VERSION = "lagrax model", 1
_LONGEST_LINE, _DEEPEST = 1024, 100
_RETIRED = ("tally",)
"""Fields that modules of lagrax had once, and that mean nothing where they are None."""
_KEYS = ("threefry2x32", "rbg", "unsafe_rbg")
_ARRAY = re.compile(r"(\w{1,20})\[((?:\d{1,18}(?:,\d{1,18}){0,31})?)\]", re.ASCII)


class ModelFileError(ValueError):
    """A file is not, or not any more, a model that can be loaded; the message says why."""


def save(path: str | os.PathLike, model: Any) -> None:
    """Writes a model, its weights and everything else that makes it, to the file `path`.

    `model` is a PyTree of Equinox modules, dicts, lists, tuples, NumPy and JAX arrays (random keys too), numbers, strings
    and None, with functions by name: those of `jax.nn`, `jax.numpy` and `lagrax.nn` are known, others have to be handed to
    [`lagrax.load`][]. What a file cannot hold raises a `TypeError` that names its place in the model.

    The file is first written beside `path` and then moved there: whatever happens, `path` is the old file or the new one.
    What a save that was killed has left beside it, the next one removes.
    """
    arrays: list[bytes] = []
    tree = _Writer(_names(known()), arrays).encode(model, "model", 0)
    header = json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass") + b"\n"
    data = b"".join(arrays)
    first = {
        "format": _FORMAT,
        "version": _VERSION,
        "lagrax": __version__,
        "header_bytes": len(header),
        "data_bytes": len(data),
        "sha256": hashlib.sha256(header + data).hexdigest(),
    }
    with replacing(path) as file:
        file.writelines([json.dumps(first).encode() + b"\n", header, data])


def load(path: str | os.PathLike, *, classes: Iterable[type] = (), functions: Iterable[Callable] = ()) -> Any:
    """Reads a model that [`lagrax.save`][] wrote: equal to the saved one, array by array, bit by bit.

    Modules of lagrax, `equinox.nn`, diffrax, optimistix and lineax are known, and so are the usual functions. Classes and
    functions of your own are recorded by their name, and have to be given: `load(path, classes=(MyField,))`.

    Nothing of the file is executed and nothing is imported for it, so that a file from elsewhere can do no more than fail to
    load. Raises [`lagrax.ModelFileError`][], a `ValueError`, if the file is truncated, damaged, of another kind, of a newer
    format or names what is not known.
    """
    given: tuple[Any, ...] = (*classes, *functions)
    names = known() | {item.__name__: item for item in given}
    with open(path, "rb") as file:
        first = _first_line(file, path)
        header, data = _contents(file, first, path)
    try:
        tree = json.loads(header, parse_constant=_no_constant)
        reader = _Reader(names, data)
        model = reader.decode(tree, "model", 0)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{path} has a damaged header ({error}), expected JSON as lagrax.save writes it: save the model again"
        ) from None
    if reader.position != len(data):
        raise ModelFileError(f"{path} holds bytes that belong to no array, expected none: save the model again")
    return model


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _first_line(file: BinaryIO, path: Any) -> dict[str, Any]:
    """The first line, checked: what follows may be trusted to have the types and bounds that it should have."""
    line = file.readline(_LONGEST_LINE)
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        first = None
    if not line.endswith(b"\n") or type(first) is not dict or first.get("format") != _FORMAT:
        raise ModelFileError(
            f"{path} is not a model that lagrax saved, or its first line is lost: expected a file of lagrax.save"
        )
    if first.get("version") != _VERSION or type(first["version"]) is not int:
        raise ModelFileError(
            f"{path} has format version {first.get('version')!r} (of lagrax {first.get('lagrax')!r}), expected {_VERSION}: "
            "load it with that version of lagrax"
        )
    sizes = [first.get(name) for name in ("header_bytes", "data_bytes")]
    if not all(type(size) is int and size >= 0 for size in sizes) or type(first.get("sha256")) is not str:
        raise ModelFileError(f"{path} has a damaged first line, expected lengths and a checksum: save the model again")
    return first


def _contents(file: BinaryIO, first: dict[str, Any], path: Any) -> tuple[bytes, bytes]:
    size, given = first["header_bytes"] + first["data_bytes"], os.fstat(file.fileno()).st_size - file.tell()
    if given != size:
        what = "truncated" if given < size else "too long"
        raise ModelFileError(
            f"{path} is {what}: {given} bytes follow its first line, expected {size}: copy or save it again"
        )
    content = file.read()
    if hashlib.sha256(content).hexdigest() != first["sha256"]:
        raise ModelFileError(f"{path} is corrupted: its checksum is not the recorded one, copy or save it again")
    return content[: first["header_bytes"]], content[first["header_bytes"] :]


def _names(known: dict[str, Any]) -> dict[int, str]:
    """The first name of each object."""
    return {id(item): name for name, item in reversed(known.items())}


class _Writer:
    """Turns a model into JSON, appending the bytes of its arrays to `arrays`."""

    def __init__(self, names: dict[int, str], arrays: list[bytes]):
        self.names, self.arrays, self.position = names, arrays, 0

    def encode(self, item: Any, place: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise TypeError(f"{place} is nested deeper than {_DEEPEST}, expected a model without cycles: flatten it")
        inside = lambda part, where: self.encode(part, place + where, depth + 1)
        if item is None or type(item) in (bool, int, str):
            return item
        if type(item) is float:
            return item if math.isfinite(item) else {"float": repr(item)}
        if type(item) is complex:
            return {"complex": repr(item)}
        if type(item) is list:
            return [inside(part, f"[{i}]") for i, part in enumerate(item)]
        if type(item) is tuple:
            return {"tuple": [inside(part, f"[{i}]") for i, part in enumerate(item)]}
        if type(item) is dict:
            return {"dict": [[inside(key, f" key {key!r}"), inside(part, f"[{key!r}]")] for key, part in item.items()]}
        if isinstance(item, enum.Enum):
            return {"enum": self.names.get(id(type(item)), type(item).__name__), "member": item.name}
        if isinstance(item, np.dtype) and item.name in DTYPES:
            return {"dtype": item.name}
        if isinstance(item, jax.Array | np.ndarray | np.generic):
            return self.array(item, place)
        if id(item) in self.names:
            return {"name": self.names[id(item)]}
        if isinstance(item, eqx.Module) or (dataclasses.is_dataclass(item) and not isinstance(item, type)):
            fields = {f.name: inside(getattr(item, f.name), f".{f.name}") for f in dataclasses.fields(item)}
            return {"class": self.names.get(id(type(item)), type(item).__name__), "fields": fields}
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return {"class": type(item).__name__, "fields": {f: inside(getattr(item, f), f".{f}") for f in item._fields}}
        return {"name": _own_name(item, place)}

    def array(self, item: Any, place: str) -> dict[str, Any]:
        if isinstance(item, jax.core.Tracer):
            raise TypeError(f"{place} is being traced, expected a concrete array: save outside of jit, vmap and grad")
        if jnp.issubdtype(item.dtype, jax.dtypes.prng_key):
            return {"key": str(jax.random.key_impl(item)), "data": self.array(jax.random.key_data(item), place)}
        if item.dtype.name not in DTYPES:
            raise TypeError(f"{place} has dtype {item.dtype}, expected one of {', '.join(DTYPES)}: convert it")
        kind = "jax" if isinstance(item, jax.Array) else "scalar" if isinstance(item, np.generic) else "numpy"
        values = np.asarray(item)
        shape = ",".join(map(str, values.shape))
        little = values.astype(values.dtype.newbyteorder("<")) if values.dtype.kind in "iufc" else values
        encoded = {kind: f"{values.dtype.name}[{shape}]", "offset": self.position}
        self.arrays.append(little.tobytes())
        self.position += little.nbytes
        # A JAX scalar made of a Python number adapts to the precision around it, which `weak` keeps.
        return encoded | ({"weak": True} if getattr(item, "weak_type", False) and not shape else {})


def _own_name(item: Any, place: str) -> str:
    """The name of a function or class of the caller's."""
    name = getattr(item, "__name__", None)
    if not callable(item) or name is None or hasattr(item, "__self__"):
        raise TypeError(
            f"{place} is a {type(item).__name__}, expected an array, a number, a module or a function: convert it"
        )
    plain = inspect.unwrap(item)
    if not name.isidentifier() or getattr(plain, "__closure__", None):
        what = "a lambda" if name == "<lambda>" else f"the function {name} with variables of another function in it"
        raise TypeError(f"{place} is {what}, expected what has a name: make it a function of a file, or an Equinox module")
    return name


def _fields_of(cls: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(The fields of a module or named tuple, the defaults of those that an older file may not have)."""
    if issubclass(cls, tuple):
        return cls._fields, {}
    fields = dataclasses.fields(cls)
    return tuple(f.name for f in fields), {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}


class _Reader:
    """Turns JSON into a model. Arrays follow each other in `data`, so that a file cannot ask for more than it has."""

    def __init__(self, known: dict[str, Any], data: bytes):
        self.known, self.data, self.position = known, data, 0

    def decode(self, node: Any, place: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ModelFileError(f"{place} is nested deeper than {_DEEPEST}, expected less: such a model cannot be saved")
        inside = lambda part, where: self.decode(part, place + where, depth + 1)
        match node:
            case None | bool() | int() | float() | str():
                return node
            case list():
                return [inside(part, f"[{i}]") for i, part in enumerate(node)]
            case {"tuple": list(parts), **rest} if not rest:
                return tuple(inside(part, f"[{i}]") for i, part in enumerate(parts))
            case {"dict": list(pairs), **rest} if not rest:
                return self.dictionary(pairs, place, depth)
            case {"float": "nan" | "inf" | "-inf" as text, **rest} if not rest:
                return float(text)
            case {"complex": str(text), **rest} if not rest:
                return complex(text)
            case {"dtype": str(name), **rest} if name in DTYPES and not rest:
                return jnp.dtype(name)
            case {"key": str(kind), "data": dict(data), **rest} if kind in _KEYS and not rest:
                return self.key(kind, data, place)
            case {"name": str(name), **rest} if not rest:
                return self.find(name, place)
            case {"enum": str(name), "member": str(member), **rest} if not rest:
                return self.member(name, member, place)
            case {"class": str(name), "fields": dict(fields), **rest} if not rest:
                return self.instance(name, fields, place, depth)
            case {"offset": int()}:
                return self.array(node, place)
        raise ModelFileError(
            f"{place} is of a kind that lagrax.save does not write, expected a node of a model: save it again"
        )

    def find(self, name: str, place: str) -> Any:
        if name in self.known:
            return self.known[name]
        fix = (
            f"import {name.rpartition('.')[0]} first, if it is yours to trust"
            if "." in name
            else "pass it in classes or functions"
        )
        raise ModelFileError(f"{place} is {name!r}, expected what is known here: {fix}")

    def member(self, name: str, member: str, place: str) -> Any:
        cls = self.find(name, place)
        if not isinstance(cls, enum.EnumType) or member not in cls.__members__:
            raise ModelFileError(
                f"{place} is {member!r} of {name}, expected a member of an enumeration: save the model again"
            )
        return cls.__members__[member]

    def dictionary(self, pairs: list[Any], place: str, depth: int) -> dict[Any, Any]:
        result = {}
        for pair in pairs:
            if type(pair) is not list or len(pair) != 2:
                raise ModelFileError(f"{place} has a damaged entry, expected a key and a value: save the model again")
            key = self.decode(pair[0], f"{place} key", depth + 1)
            try:
                hash(key)
            except TypeError:
                raise ModelFileError(
                    f"{place} has a {type(key).__name__} as key, expected what can be one: a string"
                ) from None
            result[key] = self.decode(pair[1], f"{place}[{key!r}]", depth + 1)
        return result

    def instance(self, name: str, fields: dict[str, Any], place: str, depth: int) -> Any:
        cls = self.find(name, place)
        named_tuple = isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")
        if not isinstance(cls, type) or not (named_tuple or dataclasses.is_dataclass(cls)):
            raise ModelFileError(f"{place} is an instance of {name}, expected the name of a module: save the model again")
        expected, defaults = _fields_of(cls)
        fields = {f: value for f, value in fields.items() if f in expected or f not in _RETIRED or value is not None}
        if not set(expected) - set(defaults) <= set(fields) <= set(expected):
            raise ModelFileError(
                f"{place} ({name}) has the fields {sorted(fields)}, expected {sorted(expected)}: load it with the class "
                "that it was saved with"
            )
        values = defaults | {field: self.decode(value, f"{place}.{field}", depth + 1) for field, value in fields.items()}
        if named_tuple:
            return tuple.__new__(cls, [values[field] for field in expected])
        instance: Any = object.__new__(cls)
        for field, value in values.items():
            object.__setattr__(instance, field, value)
        return instance

    def array(self, node: dict[str, Any], place: str) -> Any:
        kind = next((kind for kind in ("jax", "numpy", "scalar") if kind in node), "")
        found = _ARRAY.fullmatch(text) if isinstance(text := node.get(kind), str) else None
        weak = node.get("weak", False)
        if not found or found[1] not in DTYPES or type(weak) is not bool or set(node) - {kind, "offset", "weak"}:
            raise ModelFileError(
                f"{place} is not described as an array should be, expected such as 'float32[3,2]': save it again"
            )
        dtype, shape = jnp.dtype(found[1]), tuple(int(size) for size in found[2].split(",") if size)
        size = math.prod(shape) * dtype.itemsize
        start, end = self.position, self.position + size
        if node["offset"] != start or end > len(self.data) or max(shape, default=0) >= 2**31:
            raise ModelFileError(
                f"{place} is {found[0]} at byte {node['offset']} of {len(self.data)}, expected it inside, at byte {start}: "
                "save the model again"
            )
        self.position = end
        little = dtype.newbyteorder("<") if dtype.kind in "iufc" else dtype
        raw = self.data[start:end]
        if found[1] == "bool" and raw.strip(b"\0\1"):
            raise ModelFileError(f"{place} has truth values other than 0 and 1, expected only those: save the model again")
        values = np.frombuffer(raw, little).reshape(shape).astype(dtype)
        if kind == "scalar" and not shape:
            return values[()]
        return values if kind != "jax" else _as_jax(values, weak, place)

    def key(self, kind: str, data: dict[str, Any], place: str) -> Any:
        raw = self.array(data, place) if "offset" in data else None
        try:
            return jax.random.wrap_key_data(raw, impl=kind)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ModelFileError(f"{place} is not a random key of kind {kind}, expected its words: save it again") from None


def _as_jax(values: np.ndarray, weak: bool, place: str) -> jax.Array:
    if jax.dtypes.canonicalize_dtype(values.dtype) != values.dtype:
        raise ModelFileError(
            f"{place} has dtype {values.dtype} and JAX is limited to 32 bits, expected room for 64: call "
            'jax.config.update("jax_enable_x64", True) first'
        )
    if weak and not values.shape:
        array = jnp.asarray(values.item())
        if array.dtype == values.dtype:
            return array
    return jnp.array(values)
