"""Lanes on several devices, in a process of its own: JAX has to be told of the devices before it starts."""

import os
import pathlib
import subprocess
import sys

import pytest

AS_USERS_COMPILE = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""}


@pytest.mark.parametrize("which", ["one", pytest.param("all", marks=pytest.mark.slow)])
def test_lanes_on_two_devices(which):
    environment = {**os.environ, **(AS_USERS_COMPILE if which == "all" else {})}
    command = [sys.executable, pathlib.Path(__file__).parent / "sharded_lanes.py", which]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
