"""The smallest gap between the rates of two groups that the projection test detects."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from offline_audit.power import POWER, Detectable, detectable_rates, normal_detectable_rates

__all__ = ["detectable_gap"]

Float = NDArray[np.float64]

# Smallest expected count above which the normal approximation replaces the binomial counts.
_NORMAL_COUNT = 1_000


def detectable_gap(
    sizes: tuple[float, float],
    rate: float,
    *,
    alpha: float,
    tolerance: float = 0.0,
    sides: tuple[bool, bool] = (True, True),
    smallest: float = 0.0,
) -> Detectable:
    """The smallest detectable gaps downwards and upwards between two groups.

    The second group has the given rate. The gap V is tested by its permutation variance σ² at the
    pooled rate: fairness is rejected if |V| ≥ tolerance + k σ; see `_critical_value`.

    Args:
        sizes: Independent rows of the first and of the second group.
        rate: Rate of the second group.
        alpha: Significance level.
        tolerance: Largest gap that counts as fair.
        sides: Whether gaps downwards, and gaps upwards, count as unfair.
        smallest: Smallest expected count with which the test runs.
    """
    if not 0 < rate < 1:
        return None, None
    n, m = (max(round(size), 1) for size in sizes)
    share, total = n / (n + m), n + m
    error = math.sqrt(rate * (1 - rate) * total / (total - 1) * (1 / n + 1 / m))
    k = _critical_value(alpha, tolerance / error, both=all(sides))

    def critical(totals: Float) -> tuple[Float, Float]:
        spread = np.sqrt(share * (1 - share) * totals * (total - totals) / (total - 1))
        distance = tolerance * n * m / total + k * spread
        return totals * share - distance, totals * share + distance

    if min(n, m) * min(rate, 1 - rate) > _NORMAL_COUNT:
        shift = k + float(ndtri(POWER)) + tolerance / error
        effects = normal_detectable_rates(n, m, rate, (shift, shift))
    else:
        effects = detectable_rates(n, m, rate, critical, smallest=smallest)
    down, up = effects
    return (down if sides[0] else None), (up if sides[1] else None)


def _critical_value(alpha: float, tolerance: float, *, both: bool) -> float:
    """The k with P(Z ≥ k) = α, or P(Z ≥ k) + P(Z ≥ k + 2 tolerance) = α if both signs count.

    Args:
        alpha: Significance level.
        tolerance: Tolerance in standard errors.
        both: Whether gaps of both signs count.
    """
    one_sided, two_sided = -float(ndtri(alpha)), -float(ndtri(alpha / 2))
    if not both:
        return one_sided
    if tolerance == 0:
        return two_sided
    return float(
        brentq(lambda k: ndtr(-k) + ndtr(-k - 2 * tolerance) - alpha, one_sided - 1e-9, two_sided)
    )
