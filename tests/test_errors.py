"""Bad input is told in one sentence before anything runs; what only shows at run time becomes a result code."""

import inspect

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

from .problems import decay


def solve(delays=1.0, history=1.0, t0=0.0, t1=2.0, dt0=None, field=decay, args=1.0, solver=None, **kwargs):
    solver = dfx.Tsit5() if solver is None else solver
    # As users call it: here in the tests types are checked before.
    return inspect.unwrap(lx.ddesolve)(lx.DelayTerm(field, delays), solver, t0, t1, dt0, history, args, **kwargs)


STATIC = {
    "negative delay": (dict(delays=-1.0), "delays = -1.0, expected a positive"),
    "zero delay": (dict(delays={"a": 0.0}), r"delays\['a'\] = 0.0, expected a positive"),
    "NaN delay": (dict(delays=float("nan")), "delays = nan, expected a positive finite"),
    "complex delay": (dict(delays=1j), "delays is complex"),
    "vector of delays": (dict(delays=jnp.ones(2)), r"delays has shape \(2,\), expected a scalar"),
    "word as delay": (dict(delays="one"), "delays is str, expected a positive number"),
    "no delay": (dict(delays=()), "got no delays"),
    "history shape": (dict(history=jnp.ones(2), y0=jnp.ones(3)), r"history has shape \(2,\), expected \(3,\)"),
    "history dtype": (dict(history=jnp.ones(2, jnp.float32), y0=jnp.ones(2)), "history has dtype float32, expected float64"),
    "history structure": (dict(history={"a": 1.0}, y0=1.0), "history has structure"),
    "history function": (dict(history=lambda t: jnp.ones(2) * t, y0=1.0), r"history has shape \(2,\)"),
    "history word": (dict(history="past"), "history is str, expected an array"),
    "empty history": (dict(history=None), "history is empty"),
    "unsorted ts": (dict(saveat=dfx.SaveAt(ts=jnp.array([1.0, 0.5]))), "not sorted"),
    "ts outside": (dict(saveat=dfx.SaveAt(ts=jnp.array([1.0, 2.5]))), r"inside \[t0, t1\]"),
    "nothing saved": (dict(saveat=dfx.SaveAt()), "saves nothing"),
    "backwards": (dict(t1=-1.0), "only solved forwards"),
    "empty interval": (dict(t1=0.0), "expected finite t0 < t1"),
    "vector t0": (dict(t0=jnp.zeros(2)), "t0 has shape"),
    "integer state": (dict(history=1), "history has dtype int64, expected floating point"),
    "integer y0": (dict(y0=jnp.array([1, 2])), "y0 has dtype int64"),
    "field structure": (dict(field=lambda t, y, d, a: (y, y)), "the vector field's output has structure"),
    "field shape": (dict(field=lambda t, y, d, a: jnp.ones(3)), r"output has shape \(3,\), expected \(\)"),
    "field without delayed": (
        dict(field=lambda t, y, args: y),
        r"the vector field is a function of \(t, y, args\), expected one of \(t, y, delayed, args\): add `delayed`",
    ),
    "field of too many": (
        dict(field=lambda t, y, d, a, more: y),
        r"\(t, y, d, a, more\), expected one of \(t, y, delayed, args\)",
    ),
    "args before delayed": (dict(field=lambda t, y, args, delayed: y), "put them in this order"),
    "y before t": (dict(field=lambda y, t, d, a: y), r"\(y, t, d, a\), .* put them in this order"),
    "field of a list": (
        dict(history=jnp.ones(2), field=lambda t, y, d, a: [d[0], d[1]]),
        r"output has structure \[f64\[\], f64\[\]\], expected .* f64\[2\]: use jax.numpy.stack",
    ),
    "field without return": (dict(field=lambda t, y, d, a: None), "structure None, expected .* f64.*: return it"),
    "delay of two": (dict(delays=lambda t, y: 1.0), r"delays is a function of \(t, y\), .* add `args`"),
    "true delay": (dict(delays=True), "delays is bool, expected a positive number"),
    "history of two": (
        dict(history=lambda t, args: 1.0),
        r"the history is a function of \(t, args\), expected one of \(t\)",
    ),
    "history of none": (dict(history=lambda: 1.0), r"the history is a function of \(\), .* add `t`"),
    "event of two": (dict(event=dfx.Event(lambda t, y: y)), r"an event condition is a function of \(t, y\), .* add `args`"),
    "event of nothing": (dict(event=dfx.Event(lambda t, y, args, **_: None)), "an event condition returned None, expected"),
    "event bare": (dict(event=lambda t, y, args: y), r"event is a function, .* pass diffrax.Event\(condition\)"),
    "saved of one": (
        dict(saveat=dfx.SaveAt(t1=True, fn=lambda y: y)),
        r"`saveat.fn` is a function of \(y\), .*\(t, y, args\)",
    ),
    "kick of two": (
        dict(impulses=lx.Impulses([1.0], lambda t, y: y)),
        r"impulses.fn is a function of \(t, y\), .* add `args`",
    ),
    "complex field": (dict(field=lambda t, y, d, a: y * 1j), "make the initial state complex"),
    "solver": (dict(solver=dfx.KenCarp4()), "got solver KenCarp4"),
    "no step": (dict(stepsize_controller=dfx.ConstantStepSize()), "dt0 is None"),
    "negative step": (dict(dt0=-0.1), "dt0 = -0.1, expected a positive step"),
    "no max_steps": (dict(max_steps=None), "max_steps = None, expected a positive integer"),
    "tolerances": (
        dict(solver=dfx.Kvaerno3(), dt0=0.1, stepsize_controller=dfx.ConstantStepSize()),
        "without rtol, atol, norm",
    ),
    "event": (dict(event=dfx.Event(lambda t, y, args, **kwargs: jnp.ones(2))), "one boolean or one real number"),
    "estimate": (dict(solver=dfx.Euler()), "Euler has no error estimate"),
    "empty state": (dict(history=jnp.zeros(0)), "history is empty, expected a state of at least one number"),
    "field of a number": (dict(field=lambda t, y, d, a: 0), r"output is the int 0, expected an array of shape \(\)"),
    "saved in a table": (dict(saveat=dfx.SaveAt(ts=jnp.zeros((2, 2)))), r"`saveat.ts` has shape \(2, 2\)"),
    "t0 a word": (dict(t0="now"), "t0 is 'now', expected one real number"),
    "t1 nothing": (dict(t1=None), "t1 is None, expected one real number"),
    "t1 complex": (dict(t1=2j), "t1 has shape .* complex128, expected one real number"),
    "dt0 a list": (dict(dt0=[0.1]), r"dt0 is \[0.1\], expected one real number"),
    "dt0 true": (dict(dt0=True), "dt0 is True, expected one real number"),
    "complex jumps": (dict(jump_ts=jnp.array([1j])), "jump_ts holds .* expected real times"),
    "NaN jumps": (dict(jump_ts=jnp.array([0.5, jnp.nan])), "has NaN in it, expected times"),
    "jumps by name": (dict(jump_ts={"on": 0.5}), "jump_ts holds .'on': 0.5., expected real times"),
    "the solver's state": (dict(saveat=dfx.SaveAt(t1=True, solver_state=True)), r"got SaveAt\(solver_state=True\), which"),
    "max_steps true": (dict(max_steps=True), "max_steps = True, expected a positive integer"),
    "clipped controller": (
        dict(stepsize_controller=dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-3, atol=1e-6), jump_ts=jnp.ones(1))),
        "got ClipStepSizeController",
    ),
    "diffrax's adjoint": (
        dict(adjoint=dfx.DirectAdjoint()),
        "adjoint is a DirectAdjoint, expected an instance of Abstract",
    ),
    "class of a solver": (dict(solver=dfx.Tsit5), r"solver is the class Tsit5, .* make an instance, Tsit5\(\)"),
    "no saveat": (dict(saveat=None), "saveat is a NoneType, expected an instance of SaveAt"),
    "no tolerance": (
        dict(stepsize_controller=dfx.PIDController(rtol=0.0, atol=0.0)),
        r"PIDController has rtol = 0.0 and atol = 0.0, expected tolerances of which .* one is positive",
    ),
    "controller": (dict(stepsize_controller=1e-3), "stepsize_controller is a float, expected an instance of"),
}


