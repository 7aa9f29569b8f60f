"""The permutation test of a difference of two ratios: exact for rates, drawn for the rest."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.permutation.ratio import (
    GroupMoments,
    moments_of,
    powers,
    rate_statistic,
    studentized_statistic,
)
from offline_audit.permutation.rearranged_sums import Alternative, Rearranging, rearranged_sums
from offline_audit.permutation.rearrangements import chances

__all__ = [
    "Judged",
    "judged_by_draws",
    "oriented",
    "ratio_test",
]

Int = NDArray[np.int64]
Float = NDArray[np.float64]
# Statistics this close, relative to their size, are the same one rounded differently.
_SAME = 1e-9
# No p-value is below what the enumeration, or rounding, leaves out.
_LEAST_P = 1e-16


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a test says.

    Attributes:
        statistic: The studentized difference; None where it has no value.
        p_value: None likewise.
        draws: Rearrangements drawn; None if all were enumerated.
        degenerate: Draws without a statistic, counted as at least as extreme.
    """

    statistic: float | None
    p_value: float | None
    draws: int | None
    degenerate: int


def ratio_test(
    values: Float, strata: Int, group: Int, other: Int, *, rates: bool, how: Rearranging
) -> Judged:
    """Is Σa/Σb the same in both groups?

    H0: the ratios are equal. Units change groups at random within their strata; T is the
    studentized difference, for rates with one success and one failure added to each group
    (Agresti and Caffo, The American Statistician 54, 2000), for means and for rates of units bent
    for skewness. Rates of rows that are their own units have one free count, so all rearrangements
    are enumerated, and ties count half.

    Args:
        values: a and b of each type, `[k, 2]`.
        strata: Of each type, `[k]`.
        group: Units of each type in the group, `[k]`.
        other: The same in the other group.
        rates: Whether a counts successes among b.
        how: Draws, seed, direction.
    """
    test = _RatioTest(values, group, other, rates=rates, studentized=how.studentized)
    seen = float(test.statistic(group[None, :])[0])
    if not np.isfinite(seen):
        return Judged(statistic=None, p_value=None, draws=0, degenerate=0)
    if test.single_rates and len(set(strata.tolist())) == 1:
        return Judged(
            statistic=seen, p_value=test.exact(seen, how.alternative), draws=None, degenerate=0
        )
    drawn = test.null_distribution(strata, how)
    # Groups that keep their base rates differ by them in every rearrangement: T is not around 0.
    counted = (group + other > 0) & (values[:, 1] > 0)
    return judged_by_draws(
        seen, drawn, how.alternative, centred=len(set(strata[counted].tolist())) == 1
    )


def judged_by_draws(
    seen: float, drawn: Float, alternative: Alternative, *, centred: bool = True
) -> Judged:
    """P = (1 + #{T_i > T} + ½ #{T_i = T}) / (B + 1), with |T| when two-sided.

    Statistics that are not `centred` around 0 are two-sided by twice the smaller tail.
    """
    lost = ~np.isfinite(drawn)
    if alternative == "two-sided" and not centred:
        p = 2 * min(_share_beyond(seen, drawn, "greater"), _share_beyond(seen, drawn, "less"))
    else:
        p = _share_beyond(seen, drawn, alternative)
    return Judged(statistic=seen, p_value=min(p, 1.0), draws=len(drawn), degenerate=int(lost.sum()))


def _share_beyond(seen: float, drawn: Float, alternative: Alternative) -> float:
    lost = ~np.isfinite(drawn)
    above, tied = _extremes(seen, drawn[~lost], alternative)
    return float((1 + above.sum() + lost.sum() + tied.sum() / 2) / (len(drawn) + 1))


def oriented(statistic: Float, alternative: Alternative) -> Float:
    """So that what is large is extreme."""
    if alternative == "two-sided":
        return np.abs(statistic)
    return statistic if alternative == "greater" else -statistic


