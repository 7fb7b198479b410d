"""Files that are not intact: each ends in one sentence, whatever is wrong with it."""

import gzip
import io
import math
import struct
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagrax.datasets import DataError, _formats, images
from lagrax.datasets._formats import read_archived_batches, read_batch, read_idx, read_mat

from .image_files import (
    QUIET,
    SMALL_TEST,
    TEST,
    TEST_Y,
    archive,
    complaint,
    idx,
    matlab,
    mnist_files,
    pixels,
    records,
    svhn_files,
    write,
)
from .image_files import own_places as own_places


def some_idx(**changes):
    return idx(SMALL_TEST, **changes)


DAMAGED = {
    "empty": (b"", ["has 0 bytes, expected a header of 16", "truncated"]),
    "header cut": (some_idx()[:9], ["has 9 bytes, expected a header of 16", "truncated"]),
    "data cut": (some_idx()[:-1], ["has 2351 bytes of data, expected 2352", "truncated"]),
    "too long": (some_idx() + b"x", ["goes on after its 2352 bytes"]),
    "a page": (b"<html>", ["begins with 3c 68 74 6d, expected 00 00 08 03", "3 dimensions"]),
    "floats": (some_idx(magic=b"\0\0\r\3"), ["begins with 00 00 0d 03"]),
    "labels": (idx(TEST_Y), ["begins with 00 00 08 01, expected 00 00 08 03"]),
    "other size": (idx(pixels(3, 8, 8)), ["declares 3 items of 8 × 8, expected 1 to 10000 items of 28 × 28"]),
    "none": (idx(pixels(0, 28, 28)), ["declares 0 items"]),
    "huge": (b"\0\0\10\3" + b"\xff" * 12, ["declares 4294967295 items of 4294967295 × 4294967295"]),
    "too many": (
        b"\0\0\10\3" + struct.pack(">III", 10_001, 28, 28),
        ["declares 10001 items of 28 × 28, expected 1 to 10000"],
    ),
    "gzip cut": (gzip.compress(some_idx())[:-20], ["is damaged", "expected intact gzip"]),
    "gzip header": (gzip.compress(some_idx())[:5], ["is damaged", "expected intact gzip"]),
    "gzip sum": (gzip.compress(some_idx())[:-8] + bytes(8), ["is damaged", "expected intact gzip"]),
    "gzip data": (b"\x1f\x8b\x08\0\0\0\0\0\0\0" + bytes(range(50)), ["is damaged", "expected intact gzip"]),
    "gzip bomb": (gzip.compress(some_idx() + bytes(10**7)), ["goes on after its 2352 bytes"]),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_idx_files_are_described(case, tmp_path):
    content, parts = DAMAGED[case]
    write(tmp_path, mnist_files() | {"t10k-images-idx3-ubyte.gz": content})
    with complaint("t10k-images-idx3-ubyte.gz", *parts):
        images.load("mnist", tmp_path)


def test_labels_have_to_fit(tmp_path):
    path = "t10k-labels-idx1-ubyte.gz"
    write(tmp_path, mnist_files() | {path: idx(TEST_Y[:2])})
    with complaint(path, "has 2 labels for 3 images"):
        images.load("mnist", tmp_path)
    write(tmp_path, {path: idx(np.array([1, 10, 2], np.uint8))})
    with complaint(path, "has the label 10, expected 0 to 9"):
        images.load("mnist", tmp_path)


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    write(tmp_path, svhn_files())

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_formats, "open", refuse, raising=False)
    with complaint("train_32x32.mat", "cannot be read (Permission denied)"):
        images.load("svhn", tmp_path)


def test_damaged_batches_are_described(tmp_path, monkeypatch):
    path = tmp_path / "test_batch.bin"
    whole = records(TEST, TEST_Y)
    monkeypatch.setattr(_formats, "_MOST_IN_BATCH", 3)
    for content, parts in {
        b"": ["has 0 bytes, expected 1 to 3 records of 3073"],
        whole[:-1]: ["has 9218 bytes"],
        whole + b"x": ["has more than 9219 bytes"],
        whole + whole: ["has more than 9219 bytes"],
        records(TEST, [1, 2, 10]): ["has the label 10, expected 0 to 9"],
    }.items():
        path.write_bytes(content)
        with complaint("test_batch.bin", *parts):
            read_batch(path)


def test_damaged_archives_are_described(tmp_path, monkeypatch):
    path, names = tmp_path / "cifar-10-binary.tar.gz", ["data_batch_1.bin", "test_batch.bin"]
    good = {f"cifar-10-batches-bin/{name}": records(TEST, TEST_Y) for name in names}
    whole, other = archive(good), archive({"elsewhere/../cifar-10-batches-bin/test_batch.bin": b"", **good})
    plain = gzip.decompress(whole)
    monkeypatch.setattr(_formats, "_MOST_IN_BATCH", 3)
    monkeypatch.setattr(_formats, "_SPARE", 20_000)
    for content, parts in {
        b"": ["is damaged", "expected an intact tar.gz"],
        b"<html>" * 200: ["is damaged", "expected an intact tar.gz"],
        whole[:-100]: ["is damaged", "expected intact gzip"],
        gzip.compress(plain[:9000]): ["is damaged"],
        gzip.compress(plain + bytes(10**6)): ["is damaged (it unpacks to more than the batches)"],
        archive({"a": bytes(10**6), **good}): ["is damaged (it unpacks to more than the batches)"],
        archive({"cifar-10-batches-bin/data_batch_1.bin": records(TEST, TEST_Y)}): ["holds no test_batch.bin"],
        archive(good | {"cifar-10-batches-bin/test_batch.bin": b"x"}): [" has 1 bytes, expected 1 to 3 records"],
    }.items():
        path.write_bytes(content)
        with complaint("cifar-10-binary.tar.gz", *parts):
            read_archived_batches(path, names)
    for content in (whole, other, plain):  # some browsers unpack what they save
        path.write_bytes(content)
        assert set(read_archived_batches(path, names)) == set(names)


