"""A delay on every connection: as numbers where they are few, as a network otherwise; values, gradients, refusals."""

import dataclasses

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import lagrax as lx
from lagrax._network import _select

NODES = 2
RNG = np.random.default_rng(1)
TAU = RNG.uniform(0.4, 1.2, (NODES, NODES))
WEIGHTS = RNG.normal(size=(NODES, NODES))
OMEGA, PHASE = np.array([1.0, 1.3]), np.arange(float(NODES))
AIM = jnp.array([1.0, 2.0])


@pytest.fixture
def as_network(monkeypatch):
    """Networks of any size are solved by the loop for large ones."""
    return lambda: monkeypatch.setattr(_select, "FEW", 0)


def exact(t):
    return jnp.sin(OMEGA * t + PHASE)


def smooth_field(t, y, arriving, weights):
    """Solved by `exact`, without kinks, if element [i, j] of what arrives is component j at t - TAU[i, j]."""
    expected = jnp.sin(OMEGA * (t - TAU) + PHASE)
    force = weights * (jnp.sin(arriving - expected) + (arriving - expected) / 10)
    return OMEGA * jnp.cos(OMEGA * t + PHASE) - (y - exact(t)) + force.sum(1)


def smooth(tau, weights, phase, tolerance=1e-10, t1=3.0, delays=lx.Each, field=smooth_field, **options):
    options.setdefault("stepsize_controller", dfx.PIDController(rtol=tolerance, atol=tolerance))
    history = lambda t: jnp.sin(OMEGA * t + PHASE * phase)
    solver = options.pop("solver", dfx.Tsit5())
    dt0 = options.pop("dt0", None)
    return lx.ddesolve(lx.DelayTerm(field, delays(tau)), solver, 0.0, t1, dt0, history, weights, max_steps=1024, **options)


def written_out(t, y, delayed, weights):
    """The field with a delay of its own for each connection."""
    arriving = jnp.stack([jnp.stack([delayed[i][j][j] for j in range(NODES)]) for i in range(NODES)])
    return smooth_field(t, y, arriving, weights)


def numbers(tau):
    return [[tau[i, j] for j in range(NODES)] for i in range(NODES)]


def test_few_elements_are_so_many_numbers():
    def loss(tau, weights, phase, **how):
        return jnp.sum(AIM * smooth(tau * 1.05, weights, phase, 1e-6, **how).ys[0])

    inputs = (jnp.asarray(TAU), jnp.asarray(WEIGHTS), jnp.array(1.0))
    found = jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(*inputs)
    expected = jax.jit(jax.value_and_grad(lambda *a: loss(*a, delays=numbers, field=written_out), (0, 1, 2)))(*inputs)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.allclose(a, b, rtol=1e-12, atol=1e-13)


def test_a_network_agrees_with_numbers(as_network):
    """Values and gradients, without kinks."""

    def loss(tau, weights, phase):
        return jnp.sum(AIM * smooth(tau, weights, phase).ys[0])

    inputs = (jnp.asarray(TAU), jnp.asarray(WEIGHTS), jnp.array(1.0))
    value, expected = jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(*inputs)
    as_network()
    both = lambda *inputs: jax.value_and_grad(loss, (0, 1, 2))(*inputs)
    network_value, gradient = jax.jit(both)(*inputs)
    assert abs(value - jnp.sum(AIM * exact(3.0))) < 1e-9 and abs(network_value - value) < 1e-9
    # (A delay's derivative has a kink of its own where the delay first looks at the solution.)
    for a, b, tolerance in zip(gradient, expected, (3e-6, 1e-9, 1e-5), strict=True):
        assert np.allclose(a, b, atol=tolerance, rtol=0)
    lanes = jax.jit(jax.vmap(both, (0, None, None)))(jnp.stack([inputs[0], inputs[0] * 1.1]), *inputs[1:])
    assert np.allclose(lanes[0][0], network_value, rtol=0, atol=1e-12)
    assert np.allclose(lanes[1][0][0], gradient[0], rtol=0, atol=1e-9)
    forward = lambda tau: jnp.sum(AIM * smooth(tau, *inputs[1:], adjoint=lx.ForwardMode()).ys[0])
    _, tangent = jax.jit(lambda tau: jax.jvp(forward, (tau,), (inputs[0],)))(inputs[0])
    assert np.allclose(tangent, jnp.sum(gradient[0] * inputs[0]), rtol=1e-12)


