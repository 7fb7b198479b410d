"""A hundred Kuramoto oscillators with a delay on every connection, as numbers: all programs solve this one.

(NumPy alone: a peer's environment has no lagrax.)

θ_i' = ω_i + Σ_j w_ij sin(θ_j(t - τ_ij) - θ_i), delays between 0.3 and 1.5, of 10,000 possible connections 2,043 with weight.
"""

import numpy as np

NODES, T1, OBSERVED = 100, 20.0, 5.0
"""Errors are compared at t = 5: later on this problem multiplies them by 10 to 50, and by luck."""
_RNG = np.random.default_rng(0)
OMEGA = _RNG.normal(0, 1, NODES) + 6.28
CONNECTED = _RNG.random((NODES, NODES)) < 0.2
DELAYS = _RNG.uniform(0.3, 1.5, (NODES, NODES))
START = _RNG.uniform(0, 6.28, NODES)
WEIGHTS = CONNECTED * (2 / (NODES * 0.2))
