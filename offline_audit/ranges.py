"""Rates where labels or groups are unknown: their ranges, and tables that could be the truth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Counts",
    "Ranges",
    "RateCells",
    "completed_groups",
    "completed_labels",
    "group_ranges",
    "impact_ranges",
    "label_ranges",
    "reweighted_rate",
]

Int = NDArray[np.integer]
Bool = NDArray[np.bool_]
# Hits and misses of a rate.
Counts = tuple[int, int]
Range = tuple[float, float]

# Steps of the bisection for the smallest possible highest rate.
_BISECTIONS = 60


@dataclass(frozen=True, slots=True)
class RateCells:
    """Rows that a rate counts and its hits, by label and decision, `[3, 3]`; unknown is last."""

    counted: Bool
    hit: Bool

    def of(self, table: Int) -> Counts:
        """Hits and misses of a table of rows by label and decision, `[3, 3]`."""
        counted = table[self.counted]
        hits = int(table[self.counted & self.hit].sum())
        return hits, int(counted.sum()) - hits

    @property
    def decisions(self) -> tuple[int, ...]:
        """Decisions whose labels the rate depends on."""
        return tuple(d for d in (0, 1) if self.counted[:2, d].any() and not self.counted[2, d])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Smallest and largest values over everything that the unknown groups or labels may be.

    Attributes:
        first: Range of the rate of the first group.
        other: Range of the rate of the other group.
        effect: Range of the difference, the first minus the other.
        ratio: Range of the ratio, the first over the other; infinite if the other may be 0.
    """

    first: Range
    other: Range
    effect: Range
    ratio: Range

    @classmethod
    def of(cls, first: Range, other: Range) -> Ranges:
        """Ranges of difference and ratio, whose ends are attained together with those given."""
        return cls(
            first=first,
            other=other,
            effect=(first[0] - other[1], first[1] - other[0]),
            ratio=(_over(first[0], other[1]), _over(first[1], other[0])),
        )


def label_ranges(cells: RateCells, one: Int, other: Int) -> Ranges | None:
    """Ranges over all values of the unknown labels; None if all are known, or a group is empty.

    A rate is monotone in the number of unknown labels that are 1, for each decision, so that its
    ends are attained with equal labels for all unknown rows with the same decision.

    Args:
        cells: The rate.
        one: Rows of the first group by label and decision, `[3, 3]`.
        other: Rows of the other group, `[3, 3]`.
    """
    missing = [table[2, list(cells.decisions)].sum() for table in (one, other)]
    if not any(missing):
        return None
    ranges = []
    for table in (one, other):
        rates = [_rate(c) for c in _with_labels(cells, table, table[2, :2].tolist())]
        known = [rate for rate in rates if rate is not None]
        if not known:
            return None
        ranges.append((min(known), max(known)))
    return Ranges.of(ranges[0], ranges[1])


def group_ranges(one: Counts, other: Counts, unknown: Counts) -> Ranges | None:
    """Ranges over all groups that the rows of unknown group may be of.

    Hits of unknown group raise the rate of the group that they belong to, misses lower it. So the
    difference is largest with all unknown hits in the first group and all unknown misses in the
    other, and smallest the other way round; the same holds for the ratio and for each rate.

    Args:
        one: Hits and misses of the first group.
        other: Hits and misses of the other group.
        unknown: Hits and misses of unknown group.
    """
    if not any(unknown):
        return None
    hits, misses = unknown
    ranges = []
    for own in (one, other):
        ends = _rate((own[0], own[1] + misses)), _rate((own[0] + hits, own[1]))
        # An empty group has no rate unless it gets some of the unknown rows.
        known = [rate for rate in ends if rate is not None]
        ranges.append((min(known), max(known)))
    return Ranges.of(ranges[0], ranges[1])


def reweighted_rate(cells: RateCells, table: Int) -> float | None:
    """The rate if labels are missing at random within group and decision, `[3, 3]`.

    Labelled rows are weighted by rows over labelled rows of their decision. None if a decision has
    rows and no label.
    """
    weighted = table.astype(np.float64)
    for decision in cells.decisions:
        labelled, missing = weighted[:2, decision].sum(), weighted[2, decision]
        if missing and not labelled:
            return None
        weighted[:2, decision] *= 1 + missing / max(labelled, 1)
    counted = float(weighted[cells.counted].sum())
    return float(weighted[cells.counted & cells.hit].sum()) / counted if counted else None


