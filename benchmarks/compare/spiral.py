"""Gradient of the paper's spiral fit, against torchdde."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from .. import neural
from ..row import Faster, Row, Side
from ..timing import interleave


def spiral(repetitions: int) -> Iterator[Row]:
    """Both compute the loss and its gradient in float32, from the same weights, by adaptive fifth order steps at rtol 1e-3.

    torchdde backpropagates through its steps. Its adjoint, the default, is slower and returns wrong gradients. It is also
    told to step no further than the delay: left alone it does, and its solution is then wrong as well.
    """
    from ..with_torchdde import SpiralFit

    weights, data = neural.weights(2, 10, 2), neural.observe(np.linspace(0, neural.T, 26))
    exact = neural.exact_gradient(neural.delay_loss, weights, neural.START, data)
    arguments = jax.tree.map(jnp.asarray, (weights, neural.START, data))
    compiled = neural.gradient(neural.delay_loss)
    programs = {
        "lagrax": lambda: compiled(*arguments),
        "torchdde": SpiralFit(weights, data, longest_step=neural.DELAY),
        "torchdde, uncapped": SpiralFit(weights, data, longest_step=None),
    }
    times = interleave(programs, repetitions)
    (_, steps), found = programs["lagrax"]()
    error = {name: neural.relative_error(programs[name](), exact) for name in programs if name != "lagrax"}
    adjoint = SpiralFit(weights, data, neural.DELAY, adjoint=True)
    uncapped = Side(times["torchdde, uncapped"], error["torchdde, uncapped"])
    yield Row(
        name="spiral",
        what="gradient of the spiral fit",
        peer="torchdde",
        target=Faster(100),
        lagrax=Side(times["lagrax"], neural.relative_error(found, exact)),
        other=Side(times["torchdde"], error["torchdde"]),
        quantity="gradient",
        note="torchdde is differentiated through its steps and told not to step further than the delay. Without that "
        f"cap it needs {uncapped.median * 1e3:.0f} ms and its gradient is off by {uncapped.error:.0%}; its adjoint (the "
        f"default) is off by {neural.relative_error(adjoint(), exact):.0%}.",
        extra={"lagrax steps": int(steps), "torchdde, uncapped": uncapped.as_json()},
    )
