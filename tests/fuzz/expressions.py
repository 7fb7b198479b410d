"""Random expressions, as text: readable when one of them breaks something, and easy to cut down by hand.

Holes: {V} a vector of the state's size, {S} a scalar, {M} a square matrix, {B} a vector of booleans, {I} an integer below
the state's size, {J} one below 300, {C} a number, {K} a whole number below the state's size. Every operation is bounded
for bounded operands, or nearly so; `fields.py` bounds the whole.
"""

import re

import numpy as np

ELEMENTWISE = """
jnp.sin({V})|jnp.cos({V})|jnp.tan(0.4 * jnp.tanh({V}))|jnp.arcsin(0.5 * jnp.tanh({V}))|jnp.arccos(0.5 * jnp.tanh({V}))
jnp.arctan({V})|jnp.sinh(jnp.tanh({V}))|jnp.cosh(jnp.tanh({V}))|jnp.tanh({V})|jnp.arcsinh({V})|jnp.arccosh(1.5 + {V} ** 2)
jnp.arctanh(0.5 * jnp.tanh({V}))|jnp.exp(-({V} ** 2))|jnp.exp2(-({V} ** 2))|jnp.expm1(-({V} ** 2))|jnp.log(1.1 + {V} ** 2)
jnp.log1p({V} ** 2)|jnp.sqrt(1 + {V} ** 2)|lax.rsqrt(1 + {V} ** 2)|jnp.cbrt(2 + jnp.tanh({V}))|jnp.abs({V})|jnp.sign({V})
jnp.floor(3 * {V})|jnp.ceil(3 * {V})|jnp.round(3 * {V})|jnp.trunc(3 * {V})|special.gammaln(2 + {V} ** 2)
special.digamma(2 + {V} ** 2)|special.erf({V})|special.erfc({V})|special.erfinv(0.5 * jnp.tanh({V}))|{V} ** 3|-{V}
jnp.sinc({V})|jnp.square(jnp.tanh({V}))|jnp.reciprocal(2 + jnp.sin({V}))|jnp.nan_to_num({V})|special.ndtr({V})
special.xlogy(0.5 + {V} ** 2, 1.5 + jnp.sin({V}))|special.expit({V})|jnp.deg2rad(50 * {V})
jnp.frexp(lax.stop_gradient({V}))[0]|{V} + {V}|{V} - {V}|{V} * jnp.tanh({V})|{V} / (1.5 + {V} ** 2)|jnp.maximum({V}, {V})
jnp.minimum({V}, {V})|{S} * {V}|jnp.arctan2({V}, 1.5 + {V} ** 2)|jnp.hypot({V}, 0.3 + jnp.exp({S} * 0.1))
jnp.logaddexp({V}, {V})|jnp.mod({V}, 0.713)|jnp.fmod({V}, 0.713)|{V} // 0.713|jnp.power(1.1 + {V} ** 2, {C})
jnp.float_power(1.1 + {V} ** 2, 0.5)|jnp.where({B}, {V}, {V})|jnp.where({S} > {C}, {V}, {S})|jnp.clip({V}, -{C}, {C})
jnp.heaviside({V}, 0.5)|jnp.select([{V} > 0.31, {V} > -0.27], [{V}, {S}], {V})
lax.clamp(cast(-0.613), cast({V}), cast(0.717))|{V} * {B}|{S} + {V}
jnp.piecewise(cast({V}), [{V} < {C}], [jnp.sin, jnp.cos])|lax.reduce_precision(cast({V}), 8, 7)
jnp.nextafter(lax.stop_gradient(cast({V})), 2.0)|jax.nn.relu({V})|jax.nn.sigmoid({V})|jax.nn.softplus({V})|jax.nn.silu({V})
jax.nn.gelu({V})|jax.nn.elu({V})|jax.nn.celu({V})|jax.nn.selu({V})|jax.nn.leaky_relu({V})|jax.nn.log_sigmoid({V})
jax.nn.soft_sign({V})|jax.nn.hard_tanh({V})|jax.nn.hard_sigmoid({V})|jax.nn.mish({V})|jax.nn.squareplus({V})
jax.nn.relu6(3 * {V})|jax.nn.softmax({V})|jax.nn.log_softmax({V})|jax.nn.glu(jnp.concatenate([{V}, {V}]))
jax.nn.one_hot({I}, {d}) * {S}|jnp.abs(jnp.exp(1j * {V}) + {V})|jnp.sqrt({V} + 1.5j).imag|(1 / ({V} + 2j)).real
jnp.angle({V} + 2j)|jnp.tanh({V} + 0.2j).real|jnp.log({V} + 2 + 1j).imag|jnp.conj({V} + 1j * {V}).imag
((0.3 * {V} + 2j) ** -2).real|jnp.sin(0.3 * {V} + 0.2j).imag|{V} * ((jnp.abs({V}) * 9).astype(jnp.int32) ^ 3) * 0.1
{V} * ((jnp.abs({V}) * 9).astype(jnp.uint8) << 1 >> 1) * 0.1|jnp.gcd((jnp.abs({V}) * 9).astype(int) + 1, 6) * 0.1 * {V}
jnp.sin({V}.astype(jnp.float32)).astype(y.dtype)
"""

