"""Breakpoints and lookups, as properties of random delays, jumps and meshes."""

import itertools

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lagrax as lx
from lagrax._method import method_of
from lagrax._past import Past
from lagrax._planned import _breakpoints as bp
from lagrax._planned._lookup import WINDOW, Sides, find_rows
from lagrax._problem import Problem

T1 = 3.0


def problem_with(delays, jumps=(), may_jump=True):
    return Problem(
        vector_field=lambda t, y, delayed, args: y,
        args=None,
        delays=jnp.asarray(delays),
        history=jnp.zeros(1),
        y0=jnp.zeros(1),
        t0=jnp.array(0.0),
        t1=jnp.array(T1),
        jump_ts=jnp.sort(jnp.asarray(jumps, float)),
        events=None,
        history_end=jnp.array(jnp.inf),
        unravel=lambda y: y,
        delay_structure=jax.tree.structure((0,) * len(delays)),
        may_jump=may_jump,
    )


def generate(problem, order):
    """All breakpoints up to T1, in the order in which the loop would meet them."""
    sources = bp.initial_sources(problem, order, max_steps=1024)
    deepest = bp.deepest_level(order, problem.delays.size)
    advance = jax.jit(lambda s: (bp.pass_breakpoint(s, problem, deepest)[0], bp.segment_ahead(s, problem).end))
    found = []
    while True:
        sources, time = advance(sources)
        if time >= T1:
            return found
        found.append(float(time))


def enumerate_kinks(delays, jumps, order, may_jump):
    """The same by brute force: every combination of delays, from every root, up to its level."""
    echoes = lambda n: (sum(c) for c in itertools.combinations_with_replacement(delays, n))
    roots = [(0.0, bp.JUMP if may_jump else bp.KINK)]
    for jump in jumps:
        # The past does not follow the equation: a jump in it matters from its first echo after t0 on.
        roots += [(jump, bp.KINK)] if jump > 0 else [(jump + d, bp.KINK) for d in delays if jump + d > 1e-9]
    times = [root for root, _ in roots]
    for root, level in roots:
        times += [root + echo for n in range(1, order - level + 1) for echo in echoes(n)]
    return np.unique(np.round([t for t in times if 1e-9 < t < T1 - 1e-9], 9))


delay = st.floats(0.3, 2.0).map(lambda x: round(x, 3))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    delays=st.lists(delay, min_size=2, max_size=2),
    jump=st.floats(-1.5, 2.5).map(lambda x: round(x, 3)),
    kinked=st.booleans(),
)
def test_lazy_generation_finds_all(delays, jump, kinked):
    found = generate(problem_with(delays, [jump], not kinked), order=2)
    assert found == sorted(found)
    np.testing.assert_allclose(
        np.unique(np.round(found, 9)), enumerate_kinks(delays, [jump] if abs(jump) > 1e-9 else [], 2, not kinked), atol=2e-9
    )


def test_commensurate_delays_merge_unless_y_jumps():
    """0.1, 0.2, …, 0.5 have 251 combinations to level 5 below 3, at 25 different times."""
    delays = [0.1, 0.2, 0.3, 0.4, 0.5]
    smooth = generate(problem_with(delays, may_jump=False), order=4)
    assert len(smooth) <= 30
    equal = generate(problem_with([1.0, 1.0], may_jump=True), order=1)
    # Each of the two equal delays has its own echo of the jump at t = 1; what follows at 2 is merged.
    assert equal.count(1.0) == 2 and equal.count(2.0) <= 2


def test_smoothest_kinks_are_dropped_first():
    assert bp.deepest_level(5, 1) == 5
    assert bp.deepest_level(8, 3) == 8
    assert bp.deepest_level(5, 20) == 2
    assert all(bp.deepest_level(8, n) >= 1 for n in range(1, 100))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=WINDOW),
    pointer=st.integers(0, 3),
    fraction=st.floats(0.0, 1.0),
)
def test_rows_are_found(lengths, pointer, fraction):
    """A query lies in its row, whatever the mesh; at the ends of the piece being read, in the row inside it."""
    points = np.concatenate([[0.0], np.cumsum(lengths)])
    padded = np.full(WINDOW, np.inf)
    padded[: len(lengths)] = points[:-1]
    query = points[-1] * fraction
    sides = Sides(jnp.array([0.0]), jnp.array([points[-1]]), jnp.array([False]))
    starts, count = jnp.asarray(padded)[None], jnp.int32(pointer + len(lengths))
    row = int(find_rows(starts, jnp.array([pointer], jnp.int32), jnp.array([[query]]), sides, count)[0, 0]) - pointer
    assert 0 <= row < len(lengths)
    assert points[row] <= query <= points[row + 1]
    # A rounding error beyond either end does not leave the piece.
    for outside, expected in ((-1e-12, 0), (points[-1] + 1e-12, len(lengths) - 1)):
        found = find_rows(starts, jnp.array([pointer], jnp.int32), jnp.array([[outside]]), sides, count)
        assert int(found[0, 0]) - pointer == expected


