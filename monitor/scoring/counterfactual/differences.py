"""Which features differ in distribution between two groups: only those are carried along."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["FeatureDifferences"]

# Values that fewer people have are counted together.
_RARE = 10


class FeatureDifferences:
    """Some people, ready to be split in two again and again.

    Sorting is done once, so that each split costs a pass over the columns: a permutation test
    tries hundreds.

    Args:
        features: The people, `[n, d]`.
        ordered: Columns of the ordered features.
        continuous: Which of those may take any value, bool `[o]`.
        categories: Columns of each one-hot group.
    """

    def __init__(
        self,
        features: NDArray[np.float32],
        ordered: Sequence[int],
        continuous: NDArray[np.bool_],
        categories: Sequence[Sequence[int]],
    ) -> None:
        columns = np.ascontiguousarray(features[:, list(ordered)].T)
        self._order = np.argsort(columns, 1, kind="stable")
        held = np.take_along_axis(columns, self._order, 1)
        # Of equal values only the last counts all of them.
        ends = np.ones((len(held), 1), bool)
        self._last = np.concatenate([held[:, 1:] != held[:, :-1], ends], 1)
        self._continuous = continuous
        self._values = {
            place: np.unique(columns[place], return_inverse=True)[1]
            for place in np.flatnonzero(~continuous)
        }
        self._categories = [_category(features[:, list(group)]) for group in categories]

    def between(
        self, first: NDArray[np.bool_], level: float
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which ordered features `[o]` and one-hot groups `[g]` differ at a level.

        Kolmogorov–Smirnov for ordered features, χ² for one-hot groups. A discrete feature is
        tested by both, each at half the level: Kolmogorov–Smirnov is blind to its rare values.

        Args:
            first: Who is in the first part, bool `[n]`; the others are in the second.
            level: Of each feature's test.
        """
        sizes = int(first.sum()), int((~first).sum())
        ordered = self._largest_gaps(first, sizes) > np.where(
            self._continuous, _critical_gap(*sizes, level), _critical_gap(*sizes, level / 2)
        )
        for place, codes in self._values.items():
            ordered[place] |= _counts_differ(codes, first, level / 2, pool_rare=True)
        groups = [_counts_differ(codes, first, level) for codes in self._categories]
        return ordered, np.array(groups, bool)

    def _largest_gaps(
        self, first: NDArray[np.bool_], sizes: tuple[int, int]
    ) -> NDArray[np.float64]:
        """Kolmogorov–Smirnov statistic of each ordered feature, `[o]`."""
        ahead = np.cumsum(first[self._order], 1, dtype=np.int32)
        behind = np.arange(1, ahead.shape[1] + 1, dtype=np.int32) - ahead
        gaps = np.abs(ahead / sizes[0] - behind / sizes[1])
        found: NDArray[np.float64] = np.where(self._last, gaps, 0.0).max(1, initial=0.0)
        return found


@cache
def _critical_gap(first: int, second: int, level: float) -> float:
    """Above this the two-sample statistic has a p-value below the level (asymptotic)."""
    return float(stats.kstwo.isf(level, round(first * second / (first + second))))


def _category(columns: NDArray[np.float32]) -> NDArray[np.intp]:
    """Place of each row's category, 0 where no column names it, `[n, c]` to `[n]`."""
    found: NDArray[np.intp] = np.where(columns.any(1), columns.argmax(1) + 1, 0)
    return found


def _counts_differ(
    codes: NDArray[np.intp], first: NDArray[np.bool_], level: float, *, pool_rare: bool = False
) -> bool:
    """χ² test of homogeneity; values that fewer than ten people have may be counted together."""
    every = np.bincount(codes)
    here = np.bincount(codes[first], minlength=len(every))
    if pool_rare:
        rare = every < _RARE
        here, every = (np.append(x[~rare], x[rare].sum()) for x in (here, every))
    here, every = here[every > 0], every[every > 0]
    if len(every) < 2:
        return False
    share = len(codes[first]) / len(codes)
    gap = np.abs(here - share * every)
    if len(every) == 2:
        # Yates's correction for a table of four cells.
        gap -= np.minimum(0.5, gap)
    statistic = (gap**2 / every).sum() / (share * (1 - share))
    return bool(statistic > _critical_sum(len(every) - 1, level))


@cache
def _critical_sum(freedom: int, level: float) -> float:
    return float(stats.chi2.isf(level, freedom))
