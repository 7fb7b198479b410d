"""Delays that are spread over the past: values, order, gradients, and what is refused."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagrax as lx

FIXED = dfx.ConstantStepSize()
GAUSSIAN = lambda s: jnp.exp(-((s - 1.0) ** 2))


def solve(field, delays, interval, history, args=None, tolerance=1e-9, solver=None, **options):
    settings = {"stepsize_controller": dfx.PIDController(tolerance, tolerance), "max_steps": 1024} | options
    dt0 = settings.pop("dt0", None)
    term = lx.DelayTerm(field, delays)
    return lx.ddesolve(term, dfx.Tsit5() if solver is None else solver, *interval, dt0, history, args, **settings)


half = lambda t, y, total, args: -total / 2
"""y' = -½ ∫ y over [0, π] is solved by cos."""


def cosine(upper, t1, kernel=None, **options):
    kernel = lx.Uniform() if kernel is None else kernel
    return solve(half, lx.Integral(0.0, upper, kernel), (0.0, t1), jnp.cos, **options)


SOLVERS = [dfx.Tsit5(), *[pytest.param(s, marks=pytest.mark.slow) for s in (dfx.Dopri5(), dfx.Dopri8(), dfx.Kvaerno5())]]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
@pytest.mark.parametrize("kernel", [lx.Uniform(), lambda s: jnp.ones_like(s)], ids=["chain", "sum"])
def test_a_uniform_kernel(kernel, solver):
    """In both ways it is computed; ∂y(20)/∂upper is known too."""
    tolerance = {"root_finder": dfx.VeryChord(rtol=1e-11, atol=1e-11)} if isinstance(solver, dfx.Kvaerno5) else {}
    solver = type(solver)(**tolerance)
    value, slope = jax.jit(jax.value_and_grad(lambda upper: cosine(upper, 20.0, kernel, solver=solver).ys[0]))(np.pi)
    assert abs(value - np.cos(20.0)) < 1e-7
    assert abs(slope - 3.6650077) < 1e-6


@pytest.mark.slow
def test_an_undamped_chain_does_not_drift():
    ts = jnp.linspace(0.0, 1000.0, 2001)
    solution = cosine(np.pi, 1000.0, saveat=dfx.SaveAt(ts=ts), max_steps=2**14)
    assert np.max(np.abs(solution.ys - np.cos(ts))) < 1e-6


WAVE = lambda t: 0.5 + 0.1 * jnp.sin(t)
logistic = lambda t, y, crowd, args: y * (1 - crowd)


def by_hand(t, state, delayed, rate):
    """The linear chain of a gamma kernel of shape 3, written out."""
    y, z1, z2, z3 = state
    return jnp.stack([y * (1 - z3), rate * (y - z1), rate * (z1 - z2), rate * (z2 - z3)])


def test_a_gamma_kernel_is_its_chain_written_out():
    """An infinite one, one that is cut off where nothing is left, and one with a lower bound beside its complement."""
    rate, s = 1.5, np.linspace(0, 40, 200_001)
    weights = [rate**k * s ** (k - 1) * np.exp(-rate * s) / [1, 1, 2][k - 1] for k in (1, 2, 3)]
    start = [0.5, *(np.trapezoid(w * (0.5 - 0.1 * np.sin(s)), s) for w in weights)]
    known = solve(by_hand, 20.0, (0.0, 10.0), jnp.array(start), rate).ys[0, 0]
    gamma = lx.Gamma(3, rate)
    endless, cut, split = jax.jit(
        lambda: (
            solve(logistic, lx.Integral(0.0, jnp.inf, gamma), (0.0, 10.0), WAVE).ys[0],
            solve(logistic, lx.Integral(0.0, 40.0, gamma), (0.0, 10.0), WAVE).ys[0],
            solve(
                lambda t, y, z, args: y * (1 - z[0] - z[1]),
                (lx.Integral(0.0, 1.2, gamma), lx.Integral(1.2, jnp.inf, gamma)),
                (0.0, 10.0),
                WAVE,
            ).ys[0],
        )
    )()
    assert np.allclose([endless, cut, split], known, rtol=0, atol=1e-8)


