"""The Kuramoto network by tvboptim, in an environment of its own: a process that answers questions line by line.

A question is `kind dt t1`, kind `frozen` (coupling held during a step, tvboptim's default) or `second` (its second-order
mode); the answer is the final phases, one line.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

from . import kuramoto as problem


def prepare(kind: str, dt: float, t1: float):
    from tvboptim.experimental.network_dynamics.core.network import Network
    from tvboptim.experimental.network_dynamics.coupling.kuramoto import DelayedKuramotoCoupling
    from tvboptim.experimental.network_dynamics.dynamics.tvb.kuramoto import Kuramoto
    from tvboptim.experimental.network_dynamics.graph.base import DenseDelayGraph
    from tvboptim.experimental.network_dynamics.result import NativeSolution
    from tvboptim.experimental.network_dynamics.solve import prepare
    from tvboptim.experimental.network_dynamics.solvers.native import Heun

    second = kind == "second"
    graph = DenseDelayGraph(jnp.asarray(problem.WEIGHTS, jnp.float32), jnp.asarray(problem.DELAYS, jnp.float32))
    coupling = DelayedKuramotoCoupling(
        incoming_states="theta", local_states="theta", history_interpolation="linear" if second else None
    )
    times = jnp.arange(-2.0, dt / 2, dt)
    past = jnp.broadcast_to(jnp.asarray(problem.START, jnp.float32), (len(times), 1, problem.NODES))
    network = Network(
        Kuramoto(omega=jnp.asarray(problem.OMEGA, jnp.float32)),
        {"delayed": coupling},
        graph,
        history=NativeSolution(times, past, dt=dt, variable_names=("theta",)),
    )
    solve, configuration = prepare(network, Heun(recompute_coupling_per_stage=second), t0=0.0, t1=t1, dt=dt)
    compiled = jax.jit(lambda c: solve(c).ys[-1, 0])
    return lambda: np.asarray(compiled(configuration))


def main() -> None:
    programs: dict = {}
    for line in sys.stdin:
        kind, dt, t1 = line.split()
        if line not in programs:
            programs[line] = prepare(kind, float(dt), float(t1))
        print(" ".join(str(x) for x in programs[line]()), flush=True)


if __name__ == "__main__":
    main()
