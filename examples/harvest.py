"""Ecology: when to fish, and how much. Gradients with respect to the times of impulses.

    python -m examples.harvest

A stock obeys Nicholson's equation, x' = p x(t − τ) exp(−x(t − τ)) − d x: eggs take τ = 1 year to become adults, too
many adults leave too few of them, and the stock swings by itself. Eight times in twelve years a share s of it is
caught, an impulse, with an effort −ln(1 − s) that costs. What is caught, and left in the end, less the effort, is to
be as much as possible. The gradient says of each catch whether it should come earlier or later, and be smaller or
larger.
"""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import lagrax as lx

from .looks import BLUE, GREEN, GREY, ORANGE, plt, save

jax.config.update("jax_enable_x64", True)
EGGS, DEATHS, MATURES = 60.0, 2.5, 1.0  # per year, per year, years
COST = 1.0  # of a unit of effort, in adults
YEARS, CATCHES = 12.0, 8
ITERATIONS = 300


def stock(t, y, delayed, args):
    x, _ = y
    then, _ = delayed
    return EGGS * then * jnp.exp(-then) - DEATHS * x, jnp.zeros_like(x)


def plan(raw):
    """Times and shares, from unbounded numbers: gaps between catches are positive, shares between 0 and 1."""
    gaps = jax.nn.softmax(raw["gaps"])
    return YEARS * jnp.cumsum(gaps)[:-1], jax.nn.sigmoid(raw["shares"])


def solve(times, shares, ts=None):
    return lx.ddesolve(
        lx.DelayTerm(stock, MATURES),
        dfx.Tsit5(),
        t0=0.0,
        t1=YEARS,
        dt0=None,
        history=(2.0, 0.0),  # the stock, and what has been caught of it
        impulses=lx.Impulses(times, lambda t, y, share, args: (y[0] * (1 - share), y[1] + y[0] * share), shares),
        saveat=dfx.SaveAt(t1=True) if ts is None else dfx.SaveAt(ts=ts),
        stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-8),
        max_steps=1024,
    ).ys


def worth(raw):
    times, shares = plan(raw)
    left, caught = solve(times, shares)
    return caught[0] + left[0] + COST * jnp.sum(jnp.log1p(-shares))


def improve(raw, fixed_times: bool):
    """Adam. With fixed times only one share, the same for all catches, is changed."""
    optimiser = optax.adam(optax.cosine_decay_schedule(0.1, ITERATIONS, 0.01))

    @jax.jit
    def iterate(raw, state):
        value, gradient = jax.value_and_grad(worth)(raw)
        if fixed_times:
            mean = jnp.mean(gradient["shares"])
            gradient = {"gaps": jnp.zeros_like(gradient["gaps"]), "shares": jnp.full(CATCHES, mean)}
        updates, state = optimiser.update(jax.tree.map(jnp.negative, gradient), state)
        return optax.apply_updates(raw, updates), state, value

    state, values = optimiser.init(raw), []
    for _ in range(ITERATIONS):
        raw, state, value = iterate(raw, state)
        values.append(float(value))
    return raw, values


def check(raw) -> float:
    """How far the derivative along the gradient itself is from a difference."""
    gradient = jax.grad(worth)(raw)
    moved = jax.jit(lambda h: worth(jax.tree.map(lambda x, g: x + h * g, raw, gradient)))
    squared = sum(float(jnp.sum(g**2)) for g in jax.tree.leaves(gradient))
    h = 1e-4
    return abs((moved(h) - moved(-h)) / (2 * h) / squared - 1)


def draw(even, best, values):
    ts = jnp.linspace(0.0, YEARS, 1201)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(2, 1))
    nothing = (jnp.array([YEARS / 2]), jnp.zeros(1))
    plans = ((nothing, GREY, "left alone"), (plan(even), ORANGE, "evenly"), (plan(best), BLUE, "found"))
    for (times, shares), colour, label in plans:
        x, _ = jax.jit(solve)(times, shares, ts)
        left.plot(ts, x, color=colour, lw=1.2 if colour == GREY else 2, label=label, zorder=1 + (colour == BLUE))
    left.set(title="The stock", xlabel="time [years]", ylabel="adults [–]", xlim=(0, YEARS), ylim=(0, 9.5))
    left.legend(loc="upper right", ncols=3)
    right.plot(values, color=GREEN, lw=2.2)
    right.set(
        title="Caught and left, less the effort", xlabel="iterations of Adam", ylabel="adults [–]", xlim=(0, ITERATIONS)
    )
    save(figure, "harvest")


def main() -> None:
    start = {"gaps": jnp.zeros(CATCHES + 1), "shares": jnp.full(CATCHES, -1.0)}
    print("Improving even catches of one size, then all times and sizes …", flush=True)
    even, _ = improve(start, fixed_times=True)
    error = check(even)
    print(f"the gradient differs from differences by {error:.1e} of its size")
    assert error < 1e-4
    best, values = improve(even, fixed_times=False)
    print(f"evenly {worth(even):.3f}, found {worth(best):.3f}")
    print("at", np.round(plan(best)[0], 2), "years, shares", np.round(plan(best)[1], 2))
    assert worth(best) > worth(even)
    draw(even, best, values)


if __name__ == "__main__":
    main()
