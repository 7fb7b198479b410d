"""Learn a delay that depends on the state, from solutions: `python -m examples.state_delay`.

The hidden equation is y' = −y(t − τ(y)) with τ(y) = 1 + y²/2. A small network stands in for τ, and follows the exact
gradient of the solution with respect to its weights, through every breakpoint, whose times depend on the network too. It is
not told anything but y at 180 times. The figure, `out/state-delay.png`, shows what it found. Ctrl-C draws what there is.
"""

import signal
import sys
from pathlib import Path

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from lagrax import nn

from .demo import Progress
from .looks import BLUE, GREY, LOOKS, ORANGE, plt

jax.config.update("jax_enable_x64", True)

OUT = Path("out")
HISTORIES = jnp.array([1.0, -0.8, 0.6])
TIMES = jnp.linspace(0.0, 6.0, 61)[1:]
ITERATIONS = 3000


def hidden(t, y, args):
    return 1 + y**2 / 2


class NeuralDelay(eqx.Module):
    """A network of the state whose value is positive: a delay."""

    network: eqx.nn.MLP

    def __init__(self, key):
        self.network = eqx.nn.MLP("scalar", "scalar", width_size=8, depth=1, activation=jnp.tanh, key=key)

    def __call__(self, t, y, args):
        return jax.nn.softplus(1 + self.network(y))


def model_of(delay) -> nn.NeuralDDE:
    """y' = −y(t − τ(y)), with one function or another for τ."""
    return nn.NeuralDDE(
        lambda t, y, delayed, args: -delayed,
        delay,
        # (A constant past would look the same from everywhere, and tell nothing about the delay.)
        history=lambda t, x: x * jnp.cos(t),
        stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8),
    )


@eqx.filter_jit
def curves(model: nn.NeuralDDE) -> Float[Array, "3 times"]:
    """The solutions from all histories."""
    return jax.vmap(lambda x: model.sequence(TIMES, x))(HISTORIES)


def learn(data: Float[Array, "3 times"], path: list[tuple[nn.NeuralDDE, float]]) -> None:
    """Adam on the squared error. Appends the model and its loss after every iteration."""
    optimiser = optax.adam(optax.cosine_decay_schedule(0.02, ITERATIONS, alpha=0.01))

    @eqx.filter_value_and_grad
    def loss(model):
        return jnp.mean((curves(model) - data) ** 2)

    @eqx.filter_jit
    def iterate(model, state):
        value, gradient = loss(model)
        updates, state = optimiser.update(gradient, state)
        return eqx.apply_updates(model, updates), state, value

    model = path[-1][0]
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
    iterate(model, state)  # compiles
    progress = Progress(ITERATIONS)
    for _ in range(ITERATIONS):
        model, state, value = iterate(model, state)
        path.append((model, float(value)))
        progress.step(f"loss {value:.1e}")


def largest_error(model: nn.NeuralDDE, visited: np.ndarray) -> float:
    """Of the learned delay, as a share of the true one, over the states that were visited."""
    learned = jax.vmap(lambda y: model.delays(0.0, y, None))(visited)
    return float(np.max(np.abs(learned / hidden(0.0, visited, None) - 1)))


def draw(data: np.ndarray, path: list[tuple[nn.NeuralDDE, float]]) -> Path:
    """The learned delay and the fitted solutions, beside the hidden ones: `out/state-delay.png`."""
    states = np.linspace(np.min(data), 1.0, 200)
    first, last = path[0][0], path[-1][0]
    of = lambda model: jax.vmap(lambda y: model.delays(0.0, y, None))(states)
    with plt.rc_context(LOOKS):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), width_ratios=[1, 1.3])
        left.plot(states, hidden(0.0, states, None), color="black", lw=1.2, ls=":", label="hidden")
        left.plot(states, of(first), color=ORANGE, lw=1.8, ls="--", label="before learning")
        left.plot(states, of(last), color=BLUE, lw=2.2, label="learned")
        left.set(title="The delay as a function of the state", xlabel="state $y$ [–]", ylabel="delay $τ(y)$ [–]")
        left.legend(loc="upper center")
        for values, fitted in zip(data, curves(last), strict=True):
            right.plot(TIMES[::2], values[::2], "o", color="black", ms=4, label="data")
            right.plot(TIMES, fitted, color=BLUE, lw=2.2, label="learned")
        right.axhline(0, color=GREY, lw=0.6)
        right.set(title="$y' = -y(t - τ(y))$", xlabel="time $t$ [–]", ylabel="state $y$ [–]", xlim=(0, 6))
        right.legend(*[handles[:2] for handles in right.get_legend_handles_labels()])
        OUT.mkdir(exist_ok=True)
        figure.savefig(OUT / "state-delay.png")
        plt.close(figure)
    return OUT / "state-delay.png"


def main() -> None:
    print("Solving y' = −y(t − τ(y)) with the hidden delay τ(y) = 1 + y²/2 …", flush=True)
    data = np.asarray(curves(model_of(hidden)))
    path = [(model_of(NeuralDelay(jax.random.key(0))), np.inf)]
    try:
        print(f"Learning it from {data.size} values of y (compiling takes a few seconds) …", flush=True)
        learn(data, path)
        assert largest_error(path[-1][0], np.linspace(np.min(data), 1.0, 200)) < 0.05
    except KeyboardInterrupt:
        print(f"\nInterrupted after {len(path) - 1} iterations: drawing what there is …", flush=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    visited = np.linspace(np.min(data), 1.0, 200)
    print(f"\nLargest error of the learned delay for y in [{visited[0]:.2f}, 1]: {largest_error(path[-1][0], visited):.2%}")
    print(f"Figure: {draw(data, path)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted before there was anything to draw.")