ARRANGING = """
{V}[::-1]|jnp.roll({V}, {K})|jnp.append(jnp.diff({V}), {S})|jnp.cumsum({V})|jnp.cumprod(jnp.tanh({V}))|lax.cummax({V})
lax.cummin({V}, reverse=True)|jnp.take({V}, np.arange({d})[::-1])|jnp.pad({V}, (1, 0))[:{d}]
jnp.pad({V}, (1, 1), mode="wrap")[:{d}]|jnp.tile({V}, 2)[1 : {d} + 1]|jnp.repeat({V}, 2)[:{d}]|jnp.stack([{V}, {V}]).sum(0)
jnp.concatenate([{V}, {V}])[{K} :: 2][:1] * {V}|jnp.broadcast_to({S}, ({d},))|jnp.outer({V}, {V}).T[{K}]|jnp.diag({M})
{V} - jnp.mean({V})|{V} * jnp.std(jnp.append({V}, 3.1))|{V} / (1.5 + jnp.linalg.norm({V} + 2))
jnp.meshgrid({V}, {V})[0].sum(0)|jnp.tril(jnp.outer({V}, {V})).sum(0)|jnp.flip({M}, 0)[{K}]|jnp.trace({M}) * {V}
jnp.concatenate([{V}, jnp.zeros(0, y.dtype)])|{V} + {V}[:0].sum()|jnp.kron({V}, {V})[:{d}]|{M}.reshape(-1)[:{d}]
jnp.triu({M})[{K}]|jnp.polyval(np.array([0.1, 0.2, 0.3]), {V})|lax.rev(cast({V}), (0,))
lax.pad(cast({V}), cast(0.0), [(-1, 1, 0)])|jnp.vander({V})[:, 0]|jnp.split({M}, {d})[{K}][0]|{M} @ {V}|{V} @ {M}|W @ {V}
jnp.einsum("ij,j->i", {M}, {V})|jnp.einsum("i,j,ij->i", {V}, {V}, W)|jnp.tensordot(W, {V}, 1)
jnp.einsum("i,i->i", {V}, {V})|lax.dot(cast(W), cast({V}))|(np.eye({d}) * 0.3) @ {V}
"""

