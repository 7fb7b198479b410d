"""The dominant period of a series, from its autocorrelation."""

import numpy as np


def dominant_period(u: np.ndarray) -> float | None:
    """In samples: the lag of the highest peak of the autocorrelation behind its first zero, or None if nothing oscillates.

    `u` (n, d) without gaps, equally spaced. The autocorrelation, and not the spectrum: that of a cycle that is no sine may
    have its highest line at a harmonic.
    """
    n = len(u)
    x = u - np.polynomial.polynomial.polyval(np.arange(n), np.polynomial.polynomial.polyfit(np.arange(n), u, 1)).T
    x = x / np.maximum(x.std(axis=0), 1e-300)
    size = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(x, size, axis=0)) ** 2
    correlation = np.fft.irfft(power.sum(axis=1), size)[: n // 2] / np.arange(n, n - n // 2, -1)
    correlation = correlation / correlation[0]
    negative = np.flatnonzero(correlation < 0)
    if len(negative) == 0:
        return None
    inside = np.arange(max(int(negative[0]), 2), len(correlation) - 1)
    peaks = inside[(correlation[inside] >= correlation[inside - 1]) & (correlation[inside] >= correlation[inside + 1])]
    if len(peaks) == 0 or correlation[peaks].max() < 0.1:
        return None
    # The first peak that is nearly as high as the highest: later ones are its multiples.
    best = int(peaks[correlation[peaks] >= 0.8 * correlation[peaks].max()][0])
    left, centre, right = correlation[best - 1 : best + 2]
    bend = left - 2 * centre + right
    return best + (0.5 * (left - right) / bend if bend < 0 else 0.0)