@pytest.mark.parametrize("kwargs, message", STATIC.values(), ids=STATIC)
def test_static_mistakes(kwargs, message):
    with pytest.raises(ValueError, match=message) as caught:
        solve(**kwargs)
    assert "\n" not in str(caught.value).split("\n-----")[0]


def notes(error):
    return "\n".join(error.__notes__)


def raises(error):
    def function(*arguments, **options):
        raise error

    return function


OWN = {
    "vector field": lambda f: dict(field=lambda t, y, delayed, args: f()),
    "history": lambda f: dict(history=lambda t: f()),
    "delays": lambda f: dict(delays=lambda t, y, args: f()),
    "event condition": lambda f: dict(event=dfx.Event(lambda t, y, args, **_: f())),
    "impulses.fn": lambda f: dict(impulses=lx.Impulses([1.0], lambda t, y, args: f())),
    "Integral": lambda f: dict(delays=lx.Integral(0.0, 1.0, of=lambda t, y, args: f())),
    "of delays": lambda f: dict(delays=lx.Each(jnp.ones(1), of=lambda y: f()), history=jnp.ones(1)),
}


@pytest.mark.parametrize("kind", [ValueError, TypeError, KeyError, eqx.EquinoxRuntimeError])
@pytest.mark.parametrize("where", OWN)
def test_a_users_own_error_stays_as_it_is(where, kind):
    error = kind("forward-mode is too cold")
    with pytest.raises(kind) as caught:
        solve(**OWN[where](raises(error)))
    assert caught.value is error and where in notes(error)


