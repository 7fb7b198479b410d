"""Mistakes that can be seen before anything is compiled, each told in one sentence."""

import itertools
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._called import check_arguments, shown, users_own
from ._lag import Constant, Derivative, Each, Integral, is_lag
from ._method import method_of
from ._xla._compat import use_stepsize_tol


def concrete(x: Any) -> np.ndarray | None:
    """The value of x, or None while it is being traced."""
    return None if isinstance(x, jax.core.Tracer) else np.asarray(x)


def check_kind(name: str, value: Any, kind: type, remedy: str) -> None:
    """`value` must be an instance of `kind`."""
    if isinstance(value, kind):
        return
    word = type(value).__name__
    given = f"the class {value.__name__}" if isinstance(value, type) else f"a{'n' * (word[0].lower() in 'aeiou')} {word}"
    if isinstance(value, type) and issubclass(value, kind):
        remedy = f"make an instance, {value.__name__}()"
    raise ValueError(f"{name} is {given}, expected an instance of {kind.__name__}: {remedy}")


def check_functions(vector_field: Any, saveat: dfx.SaveAt, event: Any) -> None:
    """The functions of a solve must take what they will be called with."""
    if not callable(vector_field):
        raise ValueError(
            f"the vector field is a {type(vector_field).__name__}, expected a function (t, y, delayed, args): "
            "lagrax.DelayTerm takes the vector field first, and then the delays"
        )
    check_arguments("the vector field", vector_field, "t, y, delayed, args")
    for sub in jax.tree.leaves(saveat.subs, is_leaf=lambda x: isinstance(x, dfx.SubSaveAt)):
        check_arguments("`saveat.fn`", sub.fn, "t, y, args")
    if event is None:
        return
    check_kind("event", event, dfx.Event, "pass diffrax.Event(condition), or None")
    for condition in jax.tree.leaves(event.cond_fn, is_leaf=callable):
        check_arguments("an event condition", condition, "t, y, args")


def check_lags(lags: Any) -> None:
    """Every delay must be a positive number or a function `(t, y, args)`."""
    leaves = jax.tree_util.tree_leaves_with_path(lags, is_leaf=is_lag)
    if not leaves:
        raise ValueError("got no delays, expected at least one: for an equation without delay use diffrax.diffeqsolve")
    if any(isinstance(lag, Integral) for _, lag in leaves) and any(isinstance(lag, Each) for _, lag in leaves):
        raise ValueError(
            "got a lagrax.Each beside a lagrax.Integral, expected one or the other: make the integral a state of its own, "
            "which a delay may read"
        )
    for path, lag in leaves:
        name = f"delays{jax.tree_util.keystr(path)}"
        if isinstance(lag, Integral):
            _check_integral(name, lag)
            continue
        given, lag = lag, lag.inner
        if isinstance(lag, Derivative):
            raise ValueError(f"{name} is the derivative of a derivative, expected one: write the equation as a system")
        if isinstance(lag, Constant):
            _check_constant(name, lag)
            continue
        if isinstance(lag, Each):
            _check_each(name, lag, given)
            continue
        if lag.function() is not None:
            check_arguments(name, lag.function(), "t, y, args")
        _check_minimum(name, lag)


def _check_constant(name: str, lag: Any) -> None:
    delay = lag.delay
    if not eqx.is_array_like(delay) or isinstance(delay, bool):
        raise ValueError(
            f"{name} is {type(delay).__name__}, expected a positive number or a function (t, y, args) -> delay: pass a "
            "scalar, a scalar array or such a function"
        )
    if jnp.issubdtype(jnp.result_type(delay), jnp.complexfloating):
        raise ValueError(f"{name} is complex, expected a positive real number: take its real part")
    if jnp.shape(delay) != ():
        raise ValueError(f"{name} has shape {jnp.shape(delay)}, expected a scalar: pass several delays as a tuple or dict")
    value, least = concrete(delay), None if lag.minimum is None else concrete(lag.minimum)
    if value is not None and least is not None and value < least:
        raise ValueError(
            f"{name} = {value} has minimum = {least}, expected one it is not below: a number needs none, drop it"
        )
    if value is not None and not (np.isfinite(value) and value > 0) and not (value == 0 and lag.overlaps):
        raise ValueError(
            f"{name} = {value}, expected a positive finite number: change the sign or drop the delay (a delay of zero is "
            "lagrax.Lag(0.0, overlap=True))"
        )