def test_a_time_between_two_rows_takes_either_side():
    starts = jnp.array([0.0, 1.0, 1.0, 2.0, jnp.inf])
    past = Past(jnp.zeros((4, 3)), starts, jnp.int32(4), jnp.int32(3))
    index = lambda t, left: int(past.holding(jnp.array(t), left))
    assert [index(1.0, True), index(1.0, False)] == [0, 2]
    assert [index(-1.0, True), index(0.0, True), index(9.0, False)] == [0, 0, 3]


def test_dense_output_of_every_solver_is_consistent():
    """p(0) = y by construction; p(1) = y1; and low powers of t are reproduced."""
    for solver in (dfx.Euler(), dfx.Heun(), dfx.Bosh3(), dfx.Tsit5(), dfx.Dopri5(), dfx.Dopri8(), dfx.Kvaerno4()):
        method = method_of(solver)
        np.testing.assert_allclose(method.dense.sum(axis=0), method.b, atol=2e-12)
        theta = np.linspace(0, 1, 11)
        exact_to = {dfx.Euler: 1, dfx.Heun: 2, dfx.Bosh3: 3, dfx.Kvaerno4: 3, dfx.Dopri8: 7}.get(type(solver), 4)
        for power in range(1, exact_to + 1):
            coefficients = method.dense @ (power * method.c ** (power - 1))
            values = theta[:, None] ** np.arange(1, len(coefficients) + 1) @ coefficients
            np.testing.assert_allclose(values, theta**power, atol=1e-11)


def test_step_longer_than_the_window_is_shortened():
    """Many declared jumps leave many short rows in the past; a later step reads at most a window of them."""
    jumps = jnp.linspace(0.01, 0.5, 50)
    sol = lx.ddesolve(
        lx.DelayTerm(lambda t, y, z, args: -z, 1.0), dfx.Tsit5(), 0.0, 3.0, None, 1.0, jump_ts=jumps,
        stepsize_controller=dfx.PIDController(rtol=1e-3, atol=1e-3),
    )  # fmt: skip
    np.testing.assert_allclose(sol.ys[0], 1 - 3 + 2**2 / 2 - 1 / 6, atol=1e-6)


def test_more_breakpoints_at_one_time_than_a_lookup_searches():
    """Numbers of one decimal meet often. The solve stood still at t = 4.6, behind rows of length zero."""
    field = lambda t, y, seen, args: -0.3 * sum(seen)

    def end(delays, memory=None):
        return lx.ddesolve(
            lx.DelayTerm(field, tuple(delays)), dfx.Tsit5(), 0.0, 5.25, None, jnp.cos, y0=0.7,
            jump_ts=[-1.8, -1.2, -0.6], max_steps=512, memory=memory, stepsize_controller=dfx.PIDController(1e-8, 1e-8),
        ).ys[0]  # fmt: skip

    delays = jnp.array([0.6, 2.8, 1.7, 2.3])
    value, gradient = jax.jit(jax.value_and_grad(end))(delays)
    np.testing.assert_allclose(value, -0.1954785, atol=1e-6)  # as delays that are functions give
    bounded = jax.jit(jax.value_and_grad(lambda delays: end(delays, 256)))(delays)
    np.testing.assert_allclose(bounded[0], value, rtol=1e-12)
    np.testing.assert_allclose(bounded[1], gradient, rtol=1e-9)
    shifted = jax.jit(lambda h: end(delays + h))
    difference = (shifted(1e-4) - shifted(-1e-4)) / 2e-4
    np.testing.assert_allclose(jnp.sum(gradient), difference, rtol=1e-5)


@pytest.mark.parametrize("kicks", [None, [0.1, 1.1, 1.5]], ids=["alone", "with impulses"])
def test_kinks_at_one_time_are_one(kicks):
    """Else their number grows with every delay: 316 steps in the place of 78, and with impulses as many as there may be."""
    field = lambda t, y, seen, args: -0.1 * sum(seen)
    impulses = None if kicks is None else lx.Impulses(kicks, lambda t, y, args: y + 0.1)

    def solve(delays):
        return lx.ddesolve(
            lx.DelayTerm(field, delays), dfx.Tsit5(), 0.0, 3.0, None, jnp.cos, y0=0.7, impulses=impulses,
            max_steps=512, stepsize_controller=dfx.PIDController(1e-8, 1e-8),
        )  # fmt: skip

    numbers = (0.1, 0.2, 0.3, 1.5, 1.1, 1.4, 0.4)
    solution = solve(numbers)
    assert solution.stats["num_steps"] < (80 if kicks is None else 140)
    functions = tuple(lambda t, y, args, delay=delay: delay for delay in numbers)
    np.testing.assert_allclose(solution.ys, solve(functions).ys, atol=1e-7)
