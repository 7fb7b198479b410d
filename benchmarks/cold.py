"""How long a fresh process takes from its start to help, to the first value and to the first gradient of a small solve.

The Mackey–Glass equation to t = 20 by lagrax and by JiTCDDE, which compiles C and has no gradients, and an ODE of the same
size by diffrax. Each without JAX's persistent compilation cache, and with one that an earlier process has filled. Medians of
processes that alternate.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir

BETA, EXPONENT, GAMMA, DELAY = 4.0, 9.65, 2.0, 1.0  # as in mackey_glass.py, which imports JAX
PAST, TOLERANCE, T1 = 0.5, 1e-6, 20.0
PROCESSES = 5


# --- in the fresh process: everything is imported where it is needed, and nothing before ---------------------------------


def _lagrax(jit: bool, throw: bool, gradient: bool) -> float:
    import diffrax as dfx
    import jax

    import lagrax as lx

    term = lx.DelayTerm(lambda t, y, z, args: BETA * z / (1 + z**EXPONENT) - GAMMA * y, DELAY)
    controller = dfx.PIDController(rtol=TOLERANCE, atol=TOLERANCE)

    def end(y0):
        return lx.ddesolve(term, dfx.Dopri5(), 0.0, T1, None, y0, stepsize_controller=controller, throw=throw).ys[0]

    program: Callable = jax.grad(end) if gradient else end
    return float((jax.jit(program) if jit else program)(PAST))


def _diffrax(gradient: bool) -> float:
    import diffrax as dfx
    import jax

    term = dfx.ODETerm(lambda t, y, args: BETA * y / (1 + y**EXPONENT) - GAMMA * y)
    controller = dfx.PIDController(rtol=TOLERANCE, atol=TOLERANCE)

    def end(y0):
        return dfx.diffeqsolve(term, dfx.Dopri5(), 0.0, T1, None, y0, stepsize_controller=controller).ys[0]

    return float((jax.grad(end) if gradient else end)(PAST))


def _jitcdde() -> float:
    from jitcdde import jitcdde, t, y

    delayed = y(0, t - DELAY)
    equation = jitcdde([BETA * delayed / (1 + delayed**EXPONENT) - GAMMA * y(0)], verbose=False, max_delay=DELAY)
    # setuptools, which runs the compiler, would take the pyproject.toml of the working directory for JiTCDDE's.
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        equation.compile_C(verbose=False)
    equation.set_integration_parameters(rtol=TOLERANCE, atol=TOLERANCE)
    equation.constant_past([PAST])
    equation.step_on_discontinuities()
    return float(equation.integrate(T1)[0])


def _help() -> float:
    from lagrax.cli import main

    return float(main(["--help"]))


def _imported(name: str) -> float:
    __import__(name)
    return 0.0


PROGRAMS: dict[str, tuple[str, Callable[[], float]]] = {
    "lagrax --help": ("lagrax", _help),
    "import diffrax": ("diffrax", lambda: _imported("diffrax")),
    "import lagrax, and its names": ("lagrax", lambda: float(bool(dir(__import__("lagrax"))))),
    "value, diffrax (ODE)": ("diffrax", lambda: _diffrax(False)),
    "value, lagrax": ("lagrax", lambda: _lagrax(False, True, False)),
    "value, lagrax, throw=False": ("lagrax", lambda: _lagrax(False, False, False)),
    "value, lagrax in a jit": ("lagrax", lambda: _lagrax(True, True, False)),
    "value, lagrax in a jit, throw=False": ("lagrax", lambda: _lagrax(True, False, False)),
    "value, JiTCDDE": ("jitcdde", _jitcdde),
    "gradient, diffrax (ODE)": ("diffrax", lambda: _diffrax(True)),
    "gradient, lagrax": ("lagrax", lambda: _lagrax(False, True, True)),
    "gradient, lagrax, throw=False": ("lagrax", lambda: _lagrax(False, False, True)),
    "gradient, lagrax in a jit": ("lagrax", lambda: _lagrax(True, True, True)),
    "gradient, lagrax in a jit, throw=False": ("lagrax", lambda: _lagrax(True, False, True)),
}
"""By what they measure: the package they need, and the program."""


# --- in the process that measures -----------------------------------------------------------------------------------------


def seconds(name: str, cache: str | None) -> float:
    """From the start of a fresh process to its first number."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    if cache is not None:
        # By default JAX keeps only what took a second to compile.
        environment |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    begin = time.time()
    words = [sys.executable, "-m", "benchmarks.cold", "--program", name]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1]) - begin


def measure(names: list[str], processes: int) -> dict[str, tuple[float, float]]:
    """Medians of each program, without a cache and with a warm one."""
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    with tempfile.TemporaryDirectory() as cache:
        for name in names:
            seconds(name, cache)
        for _ in range(processes):
            for name, (cold, warm) in found.items():
                cold.append(seconds(name, None))
                warm.append(seconds(name, cache))
    return {name: (statistics.median(cold), statistics.median(warm)) for name, (cold, warm) in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cold", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=PROCESSES, metavar="N", help=f"per program and cache ({PROCESSES})")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs with this in their name")
    parser.add_argument("--program", choices=PROGRAMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program is not None:
        PROGRAMS[options.program][1]()
        print(time.time())
        return
    there = {name for name, (package, _) in PROGRAMS.items() if importlib.util.find_spec(package) is not None}
    names = [name for name in PROGRAMS if options.only in name and name in there]
    width = max(map(len, names))
    print(f"{'seconds to the first':{width}}  no cache  warm cache")
    for name, (cold, warm) in measure(names, options.processes).items():
        print(f"{name:{width}}  {cold:8.2f}  {warm:10.2f}")
    missing = sorted(set(PROGRAMS) - there)
    if missing:
        print(f"Not installed, `make bench` does: {', '.join(missing)}")


if __name__ == "__main__":
    main()