def _check_each(name: str, lag: Any, given: Any) -> None:
    if given is not lag:
        raise ValueError(
            f"{name} is a {type(given).__name__} of lagrax.Each, expected one of a number or a function: pass "
            f"lagrax.{type(given).__name__} for each delay, or write the derivative as a state of its own"
        )
    if not eqx.is_array_like(lag.delays) or isinstance(lag.delays, bool):
        raise ValueError(
            f"{name} has delays that are a {type(lag.delays).__name__}, expected an array of real numbers: pass one, or a "
            "module that returns one when called without arguments"
        )
    kind = jnp.result_type(lag.delays)
    if not (jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer)):
        raise ValueError(f"{name} has delays of dtype {kind}, expected real numbers: cast them")
    if lag.of is not None and not callable(lag.of):
        raise ValueError(f"{name} has of = {lag.of!r}, expected a function of the state: pass of=lambda y: y[senders]")
    if lag.of is not None:
        check_arguments(f"{name}.of", lag.of, "y")
    if lag.minimum is not None:
        raise ValueError(f"{name} has a minimum, expected none: its delays are numbers, of which the least is known")
    values = concrete(lag.delays)
    if values is None:
        return
    bad = ~(np.isfinite(values) & (values >= 0)) if lag.overlaps else ~(np.isfinite(values) & (values > 0))
    if np.any(bad):
        place = np.unravel_index(int(np.argmax(bad)), values.shape)
        where = f"[{', '.join(str(int(i)) for i in place)}]" if place else ""
        raise ValueError(
            f"{name} has a delay{where} = {values[place]}, expected positive finite numbers (or zero, if they overlap): "
            "change the sign, or leave that connection out"
        )


def _check_integral(name: str, integral: Any) -> None:
    """The bounds must be numbers in order, and the kernel something that can be integrated between them."""
    for bound, value in (("lower", integral.lower), ("upper", integral.upper), *(("kinks", s) for s in integral.kinks)):
        check_number(f"{name}.{bound}", value, "pass a number, a scalar array or a module without arguments")
    lower, upper = concrete(integral.lower), concrete(integral.upper)
    edges = [lower, *(concrete(s) for s in integral.kinks), upper]
    if lower is not None and not (np.isfinite(lower) and lower >= 0):
        raise ValueError(f"{name}.lower = {lower}, expected a finite number that is not negative: an integral over the past")
    known = [float(edge) for edge in edges if edge is not None]
    if any(not a < b for a, b in itertools.pairwise(known)):
        between = " with its kinks between them, in order" if integral.kinks else ""
        raise ValueError(f"{name} has the bounds {lower} and {upper}, expected lower < upper{between}: put them in order")
    if integral.of is not None:
        check_arguments(f"{name}.of", integral.of, "t, y, args")
    kernel = integral.kernel
    if integral.is_chain:
        if integral.kinks:
            raise ValueError(f"{name} has kinks and the kernel {type(kernel).__name__}, which has none: drop them")
        if upper is not None and np.isinf(upper) and kernel.reach() is None:
            raise ValueError(
                f"{name} has an infinite upper bound and the kernel {type(kernel).__name__}, expected one that decays: pass "
                "kernel=lagrax.Gamma(shape, rate), or a finite bound"
            )
        return
    if not callable(kernel) or isinstance(kernel, type):
        given = f"the class {kernel.__name__}" if isinstance(kernel, type) else f"a {type(kernel).__name__}"
        raise ValueError(f"{name}.kernel is {given}, expected Uniform(), Gamma(shape, rate) or a function of s")
    check_arguments(f"{name}.kernel", kernel, "s")
    if upper is not None and np.isinf(upper):
        raise ValueError(
            f"{name} has an infinite upper bound and a function as its kernel, expected a finite one: cut it off where the "
            "kernel is negligible, or pass kernel=lagrax.Gamma(shape, rate)"
        )


