"""The experiments that train, at their smallest: files, numbers, models that load, and one curve for all adjoints."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import lagrax as lx
from lagrax import experiments, runner
from lagrax.experiments import spiral
from lagrax.experiments._training import Series, absolute_error, smooth
from lagrax.runner import Options, _folder
from lagrax.train import fit

NUMBERS = {
    "spiral": {"iterations": "6", "snapshots": "2"},
    "population": {"iterations": "4", "trajectories": "5", "snapshots": "2"},
    "spheres": {"inner": "20", "outer": "40", "epochs": "1", "batch": "16"},
}


@pytest.mark.parametrize(
    "name", ["spiral", *(pytest.param(name, marks=pytest.mark.slow) for name in ("population", "spheres"))]
)
def test_smoke(name, tmp_path):
    folder = runner.start(experiments.load(name), tmp_path, Options("smoke", numbers=NUMBERS[name]), progress=False)
    outcome, _ = _folder.read_outcome(folder)
    assert all(claim.reproduced is None for claim in outcome.claims) and outcome.claims
    assert all(
        (folder / f"{figure.stem}.{kind}").stat().st_size > 1000 for figure in outcome.figures for kind in ("png", "pdf")
    )
    metrics = json.loads((folder / "metrics.json").read_text())
    for model, numbers in metrics.items():
        assert numbers["forward evaluations"]["median"] > 0 and numbers["backward evaluations"]["median"] > 0
        lines = (folder / model / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["iteration"] for line in lines] == list(range(len(lines)))
        assert len(jax.tree.leaves(lx.load(folder / model / "seed-1.lagrax"))) > 0


@pytest.mark.slow
@pytest.mark.parametrize("adjoint", [lx.ContinuousAdjoint(), lx.PiecewiseAdjoint()])
def test_adjoints_train_alike(adjoint):
    """The same loss curve whichever adjoint computes the gradient, within the tolerance of the solver."""
    series = spiral.observe(0.1)
    series = Series(series.ts[:11], series.xs[:11])
    field = lx.nn.MLPField(2, width=10, depth=1, form=lx.nn.Form.SUM, use_bias=False, key=jr.key(0))
    tight = {"rtol": 1e-7, "atol": 1e-7}
    model = lx.nn.NeuralDDE(field, 0.5, t1=1.0, stepsize_controller=spiral.dfx.PIDController(**tight))

    def curve(adjoint):
        loss = absolute_error(SimpleNamespace(adjoint=adjoint), np.asarray(series.ts))
        return fit(model, loss, series.xs, optax.adam(0.01), 15, key=jr.key(1), progress=False).history["loss"]

    discrete = curve(lx.DiscreteAdjoint())
    assert discrete[-1] < 0.9 * discrete[0]
    np.testing.assert_allclose(curve(adjoint), discrete, rtol=1e-4)


def test_smooth_is_a_running_median():
    values = jnp.array([[0.0], [1.0], [50.0], [3.0], [4.0]])
    np.testing.assert_allclose(smooth(np.asarray(values), 3)[:, 0], [0, 1, 3, 4, 4])
