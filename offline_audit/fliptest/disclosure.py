"""Counts and limits as they are told, so that they say nothing of a few people or of one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Counts", "few_people", "member_counts", "round_to", "spread_of", "told_counts"]

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
