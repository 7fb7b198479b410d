"""Where the files of a data set are: in a folder that the user names, else in the cache, else at the publisher's."""

import contextlib
import dataclasses
import functools
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ._formats import DataError

VARIABLE = "LAGRAX_DATA"
_PATIENCE = 30  # seconds without an answer
_OTHER_FOLDER = f"name the folder that holds it with data_dir, --data-dir or {VARIABLE}"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a publisher keeps the files of a data set, and where a user may have put them.

    - `url`: the publisher's folder.
    - `files`: the files there, with their SHA-256 sums.
    - `folders`: what they are looked for in, inside the folder that is named; the first is the one inside the cache.
    - `others`: other names that each file may have, or what it unpacks to.
    """

    url: str
    files: Mapping[str, str]
    folders: tuple[str, ...]
    others: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def inside(self, folder: Path) -> Path | None:
        """The folder itself or the one inside it that holds any of the files."""
        places = [folder, *(folder / name for name in self.folders)]
        return next((place for place in places if any(self.held(place, file) for file in self.files)), None)

    def held(self, folder: Path, file: str) -> Path | None:
        """The file in this folder, whichever of its names it has."""
        paths = [folder / name for name in (file, *self.others.get(file, ()))]
        return next((path for path in paths if os.path.isfile(path)), None)

    def required(self, folder: Path, file: str) -> Path:
        path = self.held(folder, file)
        if path is None:
            raise self.missing(folder, file, file)
        return path

    def missing(self, folder: Path, file: str, published: str) -> DataError:
        """`file` is what is not there, and `published` what its publisher has it in."""
        return DataError(f"{folder} holds no {file}, expected it there: get {self.url}{published}, or {_OTHER_FOLDER}")


def _idx(stem: str, rank: int) -> tuple[str, ...]:
    return (f"{stem}-idx{rank}-ubyte", f"{stem}.idx{rank}-ubyte", f"{stem}.idx{rank}-ubyte.gz")


ARCHIVE = "cifar-10-binary.tar.gz"
BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
SOURCES = {
    "mnist": Source(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        ("mnist",),
        {
            f"{stem}-idx{rank}-ubyte.gz": _idx(stem, rank)
            for stem, rank in (("train-images", 3), ("train-labels", 1), ("t10k-images", 3), ("t10k-labels", 1))
        },
    ),
    "cifar10": Source(
        "https://www.cs.toronto.edu/~kriz/",
        {ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
        ("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"),
        {ARCHIVE: BATCHES},
    ),
    "svhn": Source(
        "http://ufldl.stanford.edu/housenumbers/",
        {
            "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        },
        ("svhn",),
    ),
}


def find(name: str, data_dir: str | os.PathLike | None, download: bool, progress: bool) -> Path:
    """The folder with the files of a data set, downloaded into the cache if they are nowhere else.

    A folder with some of the files is meant to be used: what it lacks is for the user to add, and not mixed in from
    elsewhere.
    """
    source, named = SOURCES[name], _named(data_dir)
    found = source.inside(named) if named is not None else None
    if found is not None:
        return found
    if named is not None and not download:
        raise source.missing(named, first := next(iter(source.files)), first)
    own = source.inside(cache()) or cache() / source.folders[0]
    lacking = [file for file in source.files if not source.held(own, file)]
    if lacking and not download:
        raise source.missing(own, lacking[0], lacking[0])
    _fetch(source, own, lacking, progress)
    return own


def _named(data_dir: str | os.PathLike | None) -> Path | None:
    """The folder that the user names, if any, which has to be there."""
    given: Any = data_dir if data_dir is not None else os.environ.get(VARIABLE) or None
    if given is None:
        return None
    folder = Path(os.path.expanduser(given))
    if not folder.is_dir():
        by = "data_dir" if data_dir is not None else VARIABLE
        raise DataError(f"{by} is {folder}, which is no folder, expected the one with the data: create it or name another")
    return folder


def _pooch() -> Any:
    try:
        import pooch
    except ImportError:
        raise DataError(
            "data in the cache needs pooch, which is not installed: pip install 'lagrax[images]', or name the folder that "
            f"holds the data with data_dir, --data-dir or {VARIABLE}"
        ) from None
    return pooch


def cache() -> Path:
    """The user's cache folder, such as `~/.cache/lagrax`."""
    return Path(_pooch().os_cache("lagrax"))


# --- downloads --------------------------------------------------------------------------------------------------------


def _fetch(source: Source, folder: Path, files: list[str], progress: bool) -> None:
    """Downloads files into a folder. A file is there as a whole, with the right sum, or not at all."""
    pooch = _pooch()
    from requests.exceptions import RequestException  # pooch brings requests along

    for file in files:
        url = source.url + file
        by_hand = f"get {file} by hand from {url} and put it into {folder}, or {_OTHER_FOLDER}"
        if progress:
            print(f"downloading {url} into {folder}", file=sys.stderr, flush=True)
        try:
            with _silenced(pooch.get_logger()):
                download = functools.partial(_download, progress=progress)
                pooch.retrieve(url, source.files[file], fname=file, path=folder, downloader=download)
        except RequestException as error:
            status = getattr(error.response, "status_code", None)
            reason = f"HTTP status {status}" if status else type(error).__name__
            raise DataError(
                f"{url} cannot be downloaded ({reason}), expected a connection to it: try again later, or {by_hand}"
            ) from None
        except OSError as error:
            raise DataError(
                f"{folder} cannot be written ({error.strerror}), expected room for {file}: make room, or {_OTHER_FOLDER}"
            ) from None
        except ValueError:
            raise DataError(
                f"what {url} sent has not the SHA-256 sum {source.files[file]}, expected the published file: try again, or "
                f"{by_hand}"
            ) from None


@contextlib.contextmanager
def _silenced(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _download(url: str, output: str, _: Any, progress: bool) -> None:
    """What pooch calls to fill a file. Its own leaves the connection open if it breaks, and needs tqdm to show anything."""
    import requests

    shown = progress and sys.stderr.isatty()
    done, drawn = 0, 0.0
    as_it_is = {"Accept-Encoding": "identity"}  # else a server may say that the file's gzip is its own, to be undone
    try:
        with requests.get(url, stream=True, timeout=_PATIENCE, headers=as_it_is) as response, open(output, "wb") as file:
            response.raise_for_status()
            size = int(response.headers.get("Content-Length", 0))
            for chunk in response.iter_content(2**16):
                file.write(chunk)
                done += len(chunk)
                now = time.monotonic()
                if shown and (now - drawn > 0.1 or done == size):
                    drawn = now
                    print(f"\r{done / 1e6:.1f} of {size / 1e6:.1f} MB", end="", file=sys.stderr, flush=True)
    finally:
        if drawn:
            print(file=sys.stderr, flush=True)
