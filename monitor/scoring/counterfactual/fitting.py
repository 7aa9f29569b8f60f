"""Fitting of the transport maps between the groups of one attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from monitor.bundle.features import Feature, OneHotGroup
from monitor.errors import FitError
from monitor.scoring.counterfactual.dependence import ROWS, Rules
from monitor.scoring.counterfactual.draws import fewest_draws
from monitor.scoring.counterfactual.lookup import GRID
from monitor.scoring.counterfactual.orders import repaired_orders
from monitor.scoring.counterfactual.pairs import Variables
from monitor.scoring.counterfactual.transport import TransportMaps
from monitor.scoring.robust import OrdinaryRange

__all__ = ["FeatureDifferences", "fit_transport_maps"]

# Rows per group in the tests of differences; more change nothing.
_SAMPLE = 100_000
# Values that fewer rows have are pooled.
_RARE = 10
# Factor of the level at which a feature counts as differing in the repair of dependence.
_SURER = 0.01


def fit_transport_maps(
    features: NDArray[np.float32],
    groups: NDArray[np.int8],
    kinds: Sequence[Feature],
    one_hot_groups: Sequence[OneHotGroup],
    count: int,
    *,
    level: float = 0.01,
    repair: bool = False,
    order: Sequence[str] = (),
    seed: int = 0,
    moves: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None = None,
) -> TransportMaps:
    """Fit the maps between the groups of one attribute.

    Args:
        features: Rows, `[n, d]`.
        groups: Group of each row, 0 to count − 1; negative if it is not known, `[n]`.
        kinds: Names and kinds of the columns, in order.
        one_hot_groups: Groups of columns that encode one category.
        count: Number of groups.
        level: Level of the test of each feature; features that do not differ do not move.
        repair: Whether to repair the dependence between features where it differs.
        order: Names of features and one-hot groups in causal order; may be incomplete.
        seed: Seed of the samples to which the repair is fitted.
        moves: Which ordered features `[k, k, o]` and one-hot groups `[k, k, g]` move; None to test
            which of them differ.

    Raises:
        FitError: A group has fewer than two members.
    """
    if any(np.count_nonzero(groups == group) < 2 for group in range(count)):
        raise FitError("each group needs at least 2 members to fit a transport map")
    features = OrdinaryRange.of(features).ordinary(features)
    members = [features[groups == group] for group in range(count)]
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
    maps = TransportMaps(
        ordered=torch.tensor(ordered, dtype=torch.long),
        continuous=torch.from_numpy(continuous),
        quantiles=torch.from_numpy(_quantiles(members, ordered, continuous)),
        ordered_moves=torch.from_numpy(moves[0]),
        categories=tuple(torch.tensor(columns, dtype=torch.long) for columns in categories),
        shares=tuple(torch.from_numpy(_shares(c).astype(np.float32)) for c in counts),
        category_moves=torch.from_numpy(moves[1]),
    )
    if not repair:
        return maps
    # Which of two features moves given the other must not depend on a chance difference.
    surely = _moves(members, ordered, continuous, categories, level * _SURER)
    names = [kinds[column].name for column in ordered] + [group.name for group in one_hot_groups]
    binary = frozenset(i for i, column in enumerate(ordered) if kinds[column].kind == "binary")
    positions = [order.index(name) if name in order else np.nan for name in names]
    return _repaired(maps, members, np.concatenate(surely, 2), positions, binary, seed)


def _repaired(
    maps: TransportMaps,
    members: list[NDArray[np.float32]],
    differs: NDArray[np.bool_],
    order: Sequence[float],
    binary: frozenset[int],
    seed: int,
) -> TransportMaps:
    """The maps with a repair of the dependence between features, if any differs."""
    rng = np.random.default_rng(seed)
    sample = [
        rows[np.sort(rng.choice(len(rows), ROWS, replace=False))] if len(rows) > ROWS else rows
        for rows in members
    ]
    variables = Variables(
        ordered=maps.ordered.tolist(), categories=[c.tolist() for c in maps.categories]
    )
    rules = Rules(
        variables=variables, differs=differs, order=np.asarray(order, float), binary=binary
    )
    repairs = repaired_orders(maps, sample, rules, rng)
    return replace(maps, repairs=repairs, draws=fewest_draws(len(repairs)))


def _quantiles(
    members: list[NDArray[np.float32]], ordered: list[int], continuous: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Quantile functions `[k, o, 513]`; for discrete features without interpolation.

    Their ends are the most extreme ordinary values of the group: a far one would stretch the last
    interval.
    """
    grid = np.linspace(0, 1, GRID)
    quantiles = np.empty((len(members), len(ordered), GRID), np.float32)
    for group, rows in enumerate(members):
        ordinary = OrdinaryRange.of(rows).ordinary(rows)
        for index, column in enumerate(ordered):
            method: Literal["linear", "inverted_cdf"] = (
                "linear" if continuous[index] else "inverted_cdf"
            )
            quantiles[group, index] = np.quantile(ordinary[:, column], grid, method=method)
    return quantiles


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
        parts = members[first][:_SAMPLE], members[second][:_SAMPLE]
        differences = FeatureDifferences(np.concatenate(parts), ordered, continuous, categories)
        in_first = np.arange(sum(map(len, parts))) < len(parts[0])
        differing, differing_groups = differences.between(in_first, level)
        moves[first, second] = moves[second, first] = differing
        category_moves[first, second] = category_moves[second, first] = differing_groups
    return moves, category_moves


