"""A second solver to compare with where delays move, vanish, are tiny, of the derivative or spread over the past:
collocation in plain NumPy, sharing nothing with lagrax.

Steps are short and of fixed length. On each the solution is a polynomial whose slopes at the Gauss points are those of the
equation, found by repetition; a delay that looks into the step itself needs nothing special. A step on which a delay looks
at a kink is shortened until it ends there, by root finding on its length. Gauss points lie inside the step: from which side
of a jump a value is taken is never a question. Integrals are taken by Gauss's rule between all kinks.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

POINTS = 8
"""Gauss points of a step."""

DEEPEST = 4
"""Where a kink looked at has this level, no step ends: there it is one in the sixth derivative."""

MOST_KINKS = 100
"""Systems with more take too long."""

SAMPLES = 64
"""At how many times on a step it is looked for kinks."""

CLOSE = 1e-9
"""Times that differ by less may be taken for one."""


QUADRATURE = np.polynomial.legendre.leggauss(16)
"""The rule by which integrals are taken between two kinks, or edges."""


class TooManyKinks(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Sum:
    """`∫ kernel(s) of(t - s, y(t - s)) ds` over the stretches between some `edges`, `of` as large as the state."""

    edges: np.ndarray
    kernel: Callable
    of: Callable


@dataclasses.dataclass(frozen=True)
class Equation:
    """`y'(t) = field(t, y, delayed, on)` after t0, `y = history(t, on)` before it.

    All functions are called with several times at once: `looked_up(t, y)` gives a row of times for each, and `delayed[i]`
    has a row of states for each, of derivatives where `slopes` says so, with those of the `sums` behind. The first
    `len(slopes)` times are those of delays; at others, the ends of integrals, only kinks are looked for. `on` says of each
    of `jump_ts` whether it is over.
    """

    field: Callable
    looked_up: Callable
    history: Callable
    y0: np.ndarray
    t0: float
    t1: float
    jump_ts: np.ndarray
    slopes: np.ndarray
    history_slope: Callable | None = None
    sums: tuple[Sum, ...] = ()


class Solved:
    """The solution so far, one polynomial for each step, and its kinks."""

    def __init__(self, equation: Equation):
        self.equation = equation
        self.count = 0
        self.starts, self.lengths = np.full(64, np.inf), np.ones(64)
        self.pieces = np.zeros((64, POINTS + 1, len(equation.y0)))
        jumps = [t for t in equation.jump_ts if t < equation.t0]
        self.kinks = {equation.t0: -1} | dict.fromkeys(jumps, -1)
        self.guess = (equation.t0, 0.0, np.zeros((POINTS + 1, len(equation.y0))))

    def put(self, start: float, end: float, piece: np.ndarray) -> None:
        """Writes a step down behind the last one that was kept; `count` says that it is kept."""
        if self.count == len(self.starts):
            double = lambda old, fill: np.concatenate([old, np.full_like(old, fill)])
            self.starts, self.lengths = double(self.starts, np.inf), double(self.lengths, 1)
            self.pieces = double(self.pieces, 0)
        self.starts[self.count], self.lengths[self.count] = start, end - start
        self.pieces[self.count] = piece

    def __call__(self, times: np.ndarray) -> np.ndarray:
        """The solution at any times, that of the step being taken from its start on."""
        times = np.asarray(times, float)
        number = np.maximum(np.searchsorted(self.starts[: self.count + 1], times, side="right") - 1, 0)
        theta = ((times - self.starts[number]) / self.lengths[number])[..., None]
        pieces = self.pieces[number]
        value = pieces[..., POINTS, :]
        for k in range(POINTS - 1, -1, -1):
            value = value * theta + pieces[..., k, :]
        return self._or_history(value, times, self.equation.history)

    def slope(self, times: np.ndarray) -> np.ndarray:
        """Its derivative."""
        number = np.maximum(np.searchsorted(self.starts[: self.count + 1], times, side="right") - 1, 0)
        theta = (times - self.starts[number]) / self.lengths[number]
        powers = np.arange(1, POINTS + 1) * theta[..., None] ** np.arange(POINTS)
        value = np.einsum("...p,...pd->...d", powers, self.pieces[number][..., 1:, :]) / self.lengths[number][..., None]
        return self._or_history(value, times, self.equation.history_slope)

    def _or_history(self, value, times, history):
        early = times < self.equation.t0
        if np.any(early):
            value[early] = history(times[early], times[early][:, None] >= self.equation.jump_ts)
        return value

    def integral(self, one: Sum, times: np.ndarray) -> np.ndarray:
        """An integral of the solution, seen from several times."""
        edges = times[:, None] - one.edges[::-1]
        low, high = edges[:, :1], edges[:, -1:]
        kinks = np.array(sorted(kink for kink in self.kinks if np.min(low) < kink < np.max(high)))
        edges = np.sort(np.concatenate([edges, np.clip(kinks, low, high)], axis=1), axis=1)
        (points, factors), halves = QUADRATURE, np.diff(edges)[..., None] / 2
        u = edges[:, :-1, None] + halves * (1 + points)
        weights = halves * factors * one.kernel(times[:, None, None] - u)
        return np.einsum("...sp,...spd->...d", weights, one.of(u, self(u)))

    def delayed(self, times: np.ndarray, states: np.ndarray) -> np.ndarray:
        """What the field looks at, from several times with the states there."""
        equation = self.equation
        seen = equation.looked_up(times, states)
        slopes = np.flatnonzero(equation.slopes)
        delayed = self(seen[:, : len(equation.slopes)])
        if len(slopes):
            delayed[:, slopes] = self.slope(seen[:, slopes])
        return np.concatenate([delayed, *(self.integral(one, times)[:, None] for one in equation.sums)], axis=1)


def solve(equation: Equation, longest: float = 0.05) -> Solved:
    """The solution on [t0, t1], in steps no longer than `longest`."""
    solved = Solved(equation)
    t, y = equation.t0, np.asarray(equation.y0, float)
    stops = [*sorted(s for s in equation.jump_ts if equation.t0 < s < equation.t1), equation.t1]
    while t < equation.t1:
        stop = next(s for s in stops if s > t)
        end = stop if stop - t <= longest else t + min(longest, (stop - t) / 2)
        piece = _step(solved, t, end, y)
        while piece is None and end - t > CLOSE:
            end = t + (end - t) / 2
            piece = _step(solved, t, end, y)
        crossings = _crossings(solved, t, end, stop, _settled(piece, t, end))
        if crossings:
            found = [(*_locate(solved, t, end, y, crossing), crossing[1]) for crossing in crossings]
            end, kink, delay = min(found, key=lambda found: found[0])
            end = stop if end > stop - CLOSE else end
            piece = _settled(_step(solved, t, end, y), t, end)
            if kink is not None:
                solved.kinks[end] = _echo(equation, delay, solved.kinks[kink])
            if len(solved.kinks) > MOST_KINKS:
                raise TooManyKinks
        if end == stop < equation.t1:
            solved.kinks[end] = 0  # a kink in y' that was declared
        solved.put(t, end, piece)
        solved.count += 1
        solved.guess = (t, end - t, piece)
        t, y = end, np.sum(piece, axis=0)
    return solved


def _echo(equation: Equation, delay: int, level: int) -> int:
    """How smooth a kink is where a delay looks at one of this level: an integral adds one, a derivative does not."""
    if delay >= len(equation.slopes):
        return level + 2
    return max(level, 0) if equation.slopes[delay] else level + 1


def _settled(piece: np.ndarray | None, start: float, end: float) -> np.ndarray:
    if piece is None:
        raise ArithmeticError(f"the oracle's step from {start} to {end} did not settle")
    return piece


def _step(solved: Solved, start: float, end: float, y: np.ndarray) -> np.ndarray | None:
    """The polynomial of a step, by its powers; None if it does not settle, as may happen if it runs over a jump."""
    equation, h = solved.equation, end - start
    times = start + h * NODES
    on = times[:, None] >= equation.jump_ts
    on[:] = on[POINTS // 2]
    piece = _continued(solved, start, end, y)
    for _ in range(60):
        states = STATES @ piece
        solved.put(start, end, piece)
        slopes = equation.field(times, states, solved.delayed(times, states), on)
        new = np.concatenate([y[None], h * POWERS @ slopes])
        change = np.max(np.abs(new - piece))
        piece = new
        if change <= 1e-13 * (1 + np.max(np.abs(y))):
            return piece
    return None


def _continued(solved: Solved, start: float, end: float, y: np.ndarray) -> np.ndarray:
    """The last step, continued: what to begin with."""
    before, length, piece = solved.guess
    slopes = np.zeros((POINTS, len(y)))
    if end - before < 3 * length:
        theta = (start - before + (end - start) * NODES) / length
        slopes = (np.arange(1, POINTS + 1) * theta[:, None] ** np.arange(POINTS)) @ piece[1:] / length
    return np.concatenate([y[None], (end - start) * POWERS @ slopes])


def _looked_up(solved: Solved, start: float, end: float, piece: np.ndarray, theta: np.ndarray) -> np.ndarray:
    return solved.equation.looked_up(start + theta * (end - start), theta[:, None] ** np.arange(POINTS + 1) @ piece)


def _crossings(solved: Solved, start: float, end: float, stop: float, piece: np.ndarray):
    """(The first time at which a delay is seen to look past a kink, which delay, which kink, up or down), for each."""
    kinks = np.array(sorted(t for t, level in solved.kinks.items() if level < DEEPEST))
    # From just behind the start to just behind the start of the next step: what happens on a mesh point is not missed. But
    # where the field jumps steps end anyway, and delays may jump too.
    last = end - CLOSE if end == stop else end + 2 * CLOSE
    times = np.append(start + CLOSE, np.linspace(start, last, SAMPLES)[1:])
    numbers = np.searchsorted(kinks, _looked_up(solved, start, end, piece, (times - start) / (end - start)))
    changed = numbers != numbers[0]
    if not np.any(changed):
        return []
    first = int(np.argmax(np.any(changed, axis=1)))
    delays = np.flatnonzero(changed[first])
    ups = numbers[first] > numbers[0]
    return [(times[first], i, kinks[numbers[0, i] if ups[i] else numbers[0, i] - 1], ups[i]) for i in delays]


def _locate(solved: Solved, start: float, end: float, y: np.ndarray, crossing):
    """(Where a step is to end so that a delay looks at a kink there, that kink or None if there is none after all)."""
    behind, delay, kink, up = crossing

    def miss(end):
        piece = _step(solved, start, end, y)
        if piece is None:
            return 1.0
        looked_up = _looked_up(solved, start, end, piece, np.ones(1))
        return (looked_up[0, delay] - kink) * (1 if up else -1)

    before = start + CLOSE
    if miss(behind) < 0 or miss(before) > 0:  # seen from a step that does not run over it, it is not there
        return behind, None
    return brentq(miss, before, behind, xtol=1e-15, rtol=8.9e-16), kink


def _collocation():
    """(The Gauss points, the powers of θ there, and the matrix from slopes there to the powers 1 to `POINTS` of the
    polynomial that has them)."""
    nodes = (np.polynomial.legendre.leggauss(POINTS)[0] + 1) / 2
    derivatives = nodes[:, None] ** np.arange(POINTS)
    powers = np.linalg.inv(derivatives) / np.arange(1, POINTS + 1)[:, None]
    return nodes, nodes[:, None] ** np.arange(POINTS + 1), powers


NODES, STATES, POWERS = _collocation()
