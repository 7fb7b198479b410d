"""A hundred thousand components: spirals in a population that diffuses and feels its own density after a delay.

    python -m examples.reaction_diffusion

The delayed logistic equation with diffusion, on a square with periodic edges, by lines on a grid of 320 × 320,

    u' = D Δu + r u (1 - u(t - τ)).

For r τ > π/2 it oscillates; where the phase winds around a point, a spiral grows. How much memory the solve takes is asked
before it is allocated: with all of the past, and with the few steps of it that a delay spans. Then the gradient of u at one
place and an early time, with respect to D, r and τ, is computed and compared with differences.
"""

import sys
import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .looks import plt, save

SIDE = 320
PARAMETERS = {"diffusion": 0.3, "rate": 1.8, "delay": 1.0}
FRAMES = (10.0, 40.0, 120.0)


def laplacian(u):
    return sum(jnp.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1)) - 4 * u


def field(t, u, then, p):
    return p["diffusion"] * laplacian(u) + p["rate"] * u * (1 - then)


def smooth_noise(seed, side, scale=12.0):
    """Random numbers of deviation 1 that change over `scale` points."""
    k = 2 * np.pi * np.fft.fftfreq(side)
    weights = np.exp(-0.5 * scale**2 * (k[:, None] ** 2 + k[None] ** 2))
    noise = np.fft.ifft2(np.fft.fft2(np.random.default_rng(seed).normal(size=(side, side))) * weights).real
    return jnp.asarray(noise / noise.std(), jnp.float32)


def past(side):
    """Oscillations whose phase differs from place to place."""
    cosine, sine = smooth_noise(0, side), smooth_noise(1, side)
    return lambda t: 1 + 0.2 * (cosine * jnp.cos(np.pi / 2 * t) + sine * jnp.sin(np.pi / 2 * t))


def problem(p, side, t1, **options):
    """The arguments of a solve, positional and by name."""
    controller = dfx.PIDController(rtol=1e-3, atol=1e-4)
    term = lx.DelayTerm(field, p["delay"])
    return (term, dfx.Tsit5(), 0.0, t1, None, past(side), p), {"stepsize_controller": controller} | options


def corner(p, side, t1, max_steps):
    accurate = dfx.PIDController(rtol=1e-5, atol=1e-5)
    arguments, options = problem(p, side, t1, stepsize_controller=accurate, max_steps=max_steps)
    return lx.ddesolve(*arguments, **options).ys[0, 0, 0]


def draw(states):
    figure, columns = plt.subplots(1, len(states), figsize=(10, 3.4), layout="constrained")
    for axes, t, u in zip(columns, FRAMES, states, strict=True):
        image = axes.imshow(u, cmap="cividis", vmin=0, vmax=np.max(states), interpolation="nearest")
        axes.set(xticks=[], yticks=[], title=f"t = {t:.0f} τ")
    figure.colorbar(image, ax=columns, label="density [–]", shrink=0.9)
    save(figure, "reaction-diffusion")


def main(side=SIDE):
    p = {name: jnp.float32(value) for name, value in PARAMETERS.items()}
    print(f"{side**2:,} components in float32")
    ts = jnp.array(FRAMES, jnp.float32)
    arguments, options = problem(p, side, FRAMES[-1], saveat=dfx.SaveAt(ts=ts), max_steps=2048)
    print("all of the past: ", lx.memory_of(*arguments, **options))
    arguments, options = problem(p, side, FRAMES[-1], saveat=dfx.SaveAt(ts=ts), max_steps=None, memory=32)
    print("a ring of 32 rows:", lx.memory_of(*arguments, **options))
    start = time.perf_counter()
    solution = lx.ddesolve(*arguments, **options)
    states = np.asarray(solution.ys)
    steps, needed = int(solution.stats["num_steps"]), int(solution.stats["memory_needed"])
    print(
        f"{steps} steps in {time.perf_counter() - start:.0f} s, compiled and solved; {needed} rows were needed", flush=True
    )
    draw(states)

    early, steps = 5.0, 128
    loss = jax.jit(jax.value_and_grad(lambda p: corner(p, side, early, steps)))
    start = time.perf_counter()
    value, gradient = jax.block_until_ready(loss(p))
    seconds = time.perf_counter() - start
    print(f"u in a corner at t = {early:.0f}: {value:.4f}; its gradient in {seconds:.0f} s, compiled and solved:")
    for name in p:
        shifted = lambda h, name=name: loss(p | {name: p[name] * (1 + h)})[0]
        difference = (shifted(0.005) - shifted(-0.005)) / (0.01 * p[name])
        print(f"  {name:9} {gradient[name]:8.4f}   by differences {difference:8.4f}")
        assert abs(gradient[name] - difference) < 0.02 * abs(difference) + 2e-3
    return solution


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
