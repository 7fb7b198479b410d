"""A random delay equation from a seed: its vector field as text, its arguments, state, past, solver and output."""

import dataclasses
from typing import Any

import numpy as np

from .expressions import Expressions

STATES = {"vector": 10, "scalar": 2, "matrix": 2, "dict": 2, "tuple": 1, "complex": 3, "mixed": 1}
SOLVERS = {"Euler": 5, "Heun": 4, "Bosh3": 4, "Tsit5": 2, "Dopri5": 1, "Dopri8": 0.4, "Kvaerno3": 0.5, "Kvaerno5": 0.2}
LEAN_SOLVERS = {"Euler": 4, "Heun": 1}
WIDE = 1000
"""Below this seed most problems are the one that compiles fastest, and what is random is the field. From it on fields are
small, and all else is as random: solver, controller, delays, history, jumps, events, output."""
WIDE_SOLVERS = {
    "Bosh3": 4, "Tsit5": 2, "Dopri5": 2, "Dopri8": 0.5, "Midpoint": 1, "Ralston": 1, "Heun": 1,
    "Kvaerno3": 0.2, "Kvaerno4": 0.15, "Kvaerno5": 0.15,
}  # fmt: skip
CONTROLLERS = {"I": 3, "PI": 2, "PID": 2, "bounded": 1, "cautious": 1}
LAGS = {"constant": 20, "of time": 0.5, "of the state": 0.5, "with a minimum": 0.5, "overlapping": 0.5}
KINDS = 5000
"""From this seed on, the first delay is of the derivative, an integral over the steps, or one with equations of its own."""
KINDS_OF_LAG = {"of the derivative": 3, "summed": 4, "uniform": 1, "gamma": 1, "of a moving derivative": 1, "overlapping": 1}
WIDE_HISTORIES = {"constant": 3, "function": 3, "closure": 1.5, "lookup": 1, "switched": 1.5, "solution": 0.7}
WIDE_EVENTS = {"": 5, "bool": 1, "crossing": 1, "located": 1}
OUTPUTS = {"t1": 4, "ts": 4, "steps": 2, "dense": 2, "t0 and t1": 1, "a function": 1}
LAYERS = ("Linear", "MLP", "GRUCell", "LayerNorm")
BOUNDS = ("0.3 * jnp.tanh({})", "0.4 * jnp.sin({})", "jnp.clip(0.3 * {}, -0.61, 0.61)", "0.4 * jax.nn.soft_sign({})")
UNUSED = ("unused", "empty", "key", "oldkey", "big", "n", "flag", "itable", "half", "z", "layer", "none", "text")


@dataclasses.dataclass(frozen=True)
class Case:
    """All that is random about a problem, without an array in it; `problem.py` makes it one."""

    seed: int
    source: str
    state: str
    sizes: tuple[int, ...]
    """Of the state's parts; a complex part counts twice."""
    precision: str
    arguments: tuple[str, ...]
    table: int
    """How many numbers are in the argument `table`."""
    layer: str
    closed_over: bool
    """Whether the layer and the table are closed over rather than arguments."""
    delays: tuple[float, ...]
    lag: str
    """What the first delay is."""
    history: str
    y0: bool
    jumps: tuple[float, ...]
    event: str
    solver: str
    controller: str
    """"constant", "listed" (`StepTo`), or what is peculiar about a `PIDController`."""
    dt0: float | None
    t0: float
    t1: float
    max_steps: int
    output: str
    keep_stages: bool
    throw: bool
    differentiated: tuple[str, ...]
    shared: bool
    """Whether all transforms take the same `jit` of the solve, as programs mostly do, or the bare function."""

    @property
    def optimised(self) -> bool:
        """Whether kernels are compiled as users do, or with few optimisations, which takes half the time."""
        return self.seed % 5 != 1 if self.seed < WIDE else self.seed % 2 == 0

    @property
    def adaptive(self) -> bool:
        return self.controller not in ("constant", "listed")

    @property
    def narrow(self) -> bool:
        """Whether numbers are rounded on the way: JAX then rounds tangents in forward mode, and cotangents in reverse mode,
        so that the two differ by as much."""
        return any(word in self.source for word in ("reduce_precision", "float16", "float32"))

    def impossible(self, name: str) -> bool:
        """Whether a transformation is one that others forbid: an error cannot be raised in one of two devices that XLA has
        wait for each other, and lineax, which implicit solvers need, does not work inside `shard_map`. The loop over their
        stages is made for reverse mode alone unless a user says otherwise."""
        return (self.throw and name == "sharded inputs") or (self.implicit and name in ("hessian", "shard_map"))

    def may_raise(self, name: str) -> bool:
        """A solve that is to raise may, and forward mode may where the field has a `custom_vjp`."""
        return self.throw or ("ramp(" in self.source and name in ("jacfwd", "hessian"))

    @property
    def implicit(self) -> bool:
        return self.solver.startswith("Kvaerno")


