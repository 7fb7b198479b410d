"""A laser that sees its own light come back from a mirror: the Lang–Kobayashi equations, with a complex field.

    python -m examples.laser

In units of the photon's lifetime, the field E and the carriers N of a semiconductor laser obey

    E' = (1 + iα) N E + η exp(−iφ) E(t − τ),        T N' = P − N − (1 + 2N) |E|².

Its steady states, the modes of the external cavity, are known exactly: E = A exp(iωt) with N = −η cos(φ + ωτ), ω = αN
− η sin(φ + ωτ) and A² = (P − N)/(1 + 2N). They lie on an ellipse. A laser that starts on the mode of the highest gain
stays there; one that starts dark wanders along the ellipse, in pulses.
"""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .looks import BLUE, GREY, ORANGE, plt, save

jax.config.update("jax_enable_x64", True)
ALPHA, ETA, PHI, DELAY, LIFETIME, PUMP = 4.0, 0.04, 0.0, 400.0, 200.0, 0.02
T1 = 24_000.0


def lang_kobayashi(t, y, delayed, args):
    field, carriers = y
    back, _ = delayed
    growth = (1 + 1j * ALPHA) * carriers * field + ETA * jnp.exp(-1j * PHI) * back
    return growth, (PUMP - carriers - (1 + 2 * carriers) * jnp.abs(field) ** 2) / LIFETIME


def solve(history, t1, ts):
    return lx.ddesolve(
        lx.DelayTerm(lang_kobayashi, DELAY),
        dfx.Tsit5(),
        t0=0.0,
        t1=t1,
        dt0=None,
        history=history,
        saveat=dfx.SaveAt(ts=ts),
        stepsize_controller=dfx.PIDController(rtol=1e-7, atol=1e-9),
        max_steps=2**16,
    )


def modes() -> np.ndarray:
    """The frequencies ω of all steady states, as roots found between sign changes."""

    def residual(w):
        return -ETA * (ALPHA * np.cos(PHI + w * DELAY) + np.sin(PHI + w * DELAY)) - w

    w = np.linspace(-0.2, 0.2, 400_001)
    low, high = w[:-1][np.diff(np.sign(residual(w))) != 0], w[1:][np.diff(np.sign(residual(w))) != 0]
    for _ in range(50):
        middle = (low + high) / 2
        same = np.sign(residual(middle)) == np.sign(residual(low))
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return (low + high) / 2


def carriers_of(w):
    return -ETA * np.cos(PHI + w * DELAY)


def stays(w) -> float:
    """How far a solution that starts on a mode has left it after ten delays."""
    n = carriers_of(w)
    amplitude = np.sqrt((PUMP - n) / (1 + 2 * n))
    mode = lambda t: (amplitude * jnp.exp(1j * w * t), jnp.asarray(n))
    ts = jnp.linspace(0.0, 10 * DELAY, 101)
    field, carriers = jax.jit(lambda: solve(mode, 10 * DELAY, ts).ys)()
    exact, _ = jax.vmap(mode)(ts)
    return float(jnp.max(jnp.abs(field - exact)) / amplitude + jnp.max(jnp.abs(carriers - n)))


def draw(ts, field, carriers):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), width_ratios=(1.4, 1))
    left.plot(ts / 1000, np.abs(field) ** 2, color=BLUE, lw=0.6)
    left.set(title="Light", xlabel="time [1000 photon lifetimes]", ylabel="intensity $|E|^2$ [–]", xlim=(0, T1 / 1000))
    left.set_ylim(0, None)
    phase = np.unwrap(np.angle(field))
    lag = round(DELAY / float(ts[1] - ts[0]))
    turned = phase[lag:] - phase[:-lag]  # ωτ on a mode
    late = slice(len(turned) // 4, None)
    right.plot(turned[late], np.asarray(carriers)[lag:][late], color=BLUE, lw=0.4, alpha=0.7, label="the laser")
    w = modes()
    right.plot(w * DELAY, carriers_of(w), "o", color=ORANGE, ms=4, label="modes of the cavity")
    right.plot(w[0] * DELAY, carriers_of(w[0]), "*", color=GREY, ms=11, label="highest gain")
    right.set(title="Along the modes", xlabel="turn of the phase in a delay [rad]", ylabel="carriers $N$ [–]")
    right.legend(loc="upper left", fontsize=8)
    save(figure, "laser")


def main(t1: float = T1) -> None:
    w = modes()
    best = w[np.argmin(carriers_of(w))]
    error = stays(best)
    print(f"{len(w)} modes of the cavity; started on that of the highest gain, the laser leaves it by {error:.1e}")
    assert error < 1e-4
    print("Solving for a laser that starts dark …", flush=True)
    ts = jnp.linspace(0.0, t1, 12_001)
    solution = jax.jit(lambda: solve((1e-3 + 0j, 0.0), t1, ts))()
    print(f"{solution.stats['num_steps']} steps")
    draw(ts, *(np.asarray(part) for part in solution.ys))


if __name__ == "__main__":
    main()