def test_gradients_in_times_and_output_of_a_network(as_network):
    """Everything else that is differentiated, against central differences on a fixed mesh."""
    as_network()
    ts = jnp.array([0.0, 0.31, 1.0, 2.53, 3.0])

    def loss(t1, jump, tau, weights):
        field = lambda t, y, z, w: smooth_field(t, y, z, w) + jnp.where(t < jump, 0.0, 0.3)
        solution = smooth(
            tau,
            weights,
            1.0,
            t1=t1,
            field=field,
            jump_ts=jump,
            dt0=0.0973,
            stepsize_controller=dfx.ConstantStepSize(),
            saveat=dfx.SaveAt(subs=[dfx.SubSaveAt(ts=ts), dfx.SubSaveAt(t1=True)], dense=True),
        )
        saved, last = solution.ys
        slope = lax.stop_gradient(solution.derivative(t1))
        return jnp.sum(saved * AIM) + jnp.sum(last**2) + jnp.sum(solution.evaluate(1.234) * AIM), jnp.sum(2 * last * slope)

    inputs = (jnp.array(3.1), jnp.array(0.777), jnp.asarray(TAU * 1.01), jnp.asarray(WEIGHTS))
    value_and_gradient = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True))
    (_, at_end), gradient = value_and_gradient(*inputs)
    value = lambda *inputs: value_and_gradient(*inputs)[0][0]
    # (diffrax divides the interval into equal steps, so that differences in t1 would move them all.)
    assert np.allclose(gradient[0], at_end, rtol=1e-6)
    for k, direction in ((1, 1.0), (2, np.eye(NODES)), (3, WEIGHTS)):
        moved = lambda e, k=k, d=direction: value(*(x + e * jnp.asarray(d) if i == k else x for i, x in enumerate(inputs)))
        difference = (moved(1e-6) - moved(-1e-6)) / 2e-6
        assert np.allclose(jnp.sum(gradient[k] * direction), difference, rtol=2e-6, atol=1e-8), k


@pytest.mark.parametrize(("solver", "order", "steps"), [(dfx.Heun(), 2, 40), (dfx.Tsit5(), 5, 15), (dfx.Kvaerno3(), 3, 30)])
def test_the_order_of_the_solver_is_kept(as_network, solver, order, steps):
    as_network()
    fixed = dfx.ConstantStepSize()
    if isinstance(solver, dfx.Kvaerno3):
        solver = dataclasses.replace(solver, root_finder=dfx.VeryChord(rtol=1e-12, atol=1e-12))
    solve = jax.jit(
        lambda h: smooth(jnp.asarray(TAU), jnp.asarray(WEIGHTS), 1.0, dt0=h, stepsize_controller=fixed, solver=solver).ys[0]
    )
    errors = [np.max(np.abs(solve(3.0 / k) - exact(3.0))) for k in (steps, 2 * steps)]
    assert np.log2(errors[0] / errors[1]) > order - 0.4


def test_delays_of_zero_and_below_the_step(as_network):
    """Against the same as numbers that overlap, without tracking in either case; gradients against differences."""
    tau = jnp.array([[0.0, 0.37], [0.01, 0.0]])
    weights = jnp.array([[-1.0, 0.5], [0.9, -0.8]])

    def field(t, y, z, weights):
        return (weights * jnp.tanh(z["each"])).sum(1) - y + 0.3 * z["fixed"] + jnp.sin(t)

    def loss(tau, controller=dfx.PIDController(rtol=1e-9, atol=1e-9), dt0=None, **options):
        delays = {"each": lx.Lag(lx.Each(tau), overlap=True, track=False), "fixed": 0.45}
        history = lambda t: jnp.array([1.0, 0.5]) * jnp.exp(t)
        term = lx.DelayTerm(field, delays)
        options = {"stepsize_controller": controller, "max_steps": 512, **options}
        return jnp.sum(AIM * lx.ddesolve(term, dfx.Tsit5(), 0.0, 2.0, dt0, history, weights, **options).ys[0])

    expected = jax.jit(loss)(tau)
    as_network()
    # (Other functions, or the cache would hand back what was compiled before.)
    assert abs(jax.jit(lambda tau: loss(tau))(tau) - expected) < 1e-6
    fixed = lambda tau: loss(tau, dfx.ConstantStepSize(), 2.0 / 43)
    value_and_gradient = jax.jit(jax.value_and_grad(fixed))
    gradient = value_and_gradient(tau)[1]
    at = lambda place, e: value_and_gradient(tau.at[place].add(e))[0]
    for place in ((1, 0), (0, 1)):
        assert np.allclose(gradient[place], (at(place, 1e-6) - at(place, -1e-6)) / 2e-6, rtol=1e-6), place
    with pytest.raises(ValueError, match="a network whose delays overlap with ForwardMode"):
        jax.jvp(lambda tau: loss(tau, adjoint=lx.ForwardMode()), (tau,), (jnp.ones_like(tau),))
    with pytest.raises(Exception, match="a network whose delays overlap is not possible"):
        jax.jvp(jax.grad(fixed), (tau,), (jnp.ones_like(tau),))
    # A delay of zero can only grow. (It reads the stages, a short one their interpolant.)
    one_sided = (-3 * at((1, 1), 1e-5) + 4 * at((1, 1), 2e-5) - at((1, 1), 3e-5)) / 2e-5
    assert np.allclose(gradient[1, 1], one_sided, rtol=2e-2)


