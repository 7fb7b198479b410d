"""Doses: how fast a drug acts on the bone marrow, and how long blood cells mature, from the counts of three patients.

    python -m examples.doses

The drug in the blood, c, is kicked by doses. Its effect on dividing cells p comes after a gamma-distributed time, and cells
take a time τ to mature before they enter the blood, where n is counted; few of them make the others divide faster,

    c' = -k c,        p' = a (n^-f - p (1 + s ∫ γ(u; mean) c(t - u) du)),        n' = b (p(t - τ) - n).

Each patient has another schedule. The mean, τ and the strength s are fitted to noisy counts of all three by Levenberg and
Marquardt's method, with the exact derivatives of the solver.
"""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

import lagrax as lx

from .looks import plt, save

jax.config.update("jax_enable_x64", True)

ELIMINATION, DIVISION, TURNOVER, FEEDBACK = 1.2, 0.5, 0.6, 0.3  # per day; the last has no unit
SHAPE = 3
NEVER = np.inf
TIMES = np.array(
    [[0.0, 1.0, 2.0, 3.0, 4.0, NEVER], [0.0, 7.0, 14.0, NEVER, NEVER, NEVER], [0.0, 1.0, 14.0, 15.0, 28.0, 29.0]]
)
SIZES = np.array([[1.0, 1.0, 1.0, 1.0, 1.0, 0.0], [2.0, 2.0, 2.0, 0.0, 0.0, 0.0], [1.5, 1.5, 1.5, 1.5, 1.5, 1.5]])
DAYS = np.arange(1.0, 41.0, 1.5)
TRUTH = {"mean": 2.0, "tau": 5.0, "strength": 1.5}
START = {"mean": 1.0, "tau": 3.0, "strength": 0.5}


def marrow(t, state, seen, p):
    drug, dividing, cells = state
    effect, (_, matured, _) = seen["effect"], seen["then"]
    made = cells**-FEEDBACK - dividing * (1 + p["strength"] * effect)
    return -ELIMINATION * drug, DIVISION * made, TURNOVER * (matured - cells)


def counts(p, times, sizes, days=DAYS):
    """Cells in the blood of one patient, in units of the healthy number."""
    effect = lx.Integral(0.0, jnp.inf, lx.Gamma(SHAPE, SHAPE / p["mean"]), of=lambda t, state, p: state[0])
    dose = lambda t, state, size, p: (state[0] + size, *state[1:])
    return lx.ddesolve(
        lx.DelayTerm(marrow, {"effect": effect, "then": p["tau"]}),
        dfx.Tsit5(),
        t0=0.0,
        t1=days[-1],
        dt0=None,
        history=(0.0, 1.0, 1.0),
        args=p,
        impulses=lx.Impulses(times, dose, sizes),
        saveat=dfx.SaveAt(ts=jnp.asarray(days), fn=lambda t, state, p: state[2]),
        stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8),
        adjoint=lx.ForwardMode(),
        max_steps=512,
    ).ys


@eqx.filter_jit
def all_counts(p, days=DAYS):
    return jax.vmap(lambda times, sizes: counts(p, times, sizes, days))(jnp.asarray(TIMES), jnp.asarray(SIZES))


@eqx.filter_jit
def fit(data):
    """(The parameters, one standard error of each, the root mean square that is left)."""
    names = sorted(START)
    # All are positive: their logarithms are fitted.
    named = lambda logs: dict(zip(names, jnp.exp(logs), strict=True))
    residuals = lambda logs, _: (all_counts(named(logs)) - data).reshape(-1)
    start = jnp.log(jnp.array([START[name] for name in names]))
    logs = optx.least_squares(residuals, optx.LevenbergMarquardt(rtol=1e-6, atol=1e-8), start, max_steps=64).value
    jacobian, left = jax.jacfwd(residuals)(logs, None), residuals(logs, None)
    variance = jnp.sum(left**2) / (left.size - len(names))
    errors = jnp.exp(logs) * jnp.sqrt(variance * jnp.diag(jnp.linalg.inv(jacobian.T @ jacobian)))
    return named(logs), dict(zip(names, errors, strict=True)), jnp.sqrt(jnp.mean(left**2))


def draw(data, found):
    figure, columns = plt.subplots(1, 3, figsize=(10, 3.0), sharex=True, sharey=True, layout="constrained")
    days = np.linspace(0.0, 40.0, 401)
    fitted, guessed = all_counts(found, days), all_counts({name: jnp.array(START[name]) for name in START}, days)
    for i, axes in enumerate(columns):
        given = np.isfinite(TIMES[i])
        axes.vlines(TIMES[i][given], 0, 0.1 * SIZES[i][given], color="#D55E00", lw=3, label="doses")
        axes.plot(days, guessed[i], color="0.75", lw=1.5, label="first guess")
        axes.plot(days, fitted[i], color="#0072B2", lw=2, label="fitted")
        axes.plot(DAYS, data[i], "o", color="0.35", ms=3.5, label="measured")
        axes.set(xlabel="time [days]", xlim=(-1, 40), ylim=(0, None), title=f"patient {i + 1}")
        axes.spines[["top", "right"]].set_visible(False)
    columns[0].set(ylabel="cells in the blood [of normal]")
    columns[0].legend(frameon=False, fontsize=8, loc="lower right", ncols=2)
    save(figure, "patients")


def main():
    exact = all_counts({name: jnp.array(value) for name, value in TRUTH.items()})
    data = exact * (1 + 0.02 * jax.random.normal(jax.random.key(1), exact.shape))
    found, errors, misfit = jax.tree.map(float, fit(data))
    for name in TRUTH:
        print(f"{name:9} {found[name]:5.2f} ± {errors[name]:.2f}   (true: {TRUTH[name]}, first guess: {START[name]})")
        assert abs(found[name] - TRUTH[name]) < 4 * errors[name]
    print(f"misfit {100 * misfit:.1f} %, the data were made with errors of 2 %")
    draw(data, {name: jnp.array(value) for name, value in found.items()})
    return found, errors


if __name__ == "__main__":
    main()