def check_integrals(lags: Any, t: Any, y: Any, args: Any) -> list[Any]:
    """What each of the delays and integrals stands for, as shapes; what an integral is `of` must be arrays of numbers."""
    shapes = []
    for lag in lags:
        if not isinstance(lag, Integral):
            shapes.append(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), y))
            continue
        value = lambda t, y, args, lag=lag: jax.tree.map(jnp.asarray, lag.value(t, y, args))
        with users_own("`of` of an Integral", "t, y, args", t, y, args):
            out = eqx.filter_eval_shape(value, t, y, args)
        leaves = jax.tree.leaves(out)
        if not leaves or not all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves):
            given = ", ".join(str(leaf.dtype) for leaf in leaves) or "nothing"
            raise ValueError(f"`of` of an Integral returned {given}, expected floating-point arrays: use .astype(float)")
        if not lag.is_chain:
            _check_kernel(lag.kernel, t)
        shapes.append(out)
    return shapes


def _check_kernel(kernel: Callable, t: Any) -> None:
    with users_own("the kernel of an Integral", "s", t):
        out = eqx.filter_eval_shape(lambda s: jnp.asarray(kernel(s)), t)
    if out.shape != () or not jnp.issubdtype(out.dtype, jnp.floating):
        raise ValueError(
            f"the kernel of an Integral returned shape {out.shape} and dtype {out.dtype}, expected one real number: weight "
            "components in `of`"
        )


def _check_minimum(name: str, lag: Any) -> None:
    if lag.minimum is None:
        if lag.overlap is False:
            raise ValueError(
                f"{name} has overlap = False and no minimum, expected a bound that steps keep to: pass minimum = the least "
                "value of the delay"
            )
        return
    check_number(f"{name}.minimum", lag.minimum, "pass a positive number, or None")
    value = concrete(lag.minimum)
    if value is not None and not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name}.minimum = {value}, expected a positive finite number: leave it out if there is none")
    if lag.overlap:
        raise ValueError(
            f"{name} has minimum = {lag.minimum} and overlap = True, expected one of them: with a minimum steps never "
            "overlap"
        )


def check_lag_value(name: str, lag: Any, t: Any, y: Any, args: Any) -> None:
    """Traces a delay once; it must be one real number."""
    with users_own(name, "t, y, args", t, y, args):
        out = eqx.filter_eval_shape(lag.function() or lag.time, t, y, args)
    shape, dtype = getattr(out, "shape", None), getattr(out, "dtype", type(out))
    if shape is None and isinstance(out, int | float) and not isinstance(out, bool):
        return
    if shape != () or not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
        raise ValueError(
            f"{name} returned shape {shape} and dtype {dtype}, expected (t, y, args) -> one real number: reduce it to "
            "a scalar"
        )


def check_number(name: str, x: Any, remedy: str = "pass a number or a scalar array") -> None:
    """`x` must be one real number."""
    if not eqx.is_array_like(x) or isinstance(x, bool):
        raise ValueError(f"{name} is {x!r}, expected one real number: {remedy}")
    if jnp.shape(x) != () or not jnp.issubdtype(jnp.result_type(x), jnp.number) or jnp.iscomplexobj(x):
        given = f"shape {jnp.shape(x)} and dtype {jnp.result_type(x)}"
        raise ValueError(f"{name} has {given}, expected one real number: {remedy}")


def check_jumps(jump_ts: Any) -> None:
    for jumps in [jump_ts] if isinstance(jump_ts, dict) else jax.tree.leaves(jump_ts):
        if not eqx.is_array_like(jumps) or not jnp.issubdtype(jnp.result_type(jumps), jnp.number) or jnp.iscomplexobj(jumps):
            raise ValueError(f"jump_ts holds {jumps!r}, expected real times: pass an array of them")
        values = concrete(jumps)
        if values is not None and np.any(np.isnan(values)):
            raise ValueError(f"jump_ts = {values} has NaN in it, expected times: drop those, or write -inf for no jump")