def double_precision(seed: int) -> bool:
    """Whether the field of a seed is computed in a process with `jax_enable_x64`."""
    return seed % 10 != 7


def draw(seed: int) -> Case:
    rng = np.random.default_rng([seed, 20211])
    pick = lambda weights: _weighted(rng, weights)
    chance = lambda p: bool(rng.random() < p)
    wide = seed >= WIDE
    # Most fields in the problem that compiles fastest: what is random then is the field itself.
    lean = not wide and chance(0.7)
    pick_rest = lambda weights: next(iter(weights)) if lean else pick(weights)
    state, precision = pick(STATES), pick({"64": 8, "32": 2})
    solver = pick(WIDE_SOLVERS if wide else LEAN_SOLVERS if lean else SOLVERS)
    sizes = _sizes(rng, state, large=0.0 if wide else 0.1)
    delays = tuple(float(x) for x in rng.uniform(0.17, 0.6, pick_rest({1: 4, 2: 2, 3: 0.6, 4: 0.4})))
    adaptive = not lean and solver != "Euler" and chance(0.6 if wide else 0.4)
    exotic = chance(0.02 if wide else 0.08)
    source = _field(rng, sum(sizes), len(delays), exotic, solver.startswith("Kvaerno"), most=4 if wide else 10)
    t0 = float(rng.choice([0.0, 0.0, -1.3, 2.1]))
    t1 = t0 + float(rng.uniform(0.5, 1.1))
    dt0 = None if adaptive and chance(0.5) else float(rng.uniform(0.05, 0.12))
    y0 = chance(0.4 if wide else 0.25)
    jumps = tuple(float(t0 + x) for x in rng.uniform(0.05, 0.5, pick_rest({0: 2 if wide else 6, 1: 1, 2: 0.5})))
    groups = ["args", "args", "history", "delays", *["y0"] * y0, *["jumps"] * bool(jumps)]
    case = Case(
        seed=seed,
        source=source,
        state=state,
        sizes=sizes,
        precision=precision,
        arguments=_arguments(rng, source, exotic),
        table=int(rng.choice([300, 1000, 5000])),
        layer="Conv1d" if exotic and chance(0.3) else LAYERS[rng.integers(len(LAYERS))],
        closed_over=chance(0.3),
        delays=delays,
        lag="constant",
        history=pick(WIDE_HISTORIES if wide else {"constant": 5, "function": 3, "closure": 1, "lookup": 1}),
        y0=y0,
        jumps=jumps,
        event=pick_rest(WIDE_EVENTS if wide else {"": 5, "bool": 0.5, "crossing": 0.5, "located": 0.5}),
        solver=solver,
        controller="I" if adaptive else "constant",
        dt0=dt0,
        t0=t0,
        t1=t1,
        max_steps=int(rng.choice([32, 48, 64, 100, 300, 1000] if adaptive else [16, 32, 40, 64, 300, 1000])),
        output=pick_rest(OUTPUTS),
        keep_stages=False,
        throw=chance(0.08),
        differentiated=tuple(sorted({groups[i] for i in rng.integers(len(groups), size=2)})),
        shared=chance(0.85),
    )
    return _widened(rng, case) if wide else case