def test_what_a_field_was_called_with_is_noted():
    with pytest.raises(TypeError, match="list indices must be integers") as caught:
        solve(delays=[1.0, 2.0], history=jnp.ones(2), args=None, field=lambda t, y, d, a: d["fast"])
    assert "delayed = [f64[2], f64[2]], args = None." in notes(caught.value)
    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        solve(field=lambda t, y, d, a: -d if y > 0 else d)
    assert "jax.numpy.where or jax.lax.cond for `if`" in notes(caught.value)


def test_derivatives_that_there_are_not():
    """Reverse mode through forward mode and through itself, also where only the value is differentiated again."""
    small = {"solver": dfx.Heun(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.5}
    forwards = lambda a: solve(args=a, adjoint=lx.ForwardMode(), **small).ys[0]
    with pytest.raises(RuntimeError, match=r"reverse-mode derivative .* with ForwardMode, .* or use jax.jacfwd"):
        jax.eval_shape(jax.grad(forwards), 1.0)
    for adjoint, options in [
        (lx.DiscreteAdjoint(), {}),
        (lx.DiscreteAdjoint(), {"memory": 16}),
        (lx.ContinuousAdjoint(), {}),
    ]:
        value = lambda a, adjoint=adjoint, options=options: solve(args=a, adjoint=adjoint, **small, **options).ys[0]
        with pytest.raises(
            RuntimeError, match=r"\(grad of grad\) of ddesolve, expected forward over reverse: use jax.hessian"
        ):
            jax.eval_shape(jax.grad(jax.grad(value)), 1.0)
    with pytest.raises(RuntimeError, match=r"use jax.hessian\(f\), or jax.jacfwd\(jax.grad\(f\)\)"):
        jax.eval_shape(jax.grad(lambda a: jax.value_and_grad(lambda a: solve(args=a, **small).ys[0])(a)[0]), 1.0)


def test_dense_solution_is_asked_for():
    first = solve()
    with pytest.raises(ValueError, match="dense"):
        solve(t0=2.0, t1=3.0, history=first)


def failing(**kwargs):
    return eqx.filter_jit(lambda: solve(throw=False, **kwargs))()


def test_too_few_steps():
    sol = failing(max_steps=1)
    assert sol.result == lx.RESULTS.max_steps_reached
    assert 0 < sol.stats["t_reached"] < 2
    with pytest.raises(eqx.EquinoxRuntimeError, match=r"max_steps.*stopped at t = "):
        solve(max_steps=1)


@pytest.mark.parametrize("controller, dt0", [(dfx.PIDController(rtol=1e-3, atol=1e-6), None), (dfx.ConstantStepSize(), 0.1)])
def test_nan_from_the_vector_field(controller, dt0):
    field = lambda t, y, delayed, args: jnp.where(t < 0.75, -delayed, jnp.nan)
    kwargs = dict(field=field, stepsize_controller=controller, dt0=dt0)
    sol = failing(**kwargs)
    assert sol.result == lx.RESULTS.field_nonfinite
    assert abs(sol.stats["t_reached"] - 0.75) < 0.11
    with pytest.raises(eqx.EquinoxRuntimeError, match=r"NaN or infinity.*stopped at t = 0\.[78]"):
        solve(**kwargs)


def test_nan_at_the_start():
    assert failing(field=lambda t, y, delayed, args: y * jnp.nan).result == lx.RESULTS.field_nonfinite


def test_values_known_only_at_run_time():
    run = jax.jit(lambda tau, t1: solve(tau, t1=t1, throw=False).result == lx.RESULTS.successful)
    assert run(1.0, 2.0) and not run(-1.0, 2.0) and not run(jnp.nan, 2.0) and not run(1.0, -1.0)
    delay = jax.jit(lambda tau: solve(tau, throw=False).result == lx.RESULTS.bad_delay)
    assert delay(0.0)
    saved = jax.jit(lambda ts: solve(saveat=dfx.SaveAt(ts=ts), throw=False).result == lx.RESULTS.bad_ts)
    assert saved(jnp.array([1.0, 0.5])) and saved(jnp.array([1.0, 3.0])) and not saved(jnp.array([0.5, 1.0]))


def test_failure_inside_jit_is_raised():
    with pytest.raises(eqx.EquinoxRuntimeError, match="A delay is not a positive"):
        eqx.filter_jit(lambda tau: solve(tau).ys)(jnp.array(-1.0))


def test_dtmin_reached():
    controller = dfx.PIDController(rtol=1e-8, atol=1e-8, dtmin=0.3, force_dtmin=False)
    fast = lambda t, y, delayed, args: -50 * y + delayed
    assert failing(stepsize_controller=controller, dt0=0.5, field=fast).result == lx.RESULTS.dt_min_reached


def test_an_ordinary_term():
    with pytest.raises(ValueError, match=r"term is an ODETerm, expected an instance of DelayTerm: pass lagrax.DelayTerm"):
        inspect.unwrap(lx.ddesolve)(dfx.ODETerm(lambda t, y, args: -y), dfx.Tsit5(), 0.0, 1.0, None, 1.0)


def test_delays_before_the_field():
    term = eqx.tree_at(lambda term: term.vector_field, lx.DelayTerm(decay, 1.0), 1.0)
    with pytest.raises(ValueError, match=r"vector field is a float, .* takes the vector field first, and then"):
        inspect.unwrap(lx.ddesolve)(term, dfx.Tsit5(), 0.0, 1.0, None, 1.0)


def test_numpy_integers_are_integers():
    assert solve(max_steps=np.int64(100)).stats["max_steps"] == 100
