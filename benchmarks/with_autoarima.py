"""AutoARIMA of statsforecast on the same origins, run in an environment of its own: `python with_autoarima.py < in > out`.

Fitted once on the training part, as raw values and transformed as lagrax chose, and rolled forward with these parameters.
"""

import json
import sys
import time

import numpy as np
from statsforecast.models import AutoARIMA

given = json.load(sys.stdin)
y, train, horizon = np.array(given["y"]), given["train"], given["horizon"]
forward = {"none": lambda x: x, "log": np.log, "sqrt": np.sqrt}
back = {"none": lambda x: x, "log": np.exp, "sqrt": lambda x: np.maximum(x, 0) ** 2}
scale = np.mean(np.abs(np.diff(y[:train])))
found = {}
for name in {"none", given["transform"]}:
    start = time.perf_counter()
    u = forward[name](y)
    model = AutoARIMA(season_length=given["season"] or 1)
    model.fit(u[:train])
    errors = []
    for origin in given["origins"]:
        ahead = back[name](model.forward(u[: origin + 1], horizon)["mean"])
        errors.append(np.abs(ahead - y[origin + 1 : origin + 1 + horizon]))
    found[name] = {"mase": float(np.mean(errors) / scale), "seconds": time.perf_counter() - start}
json.dump(found, sys.stdout)
