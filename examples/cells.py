"""Cells whose maturation takes as long as it takes: a delay that depends on the state, by a threshold.

    python -m examples.cells

Precursors of blood cells mature at a speed v(w), the faster the fewer mature cells w there are, and enter the blood
when they have come far enough: a cell that is ready now started a time τ ago, with ∫ v(w(s)) ds = 1 from t − τ to t.
Differentiated,

    w' = v(w) / v(w(t − τ)) b(w(t − τ)) − γ w,        τ' = 1 − v(w) / v(w(t − τ)),

so τ is a component of the state, and the delay is the function that returns it. That the integral stays 1 is not
used, and checks the solution. The amount lost per day is then differentiated: through the delay, which nobody wrote
down as a number.
"""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .looks import BLUE, GREY, ORANGE, plt, save

jax.config.update("jax_enable_x64", True)
DAYS = 120.0
LOSS = 0.25  # γ, per day
FIXED = 7.0  # days: about what τ is on the average


def speed(w):
    """Of maturation, per day: from 1/20 where there are many cells to 1/3 where there are none."""
    return 0.05 + 0.28 / (1 + w**2)


def born(w):
    """Precursors per day."""
    return 2.0 / (1 + w**6)


def blood(t, y, delayed, loss):
    w, _ = y
    w_then, _ = delayed
    ratio = speed(w) / speed(w_then)
    return ratio * born(w_then) - loss * w, 1 - ratio


MATURING = lx.DelayTerm(blood, lambda t, y, loss: y[1])


def punctual(t, y, delayed, loss):
    """The same with a fixed time to mature."""
    return born(delayed[0]) - loss * y[0], jnp.zeros_like(y[1])


def solve(loss=LOSS, start=0.5, term=MATURING, t1=DAYS):
    return lx.ddesolve(
        term,
        dfx.Tsit5(),
        t0=0.0,
        t1=t1,
        dt0=None,
        history=(start, 1 / speed(start)),  # a constant past, and the delay that belongs to it
        args=loss,
        saveat=dfx.SaveAt(t1=True, dense=True),
        stepsize_controller=dfx.PIDController(rtol=1e-9, atol=1e-9),
        max_steps=4096,
    )


def matured(solution, t) -> float:
    """∫ v(w(s)) ds from t − τ(t) to t, by Simpson's rule: 1 if the delay is right."""
    tau = solution.evaluate(t)[1]
    s = jnp.linspace(t - tau, t, 4001)
    v = speed(jax.vmap(solution.evaluate)(s)[0])
    return float((s[1] - s[0]) / 3 * (v[0] + v[-1] + 4 * jnp.sum(v[1:-1:2]) + 2 * jnp.sum(v[2:-1:2])))


def draw(solution, fixed):
    t = jnp.linspace(0.0, DAYS, 1201)
    w, tau = jax.vmap(solution.evaluate)(t)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(1.6, 1))
    left.plot(t, jax.vmap(fixed.evaluate)(t)[0], color=GREY, lw=1.3, label="$w$, maturing for a fixed time")
    left.plot(t, w, color=BLUE, lw=2.2, label="$w$, mature cells")
    left.set(title="Fewer cells mature faster", xlabel="time [days]", ylabel="mature cells [–]", xlim=(0, DAYS), ylim=(0, 8))
    left.legend(loc="upper right", ncols=2)
    days = left.twinx()
    days.plot(t, tau, color=ORANGE, lw=1.5)
    days.set_ylabel("maturation $τ$ [days]", color=ORANGE)
    days.spines["right"].set_visible(True)
    days.set_ylim(0, 24)
    late = t > DAYS / 2
    for one, colour in ((fixed, GREY), (solution, BLUE)):
        now, lag = jax.vmap(one.evaluate)(t[late])
        lag = lag if one is solution else FIXED
        right.plot(jax.vmap(one.evaluate)(t[late] - lag)[0], now, color=colour, lw=1.8)
    right.set(title="Now and then", xlabel="$w(t - τ)$ [–]", ylabel="$w(t)$ [–]")
    save(figure, "cells")


def main() -> None:
    print("Solving a delay that is part of the state …", flush=True)
    solution = solve()
    error = max(abs(matured(solution, t) - 1) for t in np.linspace(5.0, DAYS, 12))
    print(f"{solution.stats['num_steps']} steps; the threshold integral is 1 within {error:.1e}")
    assert error < 1e-7

    total = jax.jit(lambda loss: solve(loss, t1=60.0).ys[0][0])
    slope, h = jax.jit(jax.grad(total))(LOSS), 1e-5
    difference = (total(LOSS + h) - total(LOSS - h)) / (2 * h)
    print(f"dw(60)/dγ = {slope:.5f}, by differences {difference:.5f}")
    assert abs(slope / difference - 1) < 1e-3
    draw(solution, solve(term=lx.DelayTerm(punctual, FIXED)))


if __name__ == "__main__":
    main()