def _widened(rng: np.random.Generator, case: Case) -> Case:
    """The same with what a narrow problem never has: other controllers, delays that are equal or longer than the interval,
    jumps of the history."""
    chance = lambda p: bool(rng.random() < p)
    controller, dt0, delays = case.controller, case.dt0, case.delays
    if case.adaptive:
        controller = _weighted(rng, CONTROLLERS)
    elif chance(0.07):
        controller, dt0 = "listed", None
    if len(delays) > 1 and chance(0.25):
        delays = (delays[1], *delays[1:])
    elif chance(0.1):
        delays = (1.7, *delays[1:])
    jumps = (case.t0 - 0.11, *case.jumps) if case.history == "switched" else case.jumps
    # Something that always matters: a field need not depend on its arguments.
    differentiated = tuple(sorted({*case.differentiated[:1], "delays" if chance(0.5) else "history"}))
    return dataclasses.replace(
        case,
        differentiated=differentiated,
        controller=controller,
        dt0=dt0,
        delays=delays,
        jumps=jumps,
        keep_stages=chance(0.2),
        lag=_weighted(rng, KINDS_OF_LAG if case.seed >= KINDS else LAGS),
    )


def _weighted(rng: np.random.Generator, weights: dict) -> Any:
    values, p = list(weights), np.array(list(weights.values()), float)
    return values[rng.choice(len(values), p=p / p.sum())]


def _sizes(rng: np.random.Generator, state: str, large: float) -> tuple[int, ...]:
    small = lambda: int(rng.integers(1, 6))
    match state:
        case "scalar":
            return (1,)
        case "matrix":
            return (2 * small(),)
        case "complex":
            return (2 * int(rng.integers(1, 4)),)
        case "dict" | "tuple":
            return (small(), 1)
        case "mixed":
            return (small(), 2)
    return (int(rng.choice([20, 40])),) if rng.random() < large else (small(),)


def _field(rng: np.random.Generator, d: int, delays: int, exotic: bool, implicit: bool, most: int) -> str:
    """The text of a function `body(t, y, z0, …, a)` of real vectors of size d; `most` operations or so."""
    delayed = [f"z{i}" for i in range(delays)]
    vectors = ["y", "y", *delayed, *delayed, 'a["w"]', "c", "jnp.full(y.shape, t)"]
    kind = rng.random()
    if kind < 0.05:
        vectors = [*delayed, 'a["w"]', "c"]
    elif kind < 0.1:
        vectors = ["y", 'a["w"]', "c"]
    elif kind < 0.13:
        vectors = ['a["w"]', "c", "jnp.full(y.shape, t)"]
    expressions = Expressions(rng, d, vectors, exotic)
    lines = []
    for name in ("u", "v")[: rng.integers(0, 3)]:
        lines.append(f"    {name} = {expressions.vector(int(rng.integers(1, 4)), most // 2)}")
        expressions.vectors = [*expressions.vectors, name, name]
    flat = rng.random() < 0.12
    size = lambda: (int(rng.integers(2, 7)), int(rng.integers(min(4, most - 3), most + 1)))
    result = expressions.flat() if flat else expressions.vector(*size())
    if rng.random() < 0.35:
        result = f"{result} + ({expressions.simplified_away()})"
    bound = "{}" if flat and rng.random() < 0.7 else BOUNDS[rng.integers(len(BOUNDS))]
    result = bound.format(f"({result})")
    if not flat and rng.random() < 0.5:
        result = f"{result} - 0.3 * {expressions.vectors[rng.integers(min(3, len(expressions.vectors)))]}"
    if rng.random() < 0.06:
        result = f"jax.checkpoint(lambda y: {result})(y)"
    head = f"def body(t, y, {', '.join(delayed)}, a):\n    cast = lambda x: jnp.asarray(x).astype(y.dtype)\n"
    text = head + "".join(line + "\n" for line in lines) + f"    return {result}\n"
    # Implicit solvers differentiate forwards, which a `custom_vjp` forbids.
    return text.replace("ramp(", "smooth(") if implicit else text


def _arguments(rng: np.random.Generator, source: str, exotic: bool) -> tuple[str, ...]:
    """The names of the arguments that the field reads, and of some that it does not."""
    names = ("w", "s", "M", "n", "flag", "mask", "table", "itable", "half", "z", "key", "oldkey", "empty")
    used = [name for name in names if f'a["{name}"]' in source or f"a['{name}']" in source]
    used += ["layer"] if "layer(" in source else []
    extra = [name for name in UNUSED if rng.random() < 0.07 and name not in used]
    return (*used, *extra)
