"""The studentized statistic: estimates of two groups, their variances, and the difference T."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Moments",
    "auc_moments",
    "auc_moments_of_units",
    "moments_of_placements",
    "powers",
    "rate_statistic",
    "ratio_moments",
    "studentized_statistic",
]

Float = NDArray[np.float64]
Int = NDArray[np.int64]
# Sums of the first, second and third powers of placements; a placement is a number of units.
Sums = tuple[Any, Any, Any]

# Half of Hall's skewness correction: without it skewed scores reject too often, all of it makes
# two-valued scores reject too rarely (docs/decisions/0009).
_SKEW_SHARE = 0.5
# A variance below this, relative to the scale of the values, is rounding error.
_ROUNDING = 1e-24


@dataclass(frozen=True, slots=True)
class Moments:
    """An estimate for one group, or for many permutations of it.

    Attributes:
        estimate: A ratio or an AUC; NaN where it is undefined.
        variance: Variance of the estimate.
        third: Third cumulant of the estimate.
    """

    estimate: Float
    variance: Float
    third: Float


def studentized_statistic(group: Moments, other: Moments, *, skewed: bool) -> Float:
    """T = (difference of the estimates) / √(sum of their variances).

    (DiCiccio et al., KDD 2020, section 3.) With `skewed`, T gets half of Hall's skewness correction
    (JRSS B 54, 1992, eq. 2.1), with the skewness g of the difference: T + g/3 T² + g²/27 T³ + g/6.

    NaN where a group is empty or nothing varies.
    """
    variance = group.variance + other.variance
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (group.estimate - other.estimate) / np.sqrt(variance)
        t = np.where(variance > _ROUNDING, t, np.nan)
        if not skewed:
            return t
        g = _SKEW_SHARE * (group.third - other.third) / variance**1.5
    return t + g / 3 * t**2 + g**2 / 27 * t**3 + g / 6


def rate_statistic(hits: int, n: int, other_hits: int, other_n: int) -> float:
    """T of two rates from counts of rows, with one success and one failure added to each group.

    Equals `studentized_statistic` for rows that are their own units, in fewer steps. It increases
    with `hits` while `hits + other_hits` is constant. (Agresti and Caffo, The American Statistician
    54, 2000.)
    """
    p, q = (hits + 1) / (n + 2), (other_hits + 1) / (other_n + 2)
    return (p - q) / math.sqrt(p * (1 - p) / (n + 2) + q * (1 - q) / (other_n + 2))


def powers(values: Float) -> Float:
    """1, b, a, b², ab, a², b³, ab², a²b, a³ of each unit or type, `[k, 10]`, from `[k, 2]`."""
    a, b = values.T
    terms = (np.ones_like(a), b, a, b * b, a * b, a * a, b**3, a * b * b, a * a * b, a**3)
    return np.stack(terms, axis=1)


def ratio_moments(sums: Float, *, rates: bool) -> Moments:
    """Moments of the ratio Σa/Σb from sums of `powers` over the units of a group, `[..., 10]`.

    With the residuals e = a − ratio·b of the units, linearisation gives the variance Σe²/(Σb)² and
    the third cumulant Σe³/(Σb)³, for any dependence between the rows of one unit. For rows that
    are their own units it is the binomial or the sample variance.

    Args:
        sums: Sums over units, including pseudo-units.
        rates: Whether the variance is that of a rate, divided by n; else by n − 1.
    """
    n, b, a, bb, ab, aa, bbb, abb, aab, aaa = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = a / b
        squares = aa - 2 * r * ab + r * r * bb
        cubes = aaa - 3 * r * aab + 3 * r * r * abb - r**3 * bbb
        # Rounding can make a sum of squares negative.
        variance = np.maximum(squares, 0) / b**2
        if not rates:
            variance = variance * n / (n - 1)
        return Moments(r, variance, cubes / b**3)


def auc_moments(positives: Float, negatives: Float) -> Moments:
    """AUC and DeLong's variance from counts at each score in ascending order, `[..., levels]`.

    The placement of a positive is the share of negatives below it, ties counting half; that of a
    negative is the share of positives above it. The AUC is the mean of either. DeLong's variance
    (Biometrics 44, 1988, eq. 4 and 6) is the sum of the two sample variances over n; it is NaN with
    fewer than two positives or negatives.
    """
    p, n = positives.sum(axis=-1), negatives.sum(axis=-1)
    below = np.cumsum(negatives, axis=-1)
    below -= negatives / 2
    above = np.cumsum(positives, axis=-1)
    above -= positives / 2
    above = p[..., None] - above
    return moments_of_placements(
        p, n, _placement_sums(positives, below), _placement_sums(negatives, above)
    )


def _placement_sums(counts: Float, placements: Float) -> Sums:
    """Sums of first, second and third powers of placements."""
    weighted = counts * placements
    first = weighted.sum(axis=-1)
    squares = np.vecdot(weighted, placements)
    weighted *= placements
    return first, squares, np.vecdot(weighted, placements)


def moments_of_placements(p: Any, n: Any, of_positives: Sums, of_negatives: Sums) -> Moments:
    """AUC moments from placement sums over p positives and n negatives."""
    # Floats, since fifth powers of a million overflow an integer.
    p, n = np.asarray(p, dtype=np.float64), np.asarray(n, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        auc = of_positives[0] / (p * n)
        variance, third = _cumulants(p, n, of_positives)
        other_variance, other_third = _cumulants(n, p, of_negatives)
    return Moments(
        np.asarray(auc), np.asarray(variance + other_variance), np.asarray(third + other_third)
    )


def _cumulants(own: Any, opposite: Any, sums: Sums) -> tuple[Any, Any]:
    """Variance and third cumulant of a class's mean placement, as shares of the other class.

    DeLong's eq. 6: the sample variance of the placements over the size of the class.
    """
    mean, square, cube = (total / own for total in sums)
    variance = np.maximum(square - mean**2, 0) / (opposite**2 * (own - 1))
    third = (cube - 3 * mean * square + 2 * mean**3) / (opposite**3 * own**2)
    return variance, third


def auc_moments_of_units(level: Int, label: Int, unit: Int) -> Moments:
    """AUC of rows that belong to units, with the variance between units.

    (Obuchowski, Biometrics 53, 1997: the influences of a unit's rows are summed.)

    Args:
        level: Index of each row's score among the distinct scores, `[n]`.
        label: Label of each row, `[n]`.
        unit: Unit of each row, `[n]`.
    """
    levels = int(level.max()) + 1 if len(level) else 0
    positives = np.bincount(level, weights=label, minlength=levels)
    negatives = np.bincount(level, weights=1 - label, minlength=levels)
    p, n = positives.sum(), negatives.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        below = (np.cumsum(negatives) - negatives / 2) / n
        above = (p - np.cumsum(positives) + positives / 2) / p
        placement = np.where(label == 1, below[level], above[level])
        auc = placement[label == 1].sum() / p
        influence = (placement - auc) / np.where(label == 1, p, n)
    summed = np.bincount(unit, weights=influence)
    present = len(np.unique(unit))
    variance = (summed**2).sum() * present / max(present - 1, 1)
    return Moments(np.asarray(auc), np.asarray(variance), np.asarray((summed**3).sum()))
