"""The studentized difference of two ratios, from sums over types of units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["GroupMoments", "moments_of", "powers", "rate_statistic", "studentized_statistic"]

Float = NDArray[np.float64]

# Half of Hall's correction for skewness: none lets skewed scores reject too often, all of it
# makes two-valued scores reject too seldom (docs/decisions/0009).
_SKEW_SHARE = 0.5
# Relative to the scale of the values: a variance below it is rounding.
_ROUNDING = 1e-24


@dataclass(frozen=True, slots=True)
class GroupMoments:
    """A ratio Σa/Σb of some group, or of many rearrangements of it.

    With the residuals e = a − ratio·b of the units, the linearisation of the ratio gives its
    variance, Σe²/(Σb)², whatever the rows of one unit have to do with each other; for rows that are
    units of their own it is the binomial or the sample variance.

    Attributes:
        ratio: Σa/Σb; not a number where Σb is 0.
        variance: Of the ratio.
        third: Σe³/(Σb)³, the ratio's third cumulant.
    """

    ratio: Float
    variance: Float
    third: Float


def powers(values: Float) -> Float:
    """1, b, a, b², ab, a², b³, ab², a²b, a³ of each unit or type, `[k, 10]`, from `[k, 2]`."""
    a, b = values.T
    terms = (np.ones_like(a), b, a, b * b, a * b, a * a, b**3, a * b * b, a * a * b, a**3)
    return np.stack(terms, axis=1)


def moments_of(sums: Float, *, rates: bool) -> GroupMoments:
    """From sums of `powers` over the units of the group, `[..., 10]`.

    Args:
        sums: Over units; pseudo-units included, if there are any.
        rates: Whether the variance is that of a rate, divided by n; else by n − 1.
    """
    n, b, a, bb, ab, aa, bbb, abb, aab, aaa = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = a / b
        squares = aa - 2 * r * ab + r * r * bb
        cubes = aaa - 3 * r * aab + 3 * r * r * abb - r**3 * bbb
        variance = np.maximum(squares, 0) / b**2
        if not rates:
            variance = variance * n / (n - 1)
        return GroupMoments(r, variance, cubes / b**3)


def studentized_statistic(group: GroupMoments, other: GroupMoments, *, skewed: bool) -> Float:
    """T = (difference of the ratios) / √(sum of their variances).

    With `skewed`, T is then bent as Hall (JRSS B 54, 1992, eq. 2.1) does, by half the measured
    skewness g of the difference: T + g/3 T² + g²/27 T³ + g/6.

    Not a number where a group is empty or nothing varies.
    """
    variance = group.variance + other.variance
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (group.ratio - other.ratio) / np.sqrt(variance)
        t = np.where(variance > _ROUNDING, t, np.nan)
        if not skewed:
            return t
        g = _SKEW_SHARE * (group.third - other.third) / variance**1.5
    return t + g / 3 * t**2 + g**2 / 27 * t**3 + g / 6


def rate_statistic(hits: int, n: int, other_hits: int, other_n: int) -> float:
    """T of two rates from counts of rows, one success and one failure added to each group.

    What `studentized_statistic` says of rows that are their own units, in fewer steps. It grows
    with `hits` when `hits + other_hits` stays the same.
    """
    p, q = (hits + 1) / (n + 2), (other_hits + 1) / (other_n + 2)
    return (p - q) / math.sqrt(p * (1 - p) / (n + 2) + q * (1 - q) / (other_n + 2))