def test_what_a_kernel_without_equations_computes():
    """The density of a gamma distribution as a function, over the steps, beside the chain that it has."""
    density = lambda s: 1.5**3 * s**2 * jnp.exp(-1.5 * s) / 2
    values = [solve(logistic, lx.Integral(0.0, 8.0, k), (0.0, 6.0), WAVE).ys[0] for k in (lx.Gamma(3, 1.5), density)]
    assert abs(values[0] - values[1]) < 1e-8


KERNELS = {"square": (lambda s: s**2, ()), "kink": (lambda s: jnp.abs(s - 0.9), (0.9,))}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "solver", [dfx.Tsit5(), *[pytest.param(s, marks=pytest.mark.slow) for s in (dfx.Bosh3(), dfx.Dopri5())]]
)
def test_the_order_is_kept(kernel, solver):
    """With a kink of the solution, at 0, inside the window, and where the kernel kinks."""
    function, kinks = KERNELS[kernel]
    order = solver.order(None)
    integral = lx.Integral(0.0, 2.0, function, kinks=kinks)
    run = jax.jit(
        lambda dt0: solve(half, integral, (0.0, 5.0), 1.0, dt0=dt0, solver=solver, stepsize_controller=FIXED).ys[0]
    )
    coarse, middle, fine, finest = (float(run(dt0)) for dt0 in (0.2, 0.1, 0.05, 0.0125))
    errors = np.abs(np.array([coarse, middle, fine]) - finest)
    assert np.min(np.log2(errors[:-1] / errors[1:])) > order - 0.3
    assert errors[1] < (1e-9 if order == 5 else 1e-4)


def mixture(p, **options):
    """Every kind of delay in one equation of two components; p = everything that moves."""

    def field(t, y, z, args):
        x = -0.3 * z["constant"]["x"] + 0.1 * z["moving"]["v"] - 0.2 * z["gamma"] + 0.05 * z["smooth"]
        v = y["x"] - 0.1 * z["slope"]["v"] + 0.1 * z["recent"]["v"] - 0.1 * z["tent"]["x"]
        return {"x": x, "v": v}

    delays = {
        "constant": p[0],
        "moving": lambda t, y, args: p[1] + 0.2 * jnp.sin(t) + 0.05 * y["x"] ** 2,
        "slope": lx.Derivative(p[2]),
        "gamma": lx.Integral(0.0, p[3], lx.Gamma(2, p[4]), of=lambda t, y, args: y["x"] ** 2 + p[5] * 0.01 * t),
        "recent": lx.Integral(p[6], 1.5),
        "smooth": lx.Integral(p[7], p[8], lambda s: jnp.exp(-p[9] * s**2), of=lambda t, y, args: jnp.sin(args * y["v"])),
        "tent": lx.Integral(0.0, 1.3, lambda s: jnp.abs(s - p[10]), kinks=(p[10],)),
    }
    history = lambda t: {"x": jnp.cos(t) * p[11], "v": jnp.sin(2 * t)}
    return solve(field, delays, (0.0, 2.2), history, p[12], max_steps=4096, **options)


POINT = jnp.array([1.0, 0.8, 0.617, 2.0, 1.3, 0.4, 0.3713, 0.21, 1.83, 0.7, 0.55, 1.1, 0.9])


@pytest.mark.slow
def test_gradients_of_a_mixture_of_all_kinds():
    ts = jnp.array([1.3, 2.2])
    loss = lambda p, **k: sum(jnp.sum(x**2) for x in jax.tree.leaves(mixture(p, saveat=dfx.SaveAt(ts=ts), **k).ys))
    gradient = jax.jit(jax.grad(loss))(POINT)
    value, step = jax.jit(lambda p: loss(p, tolerance=1e-11)), 1e-4
    differences = [(value(POINT + e) - value(POINT - e)) / (2 * step) for e in step * np.eye(POINT.size)]
    assert np.allclose(gradient, differences, rtol=1e-5, atol=3e-6)
    forward = jax.jit(jax.jacfwd(lambda p: loss(p, adjoint=lx.ForwardMode())))(POINT)
    assert np.allclose(gradient, forward, rtol=1e-6, atol=1e-8)


