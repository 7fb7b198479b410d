"""Equations by JiTCDDE, which writes them as C and compiles that."""

import functools
import shutil
import sys
import tempfile
from contextlib import chdir

import numpy as np
import symengine
from jitcdde import dy, jitcdde, quadrature, t, y

from . import mackey_glass as mg


class MackeyGlass:
    """Call it with a constant past and an end: y(t1), with the tolerances that lagrax is given.

    Kinks are stepped on, as JiTCDDE's manual advises. Compiled once, with JiTCDDE's own optimising compiler flags.
    """

    def __init__(self) -> None:
        if not any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang")):
            sys.exit(
                "JiTCDDE needs a C compiler (cc, gcc or clang) and there is none: install one and run `make bench` again."
            )
        delayed = y(0, t - mg.DELAY)
        field = [mg.BETA * delayed / (1 + delayed**mg.EXPONENT) - mg.GAMMA * y(0)]
        self.equation = jitcdde(field, verbose=False, max_delay=mg.DELAY)
        # setuptools, which runs the compiler, would take the pyproject.toml of the working directory for JiTCDDE's.
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            self.equation.compile_C(verbose=False)
        self.equation.set_integration_parameters(rtol=mg.TOLERANCE, atol=mg.TOLERANCE)

    def __call__(self, past: float, t1: float) -> float:
        self.equation.purge_past()
        self.equation.constant_past([past])
        self.equation.step_on_discontinuities()
        return float(self.equation.integrate(t1)[0])


@functools.cache
def compiled() -> MackeyGlass:
    return MackeyGlass()


class StateDependent:
    """y' = −y(t − 1 − y²/4) with a constant past of 1. Call it with an end for y(t1)."""

    def __init__(self, tolerance: float) -> None:
        self.equation = jitcdde([-y(0, t - 1 - y(0) ** 2 / 4)], verbose=False, delays=[1.25], max_delay=1.3)
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            self.equation.compile_C(verbose=False)
        self.equation.set_integration_parameters(rtol=tolerance, atol=tolerance, first_step=1e-3)

    def __call__(self, t1: float) -> float:
        self.equation.purge_past()
        self.equation.constant_past([1.0])
        # Its breakpoints are those of constant delays: here it only knows that of the start.
        self.equation.initial_discontinuities_handled = True
        return float(self.equation.integrate(t1)[0])


class Kuramoto:
    """The network of `kuramoto.py`, its connections with weight. Call it with an end and a tolerance for the phases there.

    As JiTCDDE's manual advises for many delays, the kink at the start is smoothed (`adjust_diff`), not stepped on.
    """

    def __init__(self) -> None:
        import symengine

        from . import kuramoto as problem

        def field():
            for i in range(problem.NODES):
                senders = problem.CONNECTED[i].nonzero()[0]
                waves = (symengine.sin(y(int(j), t - problem.DELAYS[i, j]) - y(i)) for j in senders)
                yield problem.OMEGA[i] + problem.WEIGHTS.max() * sum(waves)

        self.start = problem.START
        longest = float(problem.DELAYS[problem.CONNECTED].max())
        self.equation = jitcdde(field, n=problem.NODES, verbose=False, max_delay=longest)
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            self.equation.compile_C(simplify=False, do_cse=False, chunk_size=150, verbose=False)

    def __call__(self, t1: float, tolerance: float):
        self.equation.set_integration_parameters(rtol=tolerance, atol=tolerance, first_step=1e-3)
        self.equation.purge_past()
        self.equation.constant_past(self.start)
        self.equation.adjust_diff()
        return self.equation.integrate(t1)


class NeutralLogistic:
    """y' = r y (1 - y(t - 1) - c y'(t - 1)) with y = 2 + t in the past. Call it with an end for y(t1)."""

    def __init__(self, rate: float, share: float, tolerance: float) -> None:
        field = [rate * y(0) * (1 - y(0, t - 1) - share * dy(0, t - 1))]
        self.equation = jitcdde(field, verbose=False, max_delay=1.0)
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            self.equation.compile_C(verbose=False)
        self.equation.set_integration_parameters(rtol=tolerance, atol=tolerance, first_step=1e-3)

    def __call__(self, t1: float) -> float:
        self.equation.purge_past()
        for time in (-1.0, 0.0):  # a line is exact between two points
            self.equation.add_past_point(time, [2 + time], [1.0])
        # The kinks of a neutral equation stay: JiTCDDE would have to step on all of them, and only does so at the start.
        self.equation.initial_discontinuities_handled = True
        return float(self.equation.integrate(t1)[0])


class Spread:
    """y' = -½ ∫ y(t - s) ds over [0, π] with y = cos in the past. Call it with an end for y(t1)."""

    POINTS = 10
    """Gauss points of its quadrature, for the error that its tolerance allows."""

    def __init__(self, tolerance: float) -> None:
        s = symengine.Symbol("s")
        integral = quadrature(y(0, t - s), s, 0, np.pi, nsteps=self.POINTS, method="gauss")
        self.equation = jitcdde([-integral / 2], verbose=False, max_delay=np.pi)
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            self.equation.compile_C(simplify=False, verbose=False)
        self.equation.set_integration_parameters(rtol=tolerance, atol=tolerance, first_step=1e-3)

    def __call__(self, t1: float) -> float:
        self.equation.purge_past()
        for time in np.linspace(-np.pi, 0, 41):  # cubics between them are right to 1e-7
            self.equation.add_past_point(time, [np.cos(time)], [-np.sin(time)])
        self.equation.initial_discontinuities_handled = True
        return float(self.equation.integrate(t1)[0])