def test_a_structured_state_in_single_precision(as_network):
    """Edges out of one array of the state, a number beside them, and what is known of a network of equal delays."""
    senders = np.array([2, 0, 0, 1])
    state = {"rate": jnp.array([1.0, 0.5, -0.5], jnp.float32), "slow": jnp.zeros(2, jnp.float32)}

    def field(t, y, z, args):
        arriving, before = z
        rate = jnp.array([arriving[0], arriving[1] + arriving[2], arriving[3]]) - y["rate"]
        return {"rate": rate, "slow": before["rate"][:2] - y["slow"]}

    def same(t, y, z, args):
        return field(t, y, (z["rate"][senders], z), args)

    def solve(field, delays):
        controller = dfx.PIDController(rtol=1e-5, atol=1e-5)
        return lx.ddesolve(
            lx.DelayTerm(field, delays), dfx.Tsit5(), 0.0, 2.0, None, state, stepsize_controller=controller
        ).ys

    each = lx.Each(np.full(4, 0.5, np.float32), of=lambda y: y["rate"][senders])
    expected = solve(same, 0.5)
    as_network()
    found = solve(field, (each, 0.5))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == jnp.float32 and np.allclose(a, b, atol=1e-4)


def test_a_graph_is_a_matrix_or_a_list(as_network):
    as_network()
    n = 4
    weights = np.where(RNG.random((n, n)) < 0.5, RNG.random((n, n)), 0.0)
    delays = np.where(np.eye(n) > 0, 0.0, RNG.uniform(0.3, 0.9, (n, n)))

    def end(scale, graph_of, **options):
        graph = graph_of(weights, delays)
        graph = eqx.tree_at(lambda g: (g.weights, g.lags), graph, (scale * graph.weights, graph.lags / scale))

        def field(t, y, arriving, args):
            return 1.0 + graph.total(jnp.sin(arriving - graph.at_receiver(y)))

        lag = lx.Lag(graph.delays(), overlap=True)
        controller = dfx.PIDController(rtol=1e-7, atol=1e-7)
        past = jnp.linspace(0.0, 3.0, n)
        return lx.ddesolve(
            lx.DelayTerm(field, lag), dfx.Tsit5(), 0.0, 2.0, None, past, stepsize_controller=controller, **options
        ).ys[0]

    matrix = jax.jit(jax.value_and_grad(lambda s: jnp.sum(end(s, lx.Graph) ** 2)))(1.1)
    edges = jax.jit(jax.value_and_grad(lambda s: jnp.sum(end(s, lx.Graph.of_connections) ** 2)))(1.1)
    np.testing.assert_allclose(matrix, edges, rtol=1e-9)


def test_memory_does_not_grow_with_delays_times_state():
    nodes, elements = 50, 2000
    senders = RNG.integers(0, nodes, elements)
    receivers = np.sort(RNG.integers(0, nodes, elements))
    graph = lx.Graph(np.ones(elements), np.full(elements, 0.5), senders, receivers, nodes=nodes, ordered=True)
    term = lx.DelayTerm(lambda t, y, z, args: graph.total(jnp.sin(z - graph.at_receiver(y))), graph.delays())
    loss = lambda y: jnp.sum(lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, None, y, max_steps=16).ys)
    jaxpr = jax.make_jaxpr(jax.grad(loss))(jnp.ones(nodes))
    assert max(_sizes(jaxpr.jaxpr)) < elements * nodes


def _sizes(jaxpr):
    for eqn in jaxpr.eqns:
        yield from (np.prod(var.aval.shape) for var in eqn.outvars if hasattr(var.aval, "shape"))
        for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr") or hasattr(x, "eqns")):
            if hasattr(inner, "jaxpr") or hasattr(inner, "eqns"):
                yield from _sizes(getattr(inner, "jaxpr", inner))


FIVE = np.full((5, 5), 0.5)
WITH_ZEROS, WITH_NAN = np.where(np.eye(5) > 0, 0.0, 0.5), np.where(np.eye(5) > 0, np.nan, 0.5)


