"""A delay on every connection: a hundred Kuramoto oscillators against JiTCDDE and tvboptim, and what the gradient costs."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .. import kuramoto as problem
from ..precision import double_precision
from ..row import AtMost, Faster, Row, Side
from ..timing import interleave

TVBOPTIM = Path(".venv-tvboptim/bin/python")
"""tvboptim has an environment of its own, made by `make bench`."""
AROUND = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3)
"""Errors scatter with the tolerance: they are medians over so many tolerances near the one given."""


def networks(repetitions: int) -> Iterator[Row]:
    with double_precision():
        exact = _reference()
        yield from _against_jitcdde(exact, max(3, repetitions // 4))
        yield _gradient(max(3, repetitions // 4))
        yield from _against_tvboptim(exact, max(3, repetitions // 4))


def _solver(dtype: Any, edges: bool, jump_ts: Any = None, max_steps: int = 1024) -> Callable:
    """(delays, t1, tolerance) to the phases at t1, of a list of connections or of all 10,000."""
    make = lx.Graph.of_connections if edges else lx.Graph
    omega, past = jnp.asarray(problem.OMEGA, dtype), jnp.asarray(problem.START, dtype)

    def solve(delays, t1, tolerance):
        graph = make(problem.WEIGHTS.astype(dtype), delays)

        def field(t, y, arriving, args):
            return omega + graph.total(jnp.sin(arriving - graph.at_receiver(y)))

        return lx.ddesolve(
            lx.DelayTerm(field, graph.delays()),
            dfx.Tsit5(),
            jnp.zeros((), dtype),
            t1,
            None,
            past,
            stepsize_controller=dfx.PIDController(rtol=0.0, atol=tolerance),
            jump_ts=jump_ts,
            max_steps=max_steps,
        ).ys[0]

    return solve


def _reference() -> np.ndarray:
    """The phases at t = 5, from steps that end on all 2,043 kinks that the start leaves behind."""
    kinks = np.sort(problem.DELAYS[problem.CONNECTED])
    solve = jax.jit(_solver(jnp.float64, True, kinks, 8192))
    return np.asarray(solve(jnp.asarray(problem.DELAYS), jnp.asarray(problem.OBSERVED), 1e-11))


def _error(solve: Callable, tolerance: float, exact: np.ndarray) -> float:
    """`solve(t1, tolerance)` at t = 5: the median over tolerances of the largest error of any phase."""
    found = [np.asarray(solve(problem.OBSERVED, factor * tolerance), float) for factor in AROUND]
    return float(np.median([np.max(np.abs(x - exact)) for x in found]))


def _compiled(dtype: Any, edges: bool) -> tuple[Callable, float]:
    """((t1, tolerance) to phases, how long it took to compile)."""
    delays = jnp.asarray(problem.DELAYS, dtype)
    number = lambda x: jnp.asarray(x, dtype)
    start = time.perf_counter()
    program = jax.jit(_solver(dtype, edges)).lower(delays, number(1.0), number(1.0)).compile()
    taken = time.perf_counter() - start
    return lambda t1, tolerance: program(delays, number(t1), number(tolerance)), taken


def _against_jitcdde(exact: np.ndarray, repetitions: int) -> Iterator[Row]:
    from .. import with_jitcdde

    start = time.perf_counter()
    peer = with_jitcdde.Kuramoto()
    peer_compiling = time.perf_counter() - start
    solve, compiling = _compiled(jnp.float64, edges=True)
    compile_row = {"what": "network of 2,043 edges, compiling", "target": Faster(2), "unit": "program"}
    yield Row(
        name="networks",
        peer="JiTCDDE",
        lagrax=Side(np.array([compiling])),
        other=Side(np.array([peer_compiling])),
        note="100 Kuramoto oscillators, once each; lagrax may take 5 s.",
        **compile_row,
    )
    for tolerance, peer_tolerance in ((1e-5, 1e-4), (5e-7, 1e-6)):
        run = lambda tolerance=tolerance: solve(problem.T1, tolerance)
        peer_run = lambda tolerance=peer_tolerance: peer(problem.T1, tolerance)
        times = interleave({"lagrax": run, "JiTCDDE": peer_run}, repetitions)
        yield Row(
            name="networks",
            what=f"network of 2,043 edges, {peer_tolerance:g}",
            peer="JiTCDDE",
            target=Faster(2),
            lagrax=Side(times["lagrax"], _error(solve, tolerance, exact)),
            other=Side(times["JiTCDDE"], _error(peer, peer_tolerance, exact)),
            quantity="phases at t = 5",
            note=f"To t = 20, float64; lagrax with a tolerance of {tolerance:g}. Errors are medians over 7 tolerances.",
        )


class Peer:
    """tvboptim in a process of its own. Call it with the kind of solve, dt and t1."""

    def __init__(self) -> None:
        if not TVBOPTIM.exists():
            sys.exit(f"There is no {TVBOPTIM}: `make bench` installs tvboptim there and runs this.")
        command = [str(TVBOPTIM), "-W", "ignore", "-m", "benchmarks.with_tvboptim"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, kind: str, dt: float, t1: float) -> np.ndarray:
        ask, answer = self.process.stdin, self.process.stdout
        assert ask is not None and answer is not None
        ask.write(f"{kind} {dt} {t1}\n")
        ask.flush()
        line = answer.readline()
        if not line:
            sys.exit("tvboptim stopped: run `make bench` again, or leave the comparison out.")
        return np.array(line.split(), float)

    def close(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait()


def _against_tvboptim(exact: np.ndarray, repetitions: int) -> Iterator[Row]:
    peer = Peer()
    solve, _ = _compiled(jnp.float32, edges=False)
    kinds = (("frozen", 0.01, 1e-4, 3, "its default"), ("second", 0.01, 1e-5, 3, "its second-order mode"))
    for kind, dt, tolerance, limit, name in (*kinds, ("frozen", 0.001, 1e-5, 10, "its default")):
        run = lambda tolerance=tolerance: solve(problem.T1, tolerance)
        times = interleave({"lagrax": run, "tvboptim": lambda kind=kind, dt=dt: peer(kind, dt, problem.T1)}, repetitions)
        peer_error = float(np.max(np.abs(peer(kind, dt, problem.OBSERVED) - exact)))
        yield Row(
            name="networks",
            what=f"network of 10,000, {kind} dt = {dt:g}",
            peer="tvboptim",
            target=Faster(limit),
            lagrax=Side(times["lagrax"], _error(solve, tolerance, exact)),
            other=Side(times["tvboptim"], peer_error),
            quantity="phases at t = 5",
            note=f"To t = 20, float32; tvboptim in {name}, lagrax with a tolerance of {tolerance:g}.",
        )
    peer.close()


def _gradient(repetitions: int) -> Row:
    """All 10,000 delays. Checked with fixed steps, where a difference of delays does not change the mesh."""
    delays = jnp.asarray(problem.DELAYS, jnp.float32)
    solve = _solver(jnp.float32, edges=False)
    value = jax.jit(lambda d: jnp.sum(jnp.cos(solve(d, jnp.float32(problem.T1), jnp.float32(1e-5)))))
    gradient = jax.jit(jax.grad(value))
    times = interleave({"gradient": lambda: gradient(delays), "value": lambda: value(delays)}, repetitions)
    return Row(
        name="networks",
        what="gradient in 10,000 delays",
        peer="itself, forwards",
        target=AtMost(5),
        lagrax=Side(times["gradient"], _gradient_error()),
        other=Side(times["value"]),
        quantity="a derivative",
        note="To t = 20, float32, tolerance 1e-5, forward pass included. The error is against central differences of the "
        "largest derivative, relative, in float64 to t = 2 at 1e-9.",
    )


def _gradient_error() -> float:
    solve = _solver(jnp.float64, edges=False, max_steps=4096)
    loss = jax.jit(lambda d: jnp.sum(jnp.cos(solve(d, jnp.asarray(2.0), jnp.asarray(1e-9)))))
    delays = jnp.asarray(problem.DELAYS)
    found = jax.jit(jax.grad(loss))(delays)
    place = np.unravel_index(int(jnp.argmax(jnp.abs(found))), found.shape)
    step = 1e-3
    difference = (loss(delays.at[place].add(step)) - loss(delays.at[place].add(-step))) / (2 * step)
    return float(abs(difference / found[place] - 1))
