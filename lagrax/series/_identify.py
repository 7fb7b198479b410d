"""Estimates of delays and parameters: search, profile over each delay, aliases, block bootstrap, verdict."""

import math
from collections.abc import Sequence

import numpy as np

from ._result import Alias, Estimate, Profile
from ._search import Fits, Search

REPLICATES = 96
GRID = 24
STARTS = 6


def delay_grid(low: float, high: float) -> np.ndarray:
    return np.geomspace(low, high, GRID)


def locate(search: Search, delays: int, guesses: np.ndarray, allowed: tuple[np.ndarray, np.ndarray], weights) -> Fits:
    """The best fits whose delays lie in `allowed` (low, high), best first.

    First with the delays held on a grid (of points, if there are several), which finds the other parameters whatever they
    start from; then from the best of these with everything free. `guesses` (g, p): rows to start from; the delays of the
    first are tried as they are.
    """
    low, high = allowed
    if delays == 1:
        points = delay_grid(low[0], high[0])[:, None]
    else:
        points = np.exp(_halton(2 * GRID, delays) * (np.log(high) - np.log(low)) + np.log(low))
        points = np.sort(points, axis=1)  # equal kinds of delay: the names go from the shortest to the longest
    rows = [np.concatenate([points, np.tile(guess[delays:], (len(points), 1))], axis=1) for guess in guesses]
    held = search.fit(np.concatenate(rows), weights=weights, held=range(delays), iterations=25)
    order = np.argsort(held.cost, kind="stable")
    chosen = _apart(held.values[order][:, :delays], order, STARTS)
    begin = np.concatenate([held.values[chosen], guesses])
    states = np.concatenate([held.starts[chosen], np.tile(np.asarray(search.windows.y[:, 0]), (len(guesses), 1, 1))])
    bounds = (np.concatenate([low, search.low[delays:]]), np.concatenate([high, search.high[delays:]]))
    free = search.fit(begin, weights=weights, starts=states, bounds=bounds)
    return free.take(np.argsort(free.cost, kind="stable"))


def profile(search: Search, best: Fits, which: int, name: str, wide: tuple[float, float], guesses, weights) -> Profile:
    """The loss over one delay, from the best fit and from the guesses, whichever ends lower."""
    grid = delay_grid(*wide)
    cost = np.full(len(grid), np.inf)
    for row, states in [(best.values[0], best.starts[0]), (guesses[0], None)]:
        rows = np.tile(row, (len(grid), 1))
        rows[:, which] = grid
        cost = np.minimum(cost, search.fit(rows, weights=weights, held=[which], starts=states, iterations=25).cost)
    # The estimate is a point of its own curve: a minimum narrower than the grid would be missing from it.
    delays, costs = np.append(grid, best.values[0, which]), np.append(cost, best.cost[0])
    order = np.argsort(delays)
    return Profile(name, delays[order], costs[order] / best.cost[0])


def aliases(profile: Profile, estimate: float, period: float | None, others: Sequence[float] = ()) -> tuple[Alias, ...]:
    """The other places where the loss is less than half as much again as at the estimate.

    Where two delays do the same, the `others` are no aliases of this one: they have changed places.
    """
    delays, cost = profile.delays, profile.cost
    found = []
    if cost[0] < 1.5 and cost[0] <= cost[1] and delays[0] < 0.5 * estimate:
        found.append(Alias(float(delays[0]), "zero"))
    for i in range(1, len(cost)):
        lower_than_next = i == len(cost) - 1 or cost[i] < cost[i + 1]
        if not (cost[i] < cost[i - 1] and lower_than_next and cost[i] < 1.5) or abs(delays[i] - estimate) < 0.1 * estimate:
            continue
        kind = "period" if period is not None and abs(delays[i] / period - 1) < 0.2 else "embedding"
        found.append(Alias(float(delays[i]), kind))
    return tuple(alias for alias in found if all(abs(alias.value / other - 1) > 0.1 for other in others))


