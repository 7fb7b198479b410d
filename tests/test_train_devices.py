"""Training on several devices: a process of its own, in which the CPU pretends to be eight."""

import pathlib
import subprocess
import sys

SCRIPT = """
import re
import jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 8)
import jax.random as jr, numpy as np, pytest
from jax.sharding import NamedSharding, PartitionSpec
from lagrax.train import _fit, fit, stack
from tests.train_problem import Line, data, loss, optimizer

model = stack([Line(jr.key(i)) for i in range(2)])
mesh = jax.make_mesh((4, 2), ("a", "b"))
sharded, replicated = (
    jax.device_put(data(24), NamedSharding(mesh, PartitionSpec(*axes))) for axes in ((("a", "b"),), ())
)

def run(xy, model=model, stacked=True, **options):
    return fit(model, loss, xy, optimizer, 20, key=jr.key(1), stacked=stacked, progress=False, **options)

for batch_size, ways in ((None, [sharded]), (16, [sharded, replicated])):
    one = run(data(24), batch_size=batch_size)
    for xy in ways:
        many = run(xy, batch_size=batch_size, chunk=7)
        for name in ("loss", "per sign"):
            np.testing.assert_allclose(one.history[name], many.history[name], rtol=1e-10)
        assert many.model.weight.sharding.is_fully_replicated and len(many.model.weight.devices()) == 8

with pytest.raises(ValueError, match="batch_size = 12 with data on 8 devices, expected a multiple"):
    run(sharded, batch_size=12)

# Each device computes with two of the sixteen samples, and the gradient of the three weights is summed over all.
programs, compile_chunk = [], _fit.compile_chunk
_fit.compile_chunk = lambda *arguments: programs.append(compile_chunk(*arguments)) or programs[-1]
run(replicated, Line(jr.key(0)), False, batch_size=16)
text = programs[0].as_text()
assert re.search(r"f64\\[2\\]\\S* tanh\\(", text) and not re.search(r"f64\\[16\\]\\S* tanh\\(", text)
assert re.search(r"f64\\[3\\].* all-reduce\\(", text)
"""


def test_eight_devices_equal_one():
    root = pathlib.Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
