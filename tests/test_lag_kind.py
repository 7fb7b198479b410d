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
    written_out = jax.jit(lambda d: end(d, lambda d: lx.Lag(lambda t, y, args: (d - y) / 2, minimum=0.5)))
    value, gradient = jax.jit(jax.value_and_grad(lambda d: end(d, own)))(jnp.array(2.0))
    assert np.allclose(value, written_out(jnp.array(2.0)), rtol=1e-12)
    assert np.allclose(gradient, (written_out(2.0001) - written_out(1.9999)) / 2e-4, rtol=1e-5)


def test_options_reach_the_delay_that_they_are_around():
    delay = lambda t, y, args: 1.0
    resolved = lambda *delays: [lx.DelayTerm(lambda *_: None, d).lags().inner for d in delays]
    promised = (lx.Lag(lx.Derivative(delay), minimum=0.5), lx.Derivative(lx.Lag(delay, minimum=0.5)))
    kept = (lx.Lag(lx.At(delay, minimum=0.5)), lx.Derivative(delay, minimum=0.5))
    assert [lag.minimum for lag in resolved(*promised, *kept)] == [0.5] * 4
    assert [lag.track for lag in resolved(lx.Lag(lx.Derivative(1.0), track=False), lx.Lag(1.0))] == [False, True]
    assert resolved(lx.Lag(lx.Derivative(1.0), overlap=True))[0].overlaps
