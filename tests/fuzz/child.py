"""The child process: works through a list of pairs and writes a line before and after each."""

import gc
import json
import os
import sys
import time

import numpy as np


def main(jobs: str, results: str) -> None:
    with open(jobs) as file:
        task = json.load(file)
    # Traced programs are many small objects that stay: looking through them for garbage takes its time.
    gc.set_threshold(200_000, 20, 100)
    import jax

    jax.config.update("jax_enable_x64", task["double"])
    jax.config.update("jax_num_cpu_devices", 2)

    from .compare import verdict
    from .fields import draw
    from .transforms import Child

    child, skipped = None, False
    for seed, name in task["pairs"]:
        _write(results, {"start": [seed, name]})
        began = time.perf_counter(), time.process_time()
        if child is None or child.case.seed != seed:
            child = Child(draw(seed))
            # What has no kernel is compiled just as without them: some such fields, to see that, are enough.
            skipped = seed % 12 != 0 and not child.has_kernels()
        if skipped or child.case.impossible(name):
            _write(results, {"done": [seed, name], "verdict": "skipped"})
            continue
        with np.errstate(all="ignore"):
            outcome = child.run(name)
            said = verdict(child, name, outcome, task["double"])
        times = {"seconds": round(time.perf_counter() - began[0], 2), "cpu": round(time.process_time() - began[1], 2)}
        _write(results, {"done": [seed, name], **said, **times})


def _write(path: str, line: dict) -> None:
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    main(*sys.argv[1:])
