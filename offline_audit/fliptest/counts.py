"""Tables of counts: merged small cells, bins with rounded limits, differences of shares.

Published counts are zero or at least `smallest_cell`, and no published limit is the value of one
person.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.intervals import Interval, combined, wilson

__all__ = [
    "OTHER_CATEGORIES",
    "Bin",
    "Counts",
    "bins_of",
    "category_length",
    "equal_shares_test",
    "member_counts",
    "merged_categories",
    "range_bins",
    "round_to",
    "share_difference_interval",
    "small_cells",
    "spread_of",
    "standardised_shares",
]

Bools = NDArray[np.bool_]
# Members of a flipset (first row) and other rows of the group (second row), by category, `[2, c]`.
Counts = NDArray[np.int64]

_MAX_RANGES = 8
OTHER_CATEGORIES = "the rest"
# Cochran's rule: below this expected count the chi-square approximation is not accurate.
_SMALLEST_EXPECTED = 5
_RANDOM_TABLES = 9_999


def member_counts(codes: NDArray[np.intp], size: int, members: Bools) -> Counts:
    """Count members and others by category code: codes `[n]` to counts `[2, size]`."""
    return np.stack([np.bincount(codes[rows], minlength=size) for rows in (members, ~members)])


def small_cells(table: Counts, smallest: int) -> Bools:
    """Cells with at least one person, but fewer than `smallest`."""
    small: Bools = (table > 0) & (table < smallest)
    return small


def spread_of(values: NDArray[Any]) -> float:
    """Range of the central 90%, or the standard deviation if that range is zero."""
    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low) or float(values.std())


def round_to(value: float, spread: float, *, whole: bool) -> float:
    """Round to a grid with steps of 1, 2 or 5 times a power of ten, at most 1/25 of the spread.

    Rounding keeps thresholds and bin edges from being the exact value of one person.

    Args:
        value: Threshold or edge.
        spread: Spread of the variable; see `spread_of`.
        whole: Whether the variable has whole numbers; the step is then at least 1.
    """
    # The lower limit keeps the logarithm finite for a constant variable.
    finest = max(spread / 25, 1e-30)
    power = 10.0 ** math.floor(math.log10(finest))
    # The tolerance accepts steps that exceed the limit by floating-point error only.
    step = power * max(digit for digit in (1, 2, 5) if digit * power <= finest * (1 + 1e-9))
    step = max(step, 1.0) if whole else step
    return float(f"{round(value / step) * step:.12g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Counts of one value, or one range of values, of a variable.

    Attributes:
        name: The value or range as text.
        members: Number of members of the flipset: zero, or at least the smallest cell.
        others: Number of other people of the group: zero, or at least the smallest cell.
    """

    name: str
    members: int
    others: int


def bins_of(names: Sequence[str], table: Counts) -> tuple[Bin, ...]:
    """Bins with these names and counts `[2, c]`."""
    counts = zip(names, *table.tolist(), strict=True)
    return tuple(Bin(name=name, members=a, others=b) for name, a, b in counts)


def range_bins(
    values: NDArray[np.float64], members: Bools, smallest: int, *, whole: bool
) -> tuple[tuple[Bin, ...], bool]:
    """Bin a variable into ranges with rounded limits and about equal numbers of people.

    Args:
        values: Values of the whole group, `[n]`.
        members: Mask of the flipset's members, `[n]`.
        smallest: Ranges with fewer members or others are merged with their smaller neighbour.
        whole: Whether values are whole numbers.

    Returns:
        Bins from low to high, and whether any were merged.
    """
    spread = spread_of(values)
    cuts = np.quantile(values, np.linspace(0, 1, _MAX_RANGES + 1)[1:-1])
    rounded = {round_to(float(cut), spread, whole=whole) for cut in cuts}
    edges = [edge for edge in sorted(rounded) if values.min() < edge <= values.max()]
    table = member_counts(np.searchsorted(edges, values, side="right"), len(edges) + 1, members)
    n_edges = len(edges)
    while edges and (small := np.flatnonzero(small_cells(table, smallest).any(0))).size:
        index, totals = int(small[0]), table.sum(0)
        # The smaller neighbour, so that large ranges stay separate.
        left = index > 0 and (index == len(edges) or totals[index - 1] <= totals[index + 1])
        index -= int(left)
        table = _merge_columns(table, index, index + 1)
        del edges[index]
    return bins_of(_range_names(edges, whole=whole), table), len(edges) < n_edges


def _merge_columns(table: Counts, first: int, second: int) -> Counts:
    """Add the second column to the first, which precedes it: `[2, c]` to `[2, c - 1]`."""
    merged = np.delete(table, second, axis=1)
    merged[:, first] += table[:, second]
    return merged