def check_times(t0: Any, t1: Any, dt0: Any, saveat: dfx.SaveAt, max_steps: Any) -> None:
    check_number("t0", t0)
    check_number("t1", t1)
    if dt0 is not None:
        check_number("dt0", dt0, "pass a positive number, or None to have it selected")
    start, end = concrete(t0), concrete(t1)
    if start is not None and end is not None and not (np.isfinite(start) and np.isfinite(end) and start < end):
        raise ValueError(
            f"got t0 = {start} and t1 = {end}, expected finite t0 < t1: a delay equation is only solved forwards in time"
        )
    if not isinstance(max_steps, int | np.integer) or isinstance(max_steps, bool) or max_steps < 1:
        raise ValueError(
            f"max_steps = {max_steps!r}, expected a positive integer: the history needs room whose size is known in advance "
            "(None is possible with memory = rows)"
        )
    for name in ("solver_state", "controller_state", "made_jump"):
        if getattr(saveat, name):
            raise ValueError(f"got SaveAt({name}=True), which lagrax does not have, expected states: leave it out")
    if saveat.subs is None and not saveat.dense:
        raise ValueError("`saveat` saves nothing, expected at least one of t0, t1, ts, steps or dense: set one")
    for sub in jax.tree.leaves(saveat.subs, is_leaf=lambda x: isinstance(x, dfx.SubSaveAt)):
        if sub.ts is not None and (jnp.ndim(sub.ts) != 1 or jnp.iscomplexobj(sub.ts)):
            given = f"shape {jnp.shape(sub.ts)} and dtype {jnp.result_type(sub.ts)}"
            raise ValueError(f"`saveat.ts` has {given}, expected a list of real times: pass a one-dimensional array")
        ts = None if sub.ts is None else concrete(sub.ts)
        if ts is None or ts.size == 0:
            continue
        if not np.all(np.isfinite(ts)) or np.any(np.diff(ts) < 0):
            raise ValueError("`saveat.ts` is not sorted (or not finite), expected increasing times: sort them")
        outside = (start is not None and ts[0] < start) or (end is not None and ts[-1] > end)
        if outside:
            raise ValueError(
                f"`saveat.ts` runs from {ts[0]} to {ts[-1]}, expected times inside [t0, t1] = [{start}, {end}]: drop others"
            )


def check_steps(solver: dfx.AbstractSolver, controller: dfx.AbstractStepSizeController, dt0: Any) -> None:
    """The solver, the controller and the first step must go together."""
    if isinstance(controller, dfx.ClipStepSizeController):
        raise ValueError(
            "got ClipStepSizeController, expected a controller without times of its own: pass the one inside it, and its "
            "jump_ts (and step_ts) as ddesolve(..., jump_ts=...), where steps end exactly on them"
        )
    method, adaptive = method_of(solver), isinstance(controller, dfx.AbstractAdaptiveStepSizeController)
    if dt0 is None and not (adaptive or isinstance(controller, dfx.StepTo)):
        raise ValueError("dt0 is None, expected the step size when steps are fixed: pass dt0 or an adaptive controller")
    step = None if dt0 is None else concrete(dt0)
    if step is not None and not step > 0:
        raise ValueError(f"dt0 = {dt0}, expected a positive step: time runs forwards")
    given = [concrete(getattr(controller, name, 1.0)) for name in ("rtol", "atol")]
    known = [value for value in given if value is not None]
    if len(known) == 2 and not (all(np.all(x >= 0) for x in known) and any(np.any(x > 0) for x in known)):
        raise ValueError(
            f"{type(controller).__name__} has rtol = {given[0]} and atol = {given[1]}, expected tolerances of which none is "
            "negative and one is positive: pass such as rtol=1e-3, atol=1e-6"
        )
    if adaptive and method.b_error is None:
        raise ValueError(
            f"{type(solver).__name__} has no error estimate, expected one for adaptive steps: pass dt0 and "
            "stepsize_controller=diffrax.ConstantStepSize()"
        )
    missing = unset_tolerances(solver)
    if missing and not adaptive:
        raise ValueError(
            f"{type(solver).__name__} has a root finder without {', '.join(missing)} and steps are fixed, expected explicit "
            "tolerances: pass root_finder=optimistix.Newton(rtol=..., atol=...)"
        )