def _extremes(
    seen: float, others: Float, alternative: Alternative
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which statistics are beyond the one seen, and which equal it."""
    mine = float(oriented(np.array(seen), alternative))
    theirs = oriented(others, alternative)
    tied = np.abs(theirs - mine) <= _SAME * (1 + abs(mine))
    return (theirs > mine) & ~tied, tied


class _RatioTest:
    """Sums over types, prepared once."""

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
        # Centred and scaled, so that sums of squares do not cancel; T does not change.
        self.scale = scale = float(np.sqrt(self.types @ residuals**2 / n)) or 1.0
        self.terms = powers(np.stack([residuals / scale, b], axis=1))
        added = np.array([[(1 - centre) / scale, 1.0], [-centre / scale, 1.0]])
        self.added: Float = powers(added).sum(axis=0) if rates else np.zeros(self.terms.shape[1])
        self.total = self.types @ self.terms

    def statistic(self, counts: Int) -> Float:
        """Of groups with so many units of each type, `[d, k]`."""
        return self.of_sums(counts @ self.terms)

    def of_sums(self, sums: Float) -> Float:
        """Of groups with these sums of powers, `[d, 10]`."""
        group, other = self._moments(sums), self._moments(self.total - sums)
        if not self.studentized:
            return (group.ratio - other.ratio) * self.scale
        return studentized_statistic(group, other, skewed=not self.single_rates)

    def _moments(self, sums: Float) -> GroupMoments:
        empty = sums[..., 1] <= 0
        found = moments_of(sums + self.added * self.studentized, rates=self.single_rates)
        # With pseudo-units an empty group has a ratio; it says nothing all the same.
        ratio = np.where(empty, np.nan, found.ratio)
        return GroupMoments(ratio, found.variance, found.third)

    def exact(self, seen: float, alternative: Alternative) -> float:
        """p-value over all rearrangements of the rows of rates; ties count half."""
        hit = self.values[:, 0] == 1
        hits, misses = int(self.types[hit].sum()), int(self.types[~hit].sum())
        first, chance = chances(hits, misses, self.size)
        rest = hits + misses - self.size

        def statistic(count: int) -> float:
            if self.studentized:
                return rate_statistic(count, self.size, hits - count, rest)
            return count / self.size - (hits - count) / rest

        return min(max(_exact_p(statistic, first, chance, seen, alternative), _LEAST_P), 1.0)

    def null_distribution(self, strata: Int, how: Rearranging) -> Float:
        """T of random rearrangements, `[draws]`."""
        drawn = rearranged_sums(self.terms, strata, self.group, self.types - self.group, how)
        return np.concatenate([self.of_sums(sums) for sums in drawn])


def _exact_p(
    statistic: Callable[[int], float],
    first: int,
    chance: Float,
    seen: float,
    alternative: Alternative,
) -> float:
    """Chance of a statistic beyond the one seen, and half of that of its equals.

    The statistic of rates grows with the group's hits, so that what lies beyond are two ends of the
    counts, found by bisection.

    Args:
        statistic: Of a number of hits.
        first: The number of hits that the first of the chances is of.
        chance: Of each number of hits from there on.
        seen: The statistic that was seen.
        alternative: Which ends count.
    """
    counts = range(first, first + len(chance))
    cumulated = np.concatenate([[0.0], np.cumsum(chance)])
    total, same = float(cumulated[-1]), _SAME * (1 + abs(seen))

    def below(limit: float) -> float:
        """Chance of a statistic below a limit."""
        return float(cumulated[bisect.bisect_left(counts, limit, key=statistic)])

    if alternative == "greater":
        return total - (below(seen - same) + below(seen + same)) / 2
    if alternative == "less":
        return (below(seen - same) + below(seen + same)) / 2
    size = abs(seen)
    if size <= same:
        return total - (below(same) - below(-same)) / 2
    upper = total - (below(size - same) + below(size + same)) / 2
    return upper + (below(-size - same) + below(-size + same)) / 2