def _range_names(edges: Sequence[float], *, whole: bool) -> list[str]:
    if not edges:
        return ["any"]
    middle = [
        f"{low:,.6g}" + (f" to {high - whole:,.6g}" if high - whole > low else "")
        for low, high in pairwise(edges)
    ]
    return [f"< {edges[0]:,.6g}", *middle, f"≥ {edges[-1]:,.6g}"]


def merged_categories(
    table: Counts, names: Sequence[str], smallest: int
) -> tuple[Counts, list[str]] | None:
    """Merge categories with small cells, and further ones until no cell is small.

    At least two categories are merged: the count of a single one would follow from the total.

    Args:
        table: Counts, `[2, c]`.
        names: Names of the categories.
        smallest: Smallest count that may be published.

    Returns:
        Counts and names, the merged category last; None if no other category has people.
    """
    totals = table.sum(0)
    merged: Bools = np.asarray(small_cells(table, smallest).any(0))
    if not merged.any():
        return table, list(names)
    for column in np.argsort(totals, kind="stable"):
        if merged.sum() > 1 and not small_cells(table[:, merged].sum(1), smallest).any():
            break
        # An empty category hides nothing.
        merged[column] |= totals[column] > 0
    if not totals[~merged].any():
        return None
    kept = [name for name, hidden in zip(names, merged, strict=True) if not hidden]
    published = np.column_stack([table[:, ~merged], table[:, merged].sum(1)])
    return published, [*kept, OTHER_CATEGORIES]


def share_difference_interval(
    first: float, n: int, second: float, m: int, confidence_level: float
) -> Interval:
    """Newcombe's hybrid interval of a share of n people minus a share of m other people."""
    return combined(
        first, wilson(first, n, confidence_level), second, wilson(second, m, confidence_level)
    )


def category_length(
    differences: Sequence[float], intervals: Sequence[Interval], spread: float
) -> tuple[float, Interval]:
    """Euclidean length of a category's differences of shares, with a conservative interval.

    The interval contains the length of every vector whose components are within their intervals.

    Args:
        differences: Difference of the share of each category.
        intervals: Interval of each difference.
        spread: Standard deviation that the categories share.
    """
    nearest = [0.0 if low <= 0 <= high else min(abs(low), abs(high)) for low, high in intervals]
    farthest = [max(abs(low), abs(high)) for low, high in intervals]
    low, length, high = (
        math.hypot(*components) / spread for components in (nearest, differences, farthest)
    )
    return length, (low, high)


def standardised_shares(
    table: Counts, confidence_level: float, *, signed: bool
) -> tuple[float | None, Interval | None]:
    """Difference of the two rows' shares in pooled standard deviations, with its interval.

    Args:
        table: Counts by category, `[2, c]`.
        confidence_level: Confidence level of the interval.
        signed: Whether to return the signed difference of the second of two categories instead
            of the length over all categories.

    Returns:
        None, None if all people are in one category.
    """
    (n, m), pooled = table.sum(1), table.sum(0) / table.sum()
    spread = math.sqrt(float((pooled * (1 - pooled)).sum()))
    if spread == 0:
        return None, None
    shares = [(a / n, b / m) for a, b in table.T.tolist()]
    differences = [p - q for p, q in shares]
    intervals = [share_difference_interval(p, n, q, m, confidence_level) for p, q in shares]
    if not signed:
        return category_length(differences, intervals, spread)
    # Two categories contribute the same variance twice; a binary variable has it once.
    spread /= math.sqrt(2)
    low, high = intervals[1]
    return differences[1] / spread, (low / spread, high / spread)


def equal_shares_test(table: Counts, rng: np.random.Generator) -> tuple[str, float | None]:
    """Test whether both rows of counts `[2, c]` have the same shares.

    Returns:
        Name of the test, and its p-value; None if all people are in one category.
    """
    table = table[:, table.any(0)]
    if table.shape[1] < 2:
        return "chi-square", None
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    if expected.min() >= _SMALLEST_EXPECTED:
        return "chi-square", float(stats.chi2_contingency(table, correction=False).pvalue)
    if table.shape[1] == 2:
        return "Fisher", float(stats.fisher_exact(table).pvalue)
    random_tables = stats.random_table(table.sum(1), table.sum(0))
    tables = random_tables.rvs(_RANDOM_TABLES, random_state=rng)
    statistics = ((tables - expected) ** 2 / expected).sum((1, 2))
    observed = ((table - expected) ** 2 / expected).sum()
    # The tolerance counts ties that differ by floating-point error.
    as_extreme = int((statistics >= observed * (1 - 1e-9)).sum())
    return "chi-square, random tables", (1 + as_extreme) / (1 + _RANDOM_TABLES)
