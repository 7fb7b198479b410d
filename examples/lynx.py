"""A real series: Canadian lynx, 1821–1934, with a delay that is fitted, and a forecast that is held against a baseline.

    python -m examples.lynx

Lynx trapped a year in the Mackenzie River district (Elton and Nicholson, J. Animal Ecology 11, 215, 1942; the dataset
`lynx` of R). Their ten-year cycle follows that of the hare. The delayed logistic equation for the logarithm x of the
number,

    x' = r (1 − exp(s (x(t − τ) − k))),

has no hares in it, only the lynx of τ years ago. It is fitted to 1821–1920: from every year, with the observed past
as its history, six years ahead, for each delay of a grid. 1921–1934 is forecast by it, and by an autoregression. (One
hold-out of fourteen years is an anecdote, not a proof.)
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
LYNX = np.array([
    269, 321, 585, 871, 1475, 2821, 3928, 5943, 4950, 2577, 523, 98, 184, 279, 409, 2285, 2685, 3409, 1824, 409,
    151, 45, 68, 213, 546, 1033, 2129, 2536, 957, 361, 377, 225, 360, 731, 1638, 2725, 2871, 2119, 684, 299, 236,
    245, 552, 1623, 3311, 6721, 4254, 687, 255, 473, 358, 784, 1594, 1676, 2251, 1426, 756, 299, 201, 229, 469,
    736, 2042, 2811, 4431, 2511, 389, 73, 39, 49, 59, 188, 377, 1292, 4031, 3495, 587, 105, 153, 387, 758, 1307,
    3465, 6991, 6313, 3794, 1836, 345, 382, 808, 1388, 2713, 3800, 3091, 2985, 3790, 674, 81, 80, 108, 229, 399,
    1132, 2432, 3574, 2935, 1537, 529, 485, 662, 1000, 1590, 2657, 3396,
], float)  # fmt: skip
X = np.log10(LYNX)
KNOWN, LONGEST, WINDOW = 100, 6, 6  # years that are fitted, that a delay may last, that a window looks ahead


def lagged(t, x, delayed, p):
    return p["r"] * (1 - jnp.exp(p["s"] * (delayed - p["k"])))


def ahead(p, past, ts):
    """x at `ts` (from 0 on), after the samples `past` of the years −LONGEST … 0."""
    years = jnp.arange(-LONGEST, 1.0)
    observed = dfx.CubicInterpolation(years, dfx.backward_hermite_coefficients(years, past))
    return lx.ddesolve(
        lx.DelayTerm(lagged, p["tau"]),
        dfx.Tsit5(),
        t0=0.0,
        t1=ts[-1],
        dt0=None,
        history=observed.evaluate,
        args=p,
        saveat=dfx.SaveAt(ts=ts),
        stepsize_controller=dfx.PIDController(rtol=1e-4, atol=1e-6),
        adjoint=lx.ForwardMode(),
        max_steps=256,
        throw=False,
    ).ys


def windows(x):
    starts = np.arange(LONGEST, len(x) - WINDOW)
    past = x[starts[:, None] + np.arange(-LONGEST, 1)]
    return past, x[starts[:, None] + np.arange(1, WINDOW + 1)]


def named(raw, tau):
    """All are positive."""
    k, r, s = jnp.exp(raw)
    return {"k": k, "r": r, "s": s, "tau": tau}


@eqx.filter_jit
def fit(x, delays):
    """For each delay, the other parameters that fit best and the misfit that is left (Levenberg–Marquardt)."""
    past, future = windows(x)
    ts = jnp.arange(1.0, WINDOW + 1)

    def residuals(raw, tau):
        left = jax.vmap(lambda past: ahead(named(raw, tau), past, ts))(past) - future
        return jnp.where(jnp.isfinite(left), left, 10.0).reshape(-1)

    def one(tau):
        solver, guess = optx.LevenbergMarquardt(rtol=1e-5, atol=1e-6), jnp.log(jnp.array([3.0, 0.5, 1.0]))
        found = optx.least_squares(residuals, solver, guess, tau, max_steps=100, throw=False).value
        return named(found, tau), jnp.sqrt(jnp.mean(residuals(found, tau) ** 2))

    return jax.lax.map(one, delays)


def autoregression(x, steps, most=15):
    """The forecast of an autoregression with a constant, of the order that AIC chooses."""
    best = np.inf, None
    for order in range(1, most + 1):
        columns = [x[most - lag : len(x) - lag] for lag in range(1, order + 1)]
        design = np.stack([np.ones(len(x) - most), *columns], axis=1)
        weights, *_ = np.linalg.lstsq(design, x[most:], rcond=None)
        aic = len(design) * np.log(np.mean((design @ weights - x[most:]) ** 2)) + 2 * order
        if aic < best[0]:
            best = aic, weights
    weights, series = best[1], list(x)
    for _ in range(steps):
        series.append(weights[0] + weights[1:] @ np.array(series[: -len(weights) : -1]))
    return np.array(series[-steps:]), len(weights) - 1


def draw(delays, misfits, p, forecasts):
    years = np.arange(1821, 1935)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.7), width_ratios=(2.2, 1))
    left.axvspan(1920.5, 1935, color="0.94", lw=0)
    left.semilogy(years[50:], LYNX[50:], "o-", color="black", ms=3, lw=0.7, label="trapped")
    for (name, values), colour in zip(forecasts.items(), (BLUE, ORANGE), strict=True):
        left.semilogy(years[KNOWN - 1 :], 10 ** np.r_[X[KNOWN - 1], values], color=colour, lw=2, label=name)
    left.set(title="Lynx, and two forecasts from 1920", xlabel="year", ylabel="lynx a year", xlim=(1871, 1935))
    left.set_ylim(15, 10_000)
    left.legend(loc="lower left", ncols=3)
    right.plot(delays, misfits, color=GREEN, lw=2.2)
    right.axvline(p["tau"], color=GREY, lw=1, ls="--")
    right.set(title="Which delay", xlabel="delay $τ$ [years]", ylabel="misfit of the windows [log$_{10}$]")
    save(figure, "lynx")


def main() -> None:
    delays = jnp.linspace(0.75, 5.5, 39)
    print("Fitting a delayed logistic equation to 1821–1920, for each of 39 delays …", flush=True)
    found, misfits = fit(X[:KNOWN], delays)
    best = int(jnp.argmin(misfits))
    p = {name: float(values[best]) for name, values in found.items()}
    print("best:", ", ".join(f"{name} = {value:.3f}" for name, value in p.items()), f"(misfit {misfits[best]:.3f})")
    steps = len(X) - KNOWN
    line, order = autoregression(X[:KNOWN], steps)
    forecasts = {
        "delay equation": np.asarray(jax.jit(ahead)(p, X[KNOWN - 1 - LONGEST : KNOWN], jnp.arange(1.0, steps + 1))),
        f"AR({order})": line,
        "ten years before": X[KNOWN - 10 + np.arange(steps) % 10],
    }
    for name, values in forecasts.items():
        print(f"{name:<18} error {np.sqrt(np.mean((values - X[KNOWN:]) ** 2)):.3f} in log₁₀ of the number, 1921–1934")
    assert 1.0 < p["tau"] < 5.0 and np.all(np.isfinite(forecasts["delay equation"]))
    forecasts.pop("ten years before")
    draw(delays, misfits, p, forecasts)


if __name__ == "__main__":
    main()
