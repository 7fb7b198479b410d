"""A call of `ddesolve` laid out: the state as one flat vector, functions without closures, and how to integrate."""

import dataclasses

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from ._call import Call
from ._check import check_history_slope, check_lag_value, check_vector_field
from ._distributed import Given, with_integrals
from ._given import declared, history_function, known_until, time_dtype
from ._impulses import with_kicks
from ._lag import AbstractLag, are_planned, is_lag
from ._network._network import network_of
from ._output._event import convert_events
from ._problem import Problem, ravel
from ._setup import Keep, Setup, make_setup
from ._term import DelayTerm
from ._xla._closure import with_closure


def laid_out(call: Call) -> tuple[Problem, Setup]:
    """The problem with its state laid out flat, and how to integrate it."""
    problem = _make_problem(call)
    keep = Keep(
        output=call.output,
        steps=call.event is not None or call.saveat.dense or any(_reads_steps(sub, call) for sub in call.subs),
        derivatives=call.output and (any(problem.slopes) or any(lag.reads_slope for lag in problem.lags)),
    )
    # A step has no derivative: what the mesh does is frozen.
    dt0 = None if call.dt0 is None else lax.stop_gradient(jnp.asarray(call.dt0, problem.t0.dtype))
    directions = None if call.event is None else call.event.direction
    setup = make_setup(call.solver, call.controller, dt0, call.max_steps, directions=directions, meter=call.meter, keep=keep)
    setup = dataclasses.replace(setup, memory=call.memory)
    call.adjoint.check(problem, setup, call.saveat)
    return (problem if call.memory is None else _with_output(problem, call)), setup


def observed_times(call: Call, problem: Problem) -> Float[Array, " times"]:
    """All of the `ts` at which something is saved, one list after the other."""
    wanted = [jnp.asarray(sub.ts, problem.t0.dtype) for sub in call.subs if sub.ts is not None]
    return jnp.concatenate([jnp.zeros(0, problem.t0.dtype), *wanted])


def _make_problem(call: Call) -> Problem:
    """The problem with its state laid out flat."""
    lags, structure = jax.tree.flatten(call.term.lags(), is_leaf=is_lag)
    planned = are_planned(lags)
    delays = [lag.inner.delay for lag in lags] if planned else []
    network = network_of(lags, sum(leaf.size for leaf in jax.tree.leaves(call.state)))
    if network is not None:
        delays = jax.tree.leaves(eqx.filter(lags, eqx.is_inexact_array))
    dtype = time_dtype(call.state, call.t0, call.t1, call.dt0, *delays)
    time = lambda t: jnp.asarray(t, dtype)
    t0, args = time(call.t0), call.args
    jump_ts, roughness = declared(call.jump_ts, call.history, dtype)
    past = history_function(call.history)
    given = Given(call.term.delays, call.state, call.history, past, jump_ts, t0, args, call.solver, call.controller)
    state, history, sums, sound = with_integrals(call.term.vector_field, given)
    past = history_function(history)
    with jax.numpy_dtype_promotion("standard"):
        y0, unravel = ravel_pytree(state)
    whole = [state] * len(lags)
    delayed = jax.tree.unflatten(structure, whole if network is None else network.examples(whole))
    if sums is not None:
        delayed = (delayed, sums.trees(sums.at_start))
    check_vector_field(call.term.vector_field, t0, state, delayed, args)
    if past is not None and any(lag.reads_slope for lag in lags):
        check_history_slope(past, t0)
    problem = Problem(
        vector_field=with_closure(call.term.vector_field, t0, state, delayed, args),
        args=args,
        delays=jnp.stack([time(delay) for delay in delays]) if planned else jnp.zeros(0, dtype),
        history=ravel(history, y0.dtype) if past is None else with_closure(past, t0),
        y0=y0,
        t0=t0,
        t1=time(call.t1),
        jump_ts=jump_ts,
        events=None if call.event is None else convert_events(call.event, t0, state, args),
        history_end=lax.stop_gradient(known_until(call.history, dtype)),
        unravel=unravel,
        delay_structure=structure,
        # (A solution that is continued without a y0 goes on where it was.)
        may_jump=call.y0_given or (past is not None and not isinstance(call.history, dfx.Solution)),
        roughness=roughness,
        lags=() if planned else tuple(lags if network is not None else _converted(call.term, t0, call.state, args)),
        slopes=tuple(lag.reads_slope for lag in lags) if planned and any(lag.reads_slope for lag in lags) else (),
        network=network,
        sums=sums,
        sound=sound,
        chained=state is not call.state,
    )
    if call.impulses is None or not len(call.impulses.ts):
        return problem
    if network is not None:
        raise ValueError(
            "got impulses with a large array of delays (Each), expected few or single delays: use fewer elements"
        )
    return with_kicks(problem, call.impulses, call.state)


def _with_output(problem: Problem, call: Call) -> Problem:
    """With the function whose values are saved on the way, if it is one and returns numbers such as the state's."""
    saved = [sub for sub in call.subs if sub.ts is not None]
    if len(saved) != 1 or saved[0].fn is dfx.SubSaveAt(t1=True).fn:
        return problem
    state = problem.unravel(problem.y0)
    leaves = jax.tree.leaves(eqx.filter_eval_shape(saved[0].fn, problem.t0, state, call.args))
    if not leaves or any(getattr(leaf, "dtype", None) != problem.y0.dtype for leaf in leaves):
        return problem
    return dataclasses.replace(problem, output=with_closure(saved[0].fn, problem.t0, state, call.args))


def _converted(term: DelayTerm, t: Float[Array, ""], state: PyTree, args: PyTree) -> list[AbstractLag]:
    """The delays, with what their functions close over among their leaves."""
    converted = []
    for path, lag in jax.tree_util.tree_leaves_with_path(term.lags(), is_leaf=is_lag):
        check_lag_value(f"delays{jax.tree_util.keystr(path)}", lag, t, state, args)
        function = lag.function()
        if function is not None:
            lag = lag.with_function(with_closure(function, t, state, args))
        converted.append(lag)
    return converted


def _reads_steps(sub: dfx.SubSaveAt, call: Call) -> bool:
    """Whether steps are read to save what is wanted. (The state at t0 may be kicked.)"""
    return sub.ts is not None or bool(sub.steps) or (sub.t0 and call.impulses is not None)
