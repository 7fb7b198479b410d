"""The three adjoints on the same problems: error, time, evaluations and memory as the interval grows.

`python -m benchmarks.adjoints` takes about five minutes, prints a table and writes adjoints.json and adjoints.md beside this
file, and docs/img/adjoints.png.
"""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx
from lagrax.experiments.complexity import ADJOINTS, Passes, backward_evaluations, relative_error

from .timing import interleave

HERE = Path(__file__).parent
TOLERANCE, REFERENCE = 1e-6, 1e-11
LENGTHS = (1, 2, 4, 8)
"""T/τ."""
MAX_STEPS = 1024


class Equation(NamedTuple):
    """A delay equation to be fitted: its field, delay, history, parameters and how often it is observed."""

    name: str
    field: Any
    delay: float
    history: Any
    args: Any
    spacing: float


def problems() -> list[Equation]:
    random = np.random.default_rng(0)
    weights = tuple(jnp.asarray(random.normal(size=shape) / np.sqrt(shape[1])) for shape in ((10, 2), (2, 10)))
    batch = jnp.linspace(0.2, 1.4, 100)
    glass = lambda t, y, z, a: a[0] * z / (1 + z**9.65) - a[1] * y
    return [
        Equation("spiral", lambda t, y, z, w: w[1] @ jnp.tanh(w[0] @ (y + z)), 0.5, jnp.array([0.0, 1.0]), weights, 0.1),
        Equation("population", lambda t, y, z, r: r * y * (1 - z), 1.0, batch, jnp.array(1.8), 0.05),
        Equation("Mackey–Glass", glass, 1.0, batch, (jnp.array(4.0), jnp.array(2.0)), 0.05),
    ]


def stiff(rate: float) -> Equation:
    """y' = -rate y + z: harmless forwards, and growing as exp(rate t) when recomputed backwards."""
    field = lambda t, y, z, a: -a[0] * y + a[1] * jnp.cos(z)
    return Equation(f"decay at rate {rate:g}", field, 1.0, jnp.array([1.0]), (jnp.array(rate), jnp.array(1.0)), 0.25)


def fit_loss(problem: Equation, length: int, adjoint: Any, tolerance: float, max_steps: int = MAX_STEPS):
    """args -> (the loss, the `stats` of its solve)."""
    t1 = length * problem.delay
    ts = jnp.linspace(0, t1, 1 + round(t1 / problem.spacing))
    controller = dfx.PIDController(rtol=tolerance, atol=tolerance)

    def loss(args):
        solution = lx.ddesolve(
            lx.DelayTerm(problem.field, problem.delay),
            dfx.Tsit5(),
            t0=0.0,
            t1=t1,
            dt0=None,
            history=problem.history,
            args=args,
            saveat=dfx.SaveAt(ts=ts),
            stepsize_controller=controller,
            adjoint=adjoint,
            max_steps=max_steps,
        )
        target = jnp.sin(ts).reshape(-1, *[1] * problem.history.ndim)
        return jnp.mean((solution.ys - target) ** 2), solution.stats

    return loss


def measure(problem: Equation, length: int, repetitions: int) -> list[dict[str, Any]]:
    """One row per adjoint."""
    tight = fit_loss(problem, length, lx.DiscreteAdjoint(), REFERENCE, 16 * MAX_STEPS)
    exact, _ = jax.jit(jax.grad(tight, has_aux=True))(problem.args)
    programs, rows = {}, []
    for name, adjoint in ADJOINTS.items():
        loss = fit_loss(problem, length, adjoint, TOLERANCE)
        start = time.perf_counter()
        compiled = jax.jit(jax.grad(loss, has_aux=True)).lower(problem.args).compile()
        seconds = time.perf_counter() - start
        found, stats = compiled(problem.args)
        memory = compiled.memory_analysis()
        programs[name] = lambda compiled=compiled: compiled(problem.args)
        rows.append(
            {
                "problem": problem.name,
                "T/tau": length,
                "adjoint": name,
                "error": relative_error(found, exact),
                "forward": int(stats["num_evaluations"]),
                "backward": backward_evaluations(loss, problem.args, adjoint),
                "kept": sum(leaf.nbytes for leaf in Passes.of(loss, problem.args).kept()),
                "peak": int(memory.temp_size_in_bytes) if memory is not None else None,
                "compile": seconds,
            }
        )
    times = interleave(programs, repetitions)
    for row in rows:
        row["seconds"] = float(np.median(times[row["adjoint"]]))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| problem | T/τ | adjoint | gradient error | time | evaluations forward / backward | kept between passes | peak |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        sizes = [_bytes(row["kept"]), _bytes(row["peak"])]
        counts = f"{row['forward']:,} / {row['backward']:,}"
        cells = [
            row["problem"],
            row["T/tau"],
            row["adjoint"],
            f"{row['error']:.0e}",
            _seconds(row["seconds"]),
            counts,
            *sizes,
        ]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _bytes(size: int | None) -> str:
    if size is None:
        return "–"
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def plot(rows: list[dict[str, Any]], stiff_rows: list[dict[str, Any]], file: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["problem"] for row in rows))
    quantities = {
        "seconds": "time of a gradient [s]",
        "backward": "backward evaluations",
        "kept": "kept between passes [bytes]",
        "error": "relative gradient error",
    }
    colours = {"discrete": "#0072B2", "continuous": "#D55E00", "piecewise": "#009E73"}
    marks = {"discrete": "o", "continuous": "s", "piecewise": "^"}
    figure, axes = plt.subplots(len(quantities), len(names) + 1, figsize=(13, 11), sharex="col", layout="constrained")
    for column, name in enumerate([*names, "decay"]):
        chosen = stiff_rows if name == "decay" else [row for row in rows if row["problem"] == name]
        x = "rate" if name == "decay" else "T/tau"
        for axis, (key, label) in zip(axes[:, column], quantities.items(), strict=True):
            for adjoint, colour in colours.items():
                points = [(row[x], row[key]) for row in chosen if row["adjoint"] == adjoint]
                axis.plot(*zip(*points, strict=True), color=colour, marker=marks[adjoint], label=adjoint)
            axis.set_yscale("log")
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel(label)
        axes[0, column].set_title("y' = −γ y + cos z, T = 2 τ" if name == "decay" else name)
        axes[-1, column].set_xlabel("γ τ" if name == "decay" else "T/τ")
        if name != "decay":
            axes[-1, column].set_xscale("log", base=2)
            axes[-1, column].set_xticks(LENGTHS, [str(length) for length in LENGTHS])
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(file, dpi=110)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    rows, stiff_rows = [], []
    for problem in problems():
        for length in LENGTHS:
            rows += measure(problem, length, 7)
            print(f"{problem.name}, T = {length} τ", flush=True)
    for rate in (1.0, 4.0, 8.0, 12.0, 16.0):
        stiff_rows += [row | {"rate": rate} for row in measure(stiff(rate), 2, 5)]
        print(f"decay at rate {rate:g}", flush=True)
    text = table(rows + stiff_rows)
    print(text)
    (HERE / "adjoints.json").write_text(json.dumps(rows + stiff_rows, indent=1, ensure_ascii=False) + "\n")
    (HERE / "adjoints.md").write_text(text + "\n")
    plot(rows, stiff_rows, HERE.parent / "docs" / "img" / "adjoints.png")
    print("\nWritten: benchmarks/adjoints.json, benchmarks/adjoints.md, docs/img/adjoints.png")


if __name__ == "__main__":
    main()
