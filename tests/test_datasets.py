"""Images are read as their publishers wrote them, from wherever they are; any other file ends in one sentence."""

import contextlib
import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import logging
import math
import os
import re
import struct
import sys
import tarfile
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from lagrax.datasets import DataError, _files, _formats, images
from lagrax.datasets._formats import read_archived_batches, read_batch, read_idx, read_mat

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


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_folder_is_read_as_it_was_written(name, tmp_path):
    check(images.load(name, write(tmp_path, FILES[name]()), download=False), name)


@pytest.mark.parametrize("rename", [lambda n: n, lambda n: n.replace("-idx", ".idx")])
@pytest.mark.parametrize("packed", [True, False])
def test_mnist_has_several_names(rename, packed, tmp_path):
    contents = mnist_files()
    if not packed:
        contents = {name.removesuffix(".gz"): gzip.decompress(content) for name, content in contents.items()}
    check(images.load("mnist", write(tmp_path, {rename(n): c for n, c in contents.items()})), "mnist")


def test_mnist_may_be_unpacked_under_its_packed_name(tmp_path):
    unpacked = {name: gzip.decompress(content) for name, content in mnist_files().items()}
    check(images.load("mnist", write(tmp_path, unpacked)), "mnist")


def test_cifar10_is_read_from_its_archive(tmp_path):
    data = images.load("cifar10", write(tmp_path, {"cifar-10-binary.tar.gz": cifar10_archive()}))
    check(data, "cifar10")
    assert len(data.train_labels) == 8
    assert os.listdir(tmp_path) == ["cifar-10-binary.tar.gz"]


@pytest.mark.parametrize("options", [{"do_compression": True}, {"oned_as": "row"}])
def test_svhn_may_be_compressed(options, tmp_path):
    check(images.load("svhn", write(tmp_path, svhn_files(**options))), "svhn")


def test_svhn_may_store_its_labels_as_any_number(tmp_path):
    x = TEST.transpose(2, 3, 1, 0)
    for dtype in (np.int8, np.uint16, np.int32, np.int64, np.float32, np.float64):
        path = tmp_path / "test_32x32.mat"
        path.write_bytes(matlab(x, np.array([[1], [10], [9]], dtype)))
        _, labels = read_mat(path, 10)
        np.testing.assert_array_equal(labels, TEST_Y)


def test_svhn_may_come_from_a_machine_of_the_other_byte_order(tmp_path):
    element = lambda kind, content: struct.pack(">II", kind, len(content)) + content + bytes(-len(content) % 8)

    def variable(name, kind, array):
        shape = element(5, struct.pack(f">{array.ndim}i", *array.shape))
        parts = element(6, struct.pack(">II", 9, 0)), shape, element(1, name), element(kind, array.tobytes(order="F"))
        return element(14, b"".join(parts))

    y = np.array([[1], [10], [9]], ">u2")
    content = bytes(124) + b"\x01\x00MI" + variable(b"X", 2, TEST.transpose(2, 3, 1, 0)) + variable(b"y", 4, y)
    (tmp_path / "a.mat").write_bytes(content)
    read, labels = read_mat(tmp_path / "a.mat", 10)
    np.testing.assert_array_equal(read, TEST)
    np.testing.assert_array_equal(labels, TEST_Y)


def test_digits_are_those_of_scikit_learn(tmp_path):
    from sklearn.datasets import load_digits

    data, known = images.load("digits"), load_digits()
    assert data.train_images.shape == (1437, 1, 8, 8) and data.test_images.shape == (360, 1, 8, 8) and not data.notes
    both = np.concatenate([data.train_images, data.test_images])[:, 0]
    np.testing.assert_allclose(both / 255 * 16, known.images, atol=16 / 255 / 2)
    assert both.dtype == np.uint8 and both.max() == 255 and len(np.unique(both)) == 17
    np.testing.assert_array_equal(np.concatenate([data.train_labels, data.test_labels]), known.target)
    assert set(data.test_labels) == set(range(10))


def test_files_are_read_without_the_extra(tmp_path, monkeypatch):
    for module in ("pooch", "scipy", "scipy.io", "sklearn", "sklearn.datasets", "tqdm"):
        monkeypatch.setitem(sys.modules, module, None)
    for name, files in FILES.items():
        check(images.load(name, write(tmp_path / name, files())), name)


# --- what is made of it -----------------------------------------------------------------------------------------------


def test_what_is_not_there_is_noted(tmp_path, capsys):
    data = images.load("cifar10", write(tmp_path, cifar10_files()))
    training, test = data.notes
    assert training == f"cifar10: 6 of the published 50000 training images are in {tmp_path}"
    assert "3 of the published 10000 test" in test
    assert capsys.readouterr().err == f"{training}\n{test}\n"
    assert images.load("cifar10", tmp_path, progress=False).notes == data.notes
    assert capsys.readouterr() == ("", "")