CONTROL = """
lax.cond({S} > {C}, lambda: cast({V}), lambda: cast({V}))|lax.cond({S} > 0, jnp.sin, jnp.cos, {V})
lax.switch({I}, [lambda: cast({V}), lambda: cast({V}), lambda: cast({V})])
lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + 0.1 * cast({V}), cast({V}))
lax.fori_loop(0, 0, lambda i, c: c + cast({V}), cast({V}))
lax.scan(lambda c, x: (jnp.tanh(c + 0.1 * x), c), cast({V}), jnp.arange(4, dtype=y.dtype))[0]
lax.scan(lambda c, x: (jnp.tanh(c + 0.1 * x), c), cast({V}), jnp.arange(3, dtype=y.dtype))[1].sum(0)
lax.scan(lambda c, w: (jnp.tanh(w @ c), None), cast({V}), jnp.stack([cast({M}), cast(W)]), reverse=True)[0]
lax.while_loop(lambda c: jnp.any(jnp.abs(c) > 0.53), lambda c: 0.6 * c, lax.stop_gradient(cast({V})))
lax.while_loop(lambda c: c[0] < {I}, lambda c: (c[0] + 1, 0.5 * c[1]), (0, lax.stop_gradient(cast({V}))))[1]
lax.map(lambda s: jnp.sin(s) * {S}, {V})|jax.vmap(lambda s: jnp.cos(s) * s + {S})({V})|lax.associative_scan(jnp.add, {V})
jax.vmap(lambda s, v: s * v, (0, None))({V}, {V}).sum(0)|jax.grad(lambda v: jnp.sum(jnp.cos(v) * {V}))({V})
jax.jvp(jnp.sin, (cast({V}),), (cast({V}),))[1]|jax.hessian(lambda v: jnp.sum(jnp.cos(v)))({V}) @ {V}
jax.jacrev(jnp.sin)({V})[{K}]|jax.checkpoint(lambda v: jnp.tanh(v * {V}))({V})|jax.jit(lambda v: jnp.tanh(v + {V}))({V})
smooth({V})|ramp({V})|detour({V})|lax.optimization_barrier({V})|jnp.vectorize(lambda s: s * {S})({V})
lax.stop_gradient({V}) * {V}|lax.cond(True, lambda: cast({V}), lambda: cast({V}))
"""

LOOKING_UP = """
{V}[{I}] * {V}|lax.dynamic_slice(a["table"], ({J},), ({d},))|lax.dynamic_slice(BIG, ({J},), ({d},))|a["table"][{J}] * {V}
lax.dynamic_update_slice(cast({V}), cast({V})[:1], ({I},))|jnp.interp({V}, np.linspace(-1, 1, 9), np.sin(np.arange(9.0)))
jnp.interp({V}, BIG, BIG**2)|jnp.searchsorted(BIG, {V}) / 5000 * {V}|jnp.digitize({V}, np.linspace(-1, 1, 5)) * {V} * 0.2
lax.dynamic_index_in_dim({M}, {I}, 0, False)|a["n"] * 0.1 * {V}|jnp.where(a["flag"], {V}, {V})
a["itable"][{J}] * 0.001 * {V}|jnp.where(a["mask"][{J}], {V}, {S})|jnp.take(a["table"], {J}, mode="clip") * {V}
jnp.take({V}, jnp.array([{I}, {I}]), mode="fill", fill_value=0).sum() * {V}|a["half"] * {V}|a["z"].imag * {V}|layer({V})
"""

