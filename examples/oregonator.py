"""A stiff problem: an oscillating chemical reaction whose rates differ by a factor of ten million.

    python -m examples.oregonator

The Oregonator is a model of the Belousov–Zhabotinsky reaction. Its third substance does nothing but bring back the
second one a while after the first was there. With a delay in its place (as Epstein and Luo did, J. Chem. Phys. 95, 244,
1991) two substances are left,

    u' = k₁A v − k₂ u v + k₃B u − 2k₄ u²,        v' = −k₁A v − k₂ u v + k₃B u(t − τ).

Concentrations range over ten powers of ten, and rates reach 10⁷ per second while a cycle takes a minute and more. An
implicit method steps over what has died out; an explicit one has to follow it.
"""

import time

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .looks import BLUE, GREEN, ORANGE, plt, save

jax.config.update("jax_enable_x64", True)
K1A, K2, K3B, K4, DELAY = 1.34 * 0.06, 1.6e9, 8e3 * 0.06, 4e7, 10.0  # per second, litres per mol and second, seconds
T1 = 240.0


def oregonator(t, y, delayed, args):
    u, v = y
    return jnp.stack([K1A * v - K2 * u * v + K3B * u - 2 * K4 * u**2, -K1A * v - K2 * u * v + K3B * delayed[0]])


def solve(solver, rtol, **options):
    """The absolute tolerance is far below the smallest concentration that matters, 5e-11."""
    return lx.ddesolve(
        lx.DelayTerm(oregonator, DELAY),
        solver,
        t0=0.0,
        t1=T1,
        dt0=None,
        history=jnp.array([1e-10, 1e-5]),
        stepsize_controller=dfx.PIDController(rtol=rtol, atol=1e-9 * rtol),
        max_steps=2**15,
        throw=False,
        **options,
    )


def draw(t, y, mesh):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(1.8, 1))
    for row, colour, name in ((0, BLUE, "u"), (1, ORANGE, "v")):
        left.semilogy(t, y[:, row], color=colour, lw=1.8, label=f"${name}$")
    left.set(title="Concentrations", xlabel="time [s]", ylabel="[mol/l]", xlim=(0, T1))
    left.set_ylim(1e-12, 2)
    left.legend(loc="upper right", ncols=2)
    right.semilogy(mesh[1:], np.diff(mesh), ".", color=GREEN, ms=3)
    right.axhline(DELAY, color="0.6", lw=1, ls="--")
    right.text(3, DELAY * 0.25, "the delay", color="0.4")
    right.set(title="Steps of Kvaerno5", xlabel="time [s]", ylabel="length [s]", xlim=(0, T1))
    save(figure, "oregonator")


def main() -> None:
    ts = jnp.linspace(0.0, T1, 2401)
    saved = dfx.SaveAt(subs=[dfx.SubSaveAt(ts=ts), dfx.SubSaveAt(t0=True, steps=True)])
    implicit = jax.jit(lambda: solve(dfx.Kvaerno5(), 1e-4, saveat=saved))
    print("Compiling …", flush=True)
    jax.block_until_ready(implicit())
    start = time.perf_counter()
    solution = jax.block_until_ready(implicit())
    seconds = time.perf_counter() - start
    assert solution.result == lx.RESULTS.successful
    print(f"Kvaerno5: {solution.stats['num_steps']} steps, {1e3 * seconds:.0f} ms")

    # The same with a method of another order, a hundred times as accurate.
    other = jax.jit(lambda: solve(dfx.Kvaerno3(), 1e-6, saveat=dfx.SaveAt(ts=ts)))()
    error = np.median(np.abs(np.log(solution.ys[0] / other.ys)))
    print(f"Kvaerno3 at 1e-6: {other.stats['num_steps']} steps; concentrations differ by {error:.1e} of themselves (median)")
    explicit = jax.jit(lambda: solve(dfx.Tsit5(), 1e-4))()
    print(f"Tsit5 has come to t = {explicit.stats['t_reached']:.2f} s after {explicit.stats['num_steps']} steps")
    assert other.result == lx.RESULTS.successful and error < 1e-3
    assert explicit.result == lx.RESULTS.max_steps_reached

    mesh = np.asarray(solution.ts[1])
    draw(ts, np.asarray(solution.ys[0]), mesh[np.isfinite(mesh)])


if __name__ == "__main__":
    main()
