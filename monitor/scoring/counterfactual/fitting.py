"""Learn the maps between the groups of one attribute, from people whose groups are known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.bundle.manifest import Feature, OneHotGroup
from monitor.errors import FitError
from monitor.scoring.counterfactual.differences import FeatureDifferences
from monitor.scoring.counterfactual.ranks import GRID
from monitor.scoring.counterfactual.transport import TransportMaps

__all__ = ["fit_transport_maps"]

# Rows of a group that this is judged on; more change nothing.
_SAMPLE = 100_000


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
