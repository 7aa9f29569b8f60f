"""Counts, bins and limits as they are published: no cell of few people, no value of one person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Bin",
    "Counts",
    "bins_of",
    "few_people",
    "folded_categories",
    "member_counts",
    "range_bins",
    "round_to",
    "spread_of",
    "told_counts",
]

Bools = NDArray[np.bool_]
# Members of a flipset and the others, by bin or by side of a rule, `[2, c]`.
Counts = NDArray[np.int64]


def member_counts(codes: NDArray[np.intp], size: int, members: Bools) -> Counts:
    """Members and others by code `[n]`, `[2, size]`."""
    return np.stack([np.bincount(codes[who], minlength=size) for who in (members, ~members)])


def few_people(table: Counts, smallest: int) -> Bools:
    """Which counts are of some people, but too few."""
    few: Bools = (table > 0) & (table < smallest)
    return few


def told_counts(table: Counts, smallest: int) -> Counts:
    """Counts in two columns `[r, 2]`, where few people of a row are told with those beside them."""
    few = few_people(table, smallest)
    alone = few & ~few[:, ::-1]
    return np.where(alone, 0, table + np.where(alone, table, 0)[:, ::-1])


def spread_of(values: NDArray[Any]) -> float:
    """The range of nine in ten, or the standard deviation where they are all the same."""
    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low) or float(values.std())


def round_to(value: float, spread: float, *, whole: bool) -> float:
    """A value on a grid of 1, 2 or 5 times a power of ten, at most 1/25 of the spread apart.

    Whole numbers stay whole. So a threshold or an edge is no one's own value.
    """
    finest = max(spread / 25, 1e-30)
    power = 10.0 ** math.floor(math.log10(finest))
    step = power * max(each for each in (1, 2, 5) if each * power <= finest * (1 + 1e-9))
    step = max(step, 1.0) if whole else step
    return float(f"{round(value / step) * step:.12g}")


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
