"""The limiting law of the projection distance exactly as printed in section 5.2 of its paper."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.limiting_law import upper_tail

__all__ = ["printed_p_value", "printed_weight"]

Float = NDArray[np.float64]


def printed_p_value(statistic: float, weights: list[float]) -> float:
    """P(Σ w χ²₁ ≥ statistic), with one w per gap; 1 if no decision has to change."""
    return 1.0 if statistic == 0 else upper_tail(statistic, np.array(weights))


def printed_weight(
    signed: Float, first: NDArray[np.bool_], second: NDArray[np.bool_]
) -> float | None:
    """The w of the limit w·χ²₁ of one gap (Corollary 1), Σ̂/2Ŝ; None if it is undefined.

    Σ̂ is the sample variance of φC + E[φ_z C]U and Ŝ the kernel estimate over all N rows, with a
    Gaussian kernel and the bandwidth 1.06 sd N^(-1/5), since the paper names neither. The
    library uses Σ under equal rates instead, which keeps the size for small groups.

    Args:
        signed: Distance to the boundary, positive where the decision is 1, `[n]`.
        first: Whether a row counts for the rate of the first group, `[n]`.
        second: Whether a row counts for the rate of the second group, `[n]`.
    """
    shares = first.mean(), second.mean()
    if min(shares) == 0 or not np.isfinite(signed).all():
        return None
    decided = (signed >= 0).astype(float)
    contrast = first / shares[0] - second / shares[1]
    centred = contrast * decided
    for sign, rows, share in ((1, first, shares[0]), (-1, second, shares[1])):
        centred = centred - sign * rows * (rows * decided).mean() / share**2
    bandwidth = 1.06 * signed.std() * len(signed) ** -0.2
    if bandwidth == 0:
        return None
    kernel = np.exp(-0.5 * (signed / bandwidth) ** 2) / math.sqrt(2 * math.pi)
    density = float((kernel * contrast**2).mean() / bandwidth)
    variance = float(centred.var())
    return variance / (2 * density) if variance > 0 and density > 0 else None
