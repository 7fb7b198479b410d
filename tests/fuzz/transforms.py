"""One pair of a field and a transformation: computed as it comes, and once more without any kernel, lane by lane."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import lagrax as lx
from lagrax._xla import _kernel

from .fields import Case
from .problem import Problem

NAMES = ("solve", "without jit", "grad", "vmap", "vmap of grad", "jacfwd", "hessian", "shard_map", "sharded inputs")

LANES = 4
FEW_OPTIMISATIONS = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""For what contains no kernel. Its numbers are the same, and it cannot do what XLA does to a kernel."""
FEWER_OPTIMISATIONS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""What `JAX_DISABLE_MOST_OPTIMIZATIONS` asks for."""
WAYS = (FEW_OPTIMISATIONS, FEWER_OPTIMISATIONS, None)
"""Of compiling a program without kernels: the first, and those that ought to give the same numbers."""
NUDGE = 8
"""By how many roundings numbers are changed, to see what rounding does."""


class Functions:
    """The functions of a problem that transformations are made of, all of (variables, rest)."""

    def __init__(self, case: Case):
        # Made anew each time: nothing traced before, with kernels or without, is found again.
        self.problem = problem = Problem(case)
        join = eqx.combine
        keep = jax.jit if case.shared else lambda f: f
        self.variables, self.rest = problem.variables()
        self.solve = keep(lambda variables, rest: problem.solve(join(variables, rest)))
        gradient = jax.grad(lambda variables, rest: problem.loss(join(variables, rest)), has_aux=True)
        self.both = lambda variables, rest: dict(zip(("gradient", "solution"), gradient(variables, rest), strict=True))
        self.grad = keep(lambda variables, rest: _with_counts(**self.both(variables, rest)))
        forward = jax.jacfwd(lambda v, rest: problem.loss(join(v, rest), lx.ForwardMode()), has_aux=True)
        self.forward = keep(lambda v, rest: _with_counts(*forward(v, rest)))

    def hessian(self, variables, rest):
        return jax.jacfwd(lambda variables: self.grad(variables, rest)["gradient"])(variables)

    def few(self) -> tuple[dict, dict]:
        return self.problem.variables(small=True)


def _with_counts(gradient: dict, solution: dict) -> dict:
    return {"gradient": gradient, "counts": solution["counts"]}


def lanes(tree: dict) -> dict:
    """Some lanes of inputs: floating-point arrays, slightly different in each."""
    return jax.tree.map(lambda *x: np.stack(x), *[lane(tree, i) for i in range(LANES)])


def lane(tree: dict, i: int) -> dict:
    return jax.tree.map(lambda x: (np.asarray(x) * (1 + 0.03 * i)).astype(x.dtype), tree)


def nudged(tree: Any, seed: int) -> Any:
    """The numbers up or down by a few roundings; seed 0 leaves them alone."""
    rng = np.random.default_rng(seed)

    def nudge(x):
        if seed == 0 or not jnp.issubdtype(x.dtype, jnp.inexact):
            return x
        by = NUDGE * float(jnp.finfo(x.dtype).eps) * rng.choice([-1.0, 1.0], x.shape)
        return (np.asarray(x) * (1 + by)).astype(x.dtype)

    return jax.tree.map(nudge, tree)


def transformed(name: str, f: Functions, case: Case) -> tuple[Callable, tuple]:
    """(A function to be jitted, its arguments.)"""
    batch = lanes(f.variables)
    one = f.grad if case.seed % 3 == 0 else f.solve
    match name:
        case "solve" | "without jit":
            return f.solve, (f.variables, f.rest)
        case "both":
            return f.both, (f.variables, f.rest)
        case "grad":
            return f.grad, (f.variables, f.rest)
        case "vmap":
            return jax.vmap(f.solve, (0, None)), (batch, f.rest)
        case "vmap of grad":
            return jax.vmap(f.grad, (0, None)), (batch, f.rest)
        case "jacfwd":
            return f.forward, f.few()
        case "hessian":
            return f.hessian, f.few()
        case "shard_map":
            mesh = jax.make_mesh((2,), ("lanes",))
            specs = {"in_specs": (P("lanes"), P()), "out_specs": P("lanes")}
            split = jax.shard_map(jax.vmap(one, (0, None)), mesh=mesh, check_vma=False, **specs)
            return split, (_placed(batch, mesh), jax.device_put(f.rest, NamedSharding(mesh, P())))
        case "sharded inputs":
            mesh = jax.make_mesh((2,), ("lanes",), axis_types=(AxisType.Auto,))
            return jax.vmap(one, (0, None)), (_placed(batch, mesh), f.rest)
    raise ValueError(name)


def _placed(batch: dict, mesh) -> dict:
    return jax.device_put(batch, NamedSharding(mesh, P("lanes")))


@dataclasses.dataclass
class Outcome:
    """Numbers, or the error that there was instead."""

    value: Any = None
    error: str = ""
    kernels: int = 0
    """In the traced program."""
    compiled: int = 0
    """In the program that is compiled: none where XLA splits it over devices."""


class Child:
    """What a child process keeps of the field that it is working on."""

    def __init__(self, case: Case):
        self.case = case
        self.functions: dict[bool, Functions] = {}
        self.programs: dict[tuple[str, int], Any] = {}
        self.way, self.nudge = 0, 0

    def functions_with(self, kernels: bool) -> Functions:
        _kernel.AVAILABLE = kernels
        if kernels not in self.functions:
            self.functions[kernels] = Functions(self.case)
        return self.functions[kernels]

    def has_kernels(self) -> bool:
        """Whether the solve has a kernel in it; if not, no other transformation has."""
        try:
            f = self.functions_with(True)
            return count_kernels(jax.jit(f.solve).trace(f.variables, f.rest).jaxpr) > 0
        except Exception:
            return True

    def run(self, name: str) -> Outcome:
        """The transformation as it comes."""
        outcome = Outcome()
        try:
            f = self.functions_with(True)
            function, inputs = transformed(name, f, self.case)
            traced = jax.jit(function).trace(*inputs)
            outcome.kernels = count_kernels(traced.jaxpr)
            if name == "without jit":
                problem = Problem(self.case)
                outcome.compiled = outcome.kernels
                outcome.value = _numbers(problem.solve(problem.inputs))
                return outcome
            lowered = traced.lower()
            outcome.compiled = lowered.as_text().count("xla_cpu_small_call") if outcome.kernels else 0
            options = None if self.case.optimised else FEWER_OPTIMISATIONS
            program = lowered.compile(options if outcome.compiled else FEW_OPTIMISATIONS)
            outcome.value = _numbers(program(*inputs))
        except Exception as error:
            outcome.error = _told(error)
        return outcome

    def reference(self, name: str, outcome: Outcome) -> Outcome | None:
        """The same without kernels, or None where there were none: then it is the same program, but for lanes."""
        if outcome.error or (outcome.kernels and name in ("jacfwd", "hessian")):
            return self._plain("solve" if name == "without jit" else name)
        if name == "jacfwd":
            return self._backwards()
        if not outcome.kernels and name not in ("vmap", "sharded inputs"):
            return None
        gradient = "grad" in name or (name in ("shard_map", "sharded inputs") and self.case.seed % 3 == 0)
        if name in ("solve", "without jit", "grad"):
            return self._alone(gradient)
        each = [self._alone(gradient, i) for i in range(LANES)]
        failed = next((one for one in each if one.error), None)
        return failed or Outcome(value=jax.tree.map(lambda *x: np.stack(x), *[one.value for one in each]))

    def varied(self, name: str, outcome: Outcome) -> Iterator[Outcome]:
        """The reference compiled in other ways, and of numbers that are nudged: all of them ought to be the same."""
        for self.way in range(len(WAYS)):
            for self.nudge in range(4):
                if (self.way, self.nudge) == (0, 0):
                    continue
                other = self.reference(name, outcome)
                if other is not None and not other.error:
                    yield other
        self.way, self.nudge = 0, 0

    def _backwards(self) -> Outcome | None:
        """The gradient in reverse mode, of what the derivative in forward mode is taken of, if it is part of that."""
        f = self.functions_with(False)
        chosen, _ = f.few()
        is_none = lambda x: x is None
        part = jax.tree.map(lambda x, y: None if x is None else y, chosen, f.variables, is_leaf=is_none)
        if self.case.narrow or jax.tree.structure(part) != jax.tree.structure(chosen):
            return None
        both = self._alone(gradient=True)
        if not all(np.all(np.isfinite(x)) for x in jax.tree.leaves(both.value)):
            return None  # of a solve that failed, where forward mode knows which inputs do not matter
        if not both.error:
            keep = lambda x, y: None if x is None else y
            both.value["gradient"] = jax.tree.map(keep, chosen, both.value["gradient"], is_leaf=is_none)
        return both

    def _alone(self, gradient: bool, i: int | None = None) -> Outcome:
        """The gradient, or the solution, of one lane; one program computes both."""
        both = self._plain("both", i)
        if both.error:
            return both
        return Outcome(value=_with_counts(**both.value) if gradient else both.value["solution"])

    def _plain(self, name: str, i: int | None = None) -> Outcome:
        try:
            f = self.functions_with(False)
            function, inputs = transformed(name, f, self.case)
            if (name, self.way) not in self.programs:
                traced = jax.jit(function).trace(*inputs)
                assert count_kernels(traced.jaxpr) == 0
                self.programs[name, self.way] = traced.lower().compile(WAYS[self.way])
            if i is not None:
                inputs = (lane(f.variables, i), f.rest)
            return Outcome(value=_numbers(self.programs[name, self.way](*nudged(inputs, self.nudge))))
        except Exception as error:
            return Outcome(error=_told(error))


def count_kernels(jaxpr) -> int:
    """How many calls of the kernel primitive a program has."""
    return str(jaxpr).count("one_kernel[")


def _numbers(tree: Any) -> Any:
    """Arrays as NumPy has them; random keys as their bits."""
    plain = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    return jax.tree.map(lambda x: np.asarray(plain(x)), jax.block_until_ready(tree))


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:300]}"
