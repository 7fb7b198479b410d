"""Whether a step costs the same late in a long run as in a short one."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from .. import mackey_glass as mg
from ..precision import double_precision
from ..row import AtMost, Row, Side
from ..table import seconds
from ..timing import interleave

LONG, SHORT, START = 1000.0, 10.0, 0.05
MAX_STEPS = 12288


def long_runs(repetitions: int) -> Iterator[Row]:
    """Cost per attempted step of Mackey–Glass to t = 1000 and to t = 10, in one compiled program: t1 is an argument.

    Every run begins by filling a buffer for `max_steps` steps, the same for both, which would drown the few steps of the
    short run. So the time of a run to t = 0.05, a handful of steps, is taken off both before dividing by the steps.
    """
    with double_precision():
        yield _row("cost per step to t = 1000", jax.jit(_value), lambda out: out[1], repetitions)
        gradient = jax.jit(jax.value_and_grad(_value, has_aux=True))
        yield _row("the same, gradient", gradient, lambda out: out[0][1], repetitions)


def _value(y0, t1):
    solution = mg.solve(y0, t1, max_steps=MAX_STEPS)
    return solution.ys[0], solution.stats["num_steps"]


def _row(what: str, compiled, attempts, repetitions: int) -> Row:
    run = lambda t1: compiled(jnp.asarray(mg.PAST), jnp.asarray(t1))
    times = interleave({t1: lambda t1=t1: run(t1) for t1 in (LONG, SHORT, START)}, repetitions)
    steps = {t1: int(attempts(run(t1))) for t1 in times}
    per_step = lambda t1: (times[t1] - times[START]) / (steps[t1] - steps[START])
    low, high = (seconds(value) for value in np.quantile(per_step(SHORT), [0.25, 0.75]))
    return Row(
        name="long-runs",
        what=what,
        peer="itself, t = 10",
        target=AtMost(1.3),
        lagrax=Side(per_step(LONG)),
        other=Side(per_step(SHORT)),
        unit="step",
        note=f"{steps[LONG]} and {steps[SHORT]} attempted steps, `max_steps={MAX_STEPS}` for both; the time of a run of "
        f"{steps[START]} steps is taken off both, so that filling the buffers does not count. "
        f"What is left of the short run is little, and the least certain number here: quartiles {low} and {high}.",
        extra={f"seconds to t1 = {t1:g}": Side(times[t1]).as_json() for t1 in times},
    )
