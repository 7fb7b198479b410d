"""A case made a problem: arrays, functions, and a call of `ddesolve`."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax import lax
from jax.scipy import special

import lagrax as lx

from .fields import WIDE, Case

BIG = np.sort(np.random.default_rng(5).uniform(-1.7, 1.7, 5000))


@jax.custom_jvp
def smooth(x):
    return jnp.sin(x)


@smooth.defjvp
def _smooth_jvp(primals, tangents):
    return jnp.sin(primals[0]), jnp.cos(primals[0]) * tangents[0]


@jax.custom_vjp
def ramp(x):
    return jnp.tanh(x)


ramp.defvjp(lambda x: (jnp.tanh(x), x), lambda x, bar: (bar * (1 - jnp.tanh(x) ** 2),))


@jax.custom_jvp
def detour(x):
    return jnp.cos(x)


@detour.defjvp
def _detour_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return jnp.cos(x), lax.cond(jnp.any(x > 0), lambda: -jnp.sin(x) * dx, lambda: -dx * jnp.sin(x))


class Problem:
    """What a case computes: `solve(inputs)` and `loss(inputs)` of `inputs`, a dictionary of arrays."""

    def __init__(self, case: Case):
        self.case = case
        self.real = jnp.float64 if case.precision == "64" else jnp.float32
        if not jax.config.jax_enable_x64:
            self.real = jnp.float32
        self.complex = jnp.complex128 if self.real == jnp.float64 else jnp.complex64
        rng = np.random.default_rng([case.seed, 7])
        # NumPy's, not JAX's: an operation on arrays outside a `jit` is a compilation for each new shape.
        some_state = lambda: self.state(rng.uniform(-0.8, 0.8, sum(case.sizes)).astype(self.real))
        everything = {
            "args": _arguments(case, rng, self.real),
            "history": {"value": some_state()},
            "delays": tuple(np.asarray(delay, self.real) for delay in case.delays),
        }
        if case.history in ("function", "lookup"):
            everything["history"]["rate"] = np.asarray(rng.uniform(0.5, 2.0), self.real)
        if case.y0:
            everything["y0"] = some_state()
        if case.jumps:
            everything["jumps"] = np.asarray(case.jumps, self.real)
        is_number = lambda x: isinstance(x, np.ndarray | np.generic)
        everything = jax.tree.map(lambda x: jnp.asarray(x) if is_number(x) else x, everything)
        self.weights = rng.uniform(0.5, 1.5, 64)
        # Read by the closure of the field, and by that of the history.
        self.hidden = {name: everything["args"].pop(name) for name in ("layer", "table") if self._hides(name)}
        self.past = everything["history"]["value"]
        self.inputs, self.static = eqx.partition(everything, eqx.is_array)
        self.constant = np.asarray(rng.uniform(-1, 1, sum(case.sizes)))
        self.body = self._compile(rng)

    def _hides(self, name: str) -> bool:
        return self.case.closed_over and name in self.case.arguments

    def _compile(self, rng: np.random.Generator):
        d = sum(self.case.sizes)
        names = {
            "jax": jax, "jnp": jnp, "lax": lax, "np": np, "special": special, "BIG": BIG, "smooth": smooth, "ramp": ramp,
            "detour": detour, "W": rng.uniform(-1, 1, (d, d)) / d, "c": jnp.asarray(self.constant, self.real),
        }  # fmt: skip
        exec(self.case.source, names)
        return names

    def state(self, vector):
        """A real vector, of JAX or NumPy, as a state."""
        ends = np.cumsum(self.case.sizes)
        parts = [vector[end - size : end] for end, size in zip(ends, self.case.sizes, strict=True)]
        join = lambda part: (part[: part.size // 2] + 1j * part[part.size // 2 :]).astype(self.complex)
        match self.case.state:
            case "scalar":
                return vector[0]
            case "matrix":
                return vector.reshape(2, -1)
            case "complex":
                return join(vector)
            case "dict":
                return {"p": parts[0], "q": parts[1][0]}
            case "tuple":
                return (parts[0], parts[1][0])
            case "mixed":
                return {"p": parts[0], "q": join(parts[1])}
        return vector

    def vector(self, state):
        """A state as a real vector."""
        split = lambda x: jnp.concatenate([x.real, x.imag]) if jnp.iscomplexobj(x) else x
        return jnp.concatenate([split(jnp.ravel(leaf)) for leaf in jax.tree.leaves(state)])

    def field(self, t, y, z, args):
        args = {**args, **self.hidden}
        layer = args.pop("layer", None)
        apply = {"GRUCell": lambda v: layer(v, v), "Conv1d": lambda v: layer(v[None])[0]}.get(self.case.layer, layer)
        self.body["layer"] = lambda v: apply(v.astype(self.real))
        delayed = [self.vector(state) for state in z]
        out = self.body["body"](t, self.vector(y), *delayed, args)
        return self.state(jnp.asarray(out).astype(self.real))

    def _lags(self, delays: tuple) -> tuple:
        """The first delay as the number that it is, or something around that."""
        first, wave = delays[0], lambda t: 1 + 0.3 * jnp.sin(2 * t)
        of_time = lambda t, y, args: (first * wave(t)).astype(t.dtype)
        kinds: dict[str, Any] = {
            "constant": first,
            "of time": of_time,
            "of the state": lambda t, y, args: (first * (1 + 0.3 * jnp.tanh(self.vector(y)[0]))).astype(t.dtype),
            "with a minimum": lx.Lag(of_time, minimum=0.09),
            "overlapping": lx.Lag(first, overlap=True),
            "of the derivative": lx.Derivative(first),
            "of a moving derivative": lx.Derivative(of_time),
            "summed": lx.Integral(0.1 * first, first, lambda s: jnp.exp(-s / first)),
            "uniform": lx.Integral(0.0, first),
            "gamma": lx.Integral(0.0, jnp.inf, lx.Gamma(2, 1 / first)),
        }
        return (kinds[self.case.lag], *delays[1:])

    def _switches(self) -> bool:
        """Whether the last declared jump is one of the field."""
        return self.case.seed >= WIDE and bool(self.case.jumps) and self.case.jumps[-1] > self.case.t0

    def _switched(self, p: dict):
        def field(t, y, z, args):
            more = jnp.where(t >= p["jumps"][-1], 0.2, 0.0)
            return jax.tree.map(lambda x: x + more.astype(x.dtype), self.field(t, y, z, args))

        return field

    def _earlier(self, term: lx.DelayTerm, p: dict, adjoint) -> dfx.Solution:
        """A solution to continue."""
        start, steps = self.case.t0 - 0.4, dfx.ConstantStepSize()
        options = {"saveat": dfx.SaveAt(dense=True), "stepsize_controller": steps, "max_steps": 32, "throw": False}
        past, args = p["history"]["value"], p["args"]
        return lx.ddesolve(term, dfx.Heun(), start, self.case.t0, 0.1, past, args, adjoint=adjoint, **options)

    def solve(self, inputs: dict, adjoint=None) -> dict:
        """The states that were asked for, and how many steps it took."""
        case, p = self.case, eqx.combine(inputs, self.static)
        adjoint = lx.DiscreteAdjoint(keep_stages=case.keep_stages) if adjoint is None else adjoint
        term = lx.DelayTerm(self._switched(p) if self._switches() else self.field, self._lags(p["delays"]))
        solution = lx.ddesolve(
            term,
            self._solver(),
            case.t0,
            case.t1,
            case.dt0,
            self._earlier(term, p, adjoint) if case.history == "solution" else self._history(p),
            p["args"],
            y0=p.get("y0"),
            saveat=self._saveat(),
            stepsize_controller=self._controller(),
            adjoint=adjoint,
            jump_ts=p.get("jumps"),
            event=self._event(),
            max_steps=case.max_steps,
            throw=case.throw,
        )
        ys = solution.ys
        if case.output == "dense":
            ys = [solution.evaluate(t) for t in (case.t0 + 0.013, solution.t1)]
        counts = {name: solution.stats[name] for name in ("num_steps", "num_accepted_steps")}
        counts["result"] = solution.result._value
        return {"ys": ys, "ts": solution.ts, "counts": counts}

    def loss(self, inputs: dict, adjoint=None) -> tuple[Any, dict]:
        """(A number to differentiate, what it was made of.)"""
        solution = self.solve(inputs, adjoint)
        total = 0.0
        for leaf in jax.tree.leaves(solution["ys"]):
            weights = jnp.asarray(np.resize(self.weights, leaf.shape), self.real)
            parts = [leaf.real, leaf.imag] if jnp.iscomplexobj(leaf) else [leaf]
            total += sum(jnp.sum(weights * jnp.where(jnp.isfinite(part), part, 0)) for part in parts)
        return total, solution

    def variables(self, small: bool = False) -> tuple[dict, dict]:
        """(What is differentiated of the inputs, the rest.) `small`: a few real numbers of it."""
        wanted = jax.tree.map(lambda x: False, self.inputs)
        room = 6
        for group in self.case.differentiated:
            leaves, structure = jax.tree.flatten(self.inputs[group])
            chosen = []
            for x in leaves:
                fits = not small or (x.dtype == self.real and x.size <= room)
                chosen.append(
                    bool(jnp.issubdtype(x.dtype, jnp.inexact) and fits and (x.size < 300 or self.case.seed % 4 == 0))
                )
                room -= x.size * chosen[-1]
            wanted[group] = jax.tree.unflatten(structure, chosen)
        if not any(jax.tree.leaves(wanted)):
            wanted["delays"] = (True, *wanted["delays"][1:])
        return eqx.partition(self.inputs, wanted)

    def _solver(self):
        solver: Any = getattr(dfx, self.case.solver)
        if not self.case.implicit or self.case.adaptive:
            return solver()
        tolerance = 1e-8 if self.real == jnp.float64 else 1e-4
        return solver(root_finder=optx.Newton(rtol=tolerance, atol=tolerance))

    def tolerance(self) -> float:
        return 1e-6 if self.real == jnp.float64 else 1e-4

    def _controller(self):
        case = self.case
        if case.controller == "listed":
            return dfx.StepTo(jnp.asarray(np.linspace(case.t0, case.t1, 9), self.real))
        if not case.adaptive:
            return dfx.ConstantStepSize()
        peculiar: dict[str, dict] = {
            "PI": {"pcoeff": 0.3, "icoeff": 0.4},
            "PID": {"pcoeff": 0.2, "icoeff": 0.3, "dcoeff": 0.05},
            "bounded": {"dtmin": 1e-3, "dtmax": 0.15, "force_dtmin": True},
            "cautious": {"safety": 0.6, "factormin": 0.3, "factormax": 1.5, "norm": optx.max_norm},
        }
        return dfx.PIDController(rtol=self.tolerance() * 10, atol=self.tolerance(), **peculiar.get(case.controller, {}))

    def _history(self, p: dict):
        h = p["history"]
        match self.case.history:
            case "switched":
                factor = lambda t: jnp.where(t >= p["jumps"][0], 1.0, 0.5)
                return lambda t: jax.tree.map(lambda x: x * factor(t).astype(x.dtype), h["value"])
            case "constant":
                return h["value"]
            case "closure":
                return lambda t: self.past
            case "lookup":
                table, squares = (jnp.asarray(x[::25], self.real) for x in (BIG, BIG**2))
                return lambda t: jax.tree.map(
                    lambda x: x + jnp.interp(t * h["rate"], table, squares).astype(x.dtype), h["value"]
                )
        return lambda t: jax.tree.map(lambda x: (x * jnp.cos(h["rate"] * t)).astype(x.dtype), h["value"])

    def _saveat(self):
        case = self.case
        match case.output:
            case "ts":
                return dfx.SaveAt(ts=jnp.asarray(case.t0 + np.linspace(0.07, 0.93, 5) * (case.t1 - case.t0), self.real))
            case "steps":
                return dfx.SaveAt(steps=True)
            case "dense":
                return dfx.SaveAt(dense=True)
            case "t0 and t1":
                return dfx.SaveAt(t0=True, t1=True)
            case "a function":
                fn = lambda t, y, args: jnp.sum(self.vector(y)) * t
                return dfx.SaveAt(subs=[dfx.SubSaveAt(t1=True), dfx.SubSaveAt(steps=True, fn=fn)])
        return dfx.SaveAt(t1=True)

    def _event(self):
        if not self.case.event:
            return None
        height = lambda t, y, args, **kwargs: self.vector(y)[0] - 0.9 + 0.4 * t
        if self.case.event == "bool":
            return dfx.Event(lambda t, y, args, **kwargs: height(t, y, args) > 0.7)
        # Tight: where a search stops, rounding decides.
        tolerance = 1e-12 if self.real == jnp.float64 else 1e-6
        finder = optx.Bisection(rtol=tolerance, atol=tolerance) if self.case.event == "located" else None
        return dfx.Event(height, finder)


def _arguments(case: Case, rng: np.random.Generator, real) -> dict:
    d = sum(case.sizes)
    number = lambda x, dtype=real: np.asarray(x, dtype)
    kinds = {
        "w": lambda: number(rng.uniform(-1, 1, d)),
        "s": lambda: number(rng.uniform(0.2, 1.1)),
        "M": lambda: number(rng.uniform(-1, 1, (d, d)) / d),
        "n": lambda: number(2, np.int32),
        "flag": lambda: number(True, bool),
        "mask": lambda: rng.random(1000) < 0.5,
        "table": lambda: number(rng.uniform(-1, 1, case.table)),
        "itable": lambda: np.arange(1000),
        "half": lambda: number(0.37, np.float32),
        "z": lambda: number(0.3 + 0.4j, np.complex64),
        "key": lambda: jax.random.key(3),
        "oldkey": lambda: jax.random.PRNGKey(4),
        "empty": lambda: number([]),
        "layer": lambda: _layer(case.layer, d, rng, real),
        "unused": lambda: number(rng.uniform(-1, 1, 7)),
        "big": lambda: number(rng.uniform(-1, 1, 5000)),
        "none": lambda: None,
        "text": lambda: "unused",
    }
    return {name: kinds[name]() for name in case.arguments}


def _layer(kind: str, d: int, rng: np.random.Generator, real) -> Any:
    """A layer of equinox with weights of NumPy's making."""
    kinds = {
        "Linear": lambda key: eqx.nn.Linear(d, d, key=key),
        "MLP": lambda key: eqx.nn.MLP(d, d, 4, 1, activation=jnp.tanh, key=key),
        "GRUCell": lambda key: eqx.nn.GRUCell(d, d, key=key),
        "LayerNorm": lambda key: eqx.nn.LayerNorm(d),
        "Conv1d": lambda key: eqx.nn.Conv1d(1, 1, 3, padding=1, key=key),
    }
    shapes = eqx.filter_eval_shape(kinds[kind], jax.random.key(0))
    weights = lambda x: rng.uniform(-0.5, 0.5, x.shape).astype(real)
    return jax.tree.map(lambda x: weights(x) if isinstance(x, jax.ShapeDtypeStruct) else x, shapes)
