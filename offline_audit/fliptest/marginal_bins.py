"""Members of a flipset and others by ranges of a number, or by category, none of few people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from offline_audit.fliptest.disclosure import (
    Counts,
    few_people,
    member_counts,
    round_to,
    spread_of,
    told_counts,
)

__all__ = ["Bin", "bins_of", "folded_categories", "range_bins"]

_MOST_RANGES = 8
_REST = "the rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """People with one value, or a range of values, of a variable.

    Attributes:
        name: The value or range, in words.
        members: Members of the flipset in it: none, or at least the smallest cell.
        others: The rest of the group in it, likewise.
    """

    name: str
    members: int
    others: int


def bins_of(names: Sequence[str], table: Counts) -> tuple[Bin, ...]:
    """Named bins of counts `[2, c]`."""
    counts = zip(names, *table.tolist(), strict=True)
    return tuple(Bin(name=name, members=a, others=b) for name, a, b in counts)


def range_bins(
    values: NDArray[np.float64], members: NDArray[np.bool_], smallest: int, *, whole: bool
) -> tuple[tuple[Bin, ...], bool]:
    """Ranges that hold about as many of the group each, with round ends.

    Args:
        values: Of everyone, `[n]`.
        members: Who is in the flipset, bool `[n]`.
        smallest: Ranges with fewer members or others are put to the smaller one beside them.
        whole: Whether values are whole numbers.

    Returns:
        The bins from low to high, and whether any were put together.
    """
    spread = spread_of(values)
    cuts = np.quantile(values, np.linspace(0, 1, _MOST_RANGES + 1)[1:-1])
    rounded = {round_to(float(cut), spread, whole=whole) for cut in cuts}
    edges = [edge for edge in sorted(rounded) if values.min() < edge <= values.max()]
    table = member_counts(np.searchsorted(edges, values, side="right"), len(edges) + 1, members)
    before = len(edges)
    while edges and (few := np.flatnonzero(few_people(table, smallest).any(0))).size:
        place, totals = int(few[0]), table.sum(0)
        # With the smaller neighbour, so that large ranges stay apart.
        left = place > 0 and (place == len(edges) or totals[place - 1] <= totals[place + 1])
        place -= int(left)
        table = _put_together(table, place, place + 1)
        del edges[place]
    return bins_of(_range_names(edges, whole=whole), table), len(edges) < before


def _put_together(table: Counts, keep: int, gone: int) -> Counts:
    """Counts with one bin put to an earlier one, `[2, c]` to `[2, c - 1]`."""
    joined = np.delete(table, gone, axis=1)
    joined[:, keep] += table[:, gone]
    return joined


def _range_names(edges: Sequence[float], *, whole: bool) -> list[str]:
    if not edges:
        return ["any"]
    middle = [
        f"{low:,.6g}" + (f" to {high - whole:,.6g}" if high - whole > low else "")
        for low, high in pairwise(edges)
    ]
    return [f"< {edges[0]:,.6g}", *middle, f"≥ {edges[-1]:,.6g}"]


def folded_categories(
    table: Counts, names: Sequence[str], smallest: int
) -> tuple[Counts, list[str]]:
    """Counts `[2, c]` and names without cells of few people: the smallest are put together."""
    names = list(names)
    while len(names) > 2 and few_people(table, smallest).any():
        keep, gone = sorted(np.argsort(table.sum(0), kind="stable")[:2].tolist())
        table = _put_together(table, keep, gone)
        names[keep] = _REST
        del names[gone]
    if few_people(table, smallest).all(1).any():
        return table.sum(1, keepdims=True), ["any"]
    return told_counts(table, smallest), names
