"""The studentized statistic, and the permutation test of a difference of rates or means."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from offline_audit.intervals import inverted_interval
from offline_audit.permutation.permutations import (
    Alternative,
    PermutationOptions,
    PermutationResult,
    by_origin,
    p_value_from_resamples,
    permuted_sums,
)

__all__ = [
    "Moments",
    "hypergeometric_probabilities",
    "powers",
    "rate_statistic",
    "ratio_moments",
    "ratio_test",
    "studentized_statistic",
]

Int = NDArray[np.int64]
Float = NDArray[np.float64]

# Half of Hall's skewness correction: without it skewed scores reject too often, all of it makes
# two-valued scores reject too rarely (docs/decisions/0009).
_SKEW_SHARE = 0.5
# Columns of `powers` that differ if every b is 1, and which of these equals each of the columns.
_DISTINCT, _ALL_POWERS = [0, 1, 2, 5, 9], [0, 1, 2, 1, 2, 3, 1, 2, 3, 4]
# A variance below this, relative to the scale of the values, is rounding error.
_ROUNDING = 1e-24
# Statistics that are this close, relative to their size, are ties that were rounded differently.
_TIE_TOLERANCE = 1e-9
# Probability that the enumeration and rounding leave out; no p-value is smaller.
_SMALLEST_P = 1e-16
# Standard deviations from the mean beyond which a hypergeometric count has probability 10⁻¹⁸.
_ENUMERATED_DEVIATIONS = 9


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


def ratio_test(
    values: Float,
    strata: Int,
    group: Int,
    other: Int,
    *,
    rates: bool,
    confidence_level: float = 0.95,
    options: PermutationOptions,
) -> PermutationResult:
    """Is Σa/Σb the same in both groups?

    H0: the ratios are equal. Units are permuted between the groups within their strata. T is the
    studentized difference: for rates with one success and one failure added to each group (Agresti
    and Caffo, The American Statistician 54, 2000), for means and rates of units with half of Hall's
    skewness correction. Rates of rows that are their own units have one free count, so all
    permutations are enumerated; ties count half.

    The test of means is inverted: the interval has the differences d that are not rejected if d is
    subtracted from every value of the group. It agrees with the p-value, and for groups whose
    distributions differ by a shift it is exact, whatever their tails.

    Args:
        values: a and b of each type, `[k, 2]`.
        strata: Stratum of each type, `[k]`.
        group: Units of each type in the group, `[k]`.
        other: Units of each type in the other group, `[k]`.
        rates: Whether a counts successes among b.
        confidence_level: Confidence level of the interval of means.
        options: Number of permutations, seed, alternative.
    """
    test = _RatioTest(values, group, other, rates=rates, studentized=options.studentized)
    observed = float(test.statistic(test.group_sums[None, :], test.total)[0])
    if not np.isfinite(observed):
        return PermutationResult(statistic=None, p_value=None, n_resamples=0, degenerate=0)
    if test.single_rates and len(set(strata.tolist())) == 1:
        return PermutationResult(
            statistic=observed,
            p_value=test.exact_p_value(observed, options.alternative),
            n_resamples=None,
            degenerate=0,
        )
    # Within strata the groups keep their base rates, so T is not centred at 0.
    counted = (group + other > 0) & (values[:, 1] > 0)
    centred = len(set(strata[counted].tolist())) == 1
    permuted = test.permuted_sums(strata, options)
    result = permuted.result(0.0, options.alternative, centred=centred)
    if rates or not centred:
        return result
    estimate, error = test.estimate
    interval = inverted_interval(
        lambda shift: permuted.result(shift, "two-sided").p_value or 0.0,
        estimate,
        error,
        confidence_level,
    )
    if interval is not None:
        interval = interval[0] * test.scale, interval[1] * test.scale
    return replace(result, interval=interval)


class _RatioTest:
    """Sums over types, computed once for all permutations."""

    def __init__(
        self, values: Float, group: Int, other: Int, *, rates: bool, studentized: bool
    ) -> None:
        self.rates, self.studentized, self.values = rates, studentized, values
        self.types = group + other
        self.group, self.other, self.size = group, other, int(group.sum())
        a, b = values.T
        self.single_rates = rates and bool(np.all(b == 1))
        total_b = float(self.types @ b)
        centre = float(self.types @ a) / total_b if total_b else 0.0
        residuals = a - centre * b
        n = max(int(self.types.sum()), 1)
        # Centred and scaled, so that sums of squares do not cancel; T is invariant.
        self.scale = scale = float(np.sqrt(self.types @ residuals**2 / n)) or 1.0
        self.terms = powers(np.stack([residuals / scale, b], axis=1))
        pseudo_units = np.array([[(1 - centre) / scale, 1.0], [-centre / scale, 1.0]])
        self.added: Float = np.zeros(self.terms.shape[1])
        if rates:
            self.added = powers(pseudo_units).sum(axis=0)
        self.group_sums: Float = group @ self.terms
        self.total: Float = self.group_sums + other @ self.terms

    def statistic(self, sums: Float, total: Float) -> Float:
        """T of groups with these sums of powers, `[d, 10]` to `[d]`.

        Args:
            sums: Sums of the first group.
            total: Sums of both groups, `[10]`.
        """
        group, other = self._moments(sums), self._moments(total - sums)
        if not self.studentized:
            return (group.estimate - other.estimate) * self.scale
        return studentized_statistic(group, other, skewed=not self.single_rates)

    @property
    def estimate(self) -> tuple[float, float]:
        """Difference of two means and its standard error, both over `scale`."""
        group, other = (
            ratio_moments(sums, rates=False)
            for sums in (self.group_sums, self.total - self.group_sums)
        )
        difference = float(group.estimate - other.estimate)
        return difference, math.sqrt(float(group.variance + other.variance))

    def _moments(self, sums: Float) -> Moments:
        empty = sums[..., 1] <= 0
        moments = ratio_moments(sums + self.added * self.studentized, rates=self.single_rates)
        # Pseudo-units give an empty group a ratio, which means nothing.
        ratio = np.where(empty, np.nan, moments.estimate)
        return Moments(ratio, moments.variance, moments.third)

    def exact_p_value(self, observed: float, alternative: Alternative) -> float:
        """p-value over all permutations of the rows of rates; ties count half."""
        hit = self.values[:, 0] == 1
        hits, misses = int(self.types[hit].sum()), int(self.types[~hit].sum())
        first, probabilities = hypergeometric_probabilities(hits, misses, self.size)
        rest = hits + misses - self.size

        def statistic(count: int) -> float:
            if self.studentized:
                return rate_statistic(count, self.size, hits - count, rest)
            return count / self.size - (hits - count) / rest

        p = _exact_p_value(statistic, first, probabilities, observed, alternative)
        return min(max(p, _SMALLEST_P), 1.0)

    def permuted_sums(self, strata: Int, options: PermutationOptions) -> _PermutedSums:
        """Sums of random permutations."""
        single = bool(np.all(self.values[:, 1] == 1))
        units = (self.terms[:, _DISTINCT] if single else self.terms, strata, self.group, self.other)
        if not self.rates:
            units = by_origin(*units)
        sums = np.concatenate(list(permuted_sums(*units, options)))
        return _PermutedSums(self, np.asfortranarray(sums[..., _ALL_POWERS] if single else sums))


@dataclass(frozen=True, slots=True)
class _PermutedSums:
    """Sums of powers over the first group of random permutations.

    Attributes:
        test: The test.
        sums: Sums over the units that came from the group, and over the others,
            `[n_resamples, 2, 10]`; for rates their total only is defined.
    """

    test: _RatioTest
    sums: Float

    def result(
        self, shift: float, alternative: Alternative, *, centred: bool = True
    ) -> PermutationResult:
        """Test after `shift` times b was subtracted from a of every unit of the group."""
        test = self.test
        group = _shifted(test.group_sums, shift)
        total = group + (test.total - test.group_sums)
        permuted = _shifted(self.sums[:, 0], shift) + self.sums[:, 1]
        return p_value_from_resamples(
            float(test.statistic(group[None, :], total)[0]),
            test.statistic(permuted, total),
            alternative,
            centred=centred,
        )


def _shifted(sums: Float, shift: float) -> Float:
    """Sums of `powers`, `[..., 10]`, after `shift` times b was subtracted from a of every unit."""
    n, b, a, bb, ab, aa, bbb, abb, aab, aaa = np.moveaxis(sums, -1, 0)
    moved = (
        a - shift * b,
        bb,
        ab - shift * bb,
        aa - 2 * shift * ab + shift**2 * bb,
        bbb,
        abb - shift * bbb,
        aab - 2 * shift * abb + shift**2 * bbb,
        aaa - 3 * shift * aab + 3 * shift**2 * abb - shift**3 * bbb,
    )
    # One contiguous array per power, which is faster than one per permutation.
    return np.moveaxis(np.stack([n, b, *moved]), 0, -1)


def hypergeometric_probabilities(hits: int, misses: int, size: int) -> tuple[int, Float]:
    """The smallest relevant count of hits among `size` units, and probabilities from it upwards.

    Computed from ratios of neighbouring probabilities, so that no large factorial is needed:
    P(x + 1) / P(x) = (hits − x)(size − x) / ((x + 1)(misses − size + x + 1)).
    """
    total = hits + misses
    share = size / total
    centre = hits * share
    spread = math.sqrt(hits * share * (1 - share) * misses / max(total - 1, 1))
    reach = _ENUMERATED_DEVIATIONS * (spread + 1)
    low = max(0, size - misses, math.floor(centre - reach))
    high = min(hits, size, math.ceil(centre + reach))
    x = np.arange(low, high, dtype=np.float64)
    numerator = np.log((hits - x) * (size - x))
    denominator = np.log((x + 1) * (misses - size + x + 1))
    logs = np.concatenate([[0.0], np.cumsum(numerator - denominator)])
    # Relative to the largest, so that exp does not underflow everywhere.
    weights = np.exp(logs - logs.max())
    return low, weights / weights.sum()


def _exact_p_value(
    statistic: Callable[[int], float],
    first: int,
    probabilities: Float,
    observed: float,
    alternative: Alternative,
) -> float:
    """Probability of a more extreme statistic plus half the probability of its ties.

    The statistic of rates increases with the group's hits, so the extreme counts are the two ends
    of the range, located by bisection.

    Args:
        statistic: Statistic as a function of the number of hits.
        first: Number of hits that the first probability belongs to.
        probabilities: Probability of each number of hits from there on.
        observed: The observed statistic.
        alternative: Which ends count.
    """
    counts = range(first, first + len(probabilities))
    cumulated = np.concatenate([[0.0], np.cumsum(probabilities)])
    total, tolerance = float(cumulated[-1]), _TIE_TOLERANCE * (1 + abs(observed))

    def below(limit: float) -> float:
        """Probability of a statistic below a limit."""
        return float(cumulated[bisect.bisect_left(counts, limit, key=statistic)])

    if alternative == "greater":
        return total - (below(observed - tolerance) + below(observed + tolerance)) / 2
    if alternative == "less":
        return (below(observed - tolerance) + below(observed + tolerance)) / 2
    size = abs(observed)
    if size <= tolerance:
        return total - (below(tolerance) - below(-tolerance)) / 2
    upper = total - (below(size - tolerance) + below(size + tolerance)) / 2
    return upper + (below(-size - tolerance) + below(-size + tolerance)) / 2