def completed_labels(cells: RateCells, one: Int, other: Int) -> Iterator[tuple[Counts, Counts]]:
    """The two tables with the largest difference in either direction that coverage leaves open.

    The highest coverage of either group is taken as the share of labels that are missing at random
    within a decision. Rows that the other group lacks up to that share may have any label. Where
    decisions are compared with each other (accuracy), the highest coverage of both decisions is
    taken. With equal coverage of both groups, the tables are those of the labelled rows.

    Args:
        cells: The rate.
        one: Rows of the first group by label and decision, `[3, 3]`.
        other: Rows of the other group, `[3, 3]`.

    Yields:
        Hits and misses of the first and of the other group.
    """
    tables = np.stack([one, other])
    rows, labelled = tables[:, :, :2].sum(axis=1), tables[:, :2, :2].sum(axis=1)
    coverage = labelled / np.maximum(rows, 1)
    common = coverage.max(axis=0)
    if cells.counted[:2, :2].all():
        common = np.full(2, common.max())
    lacking = np.rint(np.maximum(common * rows - labelled, 0)).astype(int)
    ends = []
    for table, missing in zip(tables, lacking.tolist(), strict=True):
        # One hit and one miss are added, so that small counts are ordered, too.
        options = sorted(_with_labels(cells, table, missing), key=lambda c: (c[0] + 1) / sum(c, 2))
        ends.append((options[0], options[-1]))
    yield ends[0][0], ends[1][1]
    yield ends[0][1], ends[1][0]


def completed_groups(
    one: Counts, other: Counts, known: Counts, unknown: Counts
) -> Iterator[tuple[Counts, Counts]]:
    """The two tables with the largest difference in either direction, if hits hide their group.

    The share of known groups that is higher, of hits or of misses, is taken as known at random. The
    rows that the others lack up to that share may all belong to the first group, or to the other.

    Args:
        one: Hits and misses of the first group.
        other: Hits and misses of the other group.
        known: Hits and misses of all known groups.
        unknown: Hits and misses of unknown group.

    Yields:
        Hits and misses of the first and of the other group.
    """
    totals = np.add(known, unknown)
    share = np.divide(known, np.maximum(totals, 1)).max()
    lacking = np.rint(np.maximum(share * totals - known, 0)).astype(int)
    hits, misses = lacking.tolist()
    yield (one[0], one[1] + misses), (other[0] + hits, other[1])
    yield (one[0] + hits, one[1]), (other[0], other[1] + misses)


def impact_ranges(
    counts: Sequence[Counts], unknown: Counts, compared: Sequence[int]
) -> list[tuple[Range, Range]]:
    """Ranges of each group's rate, and of its ratio to the highest rate, over the unknown groups.

    Args:
        counts: Hits and misses of each group.
        unknown: Hits and misses of unknown group.
        compared: Indices of the groups whose rate may be the highest.
    """
    hits, misses = unknown
    ranges = []
    for index, own in enumerate(counts):
        others = [counts[k] for k in compared if k != index]
        ends = _rate((own[0], own[1] + misses)), _rate((own[0] + hits, own[1]))
        known = [end for end in ends if end is not None]
        lowest, highest = min(known), max(known)
        above = max((_rate((c[0] + hits, c[1])) or 0.0 for c in others), default=0.0)
        below = _smallest_highest_rate(others, misses)
        # A group that may have the highest rate has a ratio of at most 1.
        most = 1.0 if index in compared else math.inf
        ratio = min(most, _over(lowest, above)), min(most, _over(highest, below))
        ranges.append(((lowest, highest), ratio))
    return ranges


def _smallest_highest_rate(counts: Sequence[Counts], misses: int) -> float:
    """Smallest value of the highest rate after so many misses are added to the groups."""

    def needed(limit: float) -> int:
        """Misses that bring every rate down to a limit."""
        return sum(max(math.ceil(h / limit - (h + m) - 1e-9), 0) for h, m in counts)

    low, high = 0.0, max((_rate(c) or 0.0 for c in counts), default=0.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if middle > 0 and needed(middle) <= misses:
            high = middle
        else:
            low = middle
    return high


def _with_labels(cells: RateCells, table: Int, missing: Sequence[int]) -> list[Counts]:
    """Hits and misses for each choice of one label for all unlabelled rows of a decision.

    Args:
        cells: The rate.
        table: Rows by label and decision, `[3, 3]`.
        missing: Number of unlabelled rows of decision 0 and of decision 1 that are given a label.
    """
    hits, misses = cells.of(table)
    results = [(hits, misses)]
    for decision in cells.decisions:
        added = []
        for label in (0, 1):
            n = missing[decision] if cells.counted[label, decision] else 0
            hit = bool(cells.hit[label, decision])
            added.append((n * hit, n * (not hit)))
        results = [(h + a, m + b) for h, m in results for a, b in added]
    return results


def _rate(counts: Counts) -> float | None:
    return counts[0] / sum(counts) if sum(counts) else None


def _over(numerator: float, denominator: float) -> float:
    """A ratio; infinite over 0, and 1 for 0 over 0, where both rates are equal."""
    if denominator == 0:
        return 1.0 if numerator == 0 else math.inf
    return numerator / denominator
