"""Epidemics: people fall ill a fixed time after they were infected, and recover a fixed time after that.

    python -m examples.epidemic

New infections are i = β S I per day. Who is infected becomes infectious a time L later, and stays so for a time D,

    S' = −i,        I' = i(t − L) − i(t − L − D),

where compartments of an ordinary equation would have those times exponentially distributed. The first cases are
impulses: a share of the people at time L, who recover at L + D. How many are spared in the end is known exactly,
ln(S(∞)/S(0)) = −βD (1 − S(∞)). Then β, L and D are fitted to noisy daily reports: the times of the impulses move with
them.
"""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

import lagrax as lx

from .looks import BLUE, GREEN, GREY, ORANGE, plt, save

jax.config.update("jax_enable_x64", True)
TRUTH = {"beta": 0.5, "latent": 4.0, "ill": 6.0}  # per day, days, days
START = {"beta": 0.4, "latent": 2.0, "ill": 8.0}
FIRST = 1e-4
DAYS = jnp.arange(0.0, 101.0)
PEOPLE, REPORTED = 100_000, 0.3


def spread(t, y, delayed, p):
    infections = lambda state: p["beta"] * state[0] * state[1]
    return -infections(y), infections(delayed["infectious"]) - infections(delayed["recovered"])


def epidemic(p, ts):
    """The shares (susceptible, infectious) at `ts`."""
    first, recovery = p["latent"], p["latent"] + p["ill"]
    return lx.ddesolve(
        lx.DelayTerm(spread, {"infectious": first, "recovered": recovery}),
        dfx.Tsit5(),
        t0=0.0,
        t1=ts[-1],
        dt0=None,
        history=(1.0 - FIRST, 0.0),
        args=p,
        impulses=lx.Impulses(
            jnp.stack([first, recovery]), lambda t, y, sign, p: (y[0], y[1] + sign * FIRST), jnp.array([1.0, -1.0])
        ),
        saveat=dfx.SaveAt(ts=ts),
        stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-12),
        adjoint=lx.ForwardMode(),
        max_steps=4096,
    ).ys


def compartments(p, ts):
    """The ordinary equation with the same means: susceptible, exposed, infectious."""

    def field(t, y, p):
        s, e, i = y
        return -p["beta"] * s * i, p["beta"] * s * i - e / p["latent"], e / p["latent"] - i / p["ill"]

    controller = dfx.PIDController(rtol=1e-8, atol=1e-12)
    start = (1.0 - FIRST, FIRST, 0.0)
    term, saveat = dfx.ODETerm(field), dfx.SaveAt(ts=ts)
    ys = dfx.diffeqsolve(term, dfx.Tsit5(), 0.0, ts[-1], None, start, p, saveat=saveat, stepsize_controller=controller).ys
    return ys[0], ys[2]


@eqx.filter_jit
def reports(p):
    """Expected reports a day: of those who were infected on it."""
    return -PEOPLE * REPORTED * jnp.diff(epidemic(p, DAYS)[0])


@eqx.filter_jit
def fit(data):
    """The parameters, and one standard error of each: least squares of 2√(count + 3/8), whose noise is 1 (Anscombe)."""
    names = list(START)
    named = lambda logs: dict(zip(names, jnp.exp(logs), strict=True))
    level = lambda counts: 2 * jnp.sqrt(jnp.maximum(counts, 0.0) + 3 / 8)
    residuals = lambda logs, _: level(reports(named(logs))) - level(data)
    start = jnp.log(jnp.array(list(START.values())))
    logs = optx.least_squares(residuals, optx.LevenbergMarquardt(rtol=1e-6, atol=1e-8), start, max_steps=128).value
    jacobian = jax.jacfwd(residuals)(logs, None)
    errors = jnp.exp(logs) * jnp.sqrt(jnp.diag(jnp.linalg.inv(jacobian.T @ jacobian)))
    return named(logs), dict(zip(names, errors, strict=True))


def draw(data, found):
    ts = jnp.linspace(0.0, 150.0, 601)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
    for solve, colour, label in ((compartments, GREY, "exponential times"), (epidemic, BLUE, "fixed times")):
        susceptible, infectious = jax.jit(solve)(TRUTH, ts)
        left.plot(ts, 100 * infectious, color=colour, lw=2.2, label=label)
        left.plot(ts, 100 * susceptible, color=colour, lw=1.2, ls="--")
    left.set(title="The same mean times", xlabel="time [days]", ylabel="people [%]", xlim=(0, 150), ylim=(0, 100))
    left.text(62, 88, "susceptible (dashed)", color=GREY)
    left.legend(loc="center right")
    right.plot(DAYS[1:], data, "o", color="black", ms=3, label="reported")
    right.plot(DAYS[1:], reports(START), color=ORANGE, lw=1.5, ls="--", label="first guess")
    right.plot(DAYS[1:], reports(found), color=GREEN, lw=2.2, label="fitted")
    right.set(title="Fitted to daily reports", xlabel="time [days]", ylabel="cases a day", xlim=(0, 100), ylim=(0, None))
    right.legend(loc="upper left")
    save(figure, "epidemic")


def main() -> None:
    p = {name: jnp.array(value) for name, value in TRUTH.items()}
    spared = float(jax.jit(epidemic)(p, jnp.array([0.0, 400.0]))[0][-1])
    exact = optx.root_find(
        lambda s, _: jnp.log(s / (1 - FIRST)) + p["beta"] * p["ill"] * (1 - s), optx.Newton(1e-12, 1e-12), jnp.array(0.05)
    ).value
    print(f"spared in the end: {spared:.8f}, exactly {exact:.8f}")
    assert abs(spared - exact) < 1e-7

    print("Fitting to noisy reports …", flush=True)
    data = jnp.asarray(np.random.default_rng(0).poisson(reports(p)), float)
    found, errors = fit(data)
    for name in TRUTH:
        print(f"{name:<8}{found[name]:7.3f} ± {errors[name]:.3f}   (true: {TRUTH[name]}, first guess: {START[name]})")
        assert abs(found[name] - TRUTH[name]) < 4 * errors[name]
    draw(data, found)


if __name__ == "__main__":
    main()
