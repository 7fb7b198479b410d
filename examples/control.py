"""Control: a stick balanced on a fingertip, with a reaction time, by gradient descent on the rightmost root.

    python -m examples.control

The angle of the stick obeys θ'' = a θ − p θ(t − τ) − d θ'(t − τ): it falls at the rate √a, and is corrected τ later.
Which gains p, d make it come back fastest? Those for which the rightmost root λ of λ² − a + (p + d λ) exp(−λτ) = 0
lies furthest to the left. The roots are eigenvalues of a small matrix, the generator of the delay equation on a
Chebyshev grid; JAX differentiates them. The best place is known exactly, a root of multiplicity three at λτ = √(2 +
aτ²) − 2, and the solver shows that it is true.
"""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import lagrax as lx

from .looks import BLUE, GREEN, GREY, ORANGE, plt, save

jax.config.update("jax_enable_x64", True)
FALL = 9.81 / 0.5  # a = g / length, per second squared
REACTION = 0.12  # τ, seconds
NODES = 20
START = jnp.array([22.0, 1.5])  # p, d
ITERATIONS = 600


def chebyshev() -> tuple[np.ndarray, np.ndarray]:
    """Nodes from 1 down to −1, and the matrix that differentiates a polynomial given there (Trefethen)."""
    x = np.cos(np.pi * np.arange(NODES + 1) / NODES)
    weights = np.r_[2.0, np.ones(NODES - 1), 2.0] * (-1.0) ** np.arange(NODES + 1)
    matrix = np.outer(weights, 1 / weights) / (x[:, None] - x[None, :] + np.eye(NODES + 1))
    return x, matrix - np.diag(matrix.sum(axis=1))


def roots(gains):
    """The characteristic roots. (θ, θ') is given at nodes of [t − τ, t]: inside it is shifted, at t the equation holds."""
    p, d = gains
    now, then = jnp.array([[0.0, 1.0], [FALL, 0.0]]), jnp.array([[0.0, 0.0], [-p, -d]])
    shift = np.kron(2 / REACTION * chebyshev()[1], np.eye(2))
    generator = jnp.asarray(shift).at[:2].set(0.0).at[:2, :2].set(now).at[:2, -2:].set(then)
    return jnp.linalg.eigvals(generator)


def abscissa(gains, sharpness):
    """The real part of the rightmost root, smoothed: near the best gains several roots compete."""
    return jax.nn.logsumexp(sharpness * roots(gains).real) / sharpness


def descend():
    """The gains after each iteration. The maximum is smoothed less and less."""
    optimiser = optax.adam(optax.cosine_decay_schedule(0.2, ITERATIONS, 1e-3))

    @jax.jit
    def iterate(gains, state, sharpness):
        gradient = jax.grad(abscissa)(gains, sharpness)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(gains, updates), state

    path, state = [START], optimiser.init(START)
    for sharpness in np.geomspace(1.0, 100.0, ITERATIONS):
        gains, state = iterate(path[-1], state, sharpness)
        path.append(gains)
    return np.array(path)


def best():
    """Exactly: with g(λ) = (a − λ²) exp(λτ), a root of multiplicity three has p + dλ = g, d = g', 0 = g''."""
    rate = (np.sqrt(2 + FALL * REACTION**2) - 2) / REACTION
    g = lambda x: (FALL - x**2) * jnp.exp(x * REACTION)
    slope = jax.grad(g)(rate)
    return rate, np.array([g(rate) - rate * slope, slope])


@jax.jit
def stick(gains, ts):
    """The angle after the stick stood upright for long, and was then pushed."""

    def field(t, y, delayed, gains):
        return jnp.array([y[1], FALL * y[0] - gains @ delayed])

    controller = dfx.PIDController(rtol=1e-9, atol=1e-14)
    solution = lx.ddesolve(
        lx.DelayTerm(field, REACTION),
        dfx.Tsit5(),
        t0=0.0,
        t1=ts[-1],
        dt0=None,
        history=jnp.zeros(2),
        y0=jnp.array([0.0, 0.5]),
        args=gains,
        saveat=dfx.SaveAt(ts=ts),
        stepsize_controller=controller,
    )
    return solution.ys[:, 0]


def draw(path, ts, curves):
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3.4))
    rightmost = jax.jit(jax.vmap(lambda gains: jnp.max(roots(gains).real)))
    p, d = np.meshgrid(np.linspace(15, 36, 60), np.linspace(0.5, 9, 60))
    height = rightmost(np.stack([p, d], axis=-1).reshape(-1, 2)).reshape(p.shape)
    shades = left.contourf(p, d, np.clip(height, -6, 6), levels=np.linspace(-6, 6, 13), cmap="RdBu_r")
    left.contour(p, d, height, levels=[0.0], colors="black", linewidths=1)
    left.plot(*path.T, color="black", lw=2)
    left.plot(*best()[1], "*", color="black", ms=11)
    left.set(title="Rightmost root [1/s]", xlabel="gain $p$ [1/s²]", ylabel="gain $d$ [1/s]")
    figure.colorbar(shades, ax=left, ticks=[-6, -3, 0, 3, 6])
    for gains, colour, label in ((path[0], ORANGE, "start"), (path[-1], BLUE, "found")):
        found = np.asarray(roots(gains))
        middle.plot(found.real, found.imag, "o", color=colour, ms=5, label=label, alpha=0.8)
    middle.axvline(0, color=GREY, lw=0.8)
    middle.set(title="Roots", xlabel="real part [1/s]", ylabel="imaginary part [1/s]", xlim=(-45, 8), ylim=(-140, 140))
    middle.legend(loc="center", bbox_to_anchor=(0.66, 0.28))
    for curve, colour in zip(curves, (ORANGE, BLUE), strict=True):
        right.plot(ts, np.degrees(curve), color=colour, lw=2)
    right.axvspan(0, REACTION, color=GREEN, alpha=0.2, lw=0)
    right.text(REACTION + 0.04, -8.5, "reaction time", color=GREEN)
    right.set(title="The stick, pushed", xlabel="time [s]", ylabel="angle [°]", xlim=(0, 3), ylim=(-10, 24))
    save(figure, "control")


def main() -> None:
    print("Descending on the rightmost root …", flush=True)
    path = descend()
    rate, gains = best()
    found = float(np.max(np.asarray(roots(path[-1])).real))
    first = float(np.max(np.asarray(roots(path[0])).real))
    for name, (p, d), root in (("start", path[0], first), ("found", path[-1], found), ("exactly", gains, rate)):
        print(f"{name:<8} p = {p:6.3f} 1/s²   d = {d:.3f} 1/s   rightmost root {root:+.3f} 1/s")
    assert np.allclose(path[-1], gains, rtol=0.03) and found < 0.97 * rate

    # One period later, the solution of a damped swing σ ± iω is smaller by exp(2πσ/ω). Does the solver's know of the root?
    pair = max(np.asarray(roots(path[0])), key=lambda root: (root.real, root.imag))
    period = 2 * np.pi / pair.imag
    before, after = stick(path[0], jnp.array([0.0, 6.0, 6.0 + period]))[1:]
    print(f"root at the start {pair.real:+.6f} 1/s, from two values of the solution {np.log(after / before) / period:+.6f}")
    assert abs(np.log(after / before) / period - pair.real) < 1e-5
    ts = jnp.linspace(0.0, 3.0, 601)
    curves = [stick(gains, ts) for gains in (path[0], path[-1])]
    draw(path, ts, curves)


if __name__ == "__main__":
    main()
