"""The dimensionless population equation x' = r x(t) (1 - x(t - τ)), r = 1.8, τ = 1."""

import functools as ft

from ..runner import Experiment
from ._series import SeriesNumbers, System, presets, run

SYSTEM = System("Population dynamics", lambda y, z: 1.8 * y * (1 - z), 0.1, 1.5)

EXPERIMENT = Experiment(
    name="population",
    title="Population dynamics",
    about="x' = r x(t) (1 − x(t − 1)) with r = 1.8, from 100 constant pasts, is fitted on [0, 3] by a neural DDE, a neural "
    "ODE and an augmented one. The paper finds that only the NDDE reaches a low training loss, and that it predicts better.",
    # Adam at a constant rate leaves the NDDE jittering: its error ends at half as much if the rate falls.
    presets=presets(SeriesNumbers(decay=True), "6 min"),
    run=ft.partial(run, SYSTEM),
)