def windowed(p, tolerance=1e-9, **options):
    """A kernel with parameters between two bounds, of a function with one; p = (lower, upper, width, power, start)."""
    integral = lx.Integral(p[0], p[1], lambda s: jnp.exp(-p[2] * (s - 1) ** 2), of=lambda t, y, args: y**2 * args)
    field = lambda t, y, total, args: y * (1 - total)
    return solve(field, integral, (0.0, 4.0), lambda t: p[4] + 0.1 * t, p[3], tolerance, **options)


PARAMETERS = jnp.array([0.1, 1.9, 0.8, 1.2, 0.6])


@pytest.mark.slow
def test_gradients_in_bounds_and_kernel():
    def loss(p, tolerance=1e-9, **options):
        ys = windowed(p, tolerance, saveat=dfx.SaveAt(ts=jnp.array([1.5, 4.0])), **options).ys
        return jnp.sum(ys**2)

    gradient = jax.jit(jax.grad(loss))(PARAMETERS)
    value, step = jax.jit(lambda p: loss(p, tolerance=1e-11)), 1e-4
    differences = [(value(PARAMETERS + e) - value(PARAMETERS - e)) / (2 * step) for e in step * np.eye(5)]
    assert np.allclose(gradient, differences, rtol=1e-6, atol=1e-7)
    forward = jax.jit(jax.jacfwd(lambda p: loss(p, adjoint=lx.ForwardMode())))(PARAMETERS)
    assert np.allclose(gradient, forward, rtol=1e-10)


def test_gradients_of_chains_by_every_adjoint():
    """In the bounds, the rate, what is integrated and the history."""

    def loss(p, **options):
        integral = lx.Integral(p[0], p[1], lx.Gamma(2, p[2]), of=lambda t, y, args: y * p[3])
        return solve(logistic, integral, (0.0, 4.0), lambda t: p[4] + 0.1 * jnp.sin(t), **options).ys[0]

    p = jnp.array([0.2, 2.5, 1.1, 0.9, 0.5])
    discrete, step = jax.jit(jax.value_and_grad(lambda p, tolerance: loss(p, tolerance=tolerance))), 1e-4
    value = lambda p: discrete(p, 1e-11)[0]
    differences = [(value(p + e) - value(p - e)) / (2 * step) for e in step * np.eye(5)]
    continuous = jax.jit(jax.grad(lambda p: loss(p, adjoint=lx.ContinuousAdjoint())))
    for gradient in (discrete(p, 1e-9)[1], continuous(p)):
        assert np.allclose(gradient, differences, rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="ContinuousAdjoint"):
        windowed(PARAMETERS, adjoint=lx.ContinuousAdjoint())