EXOTIC = """
lax.scan(lambda c, x: (c + 0.01 * x, None), cast({V}), cast(BIG[:300]))[0]|jnp.copysign({V}, {V})|lax.cumlogsumexp({V})
jnp.interp({S}, np.linspace(0, 1, 300), a["table"][:300]) * {V}|jnp.sort({V})|{V}[jnp.argsort({V})]|{V} - jnp.median({V})
jnp.quantile({V}, 0.3) * {V}|lax.top_k({V}, {d})[0]|jnp.linalg.solve(3 * np.eye({d}) + {M}, {V})
jnp.linalg.inv(3 * np.eye({d}) + {M}) @ {V}|jnp.linalg.det(np.eye({d}) + 0.1 * {M}) * {V}
jax.scipy.linalg.expm(0.2 * {M})[0]|jnp.linalg.cholesky(3 * np.eye({d}) + jnp.outer(jnp.sin({V}), jnp.cos({V})) * 0.1)[{K}]
({M} @ {M})[{K}]|(W @ {M}).sum(0)|jnp.fft.fft({V}).real|jnp.fft.ifft(jnp.fft.fft({V}) * 0.5).real
jnp.abs(jnp.fft.rfft({V} + 2))[0] * {V}|jnp.convolve({V}, np.array([0.2, 0.5, 0.2]), mode="same")[:{d}]
cast({V}).at[{I}].set({S})|cast({V}).at[{I}].add({S})|cast({V}).at[{K}].mul(2.0)|cast({V}).at[np.array([0, 0])].add({S})
cast({V}).at[{I}].min({S})|jax.ops.segment_sum({V}, np.arange({d}) // 2, {d})
jnp.histogram({V}, bins=3)[0].sum() * 0.1 * {V}|jnp.bincount(({V} > 0).astype(int), length=2)[0] * 0.1 * {V}
0.1 * jax.random.normal(jax.random.key(1), ({d},))
jax.random.uniform(jax.random.fold_in(jax.random.key(2), {I}), ({d},)) * {V}|jax.random.uniform(a["key"], ({d},)) * {V}
jax.random.bernoulli(a["oldkey"], 0.5, ({d},)) * {V}|jax.random.permutation(jax.random.key(4), {V})|special.i0e({V})
special.i1e({V})|special.gammainc(2.0, jnp.abs({V}) + 0.1)|special.betainc(2.0, 3.0, jax.nn.sigmoid({V}))
special.zeta(3.0, 1.5 + {V} ** 2)|{V}.astype(jnp.bfloat16).astype(y.dtype)|{V}.astype(jnp.float16).astype(y.dtype)
lax.population_count((jnp.abs({V}) * 9).astype(jnp.int32)) * 0.1 * {V}
lax.reduce_window(cast({V}), np.zeros((), y.dtype), lax.add, (2,), (1,), "SAME")|jnp.einsum("ij,jk,k->i", {M}, W, {V})
jnp.einsum("bij,bj->bi", jnp.stack([{M}, {M}]), jnp.stack([{V}, {V}]))[0]|jnp.sum(a["table"]) * 0.001 * {V}
jnp.max(a["table"]**2) * {V}|jnp.cumsum(a["table"])[:{d}]|(a["table"][:300] @ BIG[:300]) * 0.01 * {V}
BIG[:{d}] * {V} + BIG.sum()|lax.custom_linear_solve(lambda x: 2 * x, cast({V}), lambda f, b: b / 2, symmetric=True)
jnp.unique({V}, size={d})|jnp.roll({V}, {I})
lax.linalg.triangular_solve(cast(3 * np.eye({d}) + jnp.tril({M})), cast({V})[:, None], left_side=True, lower=True)[:, 0]
"""

