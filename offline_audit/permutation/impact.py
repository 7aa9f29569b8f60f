"""Rates and impact ratios of the groups of one attribute, with what chance explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.intervals import Interval, rate_ratio_interval, wilson
from offline_audit.permutation.sources import GroupSet
from offline_audit.ranges import impact_ranges

__all__ = ["FOUR_FIFTHS", "SMALL_SHARE", "Impact", "SelectionRow", "impact_rows"]

Int = NDArray[np.int64]
# Whether a ratio is below four fifths: by more than chance explains, or perhaps by chance.
Impact = Literal["below", "may be chance", "not below"]

# A rate below four fifths of the highest is taken as evidence of adverse impact
# (29 CFR 1607.4 D, the Uniform Guidelines on Employee Selection Procedures).
FOUR_FIFTHS = 0.8
# Groups with less than this share of the data may be excluded from the ratios
# (6 RCNY § 5-301, rules for New York City's Local Law 144).
SMALL_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRow:
    """One group of the table.

    Attributes:
        attribute: The protected attribute, or several crossed.
        group: Name of the group; None for rows whose group is unknown.
        rows: Rows with a decision, or with a score.
        selected: Selected rows, or rows with a score above the median.
        share: Share of all rows with a decision or a score.
        rate: Selected rows over rows; None without rows.
        rate_interval: Wilson interval of the rate.
        impact_ratio: Rate over the highest rate; None for the unknown group, and if nobody is
            selected in any group.
        impact_interval: Interval of the ratio of the true rates, whichever group is truly the
            highest; None without a ratio.
        best: Whether the rate is the highest of the groups that are not small.
        small: Whether the share is below 2%, so that an audit may exclude the ratio.
        rate_range: Smallest and largest rate over all groups that rows of unknown group may be of;
            None for the unknown group, and if there is none.
        impact_range: Smallest and largest impact ratio over these groups.
    """

    attribute: str
    group: str | None
    rows: int
    selected: int
    share: float
    rate: float | None
    rate_interval: Interval | None
    impact_ratio: float | None
    impact_interval: Interval | None
    best: bool
    small: bool
    rate_range: tuple[float, float] | None = None
    impact_range: tuple[float, float] | None = None

    @property
    def below_four_fifths(self) -> bool:
        """Whether the impact ratio is below .8, by chance or not."""
        return self.impact_ratio is not None and self.impact_ratio < FOUR_FIFTHS

    @property
    def surely_below(self) -> bool:
        """Whether the whole interval of the ratio is below .8."""
        return self.impact_interval is not None and self.impact_interval[1] < FOUR_FIFTHS

    @property
    def impact(self) -> Impact | None:
        """Whether the ratio is below .8, and whether that may be chance; None without a ratio."""
        if self.impact_ratio is None:
            return None
        if self.surely_below:
            return "below"
        return "may be chance" if self.below_four_fifths else "not below"


def impact_rows(groups: GroupSet, confidence_level: float) -> list[SelectionRow]:
    """Rows of one attribute or crossing, with the unknown group last."""
    not_selected, selected = (groups.table[:, :, decision].sum(axis=1) for decision in (0, 1))
    rows = not_selected + selected
    total = max(int(rows.sum()), 1)
    large = [g for g in range(len(groups.names)) if rows[g] >= SMALL_SHARE * total and rows[g] > 0]
    best = max(large, key=lambda g: (selected[g] / rows[g], rows[g]), default=None)
    possible: list[int] = []
    if best is not None and selected[best]:
        possible = _possibly_best(best, large, selected, rows, confidence_level)
    counts = [(int(s), int(n)) for s, n in zip(selected, not_selected, strict=True)]
    ranges = impact_ranges(counts[:-1], counts[-1], large) if any(counts[-1]) else None
    table = []
    for index in range(len(rows)):
        n, hits = int(rows[index]), int(selected[index])
        unknown = index == len(groups.names)
        if unknown and n == 0:
            continue
        ratio, interval = None, None
        if possible and not unknown and n:
            ratio = float((hits / n) / (selected[best] / rows[best]))
            interval = _impact_interval(index, possible, selected, rows, confidence_level)
        table.append(
            SelectionRow(
                attribute=groups.attribute,
                group=None if unknown else groups.names[index],
                rows=n,
                selected=hits,
                share=n / total,
                rate=hits / n if n else None,
                rate_interval=wilson(hits / n, n, confidence_level) if n else None,
                impact_ratio=ratio,
                impact_interval=interval,
                best=bool(possible) and index == best,
                small=not unknown and n < SMALL_SHARE * total,
                rate_range=None if ranges is None or unknown else ranges[index][0],
                impact_range=None if ranges is None or unknown else ranges[index][1],
            )
        )
    return table


def _possibly_best(
    best: int, large: Sequence[int], selected: Int, rows: Int, confidence_level: float
) -> list[int]:
    """Groups that may truly have the highest rate.

    A group is excluded if its rate is below the highest one at a level that is divided by the
    number of comparisons (Bonferroni).
    """
    level = 1 - (1 - confidence_level) / max(len(large) - 1, 1)
    top = int(selected[best]), int(rows[best])
    possible = []
    for group in large:
        ends = rate_ratio_interval(int(selected[group]), int(rows[group]), *top, level)
        if group == best or ends is None or ends[1] >= 1:
            possible.append(group)
    return possible


def _impact_interval(
    group: int, possible: Sequence[int], selected: Int, rows: Int, confidence_level: float
) -> Interval:
    """Interval of a rate over the highest true rate.

    The highest observed rate is above the highest true one more often than not, since it was picked
    for being the highest; the interval of the ratio to it alone would be too low. The lower end is
    the lowest of those against each group that may be the highest. For the upper end, the highest
    rate is at least the largest of their lower limits (Bonferroni); the limits are combined as in
    `rate_ratio_interval`.
    """
    hits, n = int(selected[group]), int(rows[group])
    lows = []
    for p in possible:
        ends = rate_ratio_interval(hits, n, int(selected[p]), int(rows[p]), confidence_level)
        if p != group and ends is not None:
            lows.append(ends[0])
    if group in possible:
        # If this group is the highest, its ratio is 1, and no ratio is above.
        return min([1.0, *lows]), 1.0
    level = 1 - (1 - confidence_level) / len(possible)
    rates = [(int(selected[p]) / int(rows[p]), int(rows[p])) for p in possible]
    highest = max(rate for rate, _ in rates)
    lowest = max(wilson(rate, size, level)[0] for rate, size in rates)
    above = wilson(hits / n, n, confidence_level)[1]
    if hits == 0:
        return min(lows), above / lowest
    rate = hits / n
    distance = math.hypot(math.log(above / rate), math.log(highest / lowest))
    return min(lows), rate / highest * math.exp(distance)
