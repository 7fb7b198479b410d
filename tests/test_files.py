"""Files that are replaced as a whole: by one writer or several, killed or not."""

import os
import signal
import subprocess
import sys
import threading

import jax.random as jr
import pytest

from lagrax import save
from lagrax.runner import _folder
from lagrax.saving import _files
from lagrax.saving._files import replacing, sole_writer
from lagrax.train import fit

from .train_problem import Line, data, loss, optimizer

HALF = """if True:
    import sys
    from lagrax.saving._files import replacing

    with replacing(sys.argv[1]) as file:
        file.write(b"half of")
        file.flush()
        print("written", flush=True)
        sys.stdin.read()
"""


def half_written(path):
    """A process that is in the middle of writing a file."""
    writer = subprocess.Popen([sys.executable, "-c", HALF, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"written\n"
    return writer


def end(writer, number=None):
    if number is not None:
        writer.send_signal(number)
    writer.communicate()
    return writer.returncode


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_writer_leaves_the_next_one_removes(tmp_path, number):
    path, other = tmp_path / "a model [1] é", tmp_path / "a model [1]"
    save(path, 1)
    killed, of_another_file = half_written(path), half_written(other)
    assert end(killed, number) == -number
    assert end(of_another_file, number) == -number
    before = path.read_bytes()
    assert len(os.listdir(tmp_path)) == 3  # the old file is whole, and beside it are two halves
    save(path, 1)
    assert path.read_bytes() == before and len(os.listdir(tmp_path)) == 2
    save(other, 1)
    assert sorted(os.listdir(tmp_path)) == [other.name, path.name]


def test_a_writer_at_work_is_left_alone(tmp_path):
    path = tmp_path / "file"
    slow = half_written(path)
    save(path, 1)
    assert len(os.listdir(tmp_path)) == 2
    assert end(slow) == 0
    assert path.read_bytes() == b"half of" and os.listdir(tmp_path) == ["file"]  # the last one wins


def test_several_writers_at_once(tmp_path):
    """Whoever finishes, the file is one of those that were written, whole, and nothing else is left."""
    path, contents, failed = tmp_path / "file", [bytes([i]) * 10_000 for i in range(8)], []

    def write(content):
        try:
            for _ in range(20):
                with replacing(path) as file:
                    file.write(content)
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failed and path.read_bytes() in contents and os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(_files.fcntl is None, reason="no locks")
def test_a_file_that_is_taken_for_a_leftover_is_made_again(tmp_path, monkeypatch):
    """Between being made and being locked, another writer may find it."""
    lock, found = _files.fcntl.flock, []

    def late(file, how):
        if not found:
            found.append(file.name)
            _files._remove_leftovers(str(tmp_path / "file"))
            assert not os.path.exists(file.name)
        return lock(file, how)

    monkeypatch.setattr(_files.fcntl, "flock", late)
    with replacing(tmp_path / "file") as file:
        file.write(b"content")
    assert (tmp_path / "file").read_bytes() == b"content" and found and os.listdir(tmp_path) == ["file"]


def test_without_locks_files_are_written_all_the_same(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    if _files.fcntl is not None:
        monkeypatch.setattr(_files.fcntl, "flock", unsupported)
    slow = half_written(tmp_path / "file")
    with sole_writer(tmp_path), replacing(tmp_path / "file") as file:
        file.write(b"content")
    assert end(slow) == 0 and os.listdir(tmp_path) == ["file"]
    monkeypatch.setattr(_files, "fcntl", None)
    with sole_writer(tmp_path), replacing(tmp_path / "file") as file:
        file.write(b"content")
    assert (tmp_path / "file").read_bytes() == b"content" and os.listdir(tmp_path) == ["file"]


def train(folder, **options):
    return fit(Line(jr.key(0)), loss, data(), optimizer, 3, key=jr.key(1), folder=folder, progress=False, **options)


def test_every_file_of_a_run_is_written_so(tmp_path):
    """Leftovers of all files that training and a run write are gone after the next time."""
    names = ["checkpoint.lagrax", "metrics.jsonl", "config.json", "report.html"]
    for name in names:
        (tmp_path / f".{name}.0123456789abcdef.partial").touch()
    train(tmp_path)
    _folder.write_json(tmp_path / "config.json", {})
    _folder.write_text(tmp_path / "report.html", "")
    assert sorted(os.listdir(tmp_path)) == sorted(names)


def test_two_trainings_in_one_folder(tmp_path):
    """The second is refused, and leaves the first one's files as they are."""
    seen = []

    def evaluate(model):
        with pytest.raises(BlockingIOError, match=r"another process is writing into .*wait until it has ended"):
            train(tmp_path, resume=True)
        seen.append(sorted(os.listdir(tmp_path)))
        return {}

    train(tmp_path, evaluate=evaluate, evaluate_every=3)
    assert seen == [[], ["checkpoint.lagrax", "metrics.jsonl"]]
    train(tmp_path, evaluate=lambda model: {}, evaluate_every=3, resume=True)