def test_links_in_an_archive_are_not_followed(tmp_path):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        link = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    (tmp_path / "a.tar.gz").write_bytes(file.getvalue())
    with complaint("holds no test_batch.bin"):
        read_archived_batches(tmp_path / "a.tar.gz", ["test_batch.bin"])


X, Y = TEST.transpose(2, 3, 1, 0), np.array([[1], [10], [9]], np.uint8)
DAMAGED_MAT = {
    "empty": (b"", ["is damaged (it does not begin as one)"]),
    "a page": (b"<html>" * 100, ["is damaged (it does not begin as one)"]),
    "newer": (b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM" + bytes(400), ["does not begin as one"]),
    "cut": (matlab(X, Y)[:-30], ["is damaged", "expected an intact MATLAB file of version 5"]),
    "cut, compressed": (matlab(X, Y, do_compression=True)[:-30], ["is damaged"]),
    "type": (matlab(X, Y)[:185] + b"\x08" + matlab(X, Y)[186:], ["is damaged (a variable is no array of numbers)"]),
    "nothing": (matlab(X, Y)[:128], ["holds nothing, expected 'X' uint8 (32, 32, 3, n) and 'y' (n, 1), n up to 5"]),
    "transposed": (matlab(TEST, Y), ["holds 'X' uint8 (3, 3, 32, 32)"]),
    "floats": (matlab(X / 255, Y), ["holds 'X' float64"]),
    "complex": (matlab(X, Y + 1j), ["no array of real numbers"]),
    "text": (matlab(X, "abc"), ["is damaged"]),
    "cells": (matlab(X, np.array([["abc"]], object)), ["is damaged"]),
    "labels": (matlab(X, Y[:2]), ["'y' uint8 (2, 1)"]),
    "label 0": (matlab(X, Y * 0), ["has the label 0, expected 1 to 10"]),
    "label 11": (matlab(X, Y + 1), ["has the label 11, expected 1 to 10"]),
    "half a label": (matlab(X, Y / 2), ["has the label 0.5, expected 1 to 10"]),
    "too many": (matlab(np.tile(X, (1, 1, 1, 2)), np.tile(Y, (2, 1))), ["(32, 32, 3, 6)", "n up to 5"]),
    "too much": (matlab(X, Y) + bytes(3 * 10**6), ["has more than"]),
    "bomb": (matlab(np.zeros(2 * 10**6), Y, do_compression=True), ["unpacks to more than"]),
    "twice": (matlab(X, Y) + matlab(X, Y)[128:], ["it holds 'X' twice"]),
}


@pytest.mark.parametrize("case", DAMAGED_MAT)
def test_damaged_matlab_files_are_described(case, tmp_path):
    content, parts = DAMAGED_MAT[case]
    (tmp_path / "test_32x32.mat").write_bytes(content)
    with complaint("test_32x32.mat", *parts):
        read_mat(tmp_path / "test_32x32.mat", 5)


# --- any file whatever ------------------------------------------------------------------------------------------------


@QUIET
@given(st.integers(1, 5), st.lists(st.integers(1, 6), max_size=3), st.booleans(), st.integers(0, 99))
def test_idx_round_trip(tmp_path, count, shape, packed, seed):
    array = pixels(count, *shape, seed=seed)
    (tmp_path / "a").write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    read = read_idx(tmp_path / "a", tuple(shape), 5)
    assert read.dtype == np.uint8 and read.shape == array.shape
    np.testing.assert_array_equal(read, array)


def changed(content):
    """The content with bytes replaced, and cut."""
    change = st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255))

    def apply(changes, length):
        result = bytearray(content)
        for place, value in changes:
            result[place] = value
        return bytes(result[:length])

    return st.builds(apply, st.lists(change, max_size=4), st.integers(0, len(content)) | st.just(len(content)))


ARRAY = pixels(4, 5, 6)
READERS = {
    "idx": (idx(ARRAY), lambda path: read_idx(path, (5, 6), 4), (4, 5, 6)),
    "gzip": (gzip.compress(idx(ARRAY)), lambda path: read_idx(path, (5, 6), 4), (4, 5, 6)),
    "matlab": (matlab(X[..., :1], Y[:1])[:400], lambda path: read_mat(path, 2)[0], (1, 3, 32, 32)),
    "matlab, compressed": (matlab(X[..., :1] // 255, Y[:1], do_compression=True), lambda path: read_mat(path, 2)[0], None),
    "archive": (
        archive({"cifar-10-batches-bin/b": bytes(3073)}),
        lambda path: read_archived_batches(path, ["b"])["b"][0],
        (1, 3, 32, 32),
    ),
    "unpacked archive": (
        gzip.decompress(archive({"cifar-10-batches-bin/b": bytes(3073)}))[:4096],
        lambda path: read_archived_batches(path, ["b"])["b"][0],
        (1, 3, 32, 32),
    ),
}


@pytest.mark.parametrize("kind", READERS)
def test_any_change_is_noticed_or_harmless(kind, tmp_path):
    content, read, shape = READERS[kind]

    @QUIET
    @given(changed(content))
    def run(other):
        (tmp_path / "a").write_bytes(other)
        try:
            array = read(tmp_path / "a")
        except DataError as error:
            assert "\n" not in str(error)
        else:
            assert array.dtype == np.uint8 and (shape is None or array.shape[1:] == shape[1:])
            assert math.prod(array.shape) > 0

    run()
