"""What room for more steps costs when they are not taken."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from .. import mackey_glass as mg
from ..precision import double_precision
from ..row import AtMost, Row, Side
from ..timing import interleave

T1, LARGE, SMALL = 70.0, 16384, 1024


def max_steps(repetitions: int) -> Iterator[Row]:
    """The same gradient, of y(70) with respect to the constant past, through the same steps, with room for 16 times as many.

    Errors are relative differences between the two gradients: there is nothing else that they should differ by.
    """
    with double_precision():
        gradient = {size: jax.jit(jax.value_and_grad(_value(size), has_aux=True)) for size in (LARGE, SMALL)}
        run = lambda size: gradient[size](jnp.asarray(mg.PAST))
        times = interleave({size: lambda size=size: run(size) for size in gradient}, repetitions)
        (_, accepted), found = run(LARGE)
        (_, expected_accepted), expected = run(SMALL)
        yield Row(
            name="max-steps",
            what="gradient, max_steps = 16384",
            peer="itself, 1024",
            target=AtMost(1.5),
            lagrax=Side(times[LARGE], abs(float(found / expected) - 1)),
            other=Side(times[SMALL], 0.0),
            quantity="difference",
            note=f"Mackey–Glass to t = {T1:g}: {int(accepted)} and {int(expected_accepted)} accepted steps.",
        )


def _value(size: int):
    def value(y0):
        solution = mg.solve(y0, T1, max_steps=size)
        return solution.ys[0], solution.stats["num_accepted_steps"]

    return value
