"""Learn how fast signals travel in a network of 90 nodes, from its activity: `python -m examples.network`.

Ninety oscillators of about 40 Hz sit at random places of a brain-sized ball. All are connected, near ones more strongly, and
a signal takes the distance over the velocity to arrive: 8,010 delays, from one number. The example simulates 120 ms, adds
noise to what is seen of it, forgets the velocity and finds it again with the gradient through every delay. The figure,
`out/network.png`, shows the network and the search. Ctrl-C draws what there is.
"""

import signal
import sys
from pathlib import Path

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

import lagrax as lx

from .demo import Progress
from .looks import BLUE, GREY, LOOKS, ORANGE, plt

jax.config.update("jax_enable_x64", True)

OUT = Path("out")
NODES, RADIUS, VELOCITY, GUESS = 90, 70.0, 5.0, 8.0  # -, mm, mm/ms (which is m/s), mm/ms
TIMES = jnp.linspace(0.0, 120.0, 121)[1:]  # ms
NOISE, ITERATIONS = 0.1, 60


def connectome() -> tuple[np.ndarray, np.ndarray]:
    """(Weights, distances in mm) between random places of a ball. Nothing is connected with itself."""
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(NODES, 3))
    places = RADIUS * rng.random((NODES, 1)) ** (1 / 3) * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    weights = np.where(distances > 0, np.exp(-distances / 40), 0.0)
    return weights / weights.sum(1, keepdims=True), distances


WEIGHTS, DISTANCES = connectome()
OMEGA = 2 * np.pi * (0.04 + 0.002 * np.random.default_rng(1).normal(size=NODES))  # rad/ms
START = np.random.default_rng(2).uniform(0, 2 * np.pi, NODES)


@jax.jit
def phases(velocity: Float[Array, ""]) -> Float[Array, "times nodes"]:
    """The phases of all oscillators at TIMES."""
    graph = lx.Graph(WEIGHTS, DISTANCES / velocity)

    def field(t, theta, arriving, args):
        return OMEGA + 0.15 * graph.total(jnp.sin(arriving - graph.at_receiver(theta)))

    # Every node is at no distance from itself: such connections, of no weight here, have no delay.
    term = lx.DelayTerm(field, lx.Lag(graph.delays(), overlap=True))
    # Before the start the oscillators ran on their own.
    history = lambda t: START + OMEGA * t
    controller = dfx.PIDController(rtol=0.0, atol=1e-4)
    saveat = dfx.SaveAt(ts=TIMES)
    return lx.ddesolve(
        term, dfx.Tsit5(), 0.0, TIMES[-1], None, history, saveat=saveat, stepsize_controller=controller, max_steps=512
    ).ys


def learn(data: Float[Array, "times nodes"], path: list[float]) -> None:
    """Adam on the squared error of the activity. Appends the velocity after every iteration."""
    optimiser = optax.adam(optax.cosine_decay_schedule(0.05, ITERATIONS, alpha=0.02))
    loss = lambda log_velocity: jnp.mean((jnp.sin(phases(jnp.exp(log_velocity))) - data) ** 2)
    gradient = jax.jit(jax.value_and_grad(loss))
    log_velocity = jnp.log(path[-1])
    state = optimiser.init(log_velocity)
    gradient(log_velocity)  # compiles
    progress = Progress(ITERATIONS)
    for _ in range(ITERATIONS):
        value, slope = gradient(log_velocity)
        updates, state = optimiser.update(slope, state)
        log_velocity = optax.apply_updates(log_velocity, updates)
        path.append(float(jnp.exp(log_velocity)))
        progress.step(f"velocity {path[-1]:.3f} m/s, loss {value:.4f}")


def draw(truth: np.ndarray, path: list[float]) -> Path:
    """The delays, the activity and the search for the velocity: `out/network.png`."""
    order = np.argsort(truth[-1] % (2 * np.pi))
    with plt.rc_context(LOOKS):
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), width_ratios=[1, 1.3, 1])
        image = left.imshow(DISTANCES / VELOCITY, cmap="viridis")
        left.set(title="8,010 delays", xlabel="from node", ylabel="to node")
        left.grid(False)
        figure.colorbar(image, ax=left, label="delay [ms]", shrink=0.8)
        middle.imshow(np.sin(truth).T[order], aspect="auto", cmap="RdBu", extent=(0, float(TIMES[-1]), NODES, 0))
        middle.set(title="Activity sin θ", xlabel="time [ms]", ylabel="node, by final phase")
        middle.grid(False)
        right.axhline(VELOCITY, color="black", lw=1.2, ls=":", label="true")
        right.plot(path, color=BLUE, lw=2.2, label="learned")
        right.plot(0, path[0], "o", color=ORANGE, ms=6, label="guess")
        right.set(title="Velocity of signals", xlabel="iteration", ylabel="velocity [m/s]")
        right.spines["bottom"].set_color(GREY)
        right.legend()
        OUT.mkdir(exist_ok=True)
        figure.savefig(OUT / "network.png")
        plt.close(figure)
    return OUT / "network.png"


def main() -> None:
    print(f"Simulating {NODES} oscillators with {NODES * (NODES - 1):,} delays …", flush=True)
    truth = phases(jnp.array(VELOCITY))
    data = jnp.sin(truth) + NOISE * jax.random.normal(jax.random.key(0), truth.shape)
    path = [GUESS]
    try:
        print("Learning the velocity from noisy activity (compiling takes a few seconds) …", flush=True)
        learn(data, path)
        assert abs(path[-1] / VELOCITY - 1) < 0.02
    except KeyboardInterrupt:
        print(f"\nInterrupted after {len(path) - 1} iterations: drawing what there is …", flush=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(f"\nTrue velocity {VELOCITY:g} m/s, learned {path[-1]:.3f} m/s, from a guess of {GUESS:g} m/s")
    print(f"Figure: {draw(np.asarray(truth), path)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted before there was anything to draw.")
