"""Learn the maps between the groups of one attribute, from people whose groups are known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from monitor.bundle.manifest import Feature, OneHotGroup
from monitor.errors import FitError
from monitor.scoring.counterfactual.lookup import GRID
from monitor.scoring.counterfactual.transport import TransportMaps

__all__ = ["FeatureDifferences", "fit_transport_maps"]

# Rows of a group that this is judged on; more change nothing.
_SAMPLE = 100_000
# Values that fewer people have are counted together.
_RARE = 10


def fit_transport_maps(
    features: NDArray[np.float32],
    groups: NDArray[np.int8],
    kinds: Sequence[Feature],
    one_hot_groups: Sequence[OneHotGroup],
    count: int,
    *,
    level: float = 0.01,
    moves: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None = None,
) -> TransportMaps:
    """Fit the maps between the groups of one attribute.

    Args:
        features: The people, `[n, d]`.
        groups: Each person's group, 0 to count − 1; negative where it is not known, `[n]`.
        kinds: The features, in the order of the columns.
        one_hot_groups: Which columns belong together.
        count: How many groups there are.
        level: At which a feature's two distributions must differ, or it stays as it is.
        moves: Which ordered features `[k, k, o]` and one-hot groups `[k, k, g]` move, if that is
            known; None: those that differ.
    """
    members = [features[groups == group] for group in range(count)]
    if min(map(len, members)) < 2:
        raise FitError("a group without members cannot be mapped")
    position = {feature.name: column for column, feature in enumerate(kinds)}
    ordered = [position[feature.name] for feature in kinds if feature.kind != "onehot"]
    continuous = np.array([kinds[column].kind == "numeric" for column in ordered], bool)
    categories = [[position[name] for name in group.features] for group in one_hot_groups]
    counts = [
        _category_counts(members, columns, dropped=group.dropped is not None)
        for group, columns in zip(one_hot_groups, categories, strict=True)
    ]
    if moves is None:
        moves = _moves(members, ordered, continuous, categories, level)
    return TransportMaps(
        ordered=torch.tensor(ordered, dtype=torch.long),
        continuous=torch.from_numpy(continuous),
        quantiles=torch.from_numpy(_quantiles(members, ordered, continuous)),
        ordered_moves=torch.from_numpy(moves[0]),
        categories=tuple(torch.tensor(columns, dtype=torch.long) for columns in categories),
        shares=tuple(torch.from_numpy(_shares(c).astype(np.float32)) for c in counts),
        category_moves=torch.from_numpy(moves[1]),
    )


def _quantiles(
    members: list[NDArray[np.float32]], ordered: list[int], continuous: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Quantile functions `[k, o, 513]`; of a discrete feature only values that someone has."""
    grid = np.linspace(0, 1, GRID)
    found = np.empty((len(members), len(ordered), GRID), np.float32)
    for group, rows in enumerate(members):
        for index, column in enumerate(ordered):
            method: Literal["linear", "inverted_cdf"] = (
                "linear" if continuous[index] else "inverted_cdf"
            )
            found[group, index] = np.quantile(rows[:, column], grid, method=method)
    return found


def _moves(
    members: list[NDArray[np.float32]],
    ordered: list[int],
    continuous: NDArray[np.bool_],
    categories: list[list[int]],
    level: float,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which ordered features `[k, k, o]` and one-hot groups `[k, k, g]` differ between groups."""
    count = len(members)
    moves = np.zeros((count, count, len(ordered)), bool)
    category_moves = np.zeros((count, count, len(categories)), bool)
    for first, second in combinations(range(count), 2):
        here, there = members[first][:_SAMPLE], members[second][:_SAMPLE]
        both = FeatureDifferences(np.concatenate([here, there]), ordered, continuous, categories)
        found = both.between(np.arange(len(here) + len(there)) < len(here), level)
        moves[first, second] = moves[second, first] = found[0]
        category_moves[first, second] = category_moves[second, first] = found[1]
    return moves, category_moves


def _category_counts(
    members: list[NDArray[np.float32]], columns: list[int], *, dropped: bool
) -> NDArray[np.float64]:
    """People of each group in each category, that without a column first, `[k, 1 + c]`."""
    counts = np.stack([rows[:, columns].sum(0) for rows in members]).astype(float)
    rest = np.array([len(rows) for rows in members]) - counts.sum(1)
    return np.column_stack([np.maximum(rest, 0.0) * dropped, counts])


def _shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shares


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
