"""A further kind of delay is one class: a sketch of one, with nothing but the public names."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import lagrax as lx


class Reflected(lx.AbstractLag):
    """An echo from a wall at a distance, which a listener at position y hears with the delay `2 (distance - y) / speed`."""

    distance: float
    speed: float

    def time(self, t, y, args):
        return t - 2 * (self.distance - y) / self.speed


def test_a_kind_of_ones_own_is_solved_and_differentiated():
    def end(distance, delays):
        return lx.ddesolve(
            lx.DelayTerm(lambda t, y, z, args: -z, delays(distance)),
            dfx.Tsit5(),
            0.0,
            4.0,
            None,
            0.5,
            stepsize_controller=dfx.PIDController(1e-9, 1e-9),
            max_steps=256,
        ).ys[0]

    own = lambda distance: Reflected(distance, 4.0, minimum=0.5)
    written_out = lambda distance: lx.Lag(lambda t, y, args: (distance - y) / 2, minimum=0.5)
    kinds = [jax.jit(jax.value_and_grad(lambda d, kind=kind: end(d, kind)))(jnp.array(2.0)) for kind in (own, written_out)]
    assert np.allclose(*kinds, rtol=1e-12)
    assert np.all(np.isfinite(kinds[0]))
