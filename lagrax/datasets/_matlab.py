"""MATLAB's files of version 5, as far as arrays of numbers need them.

A reader of our own, because scipy's (1.17) takes Python down with a segmentation fault if a single byte of a file, such as
the type of the numbers, is wrong.

After a header of 128 bytes comes one element after the other: a type and a length of 32 bits each, then the content. Each
variable is an element of type "matrix", or "compressed" with the matrix in zlib's format; a matrix consists of elements
again: flags, dimensions, name, numbers.
"""

import math
import struct
import zlib

import numpy as np

_UINT32, _INT32, _INT8, _MATRIX, _COMPRESSED = 6, 5, 1, 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_NUMERIC_CLASSES, _COMPLEX = range(6, 16), 0x800
_MOST_DIMENSIONS, _LONGEST_NAME, _MOST_VARIABLES = 32, 63, 16


class MatlabError(ValueError):
    """A file is not what MATLAB writes; the message says why, in half a sentence."""


def parse(content: bytes, most: int) -> dict[str, np.ndarray]:
    """The arrays in the content of a file by their names; none of them may unpack to more than `most` bytes."""
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or struct.unpack_from(order + "H", content, 124) != (0x100,):
        raise MatlabError("it does not begin as one")
    view, position = memoryview(content), 128
    arrays: dict[str, np.ndarray] = {}
    while position < len(view):
        kind, body, position = _element(view, position, order, aligned=False)
        if kind == _COMPRESSED:
            kind, body, _ = _element(_unpacked(body, most), 0, order, aligned=False)
        if kind != _MATRIX:
            raise MatlabError(f"it holds an element of type {kind}")
        name, array = _array(body, order)
        if name in arrays or len(arrays) == _MOST_VARIABLES:
            raise MatlabError(f"it holds {name!r} twice, or more than {_MOST_VARIABLES} variables")
        arrays[name] = array
    return arrays


def _unpacked(body: memoryview, most: int) -> memoryview:
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(body, most + 1)
    except zlib.error as error:
        raise MatlabError(str(error)) from None
    if len(content) > most:
        raise MatlabError(f"a variable unpacks to more than {most} bytes")
    if not stream.eof:
        raise MatlabError("a variable is truncated")
    return memoryview(content)


def _element(view: memoryview, start: int, order: str, aligned: bool = True) -> tuple[int, memoryview, int]:
    """Type and content of the element that starts here, and where the next one does."""
    if len(view) - start < 8:
        raise MatlabError("it ends within an element")
    kind, size = struct.unpack_from(order + "II", view, start)
    if (
        small := kind >> 16
    ):  # up to four bytes: their number shares a word with the type, and they take the place of the length
        kind, size, begin, end = kind & 0xFFFF, small, start + 4, start + 8
    else:
        begin = start + 8
        end = begin + size + (-size % 8 if aligned else 0)
    if begin + size > (end if small else len(view)):
        raise MatlabError("an element is longer than what holds it")
    return kind, view[begin : begin + size], end


def _array(body: memoryview, order: str) -> tuple[str, np.ndarray]:
    kinds, parts, position = [], [], 0
    for _ in range(4):
        kind, part, position = _element(body, position, order)
        kinds.append(kind)
        parts.append(part)
    flags, sizes, name, numbers = parts
    if kinds[:3] != [_UINT32, _INT32, _INT8] or kinds[3] not in _NUMBERS or len(flags) != 8 or len(sizes) % 4:
        raise MatlabError("a variable is no array of numbers")
    if len(sizes) > 4 * _MOST_DIMENSIONS or len(name) > _LONGEST_NAME:
        raise MatlabError("a variable has more dimensions or a longer name than MATLAB gives it")
    word = struct.unpack_from(order + "I", flags)[0]
    if word & 0xFF not in _NUMERIC_CLASSES or word & _COMPLEX:
        raise MatlabError("a variable is no array of real numbers")
    shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    dtype = np.dtype(order + _NUMBERS[kinds[3]])
    if min(shape, default=0) < 1 or math.prod(shape) * dtype.itemsize != len(numbers):
        raise MatlabError(f"a variable has {len(numbers)} bytes for the shape {shape}")
    return bytes(name).decode("ascii", "replace"), np.frombuffer(numbers, dtype).reshape(shape, order="F")