@pytest.mark.parametrize(
    ("delays", "message"),
    [
        (lx.Each(np.ones((4, 3))), r"delays of shape \(4, 3\), expected one that broadcasts"),
        (lx.Each(FIVE, of=jnp.sin), "an `of` that computes, expected one that selects"),
        (lx.Each(FIVE, of=jnp.abs), "an `of` that computes, expected one that selects"),
        (lx.Each(FIVE, of=lambda y: y[::-1] + y), "an `of` that computes, expected one that selects"),
        (lx.Each(FIVE, of=lambda y: (y, y)), "expected one array of components"),
        (lx.Each(FIVE, of=lambda t, y: y), "a function of \\(t, y\\), expected one of \\(y\\)"),
        (lx.Each(FIVE, of=3), "expected a function of the state"),
        (lx.Each(-FIVE), r"a delay\[0, 0\] = -0.5, expected positive finite"),
        (lx.Each(WITH_NAN), r"a delay\[0, 0\] = nan, expected positive finite"),
        (lx.Lag(lx.Each(WITH_ZEROS), overlap=False), r"a delay\[0, 0\] = 0.0, expected positive finite"),
        (lx.Each(np.zeros((0, 5))), "has no elements"),
        (lx.Each("one"), "that are a str, expected an array"),
        (lx.Each(FIVE + 0j), "dtype complex128, expected real"),
        (lx.Lag(lx.Each(FIVE), minimum=0.1), "has a minimum, expected none"),
        (lx.Derivative(lx.Each(FIVE)), "a Derivative of lagrax.Each"),
        ((lx.Each(FIVE), lx.Integral(0.0, 1.0)), "a lagrax.Each beside a lagrax.Integral"),
        ((lx.Each(FIVE), lambda t, y, args: 1.0), "a Moving beside a lagrax.Each of more than 16 elements"),
    ],
)
def test_bad_arrays_of_delays_are_told_in_one_sentence(delays, message):
    term = lx.DelayTerm(lambda t, y, z, args: -y, delays)
    with pytest.raises(ValueError, match=message):
        lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, None, jnp.ones(5))


def test_an_array_of_delays_of_several_arrays_needs_of():
    term = lx.DelayTerm(lambda t, y, z, args: y, lx.Each(FIVE))
    with pytest.raises(ValueError, match="no `of` and the state has 2 arrays"):
        lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, None, (jnp.ones(5), jnp.ones(5)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lx.Graph(FIVE, FIVE[:4]), "expected the same"),
        (lambda: lx.Graph(FIVE[0], FIVE[0]), "expected a square matrix"),
        (lambda: lx.Graph(FIVE[0], FIVE[0], np.arange(5)), "expected all or none"),
        (lambda: lx.Graph(FIVE[0], FIVE[0], np.arange(4), np.arange(5), nodes=5), "three lists of one length"),
        (lambda: lx.Graph(FIVE[0], FIVE[0], np.arange(5), np.arange(1, 6), nodes=5), "count nodes from 0"),
        (lambda: jax.jit(lambda w: lx.Graph.of_connections(w, FIVE).total(FIVE))(FIVE), "the weights are traced"),
    ],
)
def test_bad_graphs_are_told_in_one_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_only_shows_at_run_time():
    """A traced delay that is negative, a traced `of` that computes, a history that is too rough to be tabulated."""

    @jax.jit
    def result(delays, factor, senders, roughness):
        history = lambda t: jnp.ones(5) * jnp.where(jnp.sin(roughness * t) > 0, 1.0, 0.0)
        term = lx.DelayTerm(lambda t, y, z, args: -y, lx.Each(delays, of=lambda y: y[senders] * factor.astype(y.dtype)))
        return lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, None, history, throw=False).result

    one, nodes = jnp.array(1), jnp.arange(5)
    calls = {
        "successful": (FIVE, one, nodes, 0.0),
        "bad_delay": (-FIVE, one, nodes, 0.0),
        "bad_selection": (FIVE, jnp.array(2), nodes, 0.0),
        "rough_history": (FIVE, one, nodes, 100.0),
    }
    for name, call in calls.items():
        assert result(*call) == getattr(lx.RESULTS, name), name


def test_an_untracked_jump_has_no_derivative_in_the_delays():
    def end(delays, past):
        term = lx.DelayTerm(lambda t, y, z, args: -y + z.sum(1) / 5, lx.Each(delays))
        return lx.ddesolve(term, dfx.Tsit5(), 0.0, 1.0, None, past, y0=jnp.ones(5)).ys[0][0]

    gradient = eqx.filter_jit(jax.grad(end, (0, 1)))
    assert np.all(np.isfinite(gradient(jnp.asarray(FIVE), jnp.ones(5))[0]))
    with pytest.raises(eqx.EquinoxRuntimeError, match="The solution jumps at t0"):
        gradient(jnp.asarray(FIVE), jnp.zeros(5))
    assert np.all(np.isfinite(eqx.filter_jit(jax.grad(end, 1))(jnp.asarray(FIVE), jnp.zeros(5))))
