"""Images are read as their publishers wrote them, from wherever they are."""

import dataclasses
import gzip
import os
import struct
import sys

import numpy as np
import pytest

from lagrax.datasets import _files, images
from lagrax.datasets._formats import read_mat

from .image_files import (
    CACHE,
    FILES,
    TEST,
    TEST_Y,
    TRAIN,
    check,
    cifar10_archive,
    cifar10_files,
    complaint,
    matlab,
    mnist_files,
    svhn_files,
    write,
)
from .image_files import own_places as own_places

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
