"""Sums over a group's units in random rearrangements, by type or unit by unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.permutation.rearrangements import drawn_counts, drawn_subsets

__all__ = ["Alternative", "Progress", "Rearranging", "chunks", "rearranged_sums"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Alternative = Literal["two-sided", "greater", "less"]
# Told how many draws are done, and of how many.
Progress = Callable[[int, int], None]

# Drawing a type's count costs about as much as so many units of a shuffle.
_TYPE_COST = 20
# Numbers held at once.
_MOST_HELD = 4_000_000
# Units times draws beyond which different values are put into bins, if the caller leaves it open.
_MUCH = 500_000_000
_BINS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Rearranging:
    """How rearrangements are drawn and read.

    Attributes:
        alternative: Which differences count as extreme.
        draws: How many, where they cannot be enumerated.
        seed: Of the draws.
        studentized: False for the plain difference, which is not valid for unequal groups.
        bins: Bins into which different scores are put for the draws, 0 for none; None for
            none unless there is much to draw.
        progress: Told how far long work is.
    """

    alternative: Alternative
    draws: int
    seed: int
    studentized: bool = True
    bins: int | None = None
    progress: Progress | None = None

    def bins_for(self, units: int) -> int:
        """How many bins to use for so many units; 0 for none."""
        if self.bins is not None:
            return self.bins
        return _BINS if units * self.draws > _MUCH else 0


def rearranged_sums(
    terms: Float, strata: Int, group: Int, other: Int, how: Rearranging
) -> Iterator[Float]:
    """Sums of `terms` over the units that make up the group, `[d, p]`, some draws at a time.

    Args:
        terms: Of each type, `[k, p]`.
        strata: Of each type, `[k]`; units change groups within them.
        group: Units of each type in the group, `[k]`.
        other: The same in the other group.
        how: Draws, seed, bins.
    """
    rng = np.random.default_rng(how.seed)
    types, units = group + other, int((group + other).sum())
    bins = how.bins_for(units) if len(types) * _TYPE_COST > units else 0
    if bins:
        terms, strata, group, other = _binned(terms, strata, group, other, bins)
        types = group + other
    if len(types) * _TYPE_COST <= units:
        return _by_type(rng, terms, strata, types, group, how)
    return _unit_by_unit(rng, terms, strata, types, group, how)


def chunks(how: Rearranging, width: int) -> Iterator[int]:
    """Sizes of portions of the draws of which each fits into memory; progress is told of each."""
    size, done = max(1, _MOST_HELD // max(width, 1)), 0
    while done < how.draws:
        part = min(size, how.draws - done)
        yield part
        done += part
        if how.progress is not None:
            how.progress(done, how.draws)


def _by_type(
    rng: np.random.Generator, terms: Float, strata: Int, types: Int, group: Int, how: Rearranging
) -> Iterator[Float]:
    within = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    for part in chunks(how, len(types)):
        found = np.zeros((part, terms.shape[1]))
        for places in within:
            drawn = drawn_counts(rng, types[places], int(group[places].sum()), part)
            found += drawn @ terms[places]
        yield found


def _unit_by_unit(
    rng: np.random.Generator, terms: Float, strata: Int, types: Int, group: Int, how: Rearranging
) -> Iterator[Float]:
    sums = []
    for stratum in np.unique(strata):
        places = np.flatnonzero(strata == stratum)
        units = np.repeat(terms[places], types[places], axis=0)
        sums.append((units, int(group[places].sum())))
    width = sum(len(units) for units, _ in sums)
    for part in chunks(how, width):
        found = np.zeros((part, terms.shape[1]))
        for units, size in sums:
            found += drawn_subsets(rng, len(units), size, part) @ units
        yield found


def _binned(
    terms: Float, strata: Int, group: Int, other: Int, bins: int
) -> tuple[Float, Int, Int, Int]:
    """Types that lie next to each other in a stratum, put together by their mean terms.

    The terms' totals stay what they are, so a rearrangement's sums differ from the exact ones only
    by what is exchanged within a bin. A bin holds about the same share of the units, of their
    squares and of their cubes: few units that make up most of the spread have bins of their own,
    or the rearrangements would not know of them.
    """
    types = group + other
    b, a = terms[:, 1], terms[:, 2]
    order = np.lexsort((a, b, strata))
    key = np.stack([strata[order], b[order]])
    new = np.concatenate([[True], np.any(key[:, 1:] != key[:, :-1], axis=0)])
    filled = np.cumsum(_share_of_moments(a, types)[order]) * bins
    new[1:] |= np.diff(np.floor(filled)) > 0
    bin_of = np.cumsum(new) - 1
    k = int(bin_of[-1]) + 1
    mass = np.bincount(bin_of, weights=types[order], minlength=k)
    summed = np.stack(
        [
            np.bincount(bin_of, weights=types[order] * column, minlength=k)
            for column in terms[order].T
        ],
        axis=1,
    )
    merged = [np.bincount(bin_of, weights=side[order], minlength=k) for side in (group, other)]
    return (
        summed / mass[:, None],
        strata[order][new],
        merged[0].astype(np.int64),
        merged[1].astype(np.int64),
    )


def _share_of_moments(a: Float, types: Int) -> Float:
    """Share of each type in units, squares and cubes, the mean of the three, `[k]`; sums to 1."""
    found = np.zeros(len(a))
    for power in (0, 2, 3):
        part = types * np.abs(a) ** power
        found += part / (part.sum() or 1.0) / 3
    return found
