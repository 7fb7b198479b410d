"""Random fields, in processes of their own: with kernels and without they compute the same, and nothing aborts."""

import collections
import dataclasses
import pathlib

import numpy as np
import pytest

from lagrax._xla import _kernel

from .fuzz import transforms
from .fuzz.compare import verdict
from .fuzz.fields import draw
from .fuzz.run import GOOD, NAMES, Runner
from .fuzz.transforms import Outcome

pytestmark = pytest.mark.skipif(not _kernel.AVAILABLE, reason="this version of jaxlib is not known to have the attribute")


def run(folder: pathlib.Path, pairs: list[tuple[int, str]]) -> collections.Counter:
    lines = list(Runner(folder / "results.jsonl").run(pairs))
    assert [tuple(line["pair"]) for line in lines] == pairs
    bad = [line for line in lines if line["verdict"] not in GOOD]
    assert not bad, bad
    return collections.Counter(kernel=sum(line.get("compiled", 0) > 0 for line in lines))


def test_a_few_random_fields(tmp_path):
    assert run(tmp_path, [(seed, name) for seed in (1, 2) for name in ("solve", "grad", "vmap")])["kernel"] == 6


@pytest.mark.slow
def test_random_fields(tmp_path):
    seeds = [10, 11, 13, 14, 18, 17]  # the last of them in single precision, which has a process of its own
    assert run(tmp_path, [(seed, name) for seed in seeds for name in NAMES])["kernel"] > 25


def test_what_goes_wrong_is_told(tmp_path, monkeypatch):
    """The end of a process is an abort, too long a silence a hang, and after either the next pair goes on."""
    answer = """echo '{{"done": [{}, "solve"], "verdict": "same"}}' >> {}; """
    endings = iter([(0, "exit 3"), (None, "exec sleep 60"), (3, "exit 0")])

    def command(self, jobs, log):
        seed, ending = next(endings)
        return ["sh", "-c", ("" if seed is None else answer.format(seed, log)) + ending]

    monkeypatch.setattr(Runner, "command", command)
    lines = list(Runner(tmp_path / "results.jsonl", timeout=2.0).run([(seed, "solve") for seed in range(4)]))
    assert [(line["pair"][0], line["verdict"]) for line in lines] == [(0, "same"), (1, "abort"), (2, "hang"), (3, "same")]


class Told:
    """A child whose programs without kernels have given these numbers."""

    def __init__(self, reference: Outcome, *others: Outcome, throw: bool = False):
        self.case = dataclasses.replace(draw(0), precision="64", throw=throw)
        self.reference = lambda name, outcome: reference
        self.varied = lambda name, outcome: iter(others)


def test_what_differs_is_told():
    counts = {"num_steps": np.array(3), "result": np.array(0)}
    numbers = lambda *ys, counts=counts: Outcome(value={"ys": np.array(ys), "counts": counts}, kernels=1)
    told = lambda one, *others, throw=False: verdict(Told(*others, throw=throw), "solve", one, double=True)["verdict"]
    assert told(numbers(1.0, np.inf), numbers(1.0 + 1e-10, np.inf)) == "same"
    assert told(numbers(1.0, 2.0), numbers(1.0 + 1e-8, 2.0)) == "different"
    assert told(numbers(1.0, np.nan), numbers(1.0, 2.0)) == "different"
    failed = counts | {"result": np.array(1)}
    assert told(numbers(1.0), numbers(1.0, counts=failed)) == "different"
    no = Outcome(error="JaxRuntimeError: no")
    assert told(no, numbers(1.0)) == "failed" and told(numbers(1.0), no) == "failed" and told(no, no) == "failed"
    assert told(no, Outcome(error="JaxRuntimeError: never"), throw=True) == "failed alike"
    assert told(no, Outcome(error="ValueError: no"), throw=True) == "failed"


def test_what_rounding_decides_is_told():
    """As far apart as programs without kernels are among themselves, in every array, is not the kernel's doing."""
    numbers = lambda y, t: Outcome(value={"ys": np.array(y), "ts": np.array(t)}, kernels=1)
    told = lambda one, *others: verdict(Told(*others), "solve", one, double=True)
    plain, other = numbers(1.0, 0.5), numbers(1.0 + 2e-6, 0.5)
    assert told(numbers(1.0 - 1e-6, 0.5), plain, plain, other)["verdict"] == "sensitive"
    assert told(numbers(1.0 + 3e-5, 0.5), plain, plain, other)["verdict"] == "different"
    assert told(numbers(1.0 + 1e-6, 0.5 + 1e-6), plain, plain, other)["verdict"] == "different"
    assert told(numbers(1.0 + 1e-10, 0.5), plain, other)["verdict"] == "same"


def test_names_are_those_of_the_transformations():
    """The parent has its own list: it does without JAX."""
    assert NAMES == transforms.NAMES
