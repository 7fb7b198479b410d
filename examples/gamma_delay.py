"""A delay that is spread: how long blood cells take to mature, from their numbers after a dose that stops their production.

    python -m examples.gamma_delay

Cells mature for a gamma-distributed time, of unknown mean and shape, before they enter the blood,

    N'(t) = k ∫ γ(s; shape, shape/mean) (1 - slope c(t - s)) ds - k N(t),

and a drug of concentration c, given at t = 0, keeps their precursors from dividing. For each shape, mean and slope
are fitted to noisy counts by Levenberg and Marquardt's method, with the exact derivatives of the solver; the misfits tell
which shapes are likely.
"""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import lagrax as lx

from .looks import plt, save

jax.config.update("jax_enable_x64", True)

TURNOVER, ELIMINATION = 0.25, 0.9  # of cells in the blood and of the drug, per day
DAYS = np.linspace(1.0, 30.0, 30)
SHAPES = (1, 2, 4, 8)
TRUTH = {"shape": 4, "mean": 6.0, "slope": 0.8}
START = {"mean": 3.0, "slope": 0.4}


def drug(t):
    """The concentration, in units of the first one."""
    return jnp.where(t < 0, 0.0, jnp.exp(-ELIMINATION * jnp.maximum(t, 0.0)))


def field(t, cells, matured, p):
    return TURNOVER * (matured - cells)


def counts(shape, p, days=DAYS):
    """The number of cells, in units of the normal one, on some days."""
    dividing = lambda t, cells, p: 1 - p["slope"] * drug(t)
    matured = lx.Integral(0.0, jnp.inf, lx.Gamma(shape, shape / p["mean"]), of=dividing)
    return lx.ddesolve(
        lx.DelayTerm(field, matured),
        dfx.Tsit5(),
        t0=0.0,
        t1=days[-1],
        dt0=None,
        history=1.0,
        args=p,
        saveat=dfx.SaveAt(ts=jnp.asarray(days)),
        stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8),
        adjoint=lx.ForwardMode(),
        max_steps=256,
    ).ys


@eqx.filter_jit
def residuals(shape, logs, data):
    """What is left of the data, and its derivatives with respect to the logarithms of mean and slope (both are positive)."""

    def left(logs):
        difference = counts(shape, dict(zip(START, jnp.exp(logs), strict=True))) - data
        return difference, difference

    jacobian, difference = jax.jacfwd(left, has_aux=True)(logs)
    return difference, jacobian


def fit(shape, data):
    """(mean and slope, one standard error of each, the root mean square that is left), for one shape."""
    once = lambda logs: residuals(shape, jnp.asarray(logs), data)
    start = np.log(list(START.values()))
    logs = least_squares(
        lambda logs: np.asarray(once(logs)[0]), start, jac=lambda logs: np.asarray(once(logs)[1]), method="lm"
    ).x
    left, jacobian = map(np.asarray, once(logs))
    variance = np.sum(left**2) / (DAYS.size - len(START))
    errors = np.exp(logs) * np.sqrt(variance * np.diag(np.linalg.inv(jacobian.T @ jacobian)))
    found = dict(zip(START, np.exp(logs), strict=True))
    return found, dict(zip(START, errors, strict=True)), np.sqrt(np.mean(left**2))


def density(s, shape, mean):
    return lx.Gamma(shape, shape / mean).weights(jnp.asarray(s))[:, -1]


def draw(data, fits, best):
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    days, found = np.linspace(0.0, 30.0, 301), fits[best][0]
    left.plot(days, counts(best, found, days), color="#0072B2", lw=2, label="fitted")
    left.plot(DAYS, data, "o", color="0.35", ms=3.5, label="measured")
    left.set(xlabel="days after the dose", ylabel="cells [of normal]")
    left.legend(frameon=False)
    middle.plot(SHAPES, [100 * float(fits[shape][2]) for shape in SHAPES], "o-", color="#0072B2")
    middle.set(xlabel="shape [–]", ylabel="misfit, root mean square [%]", ylim=(0, None))
    s = np.linspace(0.0, 20.0, 400)
    right.plot(s, density(s, TRUTH["shape"], TRUTH["mean"]), color="0.7", lw=5, label="true")
    right.plot(s, density(s, best, found["mean"]), color="#0072B2", lw=2, label=f"fitted, shape {best}")
    right.set(xlabel="time to mature [days]", ylabel="density [1/day]", xlim=(0, 20), ylim=(0, None))
    right.legend(frameon=False)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, "gamma-delay")


def main():
    truth = {name: jnp.array(TRUTH[name]) for name in START}
    data = counts(TRUTH["shape"], truth) * (1 + 0.005 * jax.random.normal(jax.random.key(1), DAYS.shape))
    fits = {}
    print("shape  mean [days]    slope          misfit")
    for shape in SHAPES:
        fits[shape] = fit(shape, data)
        found, errors, misfit = jax.tree.map(float, fits[shape])
        cells = [f"{found[name]:5.2f} ± {errors[name]:.2f}" for name in ("mean", "slope")]
        print(f"{shape:5}  {cells[0]:13}  {cells[1]:13}  {100 * misfit:.2f} %", flush=True)
    misfits = {shape: float(fits[shape][2]) for shape in SHAPES}
    best = min(SHAPES, key=lambda shape: misfits[shape])
    # The likelihoods' ratio is chi-squared: 3.84 for 95 %.
    likely = [shape for shape in SHAPES if 2 * DAYS.size * np.log(misfits[shape] / misfits[best]) < 3.84]
    print(
        f"likely shapes: {', '.join(map(str, likely))}; the data were made with shape 4, mean 6, slope 0.8, errors of 0.5 %"
    )
    assert TRUTH["shape"] in likely
    draw(data, fits, best)
    return best, fits[best]


if __name__ == "__main__":
    main()
