"""Compile time of the spiral fit's gradient, against diffrax's for the neural ODE."""

import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from .. import neural
from ..row import AtMost, Row, Side


def compile_time(repetitions: int) -> Iterator[Row]:
    """Tracing, lowering and compiling the jitted gradient, adaptive steps in both, with every cache of JAX emptied before.

    The first of each is not counted: it pays for what is done once per process.
    """
    data = neural.observe(np.linspace(0, neural.T, 26))
    arguments = jax.tree.map(jnp.asarray, (neural.weights(2, 10, 2), neural.START, data))
    seconds: dict[str, list[float]] = {"lagrax": [], "diffrax": []}
    for _ in range(1 + max(2, repetitions // 6)):
        for name, loss in (("lagrax", neural.delay_loss), ("diffrax", neural.ordinary_loss)):
            seconds[name].append(_compile(loss, arguments))
    yield Row(
        name="compile-time",
        what="compile time, spiral gradient",
        peer="diffrax (neural ODE)",
        target=AtMost(1.5),
        lagrax=Side(np.array(seconds["lagrax"][1:])),
        other=Side(np.array(seconds["diffrax"][1:])),
        note="The spiral's network and one trajectory, adaptive Tsit5 in both; trace, lower and compile, nothing cached.",
    )


def _compile(loss, arguments) -> float:
    jax.clear_caches()
    start = time.perf_counter()
    neural.gradient(loss).lower(*arguments).compile()
    return time.perf_counter() - start
