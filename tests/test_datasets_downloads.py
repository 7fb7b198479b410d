"""Image data that is nowhere to be found is downloaded, once, and has to be the published one."""

import contextlib
import dataclasses
import functools
import hashlib
import http.server
import io
import logging
import os
import re
import sys
import threading

import pytest

from lagrax.datasets import _files, images

from .image_files import (
    CIFAR10,
    MNIST,
    SVHN,
    check,
    cifar10_archive,
    complaint,
    mnist_files,
    svhn_files,
    write,
)
from .image_files import own_places as own_places


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