SIMPLIFIED_AWAY = """
jnp.where(False, a["table"][{J}], 0.0)|jnp.where(np.arange({d}) < 99, 0.0, a["table"][{J}])|0 * a["itable"][{J}]
a["itable"][{J}] & 0|a["itable"][{J}] - a["itable"][{J}]|jnp.where(False, a["itable"][{J}], 0)|a["n"] * 0|a["n"] - a["n"]
jnp.zeros_like(a["table"])[0]|lax.cond(False, lambda: cast(a["table"][{J}]), lambda: cast(0.0))|a["table"][:0].sum()
lax.stop_gradient(a["table"][{J}]) ** 0 - 1|jnp.clip(a["itable"][{J}], 0, 0)|jnp.clip(a["table"][{J}], 0.0, 0.0)
a["itable"][{J}] % 1|jnp.logical_and(False, a["flag"]) * {S}
lax.fori_loop(0, 0, lambda i, c: c + cast(a["table"][{J}]), cast(0.0))|lax.dynamic_slice(a["table"], ({J},), (0,)).sum()
lax.fori_loop(0, 3, lambda i, c: (0.5 * c[0], c[1]), (cast({S}), a["table"]))[0]
lax.scan(lambda c, x: (c, x), cast(0.0), a["table"][:300])[0]
lax.while_loop(lambda c: c[0] < 0, lambda c: (c[0] + 1, c[1] + 1), (0, a["itable"]))[0]
jnp.where(a["table"][{J}] > jnp.inf, 1.0, 0.0)
lax.select(np.zeros({d}, bool), lax.dynamic_slice(cast(a["table"]), ({J},), ({d},)), jnp.zeros({d}, y.dtype))
(a["table"].shape[0] - 1) * 1e-5|jnp.minimum(a["itable"][{J}] * 0, 0)|0 * a["table"][{J}]|a["table"][{J}] - a["table"][{J}]
jnp.zeros_like({V}) * a["n"]|a["empty"].sum()|jnp.where(jnp.isnan(a["n"]), {V}, 0.0)|(a["itable"][{J}] ^ a["itable"][{J}])
jnp.where(a["flag"] & False, a["table"][{J}], 0.0)
lax.cond(a["flag"] & ~a["flag"], lambda: cast(a["table"][{J}]), lambda: cast(0.0))|a["mask"][{J}] & False
lax.stop_gradient(0 * a["table"][{J}])
"""

FLAT = """
-jnp.sign({V})|jnp.ones({d})|0.3 * jnp.ones({d}, y.dtype)|jnp.zeros({d})|np.full({d}, 0.2)|lax.stop_gradient({V})
jnp.floor(2 * {V})|jnp.where({V} > 0.1, 0.3, -0.2)|({V} > 0.2).astype(y.dtype)|jnp.full({d}, jnp.argmax({V}) * 0.1)
jnp.round({V})|jnp.heaviside({V}, 0.5)|jnp.broadcast_to(jnp.sin(t), ({d},))|jnp.broadcast_to({I} * 0.1, ({d},))
a["table"][{J}] * jnp.ones({d})|lax.stop_gradient(jnp.tanh({V})) + 0 * {V}|jnp.where(False, {V}, 0.1)
jnp.sign({S}) * np.ones({d})|jnp.zeros({d}) + a["n"] * 0.1
"""

SCALARS = """
jnp.sum({V})|jnp.mean({V})|jnp.max({V})|jnp.min({V})|jnp.prod(jnp.tanh({V}))|jnp.dot({V}, {V})|{V}[{I}]|{V}[{K}]
jnp.sin({S})|{S} * {S}|jnp.var({V})|jnp.linalg.norm({V} + 2.3)|jnp.any({B}) * {C}|jnp.all({B}) * {C}|jnp.argmax({V}) * 0.1
jnp.argmin({V}) * 0.1|jax.nn.logsumexp({V})|jnp.tanh({S}) + {C}|jnp.vdot({V}, {V})|jnp.trace({M})
jnp.where({S} > {C}, {S}, t)|jnp.count_nonzero({B}) * 0.1
"""

MATRICES = """
jnp.outer({V}, {V})|W|W + {S}|a["M"]|jnp.diag({V})|jnp.tanh(a["M"] * {S})|jnp.outer({V}, {V}).T|np.eye({d}) * {S}
jnp.stack([{V}] * {d})|{V}[:, None] * {V}[None, :]|{V}[:, None] @ {V}[None, :]|jnp.where(W > 0, W, {S})
"""

BOOLEANS = """
{V} > {C}|{V} < {V}|({V} > 0.21) & ({V} < 0.64)|({V} >= {S}) | ({V} < -0.37)|~({V} > 0.13)|jnp.isfinite({V})
"""
INDICES = """
(jnp.abs({S}) * 7.3).astype(jnp.int32) % {n}|jnp.int32(3.7 * t) % {n}|jnp.argmax({V}).astype(jnp.int32) % {n}|a['n'] % {n}
"""

HOLES = re.compile(r"\{(\w+)\}")


def _listed(text: str) -> list[str]:
    return [item.strip() for line in text.strip().splitlines() for item in _bars(line)]