def intervals(search: Search, best: Fits, block: int, weights: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """95 % intervals (p,), (p,) by block bootstrap: whole blocks of neighbouring windows are drawn, and all fitted anew.

    Neighbouring windows share samples, in themselves and in their pasts; windows one block apart do not. In the coordinates
    of the fit, where the bounds are at infinity, ± t · sd with as many degrees of freedom as blocks, less one.
    """
    used = np.flatnonzero(weights)
    blocks = max(2, round(len(used) / block))
    rng = np.random.default_rng(seed)
    drawn = np.zeros((REPLICATES, len(weights)))
    for row in drawn:
        firsts = rng.integers(0, len(used), blocks)
        np.add.at(row, used[(firsts[:, None] + np.arange(block)) % len(used)], 1.0)
    start = np.tile(best.values[0], (REPLICATES, 1))
    fits = search.fit(start, weights=drawn, starts=np.tile(best.starts[0], (REPLICATES, 1, 1)), iterations=12)
    low, high = search.low, search.high
    points = _coordinate(fits.values[np.isfinite(fits.cost)], low, high)
    centre = _coordinate(best.values[0], low, high)
    # A few replicates may end in another minimum: the spread of the middle 95 % in the place of the standard deviation.
    spread = np.maximum(_spread(points, centre), 1e-12)
    reach = _t975(blocks - 1) * spread
    return _value(centre - reach, low, high), _value(centre + reach, low, high)


def verdict(
    estimate: float, low: float, high: float, bounds: tuple[float, float], found: tuple[Alias, ...], gain: float
) -> str:
    """What may be said about a delay of a mechanism. `gain`: the loss over that of a forecast that nothing changes."""
    near = 0.01 * (bounds[1] - bounds[0])
    if estimate < bounds[0] + near or estimate > bounds[1] - near:
        return "at bound"
    rival = any(alias.kind != "period" and bounds[0] <= alias.value <= bounds[1] for alias in found)
    return "predictive only" if rival or high - low > 0.6 * estimate or gain > 0.9 else "identified"


def estimates(names, values, low, high, verdicts=None, found=None) -> tuple[Estimate, ...]:
    rows = zip(names, values, low, high, verdicts or [None] * len(names), found or [()] * len(names), strict=True)
    return tuple(Estimate(name, float(v), float(a), float(b), word, other) for name, v, a, b, word, other in rows)


def _spread(points: np.ndarray, centre: np.ndarray) -> np.ndarray:
    distance = np.sort(np.abs(points - centre), axis=0)
    middle = distance[: max(2, math.ceil(0.95 * len(distance)))]
    # The middle 95 % of a normal distribution has a standard deviation of 0.872 σ.
    return np.sqrt(np.mean(middle**2, axis=0)) / 0.872


def _coordinate(values, low, high):
    with np.errstate(divide="ignore", invalid="ignore"):
        bounded = np.log((values - low) / (high - values))
        above = np.log(values - low)
    return np.where(np.isfinite(high), bounded, np.where(np.isfinite(low), above, values))


def _value(points, low, high):
    with np.errstate(over="ignore", invalid="ignore"):
        bounded = low + (high - low) / (1 + np.exp(-points))
        above = low + np.exp(points)
    return np.where(np.isfinite(high), bounded, np.where(np.isfinite(low), above, points))


def _t975(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, to 1 % (Cornish–Fisher)."""
    z, n = 1.959964, max(freedom, 1)
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)


def _apart(points: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """The first `count` rows whose points differ from those taken before by a tenth."""
    taken: list[int] = []
    for point, row in zip(points, rows, strict=True):
        if all(np.max(np.abs(np.log(point / points[list(rows).index(other)]))) > 0.1 for other in taken):
            taken.append(int(row))
        if len(taken) == count:
            break
    return np.array(taken)


def _halton(count: int, dimensions: int) -> np.ndarray:
    """Points spread evenly over the unit cube."""

    def radical(i: int, base: int) -> float:
        share, total = 1.0 / base, 0.0
        while i:
            i, digit = divmod(i, base)
            total += digit * share
            share /= base
        return total

    primes = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)
    return np.array([[radical(i + 1, primes[j]) for j in range(dimensions)] for i in range(count)])
