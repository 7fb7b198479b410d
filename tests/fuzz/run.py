"""The parent: child processes one after the other, a new one after each abort or hang."""

import collections
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator

from .fields import double_precision

NAMES = ("solve", "without jit", "grad", "vmap", "vmap of grad", "jacfwd", "hessian", "shard_map", "sharded inputs")
GOOD = ("same", "sensitive", "no kernel", "failed alike", "skipped")
PER_CHILD = 20
"""Fields that one process works through."""

Pair = tuple[int, str]


@dataclasses.dataclass
class Runner:
    """Runs pairs and appends a line for each to the file `results`."""

    results: pathlib.Path
    timeout: float = 900.0

    def run(self, pairs: Iterable[Pair]) -> Iterator[dict]:
        """The line of each pair that is not in the file yet, as it comes."""
        known = {tuple(line["pair"]) for line in self.read()}
        todo = [pair for pair in pairs if pair not in known]
        for batch in _batches(todo):
            while batch:
                done = yield from self._child(batch)
                batch = batch[done:]

    def read(self) -> list[dict]:
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        return [json.loads(line) for line in lines]

    def _child(self, batch: list[Pair]) -> Iterator[dict]:
        """Starts a process on these pairs; returns how many of them it has answered for, if only by its end."""
        with tempfile.TemporaryDirectory() as folder:
            jobs, log, errors = (pathlib.Path(folder) / name for name in ("jobs.json", "log.jsonl", "errors"))
            jobs.write_text(json.dumps({"double": double_precision(batch[0][0]), "pairs": batch}))
            log.touch()
            with errors.open("w") as file:
                process = subprocess.Popen(self.command(jobs, log), env=_environment(), stdout=file, stderr=file)
            answered = 0
            for line in _follow(log, process, self.timeout):
                if "done" in line:
                    answered += 1
                    yield self._keep(tuple(line.pop("done")), line)
            if answered < len(batch):
                how = {"verdict": "hang" if process.returncode == -9 else "abort", "exit": process.returncode}
                yield self._keep(batch[answered], {**how, "error": _last_words(errors)})
                answered += 1
            return answered

    def command(self, jobs: pathlib.Path, log: pathlib.Path) -> list[str]:
        return [sys.executable, "-m", "tests.fuzz.child", str(jobs), str(log)]

    def _keep(self, pair: Pair, line: dict) -> dict:
        line = {"pair": pair, **line}
        with self.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return line


def _environment() -> dict[str, str]:
    """As users compile: nothing of the caller's settings for quick tests."""
    dropped = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_NUM_CPU_DEVICES", "LAGRAX_KERNELS", "JAX_ENABLE_X64")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "PYTHONPATH": os.pathsep.join([os.getcwd(), kept.get("PYTHONPATH", "")])}


def _batches(pairs: list[Pair]) -> Iterator[list[Pair]]:
    """Pairs of few fields each, all of one precision."""
    seeds = list(dict.fromkeys(seed for seed, _ in pairs))
    for start in range(0, len(seeds), PER_CHILD):
        some = set(seeds[start : start + PER_CHILD])
        for double in (True, False):
            yield [pair for pair in pairs if pair[0] in some and double_precision(pair[0]) == double]


def _follow(log: pathlib.Path, process: subprocess.Popen, timeout: float) -> Iterator[dict]:
    """The lines of a child's log, until it ends or takes longer than `timeout` over one of them."""
    last = time.monotonic()
    with log.open() as file:
        while True:
            ended = process.poll() is not None
            for line in iter(file.readline, ""):
                last = time.monotonic()
                yield json.loads(line)
            if ended:
                return
            if time.monotonic() - last > timeout:
                process.kill()
                process.wait()
            time.sleep(0.1)


def _last_words(errors: pathlib.Path) -> str:
    lines = errors.read_text(errors="replace").splitlines()
    told = [line for line in lines if line.startswith(("F0", "F1", "Fatal", "E0", "E1"))]
    return "\n".join((told or lines)[:6])[:1500]


def summary(lines: list[dict]) -> str:
    """Counts, as a few lines of text."""
    skipped = [line for line in lines if line["verdict"] == "skipped"]
    lines = [line for line in lines if line["verdict"] != "skipped"]
    verdicts = collections.Counter(line["verdict"] for line in lines)
    names = {name: [line for line in lines if line["pair"][1] == name] for name in NAMES}
    fields = collections.Counter(line["pair"][0] for line in lines)
    using = sum(line.get("kernels", 0) > 0 for line in lines)
    compiled = sum(line.get("compiled", 0) > 0 for line in lines)
    worst = max((line["distance"] for line in lines if line["verdict"] == "same"), default=0.0)
    text = [
        f"{len(lines)} pairs, {len(fields)} fields, {sum(n >= len(NAMES) for n in fields.values())} of them through all "
        f"{len(NAMES)} transforms; {using} pairs trace a kernel, {compiled} compile one; {len(skipped)} pairs skipped, of "
        "fields without kernels",
        "verdicts: " + ", ".join(f"{count} {name}" for name, count in verdicts.most_common()),
        f"steps differ: {sum(line.get('same steps') is False for line in lines)}; largest distance: {worst:.2g}; "
        f"not solved to the end: {sum(line.get('solved') is False for line in lines)}; "
        f"nothing but zeros: {sum(line.get('largest') == 0.0 for line in lines)}",
    ]
    for name, some in names.items():
        kernels = sum(line.get("kernels", 0) > 0 for line in some)
        text.append(
            f"  {name:15} {len(some):5} pairs, {kernels:5} with kernels, {sum(x.get('cpu', 0) for x in some):8.0f} s"
        )
    for line in lines:
        if line["verdict"] not in GOOD:
            text.append(json.dumps({k: (v[:400] if isinstance(v, str) else v) for k, v in line.items()}))
    return "\n".join(text)