def _category_counts(
    members: list[NDArray[np.float32]], columns: list[int], *, dropped: bool
) -> NDArray[np.float64]:
    """Rows of each group in each category, the one without a column first, `[k, 1 + c]`."""
    counts = np.stack([rows[:, columns].sum(0) for rows in members]).astype(float)
    rest = np.array([len(rows) for rows in members]) - counts.sum(1)
    return np.column_stack([np.maximum(rest, 0.0) * dropped, counts])


def _shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shares


class FeatureDifferences:
    """Tests of which features differ in distribution between two parts of some rows.

    Rows are sorted once, so that each split costs one pass over the columns. A permutation test
    uses hundreds of splits.

    Args:
        features: Rows, `[n, d]`.
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
        values = np.take_along_axis(columns, self._order, 1)
        # The empirical distribution functions jump at the last of several equal values.
        ends = np.ones((len(values), 1), bool)
        self._last = np.concatenate([values[:, 1:] != values[:, :-1], ends], 1)
        self._continuous = continuous
        self._values = {
            index: np.unique(columns[index], return_inverse=True)[1]
            for index in np.flatnonzero(~continuous)
        }
        self._categories = [_category(features[:, list(group)]) for group in categories]

    def between(
        self, first: NDArray[np.bool_], level: float
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which ordered features `[o]` and one-hot groups `[g]` differ at a level.

        Kolmogorov–Smirnov for ordered features, χ² for one-hot groups. A discrete feature is tested
        by both, each at half the level, because Kolmogorov–Smirnov misses its rare values.

        Args:
            first: Whether a row is in the first part, bool `[n]`; the others are in the second.
            level: Level of the test of each feature.
        """
        sizes = int(first.sum()), int((~first).sum())
        ordered = self._largest_gaps(first, sizes) > np.where(
            self._continuous, _critical_gap(*sizes, level), _critical_gap(*sizes, level / 2)
        )
        for index, codes in self._values.items():
            ordered[index] |= _counts_differ(codes, first, level / 2, pool_rare=True)
        groups = [_counts_differ(codes, first, level) for codes in self._categories]
        return ordered, np.array(groups, bool)

    def _largest_gaps(
        self, first: NDArray[np.bool_], sizes: tuple[int, int]
    ) -> NDArray[np.float64]:
        """Kolmogorov–Smirnov statistic of each ordered feature, `[o]`."""
        first_counts = np.cumsum(first[self._order], 1, dtype=np.int32)
        second_counts = np.arange(1, first_counts.shape[1] + 1, dtype=np.int32) - first_counts
        gaps = np.abs(first_counts / sizes[0] - second_counts / sizes[1])
        largest: NDArray[np.float64] = np.where(self._last, gaps, 0.0).max(1, initial=0.0)
        return largest


@cache
def _critical_gap(first: int, second: int, level: float) -> float:
    """Critical value of the two-sample Kolmogorov–Smirnov statistic (asymptotic)."""
    return float(stats.kstwo.isf(level, round(first * second / (first + second))))


def _category(columns: NDArray[np.float32]) -> NDArray[np.intp]:
    """Code of each row's category, 0 if all columns are 0, `[n, c]` to `[n]`."""
    codes: NDArray[np.intp] = np.where(columns.any(1), columns.argmax(1) + 1, 0)
    return codes


def _counts_differ(
    codes: NDArray[np.intp], first: NDArray[np.bool_], level: float, *, pool_rare: bool = False
) -> bool:
    """χ² test of homogeneity; values that fewer than ten rows have may be pooled."""
    total = np.bincount(codes)
    counts = np.bincount(codes[first], minlength=len(total))
    if pool_rare:
        rare = total < _RARE
        counts, total = (np.append(x[~rare], x[rare].sum()) for x in (counts, total))
    counts, total = counts[total > 0], total[total > 0]
    if len(total) < 2:
        return False
    share = len(codes[first]) / len(codes)
    gap = np.abs(counts - share * total)
    if len(total) == 2:
        # Yates's correction for a table of four cells.
        gap -= np.minimum(0.5, gap)
    # χ² of the 2 × c table: both rows have the same gaps, with expected counts share · total and
    # (1 − share) · total.
    statistic = (gap**2 / total).sum() / (share * (1 - share))
    return bool(statistic > _critical_chi2(len(total) - 1, level))


@cache
def _critical_chi2(degrees_of_freedom: int, level: float) -> float:
    return float(stats.chi2.isf(level, degrees_of_freedom))
