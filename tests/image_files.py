"""Image data in their publishers' formats, written by hand, for the tests of those who read them."""

import contextlib
import dataclasses
import gzip
import io
import re
import struct
import tarfile

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from scipy.io import savemat

from lagrax.datasets import DataError, _files

QUIET = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
CACHE = _files.cache
MNIST, CIFAR10, SVHN = _files.SOURCES["mnist"], _files.SOURCES["cifar10"], _files.SOURCES["svhn"]


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    """Nothing of the user's is read or written, and nothing is downloaded from anywhere but this machine."""
    monkeypatch.delenv(_files.VARIABLE, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(_files, "cache", lambda: tmp_path / "cache")
    for name, source in _files.SOURCES.items():
        monkeypatch.setitem(_files.SOURCES, name, dataclasses.replace(source, url="http://127.0.0.1:9/"))


@contextlib.contextmanager
def complaint(*parts):
    """A `DataError` of one sentence with these parts in this order."""
    with pytest.raises(DataError, match=".*".join(map(re.escape, parts))) as caught:
        yield
    message = str(caught.value)
    assert "expected" in message or "pip install" in message
    assert "\n" not in message and ". " not in message and not message.endswith(".")


# --- the formats, written by hand -------------------------------------------------------------------------------------


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def idx(array, magic=None):
    start = bytes([0, 0, 8, array.ndim]) if magic is None else magic
    return start + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def records(x, y):
    return b"".join(bytes([label]) + image.tobytes() for image, label in zip(x, y, strict=True))


def matlab(x, y, **options):
    file = io.BytesIO()
    savemat(file, {"X": x, "y": y}, **options)
    return file.getvalue()


def archive(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


TRAIN_Y, TEST_Y = np.array([5, 0, 9, 3, 0, 7], np.uint8), np.array([1, 0, 9], np.uint8)
SMALL_TRAIN, SMALL_TEST = pixels(6, 28, 28), pixels(3, 28, 28, seed=1)
TRAIN, TEST = pixels(6, 3, 32, 32), pixels(3, 3, 32, 32, seed=1)


def mnist_files():
    arrays = {"train-images": SMALL_TRAIN, "train-labels": TRAIN_Y, "t10k-images": SMALL_TEST, "t10k-labels": TEST_Y}
    return {f"{stem}-idx{a.ndim}-ubyte.gz": gzip.compress(idx(a)) for stem, a in arrays.items()}


def cifar10_files(batches=3):
    """Two images in each batch: three of the five."""
    named = {
        f"data_batch_{i + 1}.bin": records(TRAIN[2 * i : 2 * i + 2], TRAIN_Y[2 * i : 2 * i + 2]) for i in range(batches)
    }
    return named | {"test_batch.bin": records(TEST, TEST_Y)}


def cifar10_archive():
    more = {f"data_batch_{i}.bin": records(TRAIN[:1], TRAIN_Y[:1]) for i in (4, 5)}
    names = {f"cifar-10-batches-bin/{name}": content for name, content in (cifar10_files() | more).items()}
    return archive({"cifar-10-batches-bin/readme.html": b"<p>", **names})


def svhn_files(**options):
    one = lambda x, y: matlab(x.transpose(2, 3, 1, 0), np.where(y == 0, 10, y)[:, None].astype(np.uint8), **options)
    return {"train_32x32.mat": one(TRAIN, TRAIN_Y), "test_32x32.mat": one(TEST, TEST_Y)}


FILES = {"mnist": mnist_files, "cifar10": cifar10_files, "svhn": svhn_files}


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def check(data, name):
    x, y = (SMALL_TRAIN[:, None], SMALL_TEST[:, None]) if name == "mnist" else (TRAIN, TEST)
    np.testing.assert_array_equal(data.train_images[:6], x)
    np.testing.assert_array_equal(data.test_images, y)
    np.testing.assert_array_equal(data.train_labels[:6], TRAIN_Y)
    np.testing.assert_array_equal(data.test_labels, TEST_Y)
    assert data.name == name and data.classes == 10
    for array, dtype in ((data.train_images, np.uint8), (data.train_labels, np.int32)):
        assert array.dtype == dtype and array.flags.c_contiguous and array.flags.writeable
