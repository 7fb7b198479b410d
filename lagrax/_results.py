"""How a solve ended."""

import diffrax as dfx
import jax.numpy as jnp


class RESULTS(dfx.RESULTS):
    """diffrax's result codes, and those that only a delay equation has."""

    successful = ""
    field_nonfinite = (
        "The vector field returned NaN or infinity (at the time in `sol.stats['t_reached']`): check it, its `args` and the "
        "history there, or tighten the tolerances."
    )
    bad_delay = (
        "A delay is not a positive finite number, or shorter than its `minimum`: keep every delay above zero, for example "
        "with a bounded parameter, and `minimum` below all of its values."
    )
    advanced_argument = (
        "A delay became negative (at the time in `sol.stats['t_reached']`), so that the equation looks into the future: "
        "keep the delay at zero or above, and the time of `lagrax.At` at t or before."
    )
    lag_nonfinite = (
        "A delay became NaN or infinite (at the time in `sol.stats['t_reached']`): check its function and its `args` "
        "there, or tighten the tolerances."
    )
    no_convergence = (
        "The iteration of a step that is longer than a delay did not converge: pass a smaller dt0, or adaptive steps with a "
        "PIDController. (Where the delay of a derivative vanishes, it does not if the field depends on it too strongly.)"
    )
    bad_selection = (
        "The `of` of a lagrax.Each computes, where it may only select components of the state: compute with what it selects "
        "in the vector field."
    )
    rough_history = (
        "The history is too rough between t0 - the longest delay and t0 to be tabulated for a network within the tolerance: "
        "declare the times at which it jumps or kinks in `jump_ts`, smooth it, or loosen the tolerance."
    )
    bad_times = "t1 is not after t0, or one of them is not finite: a delay equation is solved forwards, from t0 to t1 > t0."
    bad_intervals = "`num_intervals` of the adjoint is not (t1 - t0)/delay rounded up: pass that number."
    bad_ts = "`saveat.ts` is not sorted, or leaves [t0, t1]: pass increasing times inside the interval."
    bad_jumps = "A time in `jump_ts` is NaN: pass numbers, and -inf for jumps that there are not."
    bad_dt0 = "dt0 is not a positive number: pass a positive first step, or None with an adaptive controller."
    bad_state = "The initial state is NaN or infinite: check y0, or the history at t0."
    bad_event = (
        "An event condition returned NaN (at the time in `sol.stats['t_reached']`): return a number or a boolean for every "
        "state that the solution may come to."
    )
    bad_history = (
        "t0 lies after the end of the solution that is to be continued: start where it ends, or solve it further first."
    )
    bad_integral = (
        "An integral over the past cannot be computed to the tolerance: its kernel, or the history, jumps or kinks inside "
        "(pass `kinks` of the Integral, `jump_ts` of the solve), is not integrable, or outgrows the decay of the kernel."
    )
    bad_precision = (
        "A delay is shorter than 128 spacings of the floating-point numbers at t0 or t1, where it drowns in rounding: shift "
        "time towards 0, or compute in float64."
    )
    memory_reached = (
        "A delay looks further back than `memory` has rows (at the time in `sol.stats['t_reached']`): pass memory = the "
        "rows in `sol.stats['memory_needed']`, or longer steps."
    )
    bad_impulses = (
        "`ts` of the impulses is not sorted, or leaves t0 ≤ t < t1: pass increasing times inside the interval, and inf for "
        "kicks that there are not."
    )
    bad_kick = (
        "An impulse made the state NaN or infinite (at the time in `sol.stats['t_reached']`): check `fn` of the impulses "
        "there."
    )


def failed(result: RESULTS):
    """Whether a solve ended for another reason than success or an event."""
    return jnp.asarray((result != RESULTS.successful) & (result != RESULTS.event_occurred))
