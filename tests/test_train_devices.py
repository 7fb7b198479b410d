"""Training on several devices: a process of its own, in which the CPU pretends to be four."""

import pathlib
import subprocess
import sys

SCRIPT = """
import jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 4)
import jax.random as jr, numpy as np, pytest
from jax.sharding import NamedSharding, PartitionSpec
from lagrax.train import fit, stack
from tests.train_problem import Line, data, loss, optimizer

model = stack([Line(jr.key(i)) for i in range(2)])
sharding = NamedSharding(jax.make_mesh((2, 2), ("a", "b")), PartitionSpec(("a", "b")))
spread = jax.device_put(data(12), sharding)

def run(xy, **options):
    return fit(model, loss, xy, optimizer, 9, **({"key": jr.key(1), "stacked": True, "progress": False} | options))

for batch_size in (None, 8):
    one, many = (run(xy, batch_size=batch_size, chunk=4) for xy in (data(12), spread))
    for name in ("loss", "per sign"):
        np.testing.assert_allclose(one.history[name], many.history[name], rtol=1e-10)
    assert many.model.weight.sharding.is_fully_replicated and len(many.model.weight.devices()) == 4

with pytest.raises(ValueError, match="batch_size = 6 with data on 4 devices, expected a multiple"):
    run(spread, batch_size=6)
"""


def test_four_devices_equal_one():
    root = pathlib.Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
