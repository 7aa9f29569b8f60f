"""The permutation test of a difference of two AUCs, with its estimates and their requirements."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.intervals import auc_interval, combined, inverted_interval
from offline_audit.permutation.estimates import INVERTED, ComparisonEstimate, GroupEstimate
from offline_audit.permutation.permutations import (
    Exchange,
    PermutationOptions,
    PermutationResult,
    chunks,
    draw_counts,
    draw_subsets,
    p_value_from_resamples,
)
from offline_audit.permutation.power import detectable_auc
from offline_audit.permutation.ratio_test import Moments, studentized_statistic
from offline_audit.permutation.sources import RankedGroups
from offline_audit.power import Detectable

__all__ = [
    "SMALLEST_MISRANKED",
    "auc_moments",
    "auc_moments_of_units",
    "auc_test",
    "compare_auc",
]

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]
# Sums of the first, second and third powers of placements; a placement is a number of units.
Sums = tuple[Any, Any, Any]

# Expected positives, and negatives, that are ranked on the wrong side (docs/decisions/0009).
SMALLEST_MISRANKED = 5
# A variance of an AUC below this is rounding error.
_NO_VARIANCE = 1e-24
# Rows per distinct score above which drawing counts by score is cheaper than drawing rows.
_LEVEL_COST = 20


def compare_auc(
    ranked: RankedGroups,
    names: tuple[str, str],
    exchange: Exchange,
    confidence_level: float,
    options: PermutationOptions,
) -> ComparisonEstimate:
    """Estimate and test a difference of AUCs, where there is enough data.

    Args:
        ranked: Labelled scores of both groups.
        names: Names of the two sides of the comparison.
        exchange: Which rows are permuted.
        confidence_level: Confidence level of the interval.
        options: Number of permutations, seed, alternative.
    """
    groups = (_group_estimate(names[0], ranked, 0), _group_estimate(names[1], ranked, 1))
    for group in groups:
        if min(group.hits or 0, group.counted - (group.hits or 0)) < 2:
            return ComparisonEstimate(
                groups=groups,
                required_count=SMALLEST_MISRANKED,
                reason=f"{group.name} has fewer than two positives or two negatives with a score",
            )
    moments = [_moments(ranked, index) for index in (0, 1)]
    aucs = [float(part.estimate) for part in moments]
    variances = [float(part.variance) for part in moments]
    classes = ranked.counts.sum(axis=2).astype(np.float64)
    ends = [
        auc_interval(auc, variance, float(classes[i].prod()), confidence_level)
        for i, (auc, variance) in enumerate(zip(aucs, variances, strict=True))
    ]
    # Under H0 both groups have one AUC, estimated from all pairs of a positive and a negative.
    pooled = float(np.average(aucs, weights=classes.prod(axis=1)))
    misranked = float(ranked.classes.min() * min(pooled, 1 - pooled))
    reason, test = None, None
    if misranked < SMALLEST_MISRANKED:
        reason = (
            f"under equal AUCs, {misranked:.1f} rows of the smallest class are "
            f"expected to be misranked; at least {SMALLEST_MISRANKED} are needed"
        )
    else:
        test = auc_test(ranked, exchange, options, confidence_level)
        if test.p_value is None:
            reason, test = (
                "no variation within the groups, so the AUCs have no standard error",
                None,
            )
    interval = combined(aucs[0], ends[0], aucs[1], ends[1])
    method = "DeLong on the logit scale, combined by Newcombe's method"
    if test is not None and test.interval is not None:
        interval, method = test.interval, INVERTED
    return ComparisonEstimate(
        groups=groups,
        interval=interval,
        method=method,
        detectable=_detectable(moments, classes.min(axis=1), pooled, options),
        smallest_count=misranked,
        required_count=SMALLEST_MISRANKED,
        reason=reason,
        test=test,
    )


def _detectable(
    moments: list[Moments], smaller_classes: Float, auc: float, options: PermutationOptions
) -> Detectable | None:
    """The smallest detectable effects; None if nothing varies."""
    variances = np.array([float(part.variance) for part in moments])
    if variances.sum() <= _NO_VARIANCE or not 0 < auc < 1:
        return None
    # Welch and Satterthwaite's degrees of freedom, from the smaller class of each group.
    freedom = variances.sum() ** 2 / (variances**2 / (smaller_classes - 1)).sum()
    third = float(moments[0].third - moments[1].third)
    first, second = variances.tolist()
    return detectable_auc(auc, (first, second), third, float(freedom), options)


def _group_estimate(name: str, ranked: RankedGroups, index: int) -> GroupEstimate:
    negatives, positives = (int(n) for n in ranked.counts[index].sum(axis=1))
    counted = units = negatives + positives
    if ranked.units is not None:
        _, _, group_of, unit = ranked.units
        units = len(np.unique(unit[group_of == index]))
    auc = float(_moments(ranked, index).estimate) if min(negatives, positives) else None
    return GroupEstimate(
        name=name, rows=0, counted=counted, hits=positives, units=units, estimate=auc
    )


def auc_test(
    ranked: RankedGroups,
    exchange: Exchange,
    options: PermutationOptions,
    confidence_level: float = 0.95,
) -> PermutationResult:
    """Is the AUC the same in both groups?

    H0: the AUCs are equal. T is their difference over DeLong's standard error, with half of Hall's
    skewness correction. Positives are permuted with positives and negatives with negatives, so that
    each group keeps its share of positives, on which the variance of an AUC depends; with
    `exchange="all"`, every row is permuted with every other.

    The interval has the differences d for which (difference − d) is not extreme in the same null
    distribution, so it agrees with the p-value.
    """
    group, other = _moments(ranked, 0), _moments(ranked, 1)
    observed = float(_statistic(group, other, options))
    if not np.isfinite(observed):
        return PermutationResult(statistic=None, p_value=None, n_resamples=0, degenerate=0)
    if ranked.units is not None:
        null_distribution = _permuted_by_unit(ranked, options)
    else:
        bins = options.bins_for(ranked.rows)
        used = ranked.binned(bins) if bins and ranked.counts.shape[2] > bins else ranked
        few_levels = used.counts.shape[2] * _LEVEL_COST <= used.rows
        permuted = _permuted_by_level if few_levels else _permuted_by_row
        null_distribution = permuted(used, exchange, options)
    result = p_value_from_resamples(observed, null_distribution, options.alternative)

    def p_value(difference: float) -> float:
        shifted = dataclasses.replace(group, estimate=group.estimate - difference)
        statistic = float(_statistic(shifted, other, options))
        return p_value_from_resamples(statistic, null_distribution, "two-sided").p_value or 0.0

    interval = inverted_interval(
        p_value,
        float(group.estimate - other.estimate),
        math.sqrt(float(group.variance + other.variance)),
        confidence_level,
    )
    if interval is not None:
        interval = max(interval[0], -1.0), min(interval[1], 1.0)
    return dataclasses.replace(result, interval=interval)


def _moments(ranked: RankedGroups, group: int) -> Moments:
    """AUC and variance of the first or second group."""
    if ranked.units is not None:
        level, label, group_of, unit = ranked.units
        own = group_of == group
        return auc_moments_of_units(level[own], label[own], unit[own])
    negatives, positives = ranked.counts[group].astype(np.float64)
    return auc_moments(positives, negatives)


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
    return _moments_of_placements(
        p, n, _placement_sums(positives, below), _placement_sums(negatives, above)
    )


def _placement_sums(counts: Float, placements: Float) -> Sums:
    """Sums of first, second and third powers of placements."""
    weighted = counts * placements
    first = weighted.sum(axis=-1)
    squares = np.vecdot(weighted, placements)
    weighted *= placements
    return first, squares, np.vecdot(weighted, placements)


def _moments_of_placements(p: Any, n: Any, of_positives: Sums, of_negatives: Sums) -> Moments:
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


def _statistic(group: Moments, other: Moments, options: PermutationOptions) -> Float:
    if not options.studentized:
        return group.estimate - other.estimate
    return studentized_statistic(group, other, skewed=True)


def _permuted_by_level(
    ranked: RankedGroups, exchange: Exchange, options: PermutationOptions
) -> Float:
    """Statistics of permutations, drawn as counts by label and score, `[n_resamples]`."""
    rng = np.random.default_rng(options.seed)
    total, levels = ranked.counts.sum(axis=0), ranked.counts.shape[2]
    statistics = []
    for part in chunks(options, 4 * levels):
        if exchange == "all":
            flat = draw_counts(rng, total.ravel(), int(ranked.counts[0].sum()), part)
            negatives, positives = flat[:, :levels], flat[:, levels:]
        else:
            negatives, positives = (
                draw_counts(rng, total[label], int(ranked.counts[0, label].sum()), part)
                for label in (0, 1)
            )
        rest = (total[1] - positives, total[0] - negatives)
        group = auc_moments(positives.astype(np.float64), negatives.astype(np.float64))
        other = auc_moments(*(counts.astype(np.float64) for counts in rest))
        statistics.append(_statistic(group, other, options))
    return np.concatenate(statistics)


class _RankedClass:
    """Rows of one class in ascending order of score, with their placements in the other class.

    The rows of the other class with a lower score are the first `low`, those with a lower or equal
    score the first `high`; a cumulative sum over any subset then gives the placements in it.
    """

    def __init__(self, own: Int, opposite: Int) -> None:
        before = np.concatenate([[0], np.cumsum(opposite)])
        self.low, self.high = np.repeat(before[:-1], own), np.repeat(before[1:], own)
        self.tied = bool(np.any((own > 0) & (opposite > 0)))
        self.below = (self.low + self.high) / 2

    def below_among(self, opposite_members: Bool) -> Float:
        """Members of the other class, `[d, m]`, that are below each row; ties count half."""
        draws, n = opposite_members.shape
        before = np.zeros((draws, n + 1), dtype=np.int32)
        np.cumsum(opposite_members, axis=1, dtype=np.int32, out=before[:, 1:])
        low = before.take(self.low, axis=1)
        high = before.take(self.high, axis=1) if self.tied else low
        return (low + high) / 2.0


def _permuted_by_row(
    ranked: RankedGroups, exchange: Exchange, options: PermutationOptions
) -> Float:
    """Statistics of permutations, drawn row by row, `[n_resamples]`."""
    rng = np.random.default_rng(options.seed)
    total = ranked.counts.sum(axis=0)
    negatives, positives = _RankedClass(total[0], total[1]), _RankedClass(total[1], total[0])
    n, p = len(negatives.low), len(positives.low)
    sizes = ranked.counts[0].sum(axis=1)
    statistics = []
    for part in chunks(options, 10 * (n + p)):
        if exchange == "all":
            taken = draw_subsets(rng, n + p, int(sizes.sum()), part)
            in_n, in_p = taken[:, :n], taken[:, n:]
        else:
            in_n = draw_subsets(rng, n, int(sizes[0]), part)
            in_p = draw_subsets(rng, p, int(sizes[1]), part)
        group, other = _split_moments(negatives, positives, in_n, in_p)
        statistics.append(_statistic(group, other, options))
    return np.concatenate(statistics)


def _split_moments(
    negatives: _RankedClass, positives: _RankedClass, in_n: Bool, in_p: Bool
) -> tuple[Moments, Moments]:
    """Moments, `[d]`, of the group with these negatives and positives, `[d, ...]`, and the rest."""
    below_positives, below_negatives = positives.below_among(in_n), negatives.below_among(in_p)
    n, p = np.count_nonzero(in_n, axis=1), np.count_nonzero(in_p, axis=1)
    rest_n, rest_p = in_n.shape[1] - n, in_p.shape[1] - p
    # The placement of a negative counts the positives above it.
    group = _moments_of_placements(
        p, n, _masked_sums(below_positives, in_p), _masked_sums(p[:, None] - below_negatives, in_n)
    )
    rest_above = rest_p[:, None] - (negatives.below - below_negatives)
    other = _moments_of_placements(
        rest_p,
        rest_n,
        _masked_sums(positives.below - below_positives, ~in_p),
        _masked_sums(rest_above, ~in_n),
    )
    return group, other


def _masked_sums(placements: Float, members: Bool) -> tuple[Float, Float, Float]:
    """Sums of first, second and third powers of the members' placements, `[d]` each."""
    powers = placements * members
    first = powers.sum(axis=1)
    powers *= placements
    second = powers.sum(axis=1)
    powers *= placements
    return first, second, powers.sum(axis=1)


def _permuted_by_unit(ranked: RankedGroups, options: PermutationOptions) -> Float:
    """Statistics of permutations of whole units with all their rows, `[n_resamples]`."""
    assert ranked.units is not None
    level, label, group_of, unit = ranked.units
    rng = np.random.default_rng(options.seed)
    names, index = np.unique(unit, return_inverse=True)
    size = len(np.unique(unit[group_of == 0]))
    statistics = []
    for part in chunks(options, len(level)):
        for _ in range(part):
            taken = draw_subsets(rng, len(names), size, 1)[0, index]
            group, other = (
                auc_moments_of_units(level[m], label[m], index[m]) for m in (taken, ~taken)
            )
            statistics.append(float(_statistic(group, other, options)))
    return np.array(statistics)
