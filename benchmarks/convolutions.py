"""Compares ways to convolve on the CPU: the paper's image field inside `ddesolve`, forward and gradient.

T = τ = 1, two fixed steps of Tsit5, 92 filters, float32. Every way computes the same numbers, which is checked. XLA's own
convolution is only timed forward unless asked for with --native: its gradient takes minutes. Times are medians of
repetitions that alternate between the ways; "compile" is the first call of both programs.
"""

import argparse
import time
from collections.abc import Callable

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx
from lagrax.nn import IMAGE_SHAPES, ImageField, native_conv3x3, winograd_conv3x3

from .timing import interleave

FILTERS, STEPS = 92, 2


def shifted(x, kernel):
    """Nine products of shifted images, summed."""
    return sum(part @ kernel[i, j] for (i, j), part in _shifts(x))


def shifted_after(x, kernel):
    """One product with all nine kernels side by side; the results are shifted and summed."""
    *batch, h, w, c = x.shape
    products = x.reshape(-1, c) @ kernel.transpose(2, 0, 1, 3).reshape(c, -1)
    padded = jnp.pad(products.reshape(*batch, h, w, 9, -1), [(0, 0)] * len(batch) + [(1, 1), (1, 1), (0, 0), (0, 0)])
    return sum(padded[..., i : i + h, j : j + w, 3 * i + j, :] for i in range(3) for j in range(3))


def columns(x, kernel):
    """One product of the nine shifted images side by side (im2col)."""
    gathered = jnp.concatenate([part for _, part in _shifts(x)], axis=-1)
    matrix = gathered.reshape(-1, gathered.shape[-1]) @ kernel.reshape(-1, kernel.shape[-1])
    return matrix.reshape(*x.shape[:-1], -1)


def _shifts(x):
    *batch, h, w, _ = x.shape
    padded = jnp.pad(x, [(0, 0)] * len(batch) + [(1, 1), (1, 1), (0, 0)])
    return [((i, j), padded[..., i : i + h, j : j + w, :]) for i in range(3) for j in range(3)]


WAYS: dict[str, Callable] = {
    "nine shifted products": shifted,
    "one product, then shifts": shifted_after,
    "im2col": columns,
    "Winograd F(2×2, 3×3)": winograd_conv3x3,
}


def solve(field: ImageField, images: jax.Array) -> jax.Array:
    term, fixed = lx.DelayTerm(field, 1.0), dfx.ConstantStepSize()
    solution = lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, 1 / STEPS, images, stepsize_controller=fixed, max_steps=STEPS + 2)
    return jnp.sum(solution.ys**2)


def measure(data: str, batch: int, repetitions: int, native: bool) -> None:
    channels, height, width = IMAGE_SHAPES[data]
    images = jax.random.normal(jax.random.key(0), (batch, channels, height, width))
    forward, gradient = eqx.filter_jit(solve), eqx.filter_jit(eqx.filter_value_and_grad(solve))
    programs, compiled, values = {}, {}, {}
    for name, conv in (WAYS | {"XLA's convolution": native_conv3x3}).items():
        field = ImageField(channels, FILTERS, conv=conv, key=jax.random.key(1))
        start = time.perf_counter()
        values[name] = float(forward(field, images))
        programs[name, "forward"] = lambda field=field: forward(field, images)
        if native or conv is not native_conv3x3:
            jax.block_until_ready(gradient(field, images))
            programs[name, "gradient"] = lambda field=field: gradient(field, images)
        compiled[name] = time.perf_counter() - start
    assert np.allclose(list(values.values()), values["XLA's convolution"], rtol=1e-4), values
    seconds = {key: float(np.median(times)) for key, times in interleave(programs, repetitions).items()}
    print(f"\n{data} ({channels}×{height}×{width}), batch {batch}")
    print(f"{'way':26}{'forward':>12}{'gradient':>12}{'compile':>12}")
    for name in values:
        cells = [seconds.get((name, "forward")), seconds.get((name, "gradient")), compiled[name]]
        print(f"{name:26}" + "".join(f"{'' if cell is None else f'{cell:.3f} s':>12}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convolutions", description=__doc__)
    parser.add_argument("--data", default="MNIST,CIFAR10", help="some of: " + ", ".join(IMAGE_SHAPES))
    parser.add_argument("--batch", default="64", help="batch sizes, such as 64,256")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--native", action="store_true", help="time the gradient of XLA's convolution too (minutes)")
    options = parser.parse_args()
    for data in options.data.split(","):
        for batch in options.batch.split(","):
            measure(data, int(batch), options.repetitions, options.native)


if __name__ == "__main__":
    main()
