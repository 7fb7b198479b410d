"""Weighted graphs with a delay on every connection: the usual case of a network."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

from .._check import concrete
from .._lag import Each


class Graph(eqx.Module):
    """A weighted graph with delays, as a matrix or as a list of connections.

    `delays()` goes among the delays of a [`lagrax.DelayTerm`][], and the vector field then gets what arrives on every
    connection: `total(values)` is the weighted sum over the connections into each node, and `at_receiver(y)` the state of
    the node that each connection leads to, in the shape of what arrives.

    **Arguments:**

    - `weights`: shape (N, N), `weights[i, j]` of the connection from node j to node i; or for a list shape (E,).
      Differentiable.
    - `lags`: their delays, of the same shape. Differentiable. A delay of zero is no delay.
    - `senders`, `receivers`: for a list, the nodes (integers from 0) that connections come from and lead to.
    - `nodes`: for a list, how many nodes there are.

    A matrix computes all N² connections, whether they have weight or not; a list only those in it.

    ```python
    graph = lagrax.Graph(weights, lengths / velocity)

    def kuramoto(t, theta, arriving, frequencies):
        return frequencies + graph.total(jnp.sin(arriving - graph.at_receiver(theta)))

    term = lagrax.DelayTerm(kuramoto, graph.delays())
    ```
    """

    weights: Any
    lags: Any
    senders: Any = None
    receivers: Any = None
    nodes: int | None = eqx.field(static=True, default=None)
    ordered: bool = eqx.field(static=True, default=False)
    """Whether the receivers are known to be in order, which is faster."""

    def __check_init__(self):
        shape, lists = jnp.shape(self.weights), (self.senders, self.receivers, self.nodes)
        if jnp.shape(self.lags) != shape:
            raise ValueError(
                f"got delays of shape {jnp.shape(self.lags)} and weights of shape {shape}, expected the same: one of each "
                "for every connection"
            )
        if all(x is None for x in lists):
            if len(shape) != 2 or shape[0] != shape[1]:
                raise ValueError(
                    f"got weights of shape {shape} without senders, expected a square matrix: pass senders, receivers and "
                    "nodes with a list of connections"
                )
            return
        if any(x is None for x in lists):
            raise ValueError("got some of senders, receivers and nodes, expected all or none: a list of connections has all")
        ends = (jnp.shape(self.senders), jnp.shape(self.receivers))
        if len(shape) != 1 or ends != (shape, shape):
            raise ValueError(
                f"got weights, senders and receivers of shapes {shape}, {ends[0]}, {ends[1]}, expected three lists of one "
                "length: one entry for every connection"
            )
        for name, numbers in (("senders", self.senders), ("receivers", self.receivers)):
            values = concrete(numbers)
            if values is not None and values.size and not (values.min() >= 0 and values.max() < self.nodes):
                raise ValueError(
                    f"`{name}` run from {values.min()} to {values.max()}, expected numbers of nodes, from 0 to "
                    f"{self.nodes - 1}: count nodes from 0"
                )

    @staticmethod
    def of_connections(weights: Any, lags: Any) -> "Graph":
        """The connections of two matrices (N, N) that have weight, as a list. The weights must be known, not traced."""
        values = concrete(weights)
        if values is None:
            raise ValueError(
                "the weights are traced, expected known ones: which of them are zero decides the length of the list"
            )
        receivers, senders = np.nonzero(values)
        pick = lambda x: jnp.asarray(x)[receivers, senders]
        places = (senders.astype(np.int32), receivers.astype(np.int32))
        return Graph(pick(weights), pick(lags), *places, nodes=len(values), ordered=True)

    def delays(self, of: Callable | None = None) -> Each:
        """What goes among the delays. `of(y)` is what is sent, one value for each node; by default the state itself."""
        if self.senders is None:
            return Each(self.lags, of)
        sent: Callable = (lambda y: y) if of is None else of
        return Each(self.lags, lambda y: sent(y)[self.senders])

    def at_receiver(self, y: Inexact[Array, " nodes"]) -> Inexact[Array, "..."]:
        """`y` of the node that each connection leads to, in the shape of what arrives (or one that broadcasts to it)."""
        return y[:, None] if self.receivers is None else y[self.receivers]

    def total(self, values: Inexact[Array, "..."]) -> Inexact[Array, " nodes"]:
        """The sum of the weighted values of all connections into each node."""
        weighted = jnp.asarray(self.weights, values.dtype) * values
        if self.receivers is None:
            return jnp.sum(weighted, axis=1)
        return jax.ops.segment_sum(weighted, self.receivers, self.nodes, indices_are_sorted=self.ordered)
