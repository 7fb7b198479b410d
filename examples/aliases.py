"""Why a low loss is not yet the delay: the loss over the delay, and values that are low without being it.

    python -m examples.aliases

Left, blowflies that take 14 days to grow up, with luck in their births and errors in their counts, and the equation that
made them, N' = P N(t - τ) exp(-N(t - τ)/N0) - δ N: the loss over τ, everything else fitted anew. Right, a cycle of the
logistic equation N' = r N (1 - N(t - 9)/K), and no equation: the error of predicting by any smooth f(N(t), N(t - τ)).
Draws out/aliases.png, in a minute.
"""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx

from .looks import BLUE, GREEN, ORANGE, plt, save

jax.config.update("jax_enable_x64", True)
SETTLED = 200.0  # days, after which the start is forgotten
FEATURES, AHEAD, RIDGE = 80, (1, 2, 4), 1.0


def blowflies(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every other day for two years: a delay of 14 days, births that vary by 60 %, counts that err by 35 %."""
    t = 2.0 * np.arange(360)
    luck = jnp.asarray(np.exp(0.6 * rng.normal(size=480) - 0.18))

    def field(t, n, delayed, args):
        births = luck[jnp.clip(t / 2, 0, 479).astype(int)] * 6.0 * delayed * jnp.exp(-delayed / 400.0)
        return births - 0.15 * n

    return t, _solved(field, 14.0, t) * np.exp(0.35 * rng.normal(size=len(t)))


def logistic(rng: np.random.Generator) -> np.ndarray:
    """Every day for 400 days: a delay of 9 days, counts that err by 5 %."""
    t = np.arange(400.0)
    return _solved(lambda t, n, delayed, args: 0.2 * n * (1 - delayed / 100), 9.0, t) * np.exp(
        0.05 * rng.normal(size=len(t))
    )


def _solved(field, delay: float, t: np.ndarray) -> np.ndarray:
    saveat = dfx.SaveAt(ts=jnp.asarray(SETTLED + t))
    end = float(SETTLED + t[-1])
    return np.asarray(
        lx.ddesolve(lx.DelayTerm(field, delay), dfx.Heun(), 0.0, end, 0.25, 80.0, saveat=saveat, max_steps=8192).ys
    )


def errors(y: np.ndarray, delays: np.ndarray) -> np.ndarray:
    """The error of predicting log N a few samples ahead from log N(t) and log N(t - τ), for each τ.

    By random features and ridge regression, a function of any smooth shape, on five blocks that were not used for it.
    """
    x = (np.log(y) - np.log(y).mean()) / np.log(y).std()
    rows = np.arange(int(delays.max()) + 1, len(x) - max(AHEAD))
    rng = np.random.default_rng(1)
    weights, phases = rng.normal(0, 1, (2, FEATURES)), rng.uniform(0, 2 * np.pi, FEATURES)
    target = np.stack([x[rows + h] - x[rows] for h in AHEAD], axis=1)
    blocks = np.arange(len(rows)) * 5 // len(rows)
    found = []
    for delay in delays:
        seen = np.stack([x[rows], np.interp(rows - delay, np.arange(len(x)), x)], axis=1)
        design = np.concatenate([np.ones((len(rows), 1)), seen, np.cos(seen @ weights + phases)], axis=1)
        found.append(np.mean(np.concatenate([_left_out(design, target, blocks == block) for block in range(5)])))
    return np.array(found)


def _left_out(design: np.ndarray, target: np.ndarray, out: np.ndarray) -> np.ndarray:
    used, penalty = design[~out], RIDGE * np.eye(design.shape[1])
    return (target[out] - design[out] @ np.linalg.solve(used.T @ used + penalty, used.T @ target[~out])) ** 2


def draw(fit, delays: np.ndarray, loss: np.ndarray) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
    (profile,), (found,) = fit.profiles, fit.delays
    left.plot(profile.delays, profile.cost, color=BLUE, lw=2)
    left.axvspan(found.low, found.high, color=GREEN, alpha=0.25, lw=0)
    for alias in found.aliases:
        height = np.interp(alias.value, profile.delays, profile.cost)
        left.plot([alias.value], [height], "v", color=ORANGE, ms=8)
        left.annotate(alias.kind, (alias.value, height), (0, -16), textcoords="offset points", ha="center", color=ORANGE)
    left.set(title="Blowflies, equation known", ylabel="loss over its lowest [–]", ylim=(0.8, None))
    right.plot(delays, loss / loss.min(), color=BLUE, lw=2)
    right.set(title="A logistic cycle, equation unknown", ylabel="error over its lowest [–]", yscale="log")
    for axes, truth, height in ((left, 14, 2.6), (right, 9, 20)):
        axes.axvline(truth, color=GREEN, lw=2)
        axes.text(truth + 0.7, height, f"truth: {truth}", color=GREEN)
        axes.set_xlabel("delay τ [days]")
    save(figure, "aliases")


def main() -> None:
    t, y = blowflies(np.random.default_rng(1))
    fit = lx.fit_series(t, y, model="nicholson")
    (found,) = fit.delays
    aliases = ", ".join(f"{alias.value:.1f} ({alias.kind})" for alias in found.aliases)
    print(f"τ = {found.estimate:.1f} days ({found.low:.1f} to {found.high:.1f}), {found.verdict}; aliases: {aliases}")
    assert abs(found.estimate - 14) < 2 and "period" in {alias.kind for alias in found.aliases}
    delays = np.arange(0.5, 50.0, 0.25)
    loss = errors(logistic(np.random.default_rng(0)), delays)
    good, best = np.sum(loss < 1.5 * loss.min()), delays[loss.argmin()]
    print(f"without an equation {good} of {len(delays)} delays predict nearly as well as the best, {best} days")
    draw(fit, delays, loss)


if __name__ == "__main__":
    main()
