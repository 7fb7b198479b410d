"""The formats that publishers of images use: idx, CIFAR's binary records, MATLAB's version 5.

Files are not trusted: what a header claims is held against the largest that the data set can have before anything of that
size is allocated, and nothing in a file can name code.
"""

import contextlib
import gzip
import math
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Int32, UInt8

from ._matlab import MatlabError, parse


class DataError(ValueError):
    """A data set cannot be had: no such name, no such file, or not what it should hold; the message says what to do."""


Labelled = tuple[UInt8[np.ndarray, "n channel height width"], Int32[np.ndarray, " n"]]

CLASSES = 10
_RECORD = 1 + 3 * 32 * 32  # of CIFAR-10: the label, then red, green and blue, each row by row
_MOST_IN_BATCH = 10_000
_GZIP, _BYTES = b"\x1f\x8b", 8  # how gzip begins; idx's code for unsigned bytes
_SPARE = 2**20  # what a file may have beside its images: headers, padding, a page of HTML


def labelled(images: np.ndarray, labels: np.ndarray, where: object) -> Labelled:
    """Images and labels that belong together, checked; `where` is what to blame."""
    if len(images) != len(labels):
        raise DataError(f"{where} has {len(labels)} labels for {len(images)} images, expected as many: get both files again")
    if labels.max() >= CLASSES or labels.min() < 0:
        wrong = labels[(labels < 0) | (labels >= CLASSES)][0]
        raise DataError(f"{where} has the label {wrong}, expected 0 to {CLASSES - 1}: get the file again")
    return np.ascontiguousarray(images), labels.astype(np.int32)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file's content, unpacked if it is gzip; what goes wrong while it is read raises a `DataError`."""
    try:
        with open(path, "rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP  # the name does not tell: some browsers unpack what they save
            file.seek(0)
            with gzip.GzipFile(fileobj=file) if packed else contextlib.nullcontext(file) as stream:
                yield stream  # type: ignore[misc]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}), expected intact gzip: get the file again") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}), expected a file that can: check its permissions"
        ) from None


# --- idx: MNIST -------------------------------------------------------------------------------------------------------


def read_idx(path: Path, shape: tuple[int, ...], most: int) -> UInt8[np.ndarray, "n ..."]:
    """The items of this shape, at most so many, of an idx file of bytes; a label is an item of shape ().

    Two zeros, the code of the type, the number of dimensions; each dimension as a big-endian 32-bit integer; the bytes.
    """
    rank = 1 + len(shape)
    magic = bytes([0, 0, _BYTES, rank])
    with _opened(path) as stream:
        start = stream.read(4)
        if start != magic[: len(start)]:
            raise DataError(
                f"{path} begins with {start.hex(' ')}, expected {magic.hex(' ')} as in an idx file of bytes with {rank} "
                f"dimension{'s' * (rank > 1)}: get the file again"
            )
        sizes = stream.read(4 * rank)
        if len(start + sizes) < 4 + 4 * rank:
            raise DataError(
                f"{path} has {len(start + sizes)} bytes, expected a header of {4 + 4 * rank}: it is truncated, get it again"
            )
        count, *item = struct.unpack(f">{rank}I", sizes)
        if tuple(item) != shape or not 1 <= count <= most:
            raise DataError(
                f"{path} declares {_shaped(count, item)}, expected {_shaped(f'1 to {most}', shape)}: get the file again"
            )
        expected = count * math.prod(shape)
        content = stream.read(expected + 1)  # one more shows what should not be there, and lets gzip check its sum
    _check_length(path, len(content), expected)
    return np.frombuffer(content, np.uint8).reshape(count, *shape).copy()  # a copy can be written to, bytes cannot


def _shaped(count: object, item: Iterable[int]) -> str:
    sizes = " × ".join(map(str, item))
    return f"{count} items of {sizes}" if sizes else f"{count} items"


def _check_length(where: object, found: int, expected: int) -> None:
    if found < expected:
        raise DataError(f"{where} has {found} bytes of data, expected {expected}: it is truncated, get it again")
    if found > expected:
        raise DataError(f"{where} goes on after its {expected} bytes of data, expected an end: get the file again")


# --- records: CIFAR-10 ------------------------------------------------------------------------------------------------


