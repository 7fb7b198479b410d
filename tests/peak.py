"""By how much a process grows while it solves for 102,400 components, against what was announced. Run by `test_large.py`."""

import pathlib
import sys
import threading
import time

import diffrax as dfx
import jax
import jax.numpy as jnp

import lagrax as lx

SIDE = 320
TERM = lx.DelayTerm(
    lambda t, u, then, args: (
        0.3 * (sum(jnp.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1)) - 4 * u) + args * u * (1 - then)
    ),
    1.0,
)


def resident():
    """Bytes of this process in memory. (The system's own count of the largest ever is that of the parent at first.)"""
    return 4096 * int(pathlib.Path("/proc/self/statm").read_text().split()[1])


def problem(u, rate):
    return TERM, dfx.Tsit5(), 0.0, 20.0, None, u, rate


OPTIONS = {"max_steps": 200, "saveat": dfx.SaveAt(ts=jnp.linspace(0.0, 20.0, 5))}
u = jax.block_until_ready(1 + 0.1 * jax.random.normal(jax.random.key(0), (SIDE, SIDE)))
announced = lx.memory_of(*problem(u, 1.8), **OPTIONS)
states = lambda u, rate: lx.ddesolve(*problem(u, rate), **OPTIONS).ys
gradient = sys.argv[1:] == ["gradient"]
function = jax.grad(lambda u, rate: jnp.mean(states(u, rate)[-1] ** 2), (0, 1)) if gradient else states
compiled = jax.jit(function).lower(u, 1.8).compile()
before, largest, done = resident(), 0, threading.Event()


def watch():
    global largest
    while not done.is_set():
        largest = max(largest, resident())
        time.sleep(0.002)


watcher = threading.Thread(target=watch)
watcher.start()
jax.block_until_ready(compiled(u, 1.8))
done.set()
watcher.join()
ratio = (largest - before) / (announced.gradient if gradient else announced.solve)
print(f"announced: {announced}; grew by {ratio:.3f} of that")
assert 0.8 < ratio < 1.2, ratio