def test_lanes_precision_and_output():
    """Under vmap as alone; float32; dense output, steps, a function of the state and events see the state alone."""
    end = lambda p: windowed(p, 1e-4, solver=dfx.Heun()).ys[0]
    lanes = jax.jit(jax.vmap(end))(jnp.stack([PARAMETERS, 1.1 * PARAMETERS]))
    alone = jax.jit(end)
    assert np.allclose(lanes, [alone(PARAMETERS), alone(1.1 * PARAMETERS)], rtol=1e-8)
    single = solve(logistic, lx.Integral(0.0, 2.0), (0.0, 4.0), jnp.float32(0.5), tolerance=1e-4)
    double = solve(logistic, lx.Integral(0.0, 2.0), (0.0, 4.0), 0.5, tolerance=1e-4)
    assert single.ys.dtype == jnp.float32 and abs(float(single.ys[0]) - float(double.ys[0])) < 1e-3
    saveat = dfx.SaveAt(steps=True, dense=True, fn=lambda t, y, args: {"twice": 2 * y})
    event = dfx.Event(lambda t, y, args, **kwargs: y, dfx.VeryChord(rtol=1e-9, atol=1e-9))
    solution = cosine(np.pi, 5.0, saveat=saveat, event=event)
    assert abs(solution.interpolation.t1 - np.pi / 2) < 1e-7
    reached = np.isfinite(solution.ts)
    assert np.allclose(solution.ys["twice"][reached], 2 * np.cos(solution.ts[reached]), atol=1e-7)
    assert np.allclose([solution.evaluate(1.0), solution.derivative(1.0)], [np.cos(1.0), -np.sin(1.0)], atol=1e-6)


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(lx.Uniform(), id="chain"), pytest.param(lambda s: jnp.ones_like(s), id="sum", marks=pytest.mark.slow)],
)
def test_a_solution_is_continued(kernel):
    first = cosine(np.pi, 5.0, kernel, saveat=dfx.SaveAt(dense=True))
    second = solve(half, lx.Integral(0.0, np.pi, kernel), (5.0, 9.0), first)
    assert abs(second.ys[0] - np.cos(9.0)) < 1e-7


@pytest.mark.parametrize("kernel", [lx.Uniform(), lambda s: jnp.ones_like(s)], ids=["chain", "sum"])
def test_jumps_of_the_history_and_of_the_state(kernel):
    """y' = -½ ∫ over [0, 1], with a history that is 1 until -½ and 0 from there on, and y(0) = 2: by hand for t ≤ ½."""

    def end(jump, t1):
        past = lambda t: jnp.where(t < jump, 1.0, 0.0)
        integral = lx.Integral(0.0, 1.0, kernel)
        return solve(half, integral, (0.0, t1), past, solver=dfx.Bosh3(), y0=2.0, jump_ts=[jump]).ys[0]

    # I(t) = ∫_0^t y + (½ - t), so y'' = -y/2 + ½.
    omega, t = np.sqrt(0.5), 0.4
    exact = 1 + np.cos(omega * t) - 0.25 / omega * np.sin(omega * t)
    value, slope = jax.jit(jax.value_and_grad(end))(-0.5, t)
    assert abs(value - exact) < 1e-8
    # The integral at 0 is 1 + jump, so y'(0) = -(1 + jump)/2.
    assert abs(slope + 0.5 / omega * np.sin(omega * t)) < 1e-7


def test_a_history_that_is_rough_where_the_window_comes_later():
    """At t0 the window ends two units before; into how many parts the history is divided must not be decided by that."""
    rough = lambda t: 1 + jnp.exp(-20 * (t + 0.7) ** 2) * jnp.sin(10 * t)

    def end(kernel, tolerance):
        return solve(lambda t, y, z, args: -z, lx.Integral(2.0, 3.0, kernel), (0.0, 3.5), rough, tolerance=tolerance).ys[0]

    assert abs(end(lambda s: jnp.ones_like(s), 1e-8) - end(lx.Uniform(), 1e-10)) < 1e-8


def test_a_learned_kernel_inside_a_neural_model():
    class Bump(eqx.Module):
        centre: jax.Array

        def __call__(self, s):
            return jnp.exp(-((s - self.centre) ** 2))

    field = lx.nn.MLPField(2, width=4, depth=1, num_delays=1, key=jax.random.key(0))
    delays = lx.Integral(0.0, 2.0, Bump(jnp.array(0.7)))
    model = lx.nn.NeuralDDE(field, delays, t1=1.5, solver=dfx.Heun(), max_steps=64)
    value_and_gradient = eqx.filter_jit(eqx.filter_value_and_grad(lambda m: jnp.sum(m(jnp.array([0.3, -0.2])) ** 2)))
    at = lambda centre: value_and_gradient(eqx.tree_at(lambda m: m.delays.kernel.centre, model, jnp.array(centre)))
    slope = at(0.7)[1].delays.kernel.centre
    assert np.isclose(slope, (at(0.7 + 1e-3)[0] - at(0.7 - 1e-3)[0]) / 2e-3, rtol=1e-2)


