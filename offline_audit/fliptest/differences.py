"""Differences of means and of shares: intervals, sizes in standard deviations, a test."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.fliptest.disclosure import Counts
from offline_audit.intervals import Interval, combined, skewed_t_interval, wilson

__all__ = [
    "category_length",
    "equal_shares_test",
    "mean_difference_interval",
    "share_difference_interval",
    "standardised_shares",
]

Float = NDArray[np.float64]

# Below this expected count chi-square's law is not to be trusted (Cochran).
_FEWEST_EXPECTED = 5
_DRAWS = 9_999


def mean_difference_interval(one: Float, other: Float, confidence_level: float) -> Interval:
    """Of the difference of two means, `[n]` and `[m]`: Welch's, bent for skewness."""
    difference = float(one.mean() - other.mean())
    parts = [float(x.var(ddof=1)) / len(x) for x in (one, other)]
    if sum(parts) <= 0:
        return difference, difference
    thirds = [float(((x - x.mean()) ** 3).mean()) / len(x) ** 2 for x in (one, other)]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(x) - 1) for part, x in zip(parts, (one, other), strict=True)
    )
    skewness = (thirds[0] - thirds[1]) / sum(parts) ** 1.5
    return skewed_t_interval(difference, sum(parts), skewness, freedom, confidence_level)


def share_difference_interval(
    one: float, n: int, other: float, m: int, confidence_level: float
) -> Interval:
    """Of a share of n people less a share of m others (Newcombe's hybrid)."""
    return combined(
        one, wilson(one, n, confidence_level), other, wilson(other, m, confidence_level)
    )


def category_length(
    differences: Sequence[float], ends: Sequence[Interval], spread: float
) -> tuple[float, Interval]:
    """A category's differences as one figure without a sign: their length, and its interval.

    The interval reaches over all vectors whose parts are within theirs: it is on the safe side.

    Args:
        differences: Of the share of each category.
        ends: Their intervals.
        spread: Standard deviation that they share.
    """
    near = [0.0 if low <= 0 <= high else min(abs(low), abs(high)) for low, high in ends]
    far = [max(abs(low), abs(high)) for low, high in ends]
    low, length, high = (math.hypot(*parts) / spread for parts in (near, differences, far))
    return length, (low, high)


def standardised_shares(
    table: Counts, confidence_level: float, *, signed: bool
) -> tuple[float | None, Interval | None]:
    """First row less second, in standard deviations of both together, with its interval.

    Args:
        table: Counts by category, `[2, c]`.
        confidence_level: Of the interval.
        signed: Of two categories, tells the difference of the second; else the length of all.

    Returns:
        None, None if all are in one category.
    """
    (n, m), pooled = table.sum(1), table.sum(0) / table.sum()
    spread = math.sqrt(float((pooled * (1 - pooled)).sum()))
    if spread == 0:
        return None, None
    shares = [(a / n, b / m) for a, b in table.T.tolist()]
    differences = [p - q for p, q in shares]
    ends = [share_difference_interval(p, n, q, m, confidence_level) for p, q in shares]
    if not signed:
        return category_length(differences, ends, spread)
    # Two categories tell the same twice.
    spread /= math.sqrt(2)
    low, high = ends[1]
    return differences[1] / spread, (low / spread, high / spread)


def equal_shares_test(table: Counts, rng: np.random.Generator) -> tuple[str, float | None]:
    """Whether the rows of counts `[2, c]` have the same shares: name of the test, and its p-value.

    There is no p-value where all are in one category.
    """
    table = table[:, table.any(0)]
    if table.shape[1] < 2:
        return "chi-square", None
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    if expected.min() >= _FEWEST_EXPECTED:
        return "chi-square", float(stats.chi2_contingency(table, correction=False).pvalue)
    if table.shape[1] == 2:
        return "Fisher", float(stats.fisher_exact(table).pvalue)
    drawn = stats.random_table(table.sum(1), table.sum(0)).rvs(_DRAWS, random_state=rng)
    statistics = ((drawn - expected) ** 2 / expected).sum((1, 2))
    own = ((table - expected) ** 2 / expected).sum()
    # Tables as extreme up to rounding count as such.
    as_extreme = int((statistics >= own * (1 - 1e-9)).sum())
    return "chi-square, tables drawn", (1 + as_extreme) / (1 + _DRAWS)
