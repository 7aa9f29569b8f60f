"""Learn the maps between the groups of one attribute, from people whose groups are known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from monitor.bundle.manifest import Feature, OneHotGroup
from monitor.counterfactual.ranks import GRID
from monitor.counterfactual.transport import TransportMaps
from monitor.errors import FitError

__all__ = ["fit_transport_maps"]

# A feature moves only if its two distributions differ at this level.
_LEVEL = 0.01
# Rows of a group that this is judged on; more change nothing.
_SAMPLE = 100_000


def fit_transport_maps(
    features: NDArray[np.float32],
    groups: NDArray[np.int8],
    kinds: Sequence[Feature],
    one_hot_groups: Sequence[OneHotGroup],
    count: int,
) -> TransportMaps:
    """Fit the maps between the groups of one attribute.

    Args:
        features: The people, `[n, d]`.
        groups: Each person's group, 0 to count − 1; negative where it is not known, `[n]`.
        kinds: The features, in the order of the columns.
        one_hot_groups: Which columns belong together.
        count: How many groups there are.
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
    return TransportMaps(
        ordered=torch.tensor(ordered, dtype=torch.long),
        continuous=torch.from_numpy(continuous),
        quantiles=torch.from_numpy(_quantiles(members, ordered, continuous)),
        ordered_moves=torch.from_numpy(_moves(members, ordered, continuous)),
        categories=tuple(torch.tensor(columns) for columns in categories),
        shares=tuple(torch.from_numpy(_shares(c).astype(np.float32)) for c in counts),
        category_moves=torch.from_numpy(_category_moves(counts, count)),
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
    members: list[NDArray[np.float32]], ordered: list[int], continuous: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which ordered features differ in distribution between two groups, `[k, k, o]`."""
    moves = np.zeros((len(members), len(members), len(ordered)), bool)
    for first, second in combinations(range(len(members)), 2):
        for index, column in enumerate(ordered):
            here, there = members[first][:_SAMPLE, column], members[second][:_SAMPLE, column]
            differ = _shifted(here, there, _LEVEL if continuous[index] else _LEVEL / 2)
            # Kolmogorov–Smirnov is blind to rare values of a discrete feature.
            if not continuous[index]:
                differ = differ or _categories_differ(*_counts(here, there), _LEVEL / 2)
            moves[first, second, index] = moves[second, first, index] = differ
    return moves


def _shifted(here: NDArray[np.float32], there: NDArray[np.float32], level: float) -> bool:
    return bool(stats.ks_2samp(here, there, method="asymp").pvalue < level)


def _counts(
    here: NDArray[np.float32], there: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How often each value occurs in both, values of fewer than ten people together."""
    _, index = np.unique(np.concatenate([here, there]), return_inverse=True)
    size = index.max() + 1
    table = np.stack(
        [np.bincount(i, minlength=size) for i in (index[: len(here)], index[len(here) :])]
    )
    rare = table.sum(0) < 10
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(1)]).astype(float)
    return table[0], table[1]


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


def _category_moves(counts: list[NDArray[np.float64]], groups: int) -> NDArray[np.bool_]:
    """Which one-hot groups differ in distribution between two groups, `[k, k, g]`."""
    moves = np.zeros((groups, groups, len(counts)), bool)
    for first, second in combinations(range(groups), 2):
        for index, table in enumerate(counts):
            differ = _categories_differ(table[first], table[second], _LEVEL)
            moves[first, second, index] = moves[second, first, index] = differ
    return moves


def _categories_differ(here: NDArray[np.float64], there: NDArray[np.float64], level: float) -> bool:
    table = np.stack([here, there])
    table = table[:, table.sum(0) > 0]
    return table.shape[1] > 1 and bool(stats.chi2_contingency(table).pvalue < level)