NOT_INTEGRALS = {
    "upper below lower": (lx.Integral(2.0, 1.0), "expected lower < upper"),
    "kinks out of order": (lx.Integral(0.0, 1.0, GAUSSIAN, kinks=(0.8, 0.2)), "in order"),
    "a kink of a chain": (lx.Integral(0.0, 1.0, kinks=(0.5,)), "drop them"),
    "a negative bound": (lx.Integral(-1.0, 1.0), "not negative"),
    "an endless uniform kernel": (lx.Integral(0.0, jnp.inf), "decays"),
    "an endless function": (lx.Integral(0.0, jnp.inf, GAUSSIAN), "finite"),
    "a bound that is an array": (lx.Integral(0.0, jnp.ones(2)), "one real number"),
    "a kernel that is a number": (lx.Integral(0.0, 1.0, 2.0), "a function of s"),
    "a kernel that is a class": (lx.Integral(0.0, 1.0, lx.Uniform), "the class Uniform"),
    "a kernel of two": (lx.Integral(0.0, 1.0, lambda s, t: s), r"kernel is a function of \(s, t\), expected one of \(s\)"),
    "a kernel with a vector": (lx.Integral(0.0, 1.0, lambda s: jnp.ones(2)), "one real number"),
    "of another signature": (
        lx.Integral(0.0, 1.0, of=lambda y: y),
        r"of is a function of \(y\), expected one of \(t, y, args\)",
    ),
    "of integers": (lx.Integral(0.0, 1.0, of=lambda t, y, args: 1), "floating-point"),
    "options around it": (lx.Lag(lx.Integral(0.0, 1.0), minimum=0.1), "no options"),
    "a derivative of it": (lx.Derivative(lx.Integral(0.0, 1.0)), "around an Integral"),
}


@pytest.mark.parametrize("name", NOT_INTEGRALS)
def test_what_is_refused(name):
    delays, sentence = NOT_INTEGRALS[name]
    with pytest.raises(ValueError, match=sentence):
        solve(half, delays, (0.0, 1.0), 1.0)


def test_a_shape_that_is_not_a_whole_number_is_refused():
    with pytest.raises(ValueError, match="positive integer"):
        lx.Gamma(2.5, 1.0)


INACCURATE = {
    "not integrable": lambda s: 1 / s,
    "not finite": lambda s: jnp.log(s - 0.5),
    "a kink of the kernel": lambda s: jnp.abs(s - 0.3),
    "a spike": lambda s: jnp.exp(-((1e5 * (s - 0.3001)) ** 2)),
    "nothing": lambda s: jnp.ones_like(s),
}


@pytest.fixture(scope="module")
def with_kernel():
    """How a solve with one of these kernels ends, as one program for all of them."""

    @jax.jit
    def result(which):
        integral = lx.Integral(0.0, 1.0, lambda s: jnp.stack([kernel(s) for kernel in INACCURATE.values()])[which])
        return solve(half, integral, (0.0, 1.0), 1.0, throw=False).result

    return result


@pytest.mark.parametrize("name", INACCURATE)
def test_what_cannot_be_integrated_is_no_number(name, with_kernel):
    expected = lx.RESULTS.successful if name == "nothing" else lx.RESULTS.bad_integral
    assert with_kernel(list(INACCURATE).index(name)) == expected


ROUGH = {
    "a kink of the history": (lx.Uniform(), 1.0, lambda t: jnp.abs(t + 0.3)),
    "a history that outgrows the kernel": (lx.Gamma(2, 0.5), jnp.inf, lambda t: jnp.exp(-t)),
}


@pytest.mark.parametrize("name", ROUGH)
def test_a_history_that_cannot_be_integrated_is_no_number(name):
    kernel, upper, past = ROUGH[name]
    assert solve(half, lx.Integral(0.0, upper, kernel), (0.0, 1.0), past, throw=False).result == lx.RESULTS.bad_integral
