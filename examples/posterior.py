"""Bayesian: what forty noisy counts say about a delay, a growth rate and where the population started.

    python -m examples.posterior        (needs NumPyro: pip install 'lagrax[gallery]')

Hutchinson's equation y' = r y (1 − y(t − τ)) with unknown r, τ, past y₀ and noise σ. NumPyro's No-U-Turn sampler
draws from their joint posterior; it follows the gradient of the likelihood, which comes out of the solver exactly,
for the delay as for the rest, and no draw diverges.
"""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

import lagrax as lx

from .looks import BLUE, GREY, ORANGE, plt, save

jax.config.update("jax_enable_x64", True)
TRUTH = {"r": 1.4, "tau": 1.2, "y0": 0.4, "sigma": 0.1}
LABELS = {"r": "growth rate $r$ [1/day]", "tau": "delay $τ$ [days]", "y0": "past $y_0$ [–]", "sigma": "noise $σ$ [–]"}
DAYS = jnp.linspace(0.0, 16.0, 41)[1:]
FINE = jnp.linspace(0.0, 16.0, 321)


def population(r, tau, y0, ts):
    return lx.ddesolve(
        lx.DelayTerm(lambda t, y, delayed, r: r * y * (1 - delayed), tau),
        dfx.Tsit5(),
        t0=0.0,
        t1=ts[-1],
        dt0=None,
        history=y0,
        args=r,
        saveat=dfx.SaveAt(ts=ts),
        stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8),
        max_steps=256,
        throw=False,
    ).ys


def model(counts):
    r = numpyro.sample("r", dist.LogNormal(0.0, 1.0))
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 1.0))
    y0 = numpyro.sample("y0", dist.LogNormal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    # The noise is relative: counts are positive.
    numpyro.sample("counts", dist.LogNormal(jnp.log(population(r, tau, y0, DAYS)), sigma), obs=counts)


def sample(counts, draws: int) -> MCMC:
    start = numpyro.infer.init_to_value(values={"r": 1.0, "tau": 0.8, "y0": 0.5, "sigma": 0.3})
    mcmc = MCMC(
        NUTS(model, init_strategy=start), num_warmup=draws, num_samples=draws, num_chains=2, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(1), counts)
    return mcmc


def draw(counts, drawn):
    figure = plt.figure(figsize=(10, 5.6))
    axes = figure.subplot_mosaic([["fit"] * 4, list(LABELS)], height_ratios=(1.3, 1))
    some = slice(None, None, len(drawn["r"]) // 60)
    curves = jax.jit(jax.vmap(lambda r, tau, y0: population(r, tau, y0, FINE)))(
        *(drawn[name][some] for name in ("r", "tau", "y0"))
    )
    axes["fit"].plot(FINE, curves.T, color=BLUE, lw=0.4, alpha=0.5)
    axes["fit"].plot(DAYS, counts, "o", color="black", ms=4, zorder=3)
    axes["fit"].set(title="Counts, and what the posterior makes of them", xlabel="time [days]", ylabel="population [–]")
    axes["fit"].set(xlim=(0, 16), ylim=(0, None))
    for name, label in LABELS.items():
        axes[name].hist(drawn[name], bins=40, color=BLUE, alpha=0.8)
        axes[name].axvline(TRUTH[name], color=ORANGE, lw=2)
        axes[name].set(xlabel=label, yticks=[])
        axes[name].spines["left"].set_visible(False)
    axes["r"].set_ylabel("posterior", color=GREY)
    save(figure, "posterior")


def main(draws: int = 500) -> None:
    curve = population(TRUTH["r"], TRUTH["tau"], TRUTH["y0"], DAYS)
    counts = curve * jnp.exp(TRUTH["sigma"] * jax.random.normal(jax.random.key(0), curve.shape))
    print(f"Sampling two chains of {draws} draws, after as many to warm up …", flush=True)
    mcmc = sample(counts, draws)
    chains, drawn = mcmc.get_samples(group_by_chain=True), mcmc.get_samples()
    divergences = int(np.sum(mcmc.get_extra_fields()["diverging"]))
    print(f"{divergences} divergences")
    print(f"{'':<7}{'true':>7}{'mean':>9}{'sd':>8}{'95 %':>17}{'r̂':>8}{'effective':>11}")
    for name in TRUTH:
        values, low, high = drawn[name], *np.quantile(drawn[name], [0.025, 0.975])
        rhat, size = split_gelman_rubin(np.asarray(chains[name])), effective_sample_size(np.asarray(chains[name]))
        span = f"{low:.3f} – {high:.3f}"
        print(f"{name:<7}{TRUTH[name]:7.3f}{np.mean(values):9.3f}{np.std(values):8.3f}{span:>17}{rhat:8.3f}{size:11.0f}")
        assert rhat < 1.05 and abs(np.mean(values) - TRUTH[name]) < 4 * np.std(values)
    assert divergences == 0
    draw(counts, drawn)


if __name__ == "__main__":
    main()