def read_batch(path: Path) -> Labelled:
    """A batch of CIFAR-10's binary version: records of a label and 3 × 32 × 32 bytes."""
    with _opened(path) as stream:
        return _records(stream.read(_MOST_IN_BATCH * _RECORD + 1), path)


def read_archived_batches(path: Path, names: Iterable[str]) -> dict[str, Labelled]:
    """The batches of these names from `cifar-10-binary.tar.gz`; nothing is written to the disk."""
    members = {f"cifar-10-batches-bin/{name}": name for name in names}
    found: dict[str, Labelled] = {}
    try:
        with _opened(path) as stream:
            limited: Any = _Limited(stream, len(members) * _MOST_IN_BATCH * _RECORD + _SPARE)
            with tarfile.open(fileobj=limited, mode="r|") as archive:
                for member in archive:
                    name = members.get(member.name.removeprefix("./"))
                    content = archive.extractfile(member) if name is not None and member.isreg() else None
                    if name is not None and content is not None:
                        found[name] = _records(content.read(_MOST_IN_BATCH * _RECORD + 1), f"{name} in {path}")
            while limited.read(2**16):  # gzip checks its sum at the end, which the archive need not reach
                pass
    except tarfile.TarError as error:
        raise DataError(f"{path} is damaged ({error}), expected an intact tar.gz: get the file again") from None
    for name in members.values():
        if name not in found:
            raise DataError(f"{path} holds no {name}, expected all batches of CIFAR-10's binary version: get the file again")
    return found


class _Limited:
    """A stream that ends in an error where an honest archive would have ended: a few bytes can unpack to any number."""

    def __init__(self, stream: BinaryIO, most: int):
        self._stream, self._left = stream, most

    def read(self, size: int) -> bytes:
        content = self._stream.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise tarfile.ReadError("it unpacks to more than the batches")
        return content


def _records(content: bytes, where: object) -> Labelled:
    count, rest = divmod(len(content), _RECORD)
    if rest or not 1 <= count <= _MOST_IN_BATCH:
        size = f"more than {len(content) - 1}" if count == _MOST_IN_BATCH else str(len(content))
        raise DataError(
            f"{where} has {size} bytes, expected 1 to {_MOST_IN_BATCH} records of {_RECORD}: get the file again (CIFAR-10's "
            "binary version)"
        )
    records = np.frombuffer(content, np.uint8).reshape(count, _RECORD)
    return labelled(records[:, 1:].reshape(count, 3, 32, 32), records[:, 0], where)


# --- MATLAB: SVHN -----------------------------------------------------------------------------------------------------


def read_mat(path: Path, most: int) -> Labelled:
    """A file of SVHN's cropped digits: `X`, (32, 32, 3, n) bytes, and `y`, (n, 1), in which 10 stands for the digit 0."""
    size = most * 3 * 32 * 32 + _SPARE
    with _opened(path) as stream:
        content = stream.read(2 * size + 1)
    if len(content) > 2 * size:
        raise DataError(f"{path} has more than {2 * size} bytes, expected at most {most} images: get the file again")
    try:
        arrays = parse(content, size)
    except MatlabError as error:
        raise DataError(f"{path} is damaged ({error}), expected an intact MATLAB file of version 5: get it again") from None
    found = ", ".join(f"{name!r} {array.dtype} {array.shape}" for name, array in sorted(arrays.items()))
    n = arrays["X"].shape[-1] if "X" in arrays else 0
    shapes = {name: array.shape for name, array in arrays.items()}
    if shapes != {"X": (32, 32, 3, n), "y": (n, 1)} or arrays["X"].dtype != np.uint8 or n > most:
        raise DataError(
            f"{path} holds {found or 'nothing'}, expected 'X' uint8 (32, 32, 3, n) and 'y' (n, 1), n up to {most}: "
            "get it again"
        )
    digits = arrays["y"].reshape(-1)
    wrong = digits[~np.isin(digits, np.arange(1, 1 + CLASSES))]
    if wrong.size:
        raise DataError(f"{path} has the label {wrong[0]}, expected 1 to 10, in which 10 is the digit 0: get the file again")
    return labelled(arrays["X"].transpose(3, 2, 0, 1), digits.astype(np.int32) % 10, path)