def unset_tolerances(solver: Any) -> list[str]:
    """Which tolerances of an implicit solver's root finder are to be those of the step size controller."""
    finder = getattr(solver, "root_finder", None)
    return [name for name in ("rtol", "atol", "norm") if getattr(finder, name, None) is use_stepsize_tol]


def check_continued(history: dfx.Solution, t0: Any) -> None:
    """A solution that is continued must have dense output up to t0."""
    if history.interpolation is None:
        raise ValueError("the history is a Solution without dense output, expected one solved with SaveAt(dense=True)")
    start, end = concrete(t0), concrete(history.t1)
    if start is not None and end is not None and end.ndim == 0 and start > end + 1e-6 * abs(end):
        raise ValueError(
            f"t0 = {start}, expected at most {end}, where the solution to be continued ends: start there, or solve it "
            "further first"
        )


def check_state(name: str, state: Any) -> None:
    """`state` must be a PyTree of real or complex floating-point arrays."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    if sum(np.size(leaf) for _, leaf in leaves) == 0:
        raise ValueError(f"{name} is empty, expected a state of at least one number: pass an array or a PyTree of them")
    for path, leaf in leaves:
        where = f"{name}{jax.tree_util.keystr(path)}"
        if not eqx.is_array_like(leaf):
            raise ValueError(f"{where} is {type(leaf).__name__}, expected an array: pass arrays, or a function of t")
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            raise ValueError(
                f"{where} has dtype {jnp.result_type(leaf)}, expected floating point: write 1.0 for 1, or use .astype(float)"
            )


def check_same_state(name: str, state: Any, expected: Any, dtypes: bool = True) -> None:
    """`state` must have the structure, shapes and dtypes of `expected`, the initial state."""
    got: Any = jax.tree.structure(state)
    want: Any = jax.tree.structure(expected)
    if got != want:
        in_one = isinstance(state, list | tuple) and eqx.is_array(expected)
        remedy = "return it" if state is None else "use jax.numpy.stack" if in_one else "make the two alike"
        raise ValueError(
            f"{name} has structure {shown(state)}, expected that of the initial state, {shown(expected)}: {remedy}"
        )
    for (path, leaf), other in zip(jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(expected), strict=True):
        where = f"{name}{jax.tree_util.keystr(path)}"
        if not hasattr(leaf, "shape"):
            given = f"the {type(leaf).__name__} {leaf!r}"
            raise ValueError(
                f"{where} is {given}, expected an array of shape {other.shape}: use jnp.full_like or zeros_like"
            )
        if leaf.shape != other.shape:
            raise ValueError(
                f"{where} has shape {leaf.shape}, expected {other.shape} as in the initial state: make the two alike"
            )
        if dtypes and leaf.dtype != other.dtype:
            raise ValueError(
                f"{where} has dtype {leaf.dtype}, expected {other.dtype} as in the initial state: cast one of them"
            )
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating) and not jnp.issubdtype(other.dtype, jnp.complexfloating):
            raise ValueError(f"{where} is complex but the initial state is real: make the initial state complex")


def check_history_slope(past: Callable, t: Any) -> None:
    """A history that a delayed derivative looks at must have one."""
    try:
        jax.eval_shape(lambda t: jax.jvp(past, (t,), (jnp.ones_like(t),)), t)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"the history has no derivative ({reason}), expected one, because a lagrax.Derivative looks at it: write it "
            "with jax.numpy, or give it a jax.custom_jvp"
        ) from error


def check_vector_field(vector_field: Callable, t, y: Any, delayed: Any, args: Any) -> None:
    """Traces the vector field once; its output must be shaped like the state."""
    with users_own("the vector field", "t, y, delayed, args", t, y, delayed, args):
        out = eqx.filter_eval_shape(vector_field, t, y, delayed, args)
    check_same_state("the vector field's output", out, y, dtypes=False)
