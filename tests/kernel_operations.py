"""Solves small problems that together use every operation `_kernel.py` lets into a kernel. Run by `test_kernel.py`."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import jax.scipy.special as special
from jax import lax

import lagrax as lx

WEIGHTS = jnp.linspace(-0.1, 0.1, 256).reshape(16, 16)


def smooth(t, y, z, args):
    u = jnp.abs(y) + 0.5
    parts = [
        jnp.sin(u),
        jnp.cos(z),
        jnp.tan(u / 4),
        jnp.arcsin(u / 9),
        jnp.arccos(u / 9),
        jnp.arctan(u),
        jnp.arctan2(u, 1 + z),
    ]
    parts += [
        jnp.arctan2(u, 1 + z),
        jnp.sinh(u / 4),
        jnp.cosh(u / 4),
        jnp.tanh(z),
        jnp.arcsinh(u),
        jnp.arccosh(1 + u),
        jnp.arctanh(u / 9),
    ]
    parts += [jnp.exp(-u), jnp.exp2(-u), jnp.expm1(-u), jnp.log(u), jnp.log1p(u), jnp.sqrt(u), lax.rsqrt(u), jnp.cbrt(u)]
    parts += [u**args, u**3, special.erf(u), special.erfc(u), special.erfinv(u / 9), special.gammaln(u)]
    return sum(parts) * 1e-2 + jax.nn.sigmoid(y) - jax.nn.softplus(z) + jax.nn.relu(y) - jax.nn.gelu(z)


def rough(t, y, z, args):
    whole = jnp.floor(y) + jnp.ceil(z) + jnp.round(y) + jnp.sign(z) + jnp.remainder(y, 0.3) + jnp.clip(y, -1, 1)
    bits = (y > z) ^ (y >= 0) | (z < 1) & ~(z <= 0) | (y == z) | (y != 1)
    integers = (jnp.int32(5) << 2 >> 1) // jnp.int32(3) + lax.shift_right_logical(jnp.int32(9), jnp.int32(1))
    reduced = (
        jnp.sum(y) + jnp.prod(z) + jnp.max(y) - jnp.min(z) + jnp.any(bits) - jnp.all(bits) + jnp.argmax(y) + jnp.argmin(z)
    )
    return 1e-2 * (whole + jnp.where(bits, y, z) + integers + reduced + jnp.isfinite(y))


def moves(t, y, z, args):
    table = jnp.stack([jnp.roll(y, 1), y[::-1], jnp.cumsum(z), jnp.cumprod(z), jnp.pad(y[1:], (0, 1))])
    turned = jnp.concatenate([table.T.reshape(-1), jnp.repeat(y, 2)])[:4] + lax.cummax(y) - lax.cummin(z)
    looked_up = jnp.interp(t, jnp.linspace(0, 3, 20), jnp.linspace(1, 2, 20) ** 2) + jnp.linspace(0, 1, 20)[jnp.int32(t)]
    return 1e-2 * (turned + looked_up) - z


def products(t, y, z, args):
    """Networks: matrices times vectors, also the same matrix twice, and, for the gradient, products of vectors."""
    first, second = args
    inner = jnp.tanh(first @ jnp.tile(y, 4)) + jnp.tanh(first @ jnp.tile(z, 4)) + jnp.tanh(jnp.tile(y, 4) @ second)
    return (second @ inner)[:4] - jnp.dot(y, z) * y - jnp.outer(y, z) @ y


def control(t, y, z, args):
    y = lax.cond(t > 1, lambda: y + z, lambda: y - z)
    y = lax.fori_loop(0, 3, lambda i, y: y - 0.1 * jnp.sin(y) * i, y)
    y, _ = lax.scan(lambda y, x: (y + 0.01 * x * z, None), y, jnp.linspace(0, 1, 5))
    return jax.checkpoint(lambda y: -args * jnp.tanh(y))(y)


def oscillator(t, y, z, args):
    return (1j * args - 0.1) * z + jnp.conj(y) * jnp.real(z) - jnp.abs(y) * jnp.imag(y)


PROBLEMS = {
    "smooth": (smooth, jnp.array(1.7), jnp.linspace(0.1, 0.4, 4)),
    "rough": (rough, None, jnp.linspace(0.1, 0.4, 4)),
    "moves": (moves, None, jnp.linspace(0.1, 0.4, 4)),
    "products": (products, (WEIGHTS, WEIGHTS.T), jnp.linspace(0.1, 0.4, 4)),
    "control": (control, jnp.array(0.3), jnp.linspace(0.1, 0.4, 4)),
    "oscillator": (oscillator, jnp.array(0.3), jnp.array([1.0 + 0.5j, 0.2])),
}


def solve(delay, y0, field, args):
    fixed = {"stepsize_controller": dfx.ConstantStepSize(), "max_steps": 16}
    return jnp.sum(jnp.abs(lx.ddesolve(lx.DelayTerm(field, delay), dfx.Heun(), 0.0, 2.0, 0.2, y0, args, **fixed).ys) ** 2)


for name, (field, args, y0) in PROBLEMS.items():
    gradient = jax.value_and_grad(lambda delay, y0, field=field, args=args: solve(delay, y0, field, args))
    compiled = jax.jit(gradient).lower(0.7, y0).compile()
    kernels = sum(" call(" in line and "inlineable" in line for line in compiled.as_text().splitlines())
    found = compiled(0.7, y0)
    print(name, kernels, *found)
    if kernels != 2 or not jnp.all(jnp.isfinite(jnp.array(found))):
        raise SystemExit(f"{name}: {kernels} kernels, value and gradient {found}, expected 2 kernels and finite numbers")
