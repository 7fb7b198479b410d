"""A call of `ddesolve`: its arguments, after all that can be seen to be wrong with them was looked for."""

import operator
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from ._adjoint import AbstractAdjoint
from ._check import (
    check_continued,
    check_functions,
    check_jumps,
    check_kind,
    check_lags,
    check_steps,
    check_times,
    concrete,
)
from ._distributed import WithIntegrals, expand, of_states
from ._given import initial_state, with_arrays
from ._impulses import Impulses, check_impulses
from ._lag import are_planned, is_lag
from ._network._select import prepared
from ._ring import rows_of
from ._setup import UNLIMITED
from ._term import DelayTerm


class Call(eqx.Module):
    """The arguments of `ddesolve`, checked. `state` is y(t0)."""

    term: DelayTerm
    t0: Any
    t1: Any
    dt0: Any
    args: PyTree
    jump_ts: Any
    impulses: Impulses | None
    history: Any
    state: PyTree[Array]
    solver: dfx.AbstractSolver
    controller: dfx.AbstractStepSizeController
    adjoint: AbstractAdjoint
    saveat: dfx.SaveAt
    event: dfx.Event | None
    meter: dfx.AbstractProgressMeter
    y0_given: bool = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    memory: int | None = eqx.field(static=True)
    output: bool = eqx.field(static=True)
    """Whether states between mesh points are read."""

    @property
    def subs(self) -> list[dfx.SubSaveAt]:
        return _subs(self.saveat)


def checked_call(
    term, solver, t0, t1, dt0, history, args, y0, saveat, stepsize_controller, adjoint,
    jump_ts, impulses, event, max_steps, memory, progress_meter,
) -> Call:  # fmt: skip
    """The arguments of `ddesolve`, all but `throw`, after all that can be seen to be wrong with them was looked for."""
    check_kind(
        "term", term, DelayTerm, "pass lagrax.DelayTerm(vector_field, delays), or solve an ODE with diffrax.diffeqsolve"
    )
    check_kind("solver", solver, dfx.AbstractSolver, "pass a diffrax solver, such as diffrax.Tsit5()")
    check_kind("saveat", saveat, dfx.SaveAt, "pass diffrax.SaveAt(t1=True), or what else you want")
    check_kind("stepsize_controller", stepsize_controller, dfx.AbstractStepSizeController, "pass diffrax.PIDController(...)")
    check_kind("adjoint", adjoint, AbstractAdjoint, "pass one of lagrax's own, such as lagrax.DiscreteAdjoint()")
    check_functions(term.vector_field, saveat, event)
    check_lags(term.lags())
    check_times(t0, t1, dt0, saveat, UNLIMITED if max_steps is None and memory is not None else max_steps)
    check_jumps(jump_ts)
    if impulses is not None:
        check_impulses(impulses, t0, t1)
    check_steps(solver, stepsize_controller, dt0)
    if isinstance(history, dfx.Solution):
        check_continued(history, t0)
    term = expand(term, t0, t1)
    if isinstance(term.vector_field, WithIntegrals) and term.vector_field.chains:
        saveat, event = of_states(saveat, event)
    rows = rows_of(memory, term, dt0, saveat, event, stepsize_controller, impulses is not None)
    # Plain floats become arrays here: as they are, each new value would be compiled anew.
    times = with_arrays((t0, t1, dt0, args, jump_ts, impulses))
    past = history if callable(history) else with_arrays(history)
    state = initial_state(past, y0, times[0])
    term = prepared(term, state)
    return Call(
        with_arrays(term),
        *times,
        history=past,
        state=state,
        solver=solver,
        controller=stepsize_controller,
        adjoint=adjoint.prepared(t0, t1, term.lags()),
        saveat=saveat,
        event=event,
        meter=progress_meter,
        y0_given=y0 is not None,
        max_steps=UNLIMITED if max_steps is None else operator.index(max_steps),
        memory=rows,
        output=event is not None or adjoint.reads_output or _reads_output(term, t0, t1, saveat),
    )


def _subs(saveat: dfx.SaveAt) -> list[dfx.SubSaveAt]:
    return jax.tree.leaves(saveat.subs, is_leaf=lambda x: isinstance(x, dfx.SubSaveAt))


def _reads_output(term: DelayTerm, t0: Any, t1: Any, saveat: dfx.SaveAt) -> bool:
    """Whether any state between mesh points is read. The paper's image models (T = τ) look at nothing but their input:
    rows without interpolant take a fifth of the memory."""
    lags = jax.tree.leaves(term.lags(), is_leaf=is_lag)
    if not are_planned(lags):
        return True
    values = [concrete(t) for t in (t0, t1, *(lag.inner.delay for lag in lags))]
    if saveat.dense or any(sub.ts is not None for sub in _subs(saveat)) or any(value is None for value in values):
        return True
    start, end, *delays = [float(value) for value in values if value is not None]
    return end - start > min(delays)
