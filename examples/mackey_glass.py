"""Physiology: from steady breathing to chaos in the Mackey–Glass equation, 720 delays at once.

    python -m examples.mackey_glass

y' = β z / (1 + zⁿ) − γ y with z = y(t − τ), a model of blood cells and of breathing, is at rest for short delays,
swings for longer ones and is chaotic for τ = 17. Each delay is a lane of one `jax.vmap`, with steps of its own. Where
the swings set in is known exactly, as a pair of roots of λ + γ = f'(1) exp(−λτ) on the imaginary axis.
"""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .looks import BLUE, GREY, ORANGE, plt, save

jax.config.update("jax_enable_x64", True)
BETA, GAMMA, N = 0.2, 0.1, 10
CONTROLLER = dfx.PIDController(rtol=1e-6, atol=1e-8)


def mackey_glass(t, y, delayed, args):
    return BETA * delayed / (1 + delayed**N) - GAMMA * y


def onset() -> float:
    """The delay at which the equilibrium y = 1 loses its stability."""
    slope = BETA * (2 - N) / 4
    return np.arccos(GAMMA / slope) / np.sqrt(slope**2 - GAMMA**2)


@jax.jit
def late(delays):
    """y(t) for late times t, a row for each delay. A ring of 512 steps is all the past that is kept."""

    def solve(delay):
        return lx.ddesolve(
            lx.DelayTerm(mackey_glass, delay),
            dfx.Tsit5(),
            t0=0.0,
            t1=3000.0,
            dt0=None,
            history=0.9,
            saveat=dfx.SaveAt(ts=jnp.linspace(2400.0, 3000.0, 2401)),
            stepsize_controller=CONTROLLER,
            memory=512,
            max_steps=None,
        ).ys

    return jax.vmap(solve)(delays)


def peaks(y: np.ndarray) -> np.ndarray:
    """The local maxima of samples, by parabolas through their neighbours."""
    left, middle, right = y[:-2], y[1:-1], y[2:]
    at = (middle > left) & (middle >= right) & (2 * middle - left - right > 0)
    left, middle, right = left[at], middle[at], right[at]
    return middle + (left - right) ** 2 / (8 * (2 * middle - left - right))


def onset_of(delays, curves) -> float:
    """Where swings set in, from the swings: near there their amplitude is as the root of the distance."""
    near = (delays > onset() + 0.1) & (delays < onset() + 0.7)
    squares = np.ptp(curves[near], axis=1) ** 2
    return np.polyfit(squares, delays[near], 2)[-1]


def draw(delays, curves):
    figure, axes = plt.subplots(2, 3, figsize=(10, 6.4), height_ratios=(1.5, 1))
    grid = axes[0, 0].get_gridspec()
    for one in axes[0]:
        one.remove()
    wide = figure.add_subplot(grid[0, :])
    for delay, curve in zip(delays, curves, strict=True):
        tops = peaks(curve)
        wide.plot(np.full_like(tops, delay), tops, ".", color=BLUE, ms=1.2, mew=0)
    wide.axvline(onset(), color=ORANGE, lw=1.2, ls="--")
    wide.text(onset() + 0.2, 0.8, "swings set in", color=ORANGE)
    wide.set(title="From rest to chaos", xlabel="delay $τ$ [–]", ylabel="local maxima of $y$ [–]", xlim=(3, 21))
    for one, chosen in zip(axes[1], (8.0, 14.0, 17.0), strict=True):
        row = int(np.argmin(np.abs(delays - chosen)))
        lag = round(delays[row] / 0.25)
        one.plot(curves[row][:-lag], curves[row][lag:], color=BLUE, lw=0.5)
        one.set(title=f"$τ = {chosen:.0f}$", xlabel="$y(t - τ)$ [–]", ylabel="$y(t)$ [–]")
        one.plot(1, 1, "o", color=GREY, ms=4)
    save(figure, "mackey-glass")


def main(lanes: int = 720) -> None:
    delays = np.linspace(3.0, 21.0, lanes + 1)[1:]
    print(f"Solving the Mackey–Glass equation for {lanes} delays …", flush=True)
    curves = np.asarray(late(delays))
    found = onset_of(delays, curves)
    print(f"Swings set in at τ = {onset():.4f}; extrapolated from the swings: {found:.4f}")
    assert abs(found - onset()) < 0.02
    assert np.all(np.ptp(curves[delays < onset() - 0.5], axis=1) < 1e-3)
    draw(delays, curves)


if __name__ == "__main__":
    main()
