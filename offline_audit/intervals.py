"""Confidence intervals for differences between two groups."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import stats

__all__ = [
    "Interval",
    "auc_interval",
    "combined",
    "inverted_interval",
    "quantile",
    "rate_ratio_interval",
    "skewed_t_interval",
    "wilson",
]

Interval = tuple[float, float]

# Accuracy of the ends of an inverted test, in standard errors.
_ACCURACY = 0.002


def quantile(confidence: float) -> float:
    """Two-sided quantile of the standard normal distribution, such as 1.96 for 0.95."""
    return float(stats.norm.ppf((1 + confidence) / 2))


def wilson(rate: float, n: float, confidence: float) -> Interval:
    """Wilson's score interval of a rate.

    Args:
        rate: Observed rate.
        n: Number of rows; may be an effective number, which is not whole.
        confidence: Confidence level.
    """
    z = quantile(confidence)
    shrunk = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / shrunk
    half = z / shrunk * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # At rates of 0 and 1 one end is exact; rounding must not move it.
    low = 0.0 if rate == 0 else max(centre - half, 0.0)
    return low, 1.0 if rate == 1 else min(centre + half, 1.0)


def combined(one: float, ends: Interval, other: float, other_ends: Interval) -> Interval:
    """Interval of the difference of two estimates, from the interval of each.

    With Wilson's intervals this is Newcombe's hybrid (Statistics in Medicine 17, 1998, method 10):
    d − √((p₁ − l₁)² + (u₂ − p₂)²) to d + √((u₁ − p₁)² + (p₂ − l₂)²).
    """
    d = one - other
    return (
        d - math.hypot(one - ends[0], other_ends[1] - other),
        d + math.hypot(ends[1] - one, other - other_ends[0]),
    )


def rate_ratio_interval(
    hits: float, n: float, other_hits: float, other_n: float, confidence: float
) -> Interval | None:
    """Interval of the ratio of two rates, hits/n over other_hits/other_n; None if the other is 0.

    The difference of the logarithms, with limits from Wilson's intervals of both rates (Zou and
    Donner, Statistics in Medicine 27, 2008, eq. 6).
    """
    if other_hits == 0:
        return None
    rate, other = hits / n, other_hits / other_n
    ends, other_ends = wilson(rate, n, confidence), wilson(other, other_n, confidence)
    above = (math.log(other_ends[1] / other), math.log(other / other_ends[0]))
    if hits == 0:
        # The logarithm of a rate of 0 is not finite.
        return 0.0, ends[1] / other_ends[0]
    d = math.log(rate / other)
    low = d - math.hypot(math.log(rate / ends[0]), above[0])
    return math.exp(low), math.exp(d + math.hypot(math.log(ends[1] / rate), above[1]))


def auc_interval(auc: float, variance: float, pairs: float, confidence: float) -> Interval:
    """Interval of an AUC on the logit scale, where its distribution is closer to normal.

    Args:
        auc: AUC.
        variance: DeLong's variance of the AUC.
        pairs: Positives times negatives; an AUC of 0 or 1 is moved inwards by half a pair.
        confidence: Confidence level.
    """
    inside = min(max(auc, 0.5 / pairs), 1 - 0.5 / pairs)
    slope = inside * (1 - inside)
    half = quantile(confidence) * math.sqrt(max(variance, slope / pairs)) / slope
    logit = math.log(inside / (1 - inside))
    return float(_expit(logit - half)), float(_expit(logit + half))


def skewed_t_interval(
    difference: float, variance: float, skewness: float, freedom: float, confidence: float
) -> Interval:
    """Interval of a difference of means: Welch's t with Hall's correction for skewness.

    The ends are d − s·h⁻¹(±t), h(T) = ((1 + gT/3)³ − 1)/g + g/6.

    Args:
        difference: Difference of the means, d.
        variance: Variance of the difference, s².
        skewness: Skewness of the studentized difference, g.
        freedom: Welch's degrees of freedom.
        confidence: Confidence level.
    """
    t = float(stats.t.ppf((1 + confidence) / 2, freedom))
    s = math.sqrt(variance)
    return difference - s * _hall_inverse(t, skewness), difference - s * _hall_inverse(-t, skewness)


def inverted_interval(
    p_value: Callable[[float], float], estimate: float, error: float, confidence: float
) -> Interval | None:
    """The effects that a test does not reject, so that interval and p-value agree.

    The interval contains 0 if and only if the p-value of the effect 0 is above 1 − confidence.

    Args:
        p_value: Two-sided p-value of the hypothesis that the effect is a given number.
        estimate: Estimate of the effect.
        error: Standard error of the estimate.
        confidence: Confidence level.

    Returns:
        The interval; None if the test rejects the estimate, or rejects no effect at all.
    """
    # 1 − 0.9 is less than 0.1.
    alpha = round(1 - confidence, 12)
    if p_value(estimate) <= alpha:
        return None
    low, high = (_last_accepted(p_value, estimate, step, alpha) for step in (-error, error))
    return None if low is None or high is None else (low, high)


def _last_accepted(
    p_value: Callable[[float], float], estimate: float, step: float, alpha: float
) -> float | None:
    """The end of an interval in the direction of a step; None if there is none."""
    inside, outside = estimate, None
    if estimate * step < 0:
        # 0 lies in this direction. It is tried first, so that the end is on the right side of it.
        inside, outside = (0.0, None) if p_value(0.0) > alpha else (estimate, 0.0)
    distance = 2 * step
    while outside is None:
        if p_value(inside + distance) <= alpha:
            outside = inside + distance
        elif abs(distance) > 1e6 * abs(step):
            return None
        else:
            inside, distance = inside + distance, 2 * distance
    while abs(outside - inside) > _ACCURACY * abs(step):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if p_value(middle) > alpha else (inside, middle)
    return inside


def _hall_inverse(value: float, g: float) -> float:
    """Inverse of h; the identity in the limit of no skewness."""
    if abs(g) < 1e-6:
        return value
    inner = 1 + g * (value - g / 6)
    return 3 / g * (math.copysign(abs(inner) ** (1 / 3), inner) - 1)


def _expit(value: float) -> float:
    # exp overflows below about -709.
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0
