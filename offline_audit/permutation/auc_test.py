"""The permutation test of a difference of two AUCs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from offline_audit.permutation.ranks import (
    AucMoments,
    auc_moments,
    auc_moments_of_units,
    moments_of_placements,
)
from offline_audit.permutation.ratio import GroupMoments, studentized_statistic
from offline_audit.permutation.ratio_test import Judged, judged_by_draws
from offline_audit.permutation.rearranged_sums import Rearranging, chunks
from offline_audit.permutation.rearrangements import drawn_counts, drawn_subsets
from offline_audit.permutation.tally import Exchange

__all__ = ["RankedSides", "auc_test"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

# Levels so many times fewer than rows make drawing by level cheaper than row by row.
_LEVEL_COST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedSides:
    """Labelled, scored rows of two groups, by distinct score.

    Attributes:
        counts: Rows of each side, label and distinct score in ascending order, `[2, 2, levels]`.
        units: Level, label, side and unit of each row, where rows come in units; else None.
    """

    counts: Int
    units: tuple[Int, Int, Int, Int] | None = None

    @property
    def rows(self) -> int:
        """In both groups."""
        return int(self.counts.sum())

    def moments(self, side: int) -> AucMoments:
        """AUC and variance of one side."""
        if self.units is not None:
            level, label, of_side, unit = self.units
            here = of_side == side
            return auc_moments_of_units(level[here], label[here], unit[here])
        negatives, positives = self.counts[side].astype(np.float64)
        return auc_moments(positives, negatives)

    @property
    def classes(self) -> Int:
        """Negatives and positives of each side, `[2, 2]`; units that have some, if rows come so."""
        if self.units is None:
            summed: Int = self.counts.sum(axis=2)
            return summed
        _, label, side, unit = self.units
        found = [[len(np.unique(unit[(side == s) & (label == y)])) for y in (0, 1)] for s in (0, 1)]
        return np.array(found, dtype=np.int64)

    def binned(self, bins: int) -> Self:
        """Neighbouring scores put together.

        About the same share of the positives and negatives is in every bin, so that a class that is
        rare is not put into one.
        """
        by_label = self.counts.sum(axis=0)
        shares = (by_label / by_label.sum(axis=1, keepdims=True)).mean(axis=0)
        filled = np.floor(np.cumsum(shares) * bins)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(filled)) + 1])
        return type(self)(counts=np.add.reduceat(self.counts, starts, axis=2))


def auc_test(sides: RankedSides, exchange: Exchange, how: Rearranging) -> Judged:
    """Is the AUC the same in both groups?

    H0: the AUCs are equal. T is their difference over DeLong's standard error, bent for skewness as
    means are. Positives change groups with positives and negatives with negatives, so that each
    group keeps its share of positives, on which an AUC's variance depends; with `all`, every row
    changes with every other.
    """
    seen = float(_statistic(sides.moments(0), sides.moments(1), how))
    if not np.isfinite(seen):
        return Judged(statistic=None, p_value=None, draws=0, degenerate=0)
    if sides.units is not None:
        drawn = _by_units(sides, how)
    else:
        bins = how.bins_for(sides.rows)
        used = sides.binned(bins) if bins and sides.counts.shape[2] > bins else sides
        fewer = used.counts.shape[2] * _LEVEL_COST <= used.rows
        drawn = _by_level(used, exchange, how) if fewer else _row_by_row(used, exchange, how)
    return judged_by_draws(seen, drawn, how.alternative)


def _statistic(group: AucMoments, other: AucMoments, how: Rearranging) -> Float:
    if not how.studentized:
        return group.auc - other.auc
    pair = (GroupMoments(side.auc, side.variance, side.third) for side in (group, other))
    return studentized_statistic(*pair, skewed=True)


def _by_level(sides: RankedSides, exchange: Exchange, how: Rearranging) -> Float:
    """Counts at each score, drawn by label and score."""
    rng = np.random.default_rng(how.seed)
    total, levels = sides.counts.sum(axis=0), sides.counts.shape[2]
    found = []
    for part in chunks(how, 4 * levels):
        if exchange == "all":
            flat = drawn_counts(rng, total.ravel(), int(sides.counts[0].sum()), part)
            negatives, positives = flat[:, :levels], flat[:, levels:]
        else:
            negatives, positives = (
                drawn_counts(rng, total[label], int(sides.counts[0, label].sum()), part)
                for label in (0, 1)
            )
        rest = (total[1] - positives, total[0] - negatives)
        group = auc_moments(positives.astype(np.float64), negatives.astype(np.float64))
        other = auc_moments(*(side.astype(np.float64) for side in rest))
        found.append(_statistic(group, other, how))
    return np.concatenate(found)


class _Placed:
    """Rows of one class in ascending order of score: how many of the other class lie below each."""

    def __init__(self, own: Int, opposite: Int) -> None:
        before = np.concatenate([[0], np.cumsum(opposite)])
        self.low, self.high = np.repeat(before[:-1], own), np.repeat(before[1:], own)
        self.tied = bool(np.any((own > 0) & (opposite > 0)))
        self.below = (self.low + self.high) / 2

    def below_among(self, opposite_members: Bool) -> Float:
        """How many members of the other class, `[d, m]`, lie below each row; ties count half."""
        draws, n = opposite_members.shape
        before = np.zeros((draws, n + 1), dtype=np.int32)
        np.cumsum(opposite_members, axis=1, dtype=np.int32, out=before[:, 1:])
        low = before.take(self.low, axis=1)
        high = before.take(self.high, axis=1) if self.tied else low
        return (low + high) / 2.0


def _row_by_row(sides: RankedSides, exchange: Exchange, how: Rearranging) -> Float:
    """Every row by itself."""
    rng = np.random.default_rng(how.seed)
    total = sides.counts.sum(axis=0)
    negatives, positives = _Placed(total[0], total[1]), _Placed(total[1], total[0])
    n, p = len(negatives.low), len(positives.low)
    sizes = sides.counts[0].sum(axis=1)
    found = []
    for part in chunks(how, 10 * (n + p)):
        if exchange == "all":
            taken = drawn_subsets(rng, n + p, int(sizes.sum()), part)
            in_n, in_p = taken[:, :n], taken[:, n:]
        else:
            in_n = drawn_subsets(rng, n, int(sizes[0]), part)
            in_p = drawn_subsets(rng, p, int(sizes[1]), part)
        found.append(_rearranged(negatives, positives, in_n, in_p, how))
    return np.concatenate(found)


def _rearranged(
    negatives: _Placed, positives: _Placed, in_n: Bool, in_p: Bool, how: Rearranging
) -> Float:
    """Statistics, `[d]`, when these negatives and positives, `[d, ...]`, are in the group."""
    below, beneath = positives.below_among(in_n), negatives.below_among(in_p)
    n, p = np.count_nonzero(in_n, axis=1), np.count_nonzero(in_p, axis=1)
    rest_n, rest_p = in_n.shape[1] - n, in_p.shape[1] - p
    # A negative's placement counts the positives above it.
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
    return _statistic(group, other, how)


def _masked_sums(placements: Float, members: Bool) -> tuple[Float, Float, Float]:
    powers = placements * members
    first = powers.sum(axis=1)
    powers *= placements
    second = powers.sum(axis=1)
    powers *= placements
    return first, second, powers.sum(axis=1)


def _by_units(sides: RankedSides, how: Rearranging) -> Float:
    """Whole units change groups, with all their rows."""
    assert sides.units is not None
    level, label, of_side, unit = sides.units
    rng = np.random.default_rng(how.seed)
    names, place = np.unique(unit, return_inverse=True)
    size = len(np.unique(unit[of_side == 0]))
    found = []
    for part in chunks(how, len(level)):
        for _ in range(part):
            here = drawn_subsets(rng, len(names), size, 1)[0, place]
            group, other = (
                auc_moments_of_units(level[m], label[m], place[m]) for m in (here, ~here)
            )
            found.append(float(_statistic(group, other, how)))
    return np.array(found)
