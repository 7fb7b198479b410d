"""Delays recovered from noisy series: `python -m benchmarks.fit`.

Series of 400 samples with 5 % noise are fitted with their mechanism, one seed after the other. Each seed is written to
`out/fit.jsonl` at once, so that a run that was stopped goes on where it was. `--blowflies data.csv` fits Nicholson's fourth
culture (columns day, count, set) from poor starts. "no mechanism" fits Hutchinson's equation without knowing it: no delay
of a network may be called identified, whatever it is.
"""

import argparse
import csv
import json
import time
from collections.abc import Callable
from pathlib import Path

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .precision import double_precision

RESULTS = Path("out/fit.jsonl")


def two_delays(t, y, delayed, p):
    """Production with two delays, the sum of two Mackey–Glass terms."""
    first, second = delayed
    return p["beta"] * first / (1 + first ** p["n"]) + p["alpha"] * second / (1 + second ** p["n"]) - p["gamma"] * y


def _mackey_glass(t, y, z, args):
    return 0.2 * z / (1 + z**10) - 0.1 * y


def _hutchinson(t, y, z, args):
    return 1.8 * y * (1 - z)


def _two(t, y, z, args):
    return two_delays(t, y, z, {"beta": 0.12, "alpha": 0.1, "gamma": 0.1, "n": 10.0})


class Case:
    """A series with known delays: the field and its delays, the sampling, the tolerance, how many seeds have to meet it."""

    def __init__(self, field: Callable, truth, step: float, count: int, tolerance: float, needed: int, **settings):
        self.field, self.truth, self.step = field, truth, step
        self.count, self.tolerance, self.needed, self.settings = count, tolerance, needed, settings

    def series(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """400 samples after a transient, with noise of 5 % of their standard deviation."""
        burn = 150 * self.step
        ts = jnp.asarray(burn + self.step * np.arange(400))
        with double_precision():
            solution = lx.ddesolve(
                lx.DelayTerm(self.field, self.truth), dfx.Tsit5(), 0.0, ts[-1], None, jnp.asarray(0.5 + 0.02 * seed),
                saveat=dfx.SaveAt(ts=ts), stepsize_controller=dfx.PIDController(rtol=1e-7, atol=1e-9), max_steps=16384,
            )  # fmt: skip
        clean = np.asarray(solution.ys)
        return np.asarray(ts) - burn, clean + 0.05 * clean.std() * np.random.default_rng(seed).standard_normal(400)


CASES = {
    "mackey-glass": Case(_mackey_glass, 17.0, 2.0, 20, 0.03, 19, model="mackey-glass"),
    "hutchinson": Case(_hutchinson, 1.0, 0.2, 20, 0.03, 19, model="hutchinson"),
    "two delays": Case(
        _two, (8.0, 20.0), 2.0, 10, 0.05, 9, model=two_delays, delays=2, delay_bounds=(2.0, 40.0),
        params={"beta": (0.3, 0.0, 5.0), "alpha": (0.3, 0.0, 5.0), "gamma": (0.3, 0.0, 5.0), "n": (6.0, 1.0, 60.0)},
    ),
    # One member, hardly trained: what a delay is called depends on where the scan and the training leave it, not on how good
    # the forecasts are, and the scan is that of the whole recipe.
    "no mechanism": Case(_hutchinson, 1.0, 0.2, 10, 0.0, 0, seeds=1, minutes=0.05),
}  # fmt: skip


def fit_one(case: Case, seed: int) -> dict:
    t, y = case.series(seed)
    start, used = time.perf_counter(), time.process_time()
    found = lx.fit_series(t, y, **case.settings)
    return {
        "delays": [[delay.estimate, delay.low, delay.high] for delay in found.delays],
        "verdicts": [delay.verdict for delay in found.delays],
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - used,
    }


def blowflies(path: str) -> None:
    with open(path) as file:
        rows = [row for row in csv.DictReader(file) if row["set"] == "4"]
    t, y = (np.array([float(row[name]) for row in rows]) for name in ("day", "count"))
    for start in (5.0, 10.0, 20.0, 30.0):
        begin = time.perf_counter()
        found = lx.fit_series(t, y, model="nicholson", params={"tau": start, "P": 100.0, "delta": 3.0, "N0": 20.0})
        (tau,) = found.delays
        print(
            f"blowflies from τ = {start:g}: {tau.estimate:.2f} [{tau.low:.2f}, {tau.high:.2f}], {tau.verdict}, aliases "
            f"{[(round(alias.value, 1), alias.kind) for alias in tau.aliases]}, {time.perf_counter() - begin:.0f} s",
            flush=True,
        )


def report(name: str, case: Case, rows: list[dict]) -> None:
    if "model" not in case.settings:
        said = sorted({verdict for row in rows for verdict in row["verdicts"]})
        print(f"{name}: in {len(rows)} seeds delays were called {', '.join(said)}", flush=True)
        return
    truth = np.atleast_1d(case.truth)
    found = np.array([row["delays"] for row in rows])
    close = (np.abs(found[:, :, 0] / truth - 1) < case.tolerance).all(axis=1).sum()
    covered = ((found[:, :, 1] <= truth) & (truth <= found[:, :, 2])).sum(axis=0)
    errors = np.abs(found[:, :, 0] / truth - 1).max(axis=1)
    print(
        f"{name}: {close} of {len(rows)} within {100 * case.tolerance:g} % (needed {case.needed} of {case.count}; median "
        f"error {100 * np.median(errors):.2f} %), intervals cover {', '.join(map(str, covered))} of {len(rows)}, "
        f"{np.median([row['cpu'] for row in rows]):.0f} s of processor each",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blowflies", metavar="CSV")
    parser.add_argument("--only", choices=list(CASES), action="append", help="which cases; all by default")
    parser.add_argument("--seeds", type=int, help="at most so many seeds of each")
    given = parser.parse_args()
    jax.config.update("jax_compilation_cache_dir", ".cache/jax")
    RESULTS.parent.mkdir(exist_ok=True)
    known = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    done = {(row["case"], row["seed"]): row for row in known}
    if given.blowflies:
        blowflies(given.blowflies)
    for name in given.only or CASES:
        case, rows = CASES[name], []
        for seed in range(min(case.count, given.seeds or case.count)):
            if (name, seed) not in done:
                done[name, seed] = {"case": name, "seed": seed, **fit_one(case, seed)}
                with RESULTS.open("a") as file:
                    file.write(json.dumps(done[name, seed]) + "\n")
            rows.append(done[name, seed])
        report(name, case, rows)


if __name__ == "__main__":
    main()