def _bars(line: str) -> list[str]:
    """Split at bars outside brackets: a bar inside them is an operation."""
    items, depth, start = [], 0, 0
    for place, letter in enumerate(line):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == "|" and depth == 0 and line[place - 1] != " ":
            items.append(line[start:place])
            start = place + 1
    return [*items, line[start:]]


_ELEMENTWISE, _ARRANGING, _CONTROL, _LOOKING_UP, _EXOTIC = map(
    _listed, (ELEMENTWISE, ARRANGING, CONTROL, LOOKING_UP, EXOTIC)
)
_SIMPLIFIED_AWAY, _FLAT, _SCALARS, _MATRICES = map(_listed, (SIMPLIFIED_AWAY, FLAT, SCALARS, MATRICES))
_BOOLEANS, _INDICES = _listed(BOOLEANS), _listed(INDICES)


class Expressions:
    """Draws expressions over `vectors` (names) of size d. `exotic` ones ask for what no kernel can do."""

    def __init__(self, rng: np.random.Generator, d: int, vectors: list[str], exotic: bool):
        self.rng, self.d, self.vectors, self.exotic, self.room = rng, d, vectors, exotic, 0

    def vector(self, depth: int, room: int = 12) -> str:
        """A vector by an expression of at most this depth, and not many more than `room` operations."""
        self.room = room
        return self._vector(depth)

    def flat(self) -> str:
        """A vector whose derivative is zero, or nearly always."""
        self.room = 4
        return self._fill(self._pick(_FLAT), 1)

    def simplified_away(self) -> str:
        """Zero, though XLA has to find that out, by way of some argument."""
        self.room = 3
        return self._fill(self._pick(_SIMPLIFIED_AWAY), 1)

    def _pick(self, items: list[str]) -> str:
        return items[self.rng.integers(len(items))]

    def _fill(self, template: str, depth: int) -> str:
        self.room -= 1
        return HOLES.sub(lambda hole: self._hole(hole[1], depth), template)

    def _hole(self, kind: str, depth: int) -> str:
        d = self.d
        plain = {"d": lambda: str(d), "K": lambda: str(self.rng.integers(d))}
        plain["C"] = lambda: f"{self.rng.uniform(0.2, 1.3):.3f}"
        if kind in plain:
            return plain[kind]()
        if kind in "IJ":
            index = self._fill(self._pick(_INDICES).replace("{n}", str(d if kind == "I" else 290)), 0)
            return f"({index})"
        inner = {"V": self._vector, "S": self._scalar, "M": self._matrix, "B": self._boolean}[kind](depth - 1)
        return inner if inner.isidentifier() else f"({inner})"

    def _vector(self, depth: int) -> str:
        if depth <= 0 or self.room <= 0 or self.rng.random() < 0.08:
            return self._pick(self.vectors)
        kinds = [(_ELEMENTWISE, 5.0), (_ARRANGING, 2.0), (_CONTROL, 1.0), (_LOOKING_UP, 1.2), (_EXOTIC, 2.5 * self.exotic)]
        weights = np.array([weight for _, weight in kinds])
        chosen = kinds[self.rng.choice(len(kinds), p=weights / weights.sum())][0]
        return self._fill(self._pick(chosen), depth)

    def _scalar(self, depth: int) -> str:
        if depth <= 0 or self.room <= 0 or self.rng.random() < 0.3:
            return self._pick(["t", 'a["s"]', f"{self._pick(self.vectors)}[0]", f"{self.rng.uniform(-1, 1):.3f}", "y[-1]"])
        return self._fill(self._pick(_SCALARS), depth)

    def _matrix(self, depth: int) -> str:
        if depth <= 0 or self.room <= 0:
            return self._pick(["W", 'a["M"]'])
        return self._fill(self._pick(_MATRICES), depth)

    def _boolean(self, depth: int) -> str:
        return self._fill(self._pick(_BOOLEANS), max(depth, 0))
