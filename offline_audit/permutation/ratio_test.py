"""The permutation test of a difference of two ratios: exact for rates, random for the rest."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from offline_audit.permutation.permutations import (
    Alternative,
    PermutationOptions,
    PermutationResult,
    chunks,
    draw_counts,
    draw_subsets,
    p_value_from_resamples,
)
from offline_audit.permutation.studentized import (
    Moments,
    powers,
    rate_statistic,
    ratio_moments,
    studentized_statistic,
)

__all__ = ["hypergeometric_probabilities", "permuted_sums", "ratio_test"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]

# Statistics that are this close, relative to their size, are ties that were rounded differently.
_TIE_TOLERANCE = 1e-9
# Probability that the enumeration and rounding leave out; no p-value is smaller.
_SMALLEST_P = 1e-16
# Standard deviations from the mean beyond which a hypergeometric count has probability 10⁻¹⁸.
_ENUMERATED_DEVIATIONS = 9
# Drawing the count of one type costs about as much as shuffling this many units.
_TYPE_COST = 20


def ratio_test(
    values: Float,
    strata: Int,
    group: Int,
    other: Int,
    *,
    rates: bool,
    options: PermutationOptions,
) -> PermutationResult:
    """Is Σa/Σb the same in both groups?

    H0: the ratios are equal. Units are permuted between the groups within their strata. T is the
    studentized difference: for rates with one success and one failure added to each group (Agresti
    and Caffo, The American Statistician 54, 2000), for means and rates of units with half of Hall's
    skewness correction. Rates of rows that are their own units have one free count, so all
    permutations are enumerated; ties count half.

    Args:
        values: a and b of each type, `[k, 2]`.
        strata: Stratum of each type, `[k]`.
        group: Units of each type in the group, `[k]`.
        other: Units of each type in the other group, `[k]`.
        rates: Whether a counts successes among b.
        options: Number of permutations, seed, alternative.
    """
    test = _RatioTest(values, group, other, rates=rates, studentized=options.studentized)
    observed = float(test.statistic(group[None, :])[0])
    if not np.isfinite(observed):
        return PermutationResult(statistic=None, p_value=None, n_resamples=0, degenerate=0)
    if test.single_rates and len(set(strata.tolist())) == 1:
        return PermutationResult(
            statistic=observed,
            p_value=test.exact_p_value(observed, options.alternative),
            n_resamples=None,
            degenerate=0,
        )
    null_distribution = test.null_distribution(strata, options)
    # Within strata the groups keep their base rates, so T is not centred at 0.
    counted = (group + other > 0) & (values[:, 1] > 0)
    return p_value_from_resamples(
        observed,
        null_distribution,
        options.alternative,
        centred=len(set(strata[counted].tolist())) == 1,
    )


class _RatioTest:
    """Sums over types, computed once for all permutations."""

    def __init__(
        self, values: Float, group: Int, other: Int, *, rates: bool, studentized: bool
    ) -> None:
        self.rates, self.studentized, self.values = rates, studentized, values
        self.types = group + other
        self.group, self.size = group, int(group.sum())
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
        self.total = self.types @ self.terms

    def statistic(self, counts: Int) -> Float:
        """T of groups with these numbers of units of each type, `[d, k]` to `[d]`."""
        return self.statistic_of_sums(counts @ self.terms)

    def statistic_of_sums(self, sums: Float) -> Float:
        """T of groups with these sums of powers, `[d, 10]` to `[d]`."""
        group, other = self._moments(sums), self._moments(self.total - sums)
        if not self.studentized:
            return (group.estimate - other.estimate) * self.scale
        return studentized_statistic(group, other, skewed=not self.single_rates)

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

    def null_distribution(self, strata: Int, options: PermutationOptions) -> Float:
        """T of random permutations, `[n_resamples]`."""
        sums = permuted_sums(self.terms, strata, self.group, self.types - self.group, options)
        return np.concatenate([self.statistic_of_sums(part) for part in sums])


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


def permuted_sums(
    terms: Float, strata: Int, group: Int, other: Int, options: PermutationOptions
) -> Iterator[Float]:
    """Sums of `terms` over the units of the group in random permutations, `[d, p]`, in chunks.

    Args:
        terms: Terms of each type, `[k, p]`.
        strata: Stratum of each type, `[k]`; units are permuted within strata.
        group: Units of each type in the group, `[k]`.
        other: Units of each type in the other group, `[k]`.
        options: Number of permutations, seed, bins.
    """
    rng = np.random.default_rng(options.seed)
    types, units = group + other, int((group + other).sum())
    bins = options.bins_for(units) if len(types) * _TYPE_COST > units else 0
    if bins:
        terms, strata, group, other = _binned(terms, strata, group, other, bins)
        types = group + other
    by_type = len(types) * _TYPE_COST <= units
    within = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    sizes = [int(group[indices].sum()) for indices in within]
    if by_type:
        for part in chunks(options, len(types)):
            sums = np.zeros((part, terms.shape[1]))
            for indices, size in zip(within, sizes, strict=True):
                sums += draw_counts(rng, types[indices], size, part) @ terms[indices]
            yield sums
        return
    expanded = [np.repeat(terms[indices], types[indices], axis=0) for indices in within]
    for part in chunks(options, sum(map(len, expanded))):
        sums = np.zeros((part, terms.shape[1]))
        for rows, size in zip(expanded, sizes, strict=True):
            sums += draw_subsets(rng, len(rows), size, part) @ rows
        yield sums


def _binned(
    terms: Float, strata: Int, group: Int, other: Int, bins: int
) -> tuple[Float, Int, Int, Int]:
    """Neighbouring types of a stratum, merged into one type with their mean terms.

    The totals of the terms are unchanged, so the sums of a permutation differ from the exact ones
    only by what is exchanged within a bin. Each bin holds about the same share of units, squares
    and cubes: few units that make up most of the variance get bins of their own, otherwise the
    permutation distribution would miss them.
    """
    types = group + other
    b, a = terms[:, 1], terms[:, 2]
    order = np.lexsort((a, b, strata))
    key = np.stack([strata[order], b[order]])
    new = np.concatenate([[True], np.any(key[:, 1:] != key[:, :-1], axis=0)])
    filled = np.cumsum(_share_of_moments(a, types)[order]) * bins
    new[1:] |= np.diff(np.floor(filled)) > 0
    bin_of = np.cumsum(new) - 1
    k = int(bin_of[-1]) + 1
    mass = np.bincount(bin_of, weights=types[order], minlength=k)
    weighted = (types[order] * column for column in terms[order].T)
    summed = np.stack([np.bincount(bin_of, weights=w, minlength=k) for w in weighted], axis=1)
    merged = [np.bincount(bin_of, weights=units[order], minlength=k) for units in (group, other)]
    return (
        summed / mass[:, None],
        strata[order][new],
        merged[0].astype(np.int64),
        merged[1].astype(np.int64),
    )


def _share_of_moments(a: Float, types: Int) -> Float:
    """Mean of each type's shares of units, squares and cubes, `[k]`; sums to 1."""
    shares = np.zeros(len(a))
    for power in (0, 2, 3):
        part = types * np.abs(a) ** power
        shares += part / (part.sum() or 1.0) / 3
    return shares
