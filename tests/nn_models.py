"""Small models that the tests of `lagrax.nn` share."""

import diffrax as dfx
import jax.random as jr

from lagrax.nn import (
    Form,
    LearnableDelay,
    MLPField,
    NeuralDDE,
    NeuralODE,
    NeuralODEDDE,
    TimeDependentParameters,
    count_parameters,
)

TIGHT = dfx.PIDController(rtol=1e-10, atol=1e-10)
MODERATE = dfx.PIDController(rtol=1e-7, atol=1e-7)


def mlp(form, seed=0, size=2, **options):
    return MLPField(size, form=form, key=jr.key(seed), **{"width": 3, "depth": 1} | options)


def driven(form, seed=0, **options):
    field = mlp(form, seed, **options)
    evolution = mlp(Form.CURRENT, seed + 1, count_parameters(field), width=2)
    return TimeDependentParameters(field, evolution)


def make(name, controller=MODERATE):
    options = {"t1": 1.3, "stepsize_controller": controller, "max_steps": 128}
    now, past, both = Form.CURRENT, Form.DELAYED, Form.CONCAT
    learned = LearnableDelay(0.7, lower=0.3, upper=1.2)
    return {
        "NODE": lambda: NeuralODE(mlp(now), **options),
        "ANODE": lambda: NeuralODE(mlp(now, size=3), augment=1, **options),
        "NDDE": lambda: NeuralDDE(mlp(past), 0.7, **options),
        "A+NDDE": lambda: NeuralDDE(mlp(both, size=3), 0.7, augment=1, **options),
        "NDDE, two learned delays": lambda: NeuralDDE(
            mlp(both, num_delays=2), (learned, LearnableDelay(0.45, lower=0.2, upper=1.0)), **options
        ),
        "NODE+NDDE": lambda: NeuralODEDDE(mlp(now), mlp(both, 1), 0.7, **options),
        "A+NODE+NDDE, learned delay": lambda: NeuralODEDDE(
            mlp(now, size=3), mlp(Form.SUM, 1, size=3), learned, augment=1, **options
        ),
        "NDDE, w(t)": lambda: NeuralDDE(driven(both), 0.7, **options),
        "NODE+NDDE, w(t)": lambda: NeuralODEDDE(driven(now, width=2), driven(Form.SUM, 3, width=2), 0.7, **options),
    }[name]()


NAMES = [
    "NODE",
    "ANODE",
    "NDDE",
    "A+NDDE",
    "NDDE, two learned delays",
    "NODE+NDDE",
    "A+NODE+NDDE, learned delay",
    "NDDE, w(t)",
    "NODE+NDDE, w(t)",
]