def test_a_complete_data_set_needs_no_note(tmp_path, monkeypatch):
    monkeypatch.setitem(images._PUBLISHED, "svhn", (6, 3))
    assert images.load("svhn", write(tmp_path, svhn_files())).notes == ()


def test_limited_keeps_the_first(tmp_path):
    data = images.load("mnist", write(tmp_path, mnist_files()))
    few = data.limited(4, 1)
    np.testing.assert_array_equal(few.train_images, data.train_images[:4])
    np.testing.assert_array_equal(few.train_labels, [5, 0, 9, 3])
    assert few.test_images.shape == (1, 1, 28, 28) and few.test_labels.shape == (1,) and few.notes == data.notes
    whole = data.limited(None, 3)
    assert len(whole.train_images) == 6 and len(whole.test_images) == 3
    for asked in (7, 0, -1):
        with complaint(f"{asked} training images of mnist", "expected 1 to 6"):
            data.limited(asked)
    with complaint("4 test images", "expected 1 to 3"):
        data.limited(test=4)


def test_standardised_uses_the_training_images_alone(tmp_path):
    data = images.load("svhn", write(tmp_path, svhn_files()))
    result = data.standardised()
    assert result.train_images.dtype == result.test_images.dtype == np.float32
    np.testing.assert_allclose(result.train_images.mean((0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(result.train_images.std((0, 2, 3)), 1, atol=1e-6)
    mean, deviation = (f(TRAIN.astype(float), (0, 2, 3)).reshape(3, 1, 1) for f in (np.mean, np.std))
    np.testing.assert_allclose(result.test_images, (TEST - mean) / deviation, atol=1e-6)
    np.testing.assert_allclose(result.standardised().test_images, result.test_images, atol=1e-6)
    assert data.train_images.dtype == np.uint8


def test_a_constant_channel_becomes_zero(tmp_path):
    data = images.load("svhn", write(tmp_path, svhn_files()))
    x = data.train_images.copy()
    x[:, 1] = 77
    result = dataclasses.replace(data, train_images=x).standardised()
    assert not result.train_images[:, 1].any() and np.isfinite(result.test_images).all()


# --- where files are looked for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "inside"), [(name, inside) for name in FILES for inside in ("", *_files.SOURCES[name].folders)]
)
def test_files_are_found_in_the_folder_or_inside(name, inside, tmp_path, monkeypatch):
    write(tmp_path / "data" / inside, FILES[name]())
    check(images.load(name, tmp_path / "data", download=False), name)
    check(images.load(name, str(tmp_path / "data"), download=False), name)
    monkeypatch.setenv(_files.VARIABLE, str(tmp_path / "data"))
    check(images.load(name, download=False), name)
    monkeypatch.setenv(_files.VARIABLE, "")
    (tmp_path / "data").rename(tmp_path / "cache")
    check(images.load(name), name)


def test_the_argument_goes_before_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv(_files.VARIABLE, str(tmp_path / "nowhere"))
    check(images.load("svhn", write(tmp_path / "data", svhn_files())), "svhn")
    with complaint("LAGRAX_DATA is", "nowhere, which is no folder"):
        images.load("svhn")
    with complaint("data_dir is", "elsewhere, which is no folder"):
        images.load("svhn", tmp_path / "elsewhere")


def test_the_cache_is_the_users():
    import pooch

    assert pooch.os_cache("lagrax") == CACHE()


def test_a_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    check(images.load("svhn", write(tmp_path / "data", svhn_files()) and "~/data"), "svhn")


@pytest.mark.parametrize(
    ("name", "lost", "url"),
    [
        ("mnist", "t10k-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
        ("svhn", "test_32x32.mat", "test_32x32.mat"),
        ("cifar10", "test_batch.bin", "cifar-10-binary.tar.gz"),
    ],
)
@pytest.mark.parametrize("download", [True, False])
def test_a_folder_with_some_of_the_files_has_to_have_all(name, lost, url, download, tmp_path):
    write(tmp_path, FILES[name]())
    (tmp_path / lost).unlink()
    with complaint(f"{tmp_path} holds no {lost}", f"get http://127.0.0.1:9/{url}", "--data-dir or LAGRAX_DATA"):
        images.load(name, tmp_path, download=download)


def test_cifar10_needs_one_batch_for_training(tmp_path):
    with complaint("holds no data_batch_1.bin", "cifar-10-binary.tar.gz"):
        images.load("cifar10", write(tmp_path, cifar10_files(batches=0)))


@pytest.mark.parametrize("name", FILES)
def test_without_download_a_missing_data_set_is_an_error(name, tmp_path):
    first = next(iter(_files.SOURCES[name].files))
    with complaint(f"{tmp_path} holds no {first}", "get http://127.0.0.1:9/", "--data-dir"):
        images.load(name, tmp_path, download=False)
    with complaint("cache", f"holds no {first}"):
        images.load(name, download=False)


@pytest.mark.parametrize(
    ("given", "hint"), [("minst", "'mnist'?"), ("CIFAR-10", "'cifar10'?"), ("SVHN", "'svhn'?"), ("imagenet", "choose")]
)
def test_an_unknown_name_gets_a_suggestion(given, hint):
    with complaint(repr(given), "expected digits, mnist, cifar10, svhn", hint):
        images.load(given)


def test_packages_that_are_not_installed_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.setattr(_files, "cache", CACHE)
    with complaint("pooch", "pip install 'lagrax[images]'"):
        images.load("mnist")
    with complaint("scikit-learn", "pip install 'lagrax[images]'"):
        images.load("digits")


# --- downloads --------------------------------------------------------------------------------------------------------


class Handler(http.server.SimpleHTTPRequestHandler):
    asked: list

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_):
        pass


class BreaksOff(Handler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"a little")


@contextlib.contextmanager
def publisher(folder, monkeypatch, name, handler=Handler, files=None):
    """A server with the files of a folder in the place of a data set's publisher; yields what it was asked for."""
    asked = []
    handler = type("H", (handler,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    sums = files or {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
    source = dataclasses.replace(_files.SOURCES[name], url=f"http://127.0.0.1:{server.server_port}/", files=sums)
    monkeypatch.setitem(_files.SOURCES, name, source)
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


PUBLISHED = {"mnist": mnist_files, "cifar10": lambda: {"cifar-10-binary.tar.gz": cifar10_archive()}, "svhn": svhn_files}


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_is_missing_is_downloaded_once(name, tmp_path, monkeypatch, capsys):
    there = write(tmp_path / "publisher", PUBLISHED[name]())
    (tmp_path / "empty").mkdir()
    with publisher(there, monkeypatch, name) as asked:
        check(images.load(name), name)
        printed = capsys.readouterr().err
        assert all(f"downloading http://127.0.0.1:{file}" in re.sub(r":\d+/", ":", printed) for file in os.listdir(there))
        assert len(asked) == len(os.listdir(there))
        check(images.load(name, tmp_path / "empty", progress=False), name)
        check(images.load(name, download=False, progress=False), name)
        assert len(asked) == len(os.listdir(there)) and capsys.readouterr() == ("", "")
    assert sorted(os.listdir(tmp_path / "cache" / name)) == sorted(os.listdir(there))
    assert os.listdir(tmp_path / "empty") == []


def test_only_what_the_cache_lacks_is_downloaded(tmp_path, monkeypatch, capsys):
    there = write(tmp_path / "publisher", svhn_files())
    write(tmp_path / "cache" / "svhn", {"train_32x32.mat": svhn_files()["train_32x32.mat"]})
    logger = logging.getLogger("pooch")
    with publisher(there, monkeypatch, "svhn") as asked:
        level = logger.level
        check(images.load("svhn", progress=False), "svhn")
        assert asked == ["/test_32x32.mat"] and logger.level == level
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_how_far_a_download_is(tmp_path, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with publisher(write(tmp_path / "publisher", svhn_files()), monkeypatch, "svhn"):
        images.load("svhn")
    assert terminal.getvalue().count("\r0.0 of 0.0 MB\n") == 2


def test_another_file_than_the_published_one_is_not_kept(tmp_path, monkeypatch):
    there = write(tmp_path / "publisher", svhn_files())
    wrong = {name: hashlib.sha256(b"another").hexdigest() for name in os.listdir(there)}
    with publisher(there, monkeypatch, "svhn", files=wrong), complaint("SHA-256", "32x32.mat by hand", "LAGRAX_DATA"):
        images.load("svhn")
    assert os.listdir(tmp_path / "cache" / "svhn") == []


def test_without_a_network_the_way_to_do_it_by_hand_is_said(tmp_path, monkeypatch):
    there = write(tmp_path / "publisher", {"other": b""})
    for_hand = "train_32x32.mat by hand from http://127.0.0.1:"
    with complaint("http://127.0.0.1:9/train_32x32.mat cannot be downloaded (ConnectionError)", for_hand, "--data-dir"):
        images.load("svhn")
    with publisher(there, monkeypatch, "svhn", files=SVHN.files), complaint("HTTP status 404", for_hand):
        images.load("svhn")
    with publisher(there, monkeypatch, "svhn", BreaksOff, SVHN.files), complaint("cannot be downloaded", for_hand):
        images.load("svhn")
    assert os.listdir(tmp_path / "cache" / "svhn") == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    there = write(tmp_path / "publisher", svhn_files())
    with publisher(there, monkeypatch, "svhn"), complaint("cache", "cannot be written", "expected room for"):
        images.load("svhn")


def test_the_published_sums_are_sha256():
    for source in (MNIST, CIFAR10, SVHN):
        assert source.url.startswith("http") and source.url.endswith("/")
        assert all(re.fullmatch("[0-9a-f]{64}", value) for value in source.files.values())
        assert set(source.others) <= set(source.files)


# --- files that are not intact ----------------------------------------------------------------------------------------


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
