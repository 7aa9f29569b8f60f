"""Confidence intervals for differences between two groups."""

from __future__ import annotations

import math

from scipy import stats

__all__ = [
    "Interval",
    "auc_interval",
    "combined",
    "quantile",
    "rate_ratio_interval",
    "skewed_t_interval",
    "wilson",
]

Interval = tuple[float, float]


def quantile(confidence: float) -> float:
    """Of the normal distribution, two-sided."""
    return float(stats.norm.ppf((1 + confidence) / 2))


def wilson(rate: float, n: float, confidence: float) -> Interval:
    """Wilson's score interval of a rate; `n` may be an effective number of rows."""
    z = quantile(confidence)
    shrunk = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / shrunk
    half = z / shrunk * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # At 0 and 1 the ends are exact; rounding must not move them.
    low = 0.0 if rate == 0 else max(centre - half, 0.0)
    return low, 1.0 if rate == 1 else min(centre + half, 1.0)


def combined(one: float, ends: Interval, other: float, other_ends: Interval) -> Interval:
    """Of the difference of two estimates with intervals of their own.

    Newcombe's hybrid (Statistics in Medicine 17, 1998, method 10) when the intervals are Wilson's:
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
    """Of hits/n over other_hits/other_n: the difference of logarithms, each from Wilson's ends.

    None where the other rate is zero. (Zou and Donner, Statistics in Medicine 27, 2008, eq. 6.)
    """
    if other_hits == 0:
        return None
    rate, other = hits / n, other_hits / other_n
    ends, other_ends = wilson(rate, n, confidence), wilson(other, other_n, confidence)
    above = (math.log(other_ends[1] / other), math.log(other / other_ends[0]))
    if hits == 0:
        return 0.0, ends[1] / other_ends[0]
    d = math.log(rate / other)
    low = d - math.hypot(math.log(rate / ends[0]), above[0])
    return math.exp(low), math.exp(d + math.hypot(math.log(ends[1] / rate), above[1]))


def auc_interval(auc: float, variance: float, pairs: float, confidence: float) -> Interval:
    """Of one AUC, on the scale of its logit, where it is more nearly normal.

    Args:
        auc: The AUC.
        variance: DeLong's.
        pairs: Positives times negatives; an AUC of 0 or 1 is read as half a pair away from it.
        confidence: Level.
    """
    inside = min(max(auc, 0.5 / pairs), 1 - 0.5 / pairs)
    slope = inside * (1 - inside)
    half = quantile(confidence) * math.sqrt(max(variance, slope / pairs)) / slope
    logit = math.log(inside / (1 - inside))
    return float(_expit(logit - half)), float(_expit(logit + half))


def skewed_t_interval(
    difference: float, variance: float, skewness: float, freedom: float, confidence: float
) -> Interval:
    """Of a difference of means: Welch's, with Hall's transformation inverted for skewness.

    The ends are d − s·h⁻¹(±t), h(T) = ((1 + gT/3)³ − 1)/g + g/6.

    Args:
        difference: d.
        variance: s².
        skewness: g, of the studentized difference.
        freedom: Welch's degrees of freedom.
        confidence: Level.
    """
    t = float(stats.t.ppf((1 + confidence) / 2, freedom))
    s = math.sqrt(variance)
    return difference - s * _unbent(t, skewness), difference - s * _unbent(-t, skewness)


def _unbent(value: float, g: float) -> float:
    if abs(g) < 1e-6:
        return value
    inner = 1 + g * (value - g / 6)
    return 3 / g * (math.copysign(abs(inner) ** (1 / 3), inner) - 1)


def _expit(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0
