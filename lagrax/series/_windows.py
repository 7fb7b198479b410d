"""Windows of a record: a stretch to be predicted, and the observed past that it is predicted from.

Nothing after its first sample is known to the past of a window, so that a model that is fitted on windows is fitted on
forecasts.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..nn._sampled import SampledHistory
from ._record import Record


class Windows(eqx.Module):
    """Several windows, with times relative to the start of each. Their first sample is the last of their past.

    `start` (w,): absolute times. `past`: a spline through L samples, times ≤ 0. `unit`: what moving its last sample by one
    adds to the coefficients of its pieces. `t` (w, m) ≥ 0 and `y` (w, m, d), zero where `seen` (w, m, d) is false. `inputs`
    (w, L + m − 1, k), linear between `inputs_t` (w, L + m − 1).
    """

    start: Float[Array, " w"]
    past: SampledHistory
    unit: tuple[Float[Array, "w l"], ...]
    t: Float[Array, "w m"]
    y: Float[Array, "w m d"]
    seen: Bool[Array, "w m d"]
    inputs_t: Float[Array, "w n"]
    inputs: Float[Array, "w n k"]

    def past_from(self, start: Float[Array, " d"]) -> SampledHistory:
        """The past of one window, ending in the state `start` instead of the sample. Splines are linear in their samples."""
        move = start - self.y[0]
        moved = (piece + unit[:, None] * move for piece, unit in zip(self.past.coefficients, self.unit, strict=True))
        return eqx.tree_at(lambda past: past.coefficients, self.past, tuple(moved))


def origins(record: Record, past: int, length: int, stride: int, longest: float) -> np.ndarray:
    """Where windows may start: an observed sample with `past` samples, and the time `longest`, before it.

    The last window ends with the record. None sees a gap of more than four steps and a quarter of `longest`, in its past or
    ahead: what a spline has in there was not observed. (Of samples at random times, one gap a tenth longer spoiled a fit.)
    """
    t, seen = record.t, ~np.isnan(record.seen).any(axis=1)
    known = t[~np.isnan(record.seen).all(axis=1)]
    wide = np.diff(known) > max(4 * record.step, longest / 4) * (1 + 1e-9)
    begins, ends = known[:-1][wide], known[1:][wide]

    def whole(i: int) -> bool:
        enough = t[i] - t[i - past + 1] >= longest * (1 - 1e-9)
        return enough and not ((begins < t[i + length - 1]) & (ends > t[i] - longest)).any()

    found = np.arange(len(t) - length, past - 2, -stride)[::-1]
    return np.array([i for i in found if seen[i] and whole(i)], int)


def cut(record: Record, at: np.ndarray, past: int, length: int) -> Windows:
    """The windows that start at the rows `at`, `length` samples long (the first is the last of the past)."""
    t, y, whole = record.t, record.seen, record.u
    exogenous = np.zeros((len(t), 0)) if record.inputs is None else record.inputs
    before = at[:, None] + np.arange(1 - past, 1)
    inside = at[:, None] + np.arange(length)
    both = at[:, None] + np.arange(1 - past, length)
    seen = ~np.isnan(y[inside])
    times = jnp.asarray(t[before] - t[at][:, None])
    last = jnp.zeros((past, 1)).at[-1].set(1.0)
    units = jax.vmap(lambda ts: SampledHistory(ts, last))(times)
    return Windows(
        start=jnp.asarray(t[at]),
        past=jax.vmap(SampledHistory)(times, jnp.asarray(whole[before])),
        unit=tuple(piece[..., 0] for piece in units.coefficients),
        t=jnp.asarray(t[inside] - t[at][:, None]),
        y=jnp.asarray(np.where(seen, y[inside], 0.0)),
        seen=jnp.asarray(seen),
        inputs_t=jnp.asarray(t[both] - t[at][:, None]),
        inputs=jnp.asarray(exogenous[both]),
    )
