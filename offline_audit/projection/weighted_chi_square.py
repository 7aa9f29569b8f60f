"""The upper tail of a weighted sum of independent chi-squares with one degree of freedom each."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import chdtrc

__all__ = ["upper_tail"]

_POINTS = 250
_NEGLIGIBLE = 1e-12


def upper_tail(statistic: float, weights: NDArray[np.float64]) -> float:
    """P(Σ_j weights_j χ²_1 ≥ statistic), to ten digits where it is below .9, however small.

    Equal weights are a chi-square. Otherwise the moment generating function is inverted along a
    parabola through the saddle point: P = 1/(2πi) ∫ exp(K(s) - s q) ds/s, with
    K(s) = -½ Σ log(1 - 2 w_j s). The integrand is analytic but for the cut [1/(2 max w), ∞), which
    the parabola encloses, and decays exponentially along it, so the trapezoid rule converges fast.
    """
    kept = weights[weights > _NEGLIGIBLE * weights.max(initial=0.0)]
    if statistic <= 0 or len(kept) == 0:
        return 1.0
    if math.isinf(statistic):
        return 0.0
    largest = float(kept.max())
    if np.ptp(kept) <= _NEGLIGIBLE * largest:
        return float(chdtrc(len(kept), statistic / largest))
    # Scaled so that the cut begins at 1.
    shares, q = kept / largest, statistic / (2 * largest)

    def slope(s: float) -> float:
        return float(0.5 * np.sum(shares / (1 - shares * s))) - q - 1 / s

    saddle = brentq(slope, 1e-12, 1 - 1e-15)
    curvature = 0.5 * float(np.sum((shares / (1 - shares * saddle)) ** 2)) + saddle**-2
    # The parabola s = saddle + i y + bend y², bent so that exp(-q s) decays; points lie densest
    # at the saddle, within its width.
    bend = 1 / (4 * (1 - saddle + 1e-9) + 4 / max(q, 0.5))
    width = 1 / math.sqrt(curvature)
    reach = max(12 * width, math.sqrt(45 / (q * bend)))
    u = np.linspace(-1.0, 1.0, 2 * _POINTS + 1) * math.asinh(reach / width)
    y = width * np.sinh(u)
    s = saddle + 1j * y + bend * y**2
    exponent = -0.5 * np.log(1 - np.outer(s, shares)).sum(axis=1) - q * s
    peak = float(exponent[_POINTS].real)
    steps = (1 + 2 * bend * y / 1j) * width * np.cosh(u)
    integrand = np.exp(exponent - peak) / s * steps
    found = float(np.sum(integrand.real)) * (u[1] - u[0]) / (2 * math.pi)
    return float(np.clip(found * math.exp(peak), 0.0, 1.0))
