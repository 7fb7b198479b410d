"""A second solver to compare with: the method of steps in plain NumPy, over SciPy's DOP853, sharing nothing with lagrax.

Time runs from zero inside (so that t0 = 10⁶ costs no digits), breakpoints are listed in advance by brute force, and from
which side of a jump a value is taken is decided by the middle of the stretch it is needed on, never by comparing times.
"""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
from scipy.integrate import DOP853

MOST_BREAKPOINTS = 400
"""Kinks are listed level by level while there are no more than these; error control copes with the smoother ones."""

DEEPEST = 8
"""Kinks in derivatives beyond this one are below the order of DOP853."""


@dataclasses.dataclass(frozen=True)
class Equation:
    """`y'(t) = field(t, y, delayed, on)` after t0, `y = history(t, on)` before it.

    `delayed` has one row per delay. `on` says of each of `jump_ts` whether it is over: after t0 the field may jump there,
    before t0 the history, which is called with several times and one row of `on` for each.
    """

    field: Callable
    delays: np.ndarray
    history: Callable
    y0: np.ndarray
    t0: float
    t1: float
    jump_ts: np.ndarray


def breakpoints(equation: Equation) -> dict[float, int]:
    """Where the solution is not smooth: times after t0 (negative: declared before it), each with a level.

    Level -1: y may jump, 0: y' may, 1: y'', and so on. Brute force: every kink found so far plus every delay.
    """
    jumps = np.asarray(equation.jump_ts, float) - equation.t0
    length = equation.t1 - equation.t0
    found = {float(t): -1 if t < 0 else 0 for t in jumps if t < length} | {0.0: -1}
    latest = found
    while latest:
        echoes: dict[float, int] = {}
        for time, level in latest.items():
            for delay in equation.delays:
                echo = time + float(delay)
                if 0 < echo < length and level < DEEPEST:
                    echoes[echo] = min(level + 1, echoes.get(echo, DEEPEST))
        latest = {time: level for time, level in echoes.items() if level < found.get(time, DEEPEST + 1)}
        if len(found) + len(latest) > MOST_BREAKPOINTS:
            break
        found = found | latest
    return found


def solve(equation: Equation, times: np.ndarray, tolerance: float = 1e-12) -> np.ndarray:
    """The states at the given times in [t0, t1]."""
    past = _Past(equation)
    y = np.asarray(equation.y0, float)
    length = equation.t1 - equation.t0
    for start, end in _stretches(past.kinks, length, float(np.min(equation.delays))):
        y = _solve_stretch(equation, past, start, end, y, tolerance)
    return np.array([past.solution(np.array([t - equation.t0]))[0] for t in times])


def _stretches(kinks: np.ndarray, length: float, longest: float) -> list[tuple[float, float]]:
    """[0, length] cut at the kinks, and further until no piece is longer than the smallest delay."""
    cuts = [*kinks[(kinks >= 0) & (kinks < length)], length]
    pieces = []
    for start, end in itertools.pairwise(cuts):
        inner = np.linspace(start, end, int(np.ceil((end - start) / longest * (1 - 1e-12))) + 1)
        pieces += list(itertools.pairwise(inner))
    return [(float(a), float(b)) for a, b in pieces]


def _solve_stretch(
    equation: Equation, past: "_Past", start: float, end: float, y: np.ndarray, tolerance: float
) -> np.ndarray:
    """An ordinary equation: all that the delays look back at is known."""
    on = (start + end) / 2 >= equation.jump_ts - equation.t0
    look = past.looking(start, end)
    field = lambda t, y: equation.field(equation.t0 + t, y, look(t), on)
    # Two steps at least: the estimate of one alone is small by chance now and then, and its dense output off by 1e-8.
    half = (end - start) / 2
    options = {"rtol": tolerance, "atol": tolerance / 10, "first_step": half, "max_step": half * (1 + 1e-12)}
    solver = DOP853(field, start, y, end, **options)
    while solver.status == "running":
        solver.step()
        if solver.status == "failed":
            raise ArithmeticError(f"the oracle failed at t0 + {solver.t}")
        past.add(solver.dense_output())
    return solver.y


class _Past:
    """The history and the steps so far, as the polynomials of DOP853's dense output."""

    def __init__(self, equation: Equation):
        self.equation = equation
        levels = breakpoints(equation)
        length = equation.t1 - equation.t0
        kinks = np.array(sorted(levels))
        # Times that differ by rounding are one.
        self.kinks = kinks[np.diff(kinks, prepend=-np.inf) > 1e-14 * length]
        echoed = [
            all(k + delay in levels or k + delay >= length or k + delay <= 0 for delay in equation.delays) for k in kinks
        ]
        # No delay looks across a kink inside a stretch if the kink's echoes are among the cuts.
        self.hard = np.intersect1d(self.kinks, kinks[echoed])
        d = len(equation.y0)
        self.count = 0
        self.starts, self.lengths = np.full(64, np.inf), np.ones(64)
        self.states, self.coefficients = np.zeros((64, d)), np.zeros((64, 7, d))

    def add(self, dense) -> None:
        if self.count == len(self.starts):
            double = lambda old, fill: np.concatenate([old, np.full_like(old, fill)])
            self.starts, self.lengths = double(self.starts, np.inf), double(self.lengths, 1)
            self.states, self.coefficients = double(self.states, 0), double(self.coefficients, 0)
        i = self.count
        self.starts[i], self.lengths[i] = dense.t_old, dense.h
        self.states[i], self.coefficients[i] = dense.y_old, dense.F
        self.count += 1

    def solution(self, times: np.ndarray, lower=0, upper=None) -> np.ndarray:
        """The solution at times after t0, from the rows `lower` to `upper` (each an array, or all rows)."""
        upper = self.count - 1 if upper is None else upper
        index = np.searchsorted(self.starts[: self.count], times, side="right") - 1
        index = np.clip(index, lower, upper)
        x = ((times - self.starts[index]) / self.lengths[index])[:, None]
        coefficients = self.coefficients[index]
        value = np.zeros_like(self.states[index])
        for k in range(6, -1, -1):
            value = (value + coefficients[:, k]) * (x if k % 2 == 0 else 1 - x)
        return value + self.states[index]

    def looking(self, start: float, end: float) -> Callable[[float], np.ndarray]:
        """t ↦ the delayed states, for t in a stretch over which no delay passes a kink."""
        equation, delays = self.equation, self.equation.delays
        middles = (start + end) / 2 - delays
        earlier = np.searchsorted(self.hard, middles, side="right") - 1
        bounded = np.concatenate([[-np.inf], self.hard, [np.inf]])
        lower, upper = bounded[earlier + 1], bounded[earlier + 2]
        begun = self.starts[: self.count]
        first = np.searchsorted(begun, lower, side="left")
        last = np.maximum(np.searchsorted(begun, upper, side="left") - 1, 0)
        before = np.flatnonzero(middles < 0)
        after = np.flatnonzero(middles >= 0)
        on = middles[:, None] >= equation.jump_ts - equation.t0
        delayed = np.zeros((len(delays), len(equation.y0)))

        def look(t: float) -> np.ndarray:
            times = np.clip(t - delays, lower, upper)
            if len(before):
                delayed[before] = equation.history(equation.t0 + times[before], on[before])
            if len(after):
                delayed[after] = self.solution(times[after], first[after], last[after])
            return delayed

        return look
