"""The Mackey–Glass equation x' = β x(t - τ) / (1 + x(t - τ)ⁿ) - γ x(t), β = 4, n = 9.65, γ = 2, τ = 1:
the experiment `population` with another equation."""

import functools as ft

from ..runner import Experiment
from .population import SeriesNumbers, System, presets, run

SYSTEM = System("Mackey–Glass system", lambda y, z: 4 * z / (1 + z**9.65) - 2 * y, 0.1, 1.5)

EXPERIMENT = Experiment(
    name="mackey-glass",
    title="Mackey–Glass system",
    about="x' = β x(t − 1) / (1 + x(t − 1)ⁿ) − γ x(t) with β = 4, n = 9.65, γ = 2, from 100 constant pasts, is fitted on "
    "[0, 3] by a neural DDE, a neural ODE and an augmented one. The paper finds that only the NDDE reaches a low training "
    "loss, and that it predicts better.",
    # The equation is no odd function, a network without biases is: it ends at 0.037 where this one ends at 0.008.
    presets=presets(SeriesNumbers(biases=True, iterations=2000, snapshots=40), "5 min"),
    run=ft.partial(run, SYSTEM),
)
