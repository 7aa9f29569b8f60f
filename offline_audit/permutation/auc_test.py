"""The permutation test of a difference of two AUCs, with its estimates and their requirements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from offline_audit.intervals import auc_interval, combined
from offline_audit.permutation.permutations import (
    Exchange,
    PermutationOptions,
    PermutationResult,
    chunks,
    draw_counts,
    draw_subsets,
    p_value_from_resamples,
)
from offline_audit.permutation.result import ComparisonEstimate, GroupEstimate
from offline_audit.permutation.studentized import (
    Moments,
    auc_moments,
    auc_moments_of_units,
    moments_of_placements,
    studentized_statistic,
)

__all__ = ["SMALLEST_MISRANKED", "RankedGroups", "auc_test", "compare_auc"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

# Expected positives, and negatives, that are ranked on the wrong side (docs/decisions/0009).
SMALLEST_MISRANKED = 5
# With this many times fewer levels than rows, drawing by level is cheaper than row by row.
_LEVEL_COST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedGroups:
    """Labelled, scored rows of two groups, by distinct score.

    Attributes:
        counts: Rows by group, label and distinct score in ascending order, `[2, 2, levels]`.
        units: Level, label, group and unit of each row, where rows belong to units; else None.
    """

    counts: Int
    units: tuple[Int, Int, Int, Int] | None = None

    @property
    def rows(self) -> int:
        """Rows of both groups."""
        return int(self.counts.sum())

    def moments(self, group: int) -> Moments:
        """AUC and variance of one group."""
        if self.units is not None:
            level, label, group_of, unit = self.units
            own = group_of == group
            return auc_moments_of_units(level[own], label[own], unit[own])
        negatives, positives = self.counts[group].astype(np.float64)
        return auc_moments(positives, negatives)

    @property
    def classes(self) -> Int:
        """Negatives and positives of each group, `[2, 2]`; units that have some, if given."""
        if self.units is None:
            totals: Int = self.counts.sum(axis=2)
            return totals
        _, label, group_of, unit = self.units
        counts = [
            [len(np.unique(unit[(group_of == g) & (label == y)])) for y in (0, 1)] for g in (0, 1)
        ]
        return np.array(counts, dtype=np.int64)

    def binned(self, bins: int) -> Self:
        """The same rows with neighbouring scores merged.

        Every bin has about the same share of the positives and negatives, so that a rare class is
        not merged into one bin.
        """
        by_label = self.counts.sum(axis=0)
        shares = (by_label / by_label.sum(axis=1, keepdims=True)).mean(axis=0)
        filled = np.floor(np.cumsum(shares) * bins)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(filled)) + 1])
        return type(self)(counts=np.add.reduceat(self.counts, starts, axis=2))


def compare_auc(
    ranked: RankedGroups,
    names: tuple[str, str],
    exchange: Exchange,
    confidence_level: float,
    options: PermutationOptions,
) -> ComparisonEstimate:
    """Estimate and test a difference of AUCs, where there is enough data."""
    groups = (_group_estimate(names[0], ranked, 0), _group_estimate(names[1], ranked, 1))
    for group in groups:
        if min(group.hits or 0, group.counted - (group.hits or 0)) < 2:
            return ComparisonEstimate(
                groups=groups,
                required_count=SMALLEST_MISRANKED,
                reason=f"{group.name} has fewer than two positives or two negatives with a score",
            )
    moments = [ranked.moments(index) for index in (0, 1)]
    aucs = [float(part.estimate) for part in moments]
    variances = [float(part.variance) for part in moments]
    classes = ranked.counts.sum(axis=2).astype(np.float64)
    ends = [
        auc_interval(auc, variance, float(classes[i].prod()), confidence_level)
        for i, (auc, variance) in enumerate(zip(aucs, variances, strict=True))
    ]
    pooled = float(np.average(aucs, weights=classes.prod(axis=1)))
    misranked = float(ranked.classes.min() * min(pooled, 1 - pooled))
    reason, test = None, None
    if misranked < SMALLEST_MISRANKED:
        reason = (
            f"not enough data: under equal AUCs, {misranked:.1f} rows of the smallest class are "
            f"expected to be misranked; at least {SMALLEST_MISRANKED} are needed"
        )
    else:
        test = auc_test(ranked, exchange, options)
        if test.p_value is None:
            reason, test = (
                "no variation within the groups, so the AUCs have no standard error",
                None,
            )
    return ComparisonEstimate(
        groups=groups,
        interval=combined(aucs[0], ends[0], aucs[1], ends[1]),
        method="DeLong on the logit scale, combined by Newcombe's method",
        error=math.sqrt(sum(variances)) or None,
        smallest_count=misranked,
        required_count=SMALLEST_MISRANKED,
        reason=reason,
        test=test,
    )


def _group_estimate(name: str, ranked: RankedGroups, index: int) -> GroupEstimate:
    negatives, positives = (int(n) for n in ranked.counts[index].sum(axis=1))
    counted = units = negatives + positives
    if ranked.units is not None:
        _, _, group_of, unit = ranked.units
        units = len(np.unique(unit[group_of == index]))
    auc = float(ranked.moments(index).estimate) if min(negatives, positives) else None
    return GroupEstimate(
        name=name, rows=0, counted=counted, hits=positives, units=units, estimate=auc
    )


def auc_test(
    ranked: RankedGroups, exchange: Exchange, options: PermutationOptions
) -> PermutationResult:
    """Is the AUC the same in both groups?

    H0: the AUCs are equal. T is their difference over DeLong's standard error, with half of Hall's
    skewness correction. Positives are permuted with positives and negatives with negatives, so that
    each group keeps its share of positives, on which the variance of an AUC depends; with
    `exchange="all"`, every row is permuted with every other.
    """
    observed = float(_statistic(ranked.moments(0), ranked.moments(1), options))
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
    return p_value_from_resamples(observed, null_distribution, options.alternative)


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
    """Rows of one class in ascending order of score, with the rows of the other class below."""

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
    below, beneath = positives.below_among(in_n), negatives.below_among(in_p)
    n, p = np.count_nonzero(in_n, axis=1), np.count_nonzero(in_p, axis=1)
    rest_n, rest_p = in_n.shape[1] - n, in_p.shape[1] - p
    # The placement of a negative counts the positives above it.
    group = moments_of_placements(
        p, n, _masked_sums(below, in_p), _masked_sums(p[:, None] - beneath, in_n)
    )
    rest_above = rest_p[:, None] - (negatives.below - beneath)
    other = moments_of_placements(
        rest_p,
        rest_n,
        _masked_sums(positives.below - below, ~in_p),
        _masked_sums(rest_above, ~in_n),
    )
    return group, other


def _masked_sums(placements: Float, members: Bool) -> tuple[Float, Float, Float]:
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
