"""The Mackey–Glass equation by JiTCDDE, which writes it as C and compiles that."""

import functools
import shutil
import sys
import tempfile
from contextlib import chdir

from jitcdde import jitcdde, t, y

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
