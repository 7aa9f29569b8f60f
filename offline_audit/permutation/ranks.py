"""The AUC of many rearrangements at once, with DeLong's variance, from counts at each score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["AucMoments", "auc_moments", "auc_moments_of_units", "moments_of_placements"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]
# Sums of the first, second and third powers of placements, each placement counted in units.
Sums = tuple[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class AucMoments:
    """An AUC, or those of many rearrangements.

    The placement of a positive is the share of negatives below it, ties counting a half; that of a
    negative the share of positives above it. The AUC is the mean of either; DeLong's variance
    (Biometrics 44, 1988, eq. 4 and 6) is the sum of the two sample variances over n.

    Attributes:
        auc: Not a number without a positive or a negative.
        variance: DeLong's; not a number with fewer than two of either.
        third: The third cumulant, by the same two sums.
    """

    auc: Float
    variance: Float
    third: Float


def auc_moments(positives: Float, negatives: Float) -> AucMoments:
    """From counts at each distinct score in ascending order, `[..., levels]` each."""
    p, n = positives.sum(axis=-1), negatives.sum(axis=-1)
    below = np.cumsum(negatives, axis=-1)
    below -= negatives / 2
    above = np.cumsum(positives, axis=-1)
    above -= positives / 2
    above = p[..., None] - above
    return moments_of_placements(p, n, _weighted(positives, below), _weighted(negatives, above))


def _weighted(counts: Float, placements: Float) -> Sums:
    """Sums of first, second and third powers of placements."""
    weighted = counts * placements
    first = weighted.sum(axis=-1)
    squares = np.vecdot(weighted, placements)
    weighted *= placements
    return first, squares, np.vecdot(weighted, placements)


def moments_of_placements(p: Any, n: Any, of_positives: Sums, of_negatives: Sums) -> AucMoments:
    """From sums over the positives and over the negatives; p and n are how many there are."""
    # Floats, since fifth powers of a million do not fit an integer.
    p, n = np.asarray(p, dtype=np.float64), np.asarray(n, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        auc = of_positives[0] / (p * n)
        spread, third = _cumulants(p, n, of_positives)
        other_spread, other_third = _cumulants(n, p, of_negatives)
    return AucMoments(
        np.asarray(auc), np.asarray(spread + other_spread), np.asarray(third + other_third)
    )


def _cumulants(own: Any, opposite: Any, sums: Sums) -> tuple[Any, Any]:
    """Of the mean of one class's placements, which are divided by the size of the other class."""
    mean, square, cube = (found / own for found in sums)
    variance = np.maximum(square - mean**2, 0) / (opposite**2 * (own - 1))
    third = (cube - 3 * mean * square + 2 * mean**3) / (opposite**3 * own**2)
    return variance, third


def auc_moments_of_units(level: Int, label: Int, unit: Int) -> AucMoments:
    """The AUC of rows that come in units, with the variance between units (Obuchowski, 1997).

    Args:
        level: Place of each row's score among the distinct ones, `[n]`.
        label: Of each row.
        unit: Number of each row's unit.
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
    spread = (summed**2).sum() * present / max(present - 1, 1)
    return AucMoments(np.asarray(auc), np.asarray(spread), np.asarray((summed**3).sum()))
