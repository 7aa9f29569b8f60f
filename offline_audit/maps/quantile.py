"""The monitor's map of single features, and the default map, which then repairs their dependence.

A single feature keeps its rank; categories are transported by least mass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from monitor.scoring.counterfactual import (
    FeatureDifferences,
    TransportMaps,
    fit_transport_maps,
    row_uniforms,
    shifted_uniforms,
)
from offline_audit.maps.columns import Columns
from offline_audit.maps.repair import BinnedRows, Repair, fit_repair, some_rows
from offline_audit.maps.transport_map import (
    SQUARED_L2,
    Cost,
    Features,
    Progress,
    draw_shifts,
    draw_uniforms,
)

__all__ = [
    "FAMILY_LEVEL",
    "JointQuantileMap",
    "JointQuantileMethod",
    "QuantileMap",
    "QuantileMethod",
]

# Probability that any feature moves between two groups with equal distributions.
FAMILY_LEVEL = 0.05
# Rows transported at once.
_CHUNK = 1 << 15
# Probability that any pair of variables is repaired if no pair differs.
_LEVEL = 0.01
# Rows per group on which pairs are tested; more change little.
_PAIR_TEST_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileMap:
    """The map from group 0 to group 1 of the monitor's transport maps.

    Attributes:
        maps: Transport maps of the monitor.
        columns: Description of the columns.
    """

    maps: TransportMaps
    columns: Columns

    @property
    def moved(self) -> tuple[str, ...]:
        """Names of the variables that differ between the groups; the others do not move."""
        ordered = [feature.name for feature in self.columns.features if feature.kind != "onehot"]
        names = [*ordered, *(group.name for group in self.columns.one_hot_groups)]
        moves = torch.cat([self.maps.ordered_moves[0, 1], self.maps.category_moves[0, 1]])
        return tuple(name for name, move in zip(names, moves.tolist(), strict=True) if move)

    @property
    def splits(self) -> bool:
        """True if any feature moves: even a numeric feature may have ties."""
        return bool(self.moved)

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        n_counterparts = n_counterparts if self.splits else 1
        transported = np.empty((n_counterparts, *features.shape), np.float32)
        shifts = torch.from_numpy(draw_shifts(self.maps.n_uniforms, n_counterparts))[:, None]
        for start in range(0, len(features), _CHUNK):
            rows = torch.from_numpy(np.ascontiguousarray(features[start : start + _CHUNK]))
            uniforms = shifted_uniforms(row_uniforms(rows, self.maps.n_uniforms)[None], shifts)
            transported[:, start : start + _CHUNK] = self._moved(rows, uniforms)
        return transported

    def random_counterparts(self, features: Features, seed: int) -> Features:
        """One counterpart per row, `[n, d]`, drawn independently, also for duplicates."""
        rng = np.random.default_rng([seed, 0])
        transported = np.empty_like(features)
        for start in range(0, len(features), _CHUNK):
            rows = torch.from_numpy(np.ascontiguousarray(features[start : start + _CHUNK]))
            uniforms = rng.random((1, len(rows), self.maps.n_uniforms), np.float32)
            transported[start : start + _CHUNK] = self._moved(rows, torch.from_numpy(uniforms))[0]
        return transported

    def _moved(self, rows: Tensor, uniforms: Tensor) -> Features:
        """Counterparts of rows `[n, d]` by uniform numbers `[e, n, u]`, `[e, n, d]`."""
        source = torch.zeros(uniforms.shape[:2], dtype=torch.long)
        moved: Features = self.maps.transport(rows, source, source + 1, uniforms).features.numpy()
        return moved


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileMethod:
    """Preserves ranks in each feature; the dependence between features stays that of the source."""

    name: str = "quantile"
    cost: Cost = SQUARED_L2
    quick: bool = True

    def fit(
        self,
        source: Features,
        target: Features,
        columns: Columns,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> QuantileMap:
        """See `MapMethod`."""
        return _fit(source, target, columns, None)

    def refit(
        self,
        fitted: QuantileMap,
        source: Features,
        target: Features,
        columns: Columns,
        *,
        seed: int = 0,
    ) -> QuantileMap:
        """See `SparseMethod`."""
        moves = fitted.maps.ordered_moves.numpy(), fitted.maps.category_moves.numpy()
        return _fit(source, target, columns, moves)

    def identity_check(
        self, features: Features, columns: Columns
    ) -> Callable[[NDArray[np.bool_]], bool]:
        """See `SparseMethod`."""
        differences = _feature_differences(features, columns)
        level = FAMILY_LEVEL / len(columns.variables)

        def is_identity(first: NDArray[np.bool_]) -> bool:
            return not any(part.any() for part in differences.between(first, level))

        return is_identity


def _fit(
    source: Features,
    target: Features,
    columns: Columns,
    moves: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None,
) -> QuantileMap:
    maps = fit_transport_maps(
        np.concatenate([source, target]),
        np.repeat(np.array([0, 1], np.int8), [len(source), len(target)]),
        columns.features,
        columns.one_hot_groups,
        2,
        level=FAMILY_LEVEL / len(columns.variables),
        moves=moves,
    )
    return QuantileMap(maps=maps, columns=columns)


def _feature_differences(features: Features, columns: Columns) -> FeatureDifferences:
    """The tests of `fit_transport_maps`, for any split of these rows."""
    column_of = {name: column for column, name in enumerate(columns.names)}
    ordered = [feature for feature in columns.features if feature.kind != "onehot"]
    return FeatureDifferences(
        features,
        [column_of[feature.name] for feature in ordered],
        np.array([feature.kind == "numeric" for feature in ordered], bool),
        [[column_of[name] for name in group.features] for group in columns.one_hot_groups],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JointQuantileMap:
    """The quantile map, followed by a repair of the dependence between features.

    Attributes:
        margins: Map of single features.
        repair: Repair of dependence; None if no pair of variables differs.
    """

    margins: QuantileMap
    repair: Repair | None

    @property
    def splits(self) -> bool:
        """True if any feature moves: even a numeric feature may have ties."""
        return self.margins.splits or self.repair is not None

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        n_counterparts = n_counterparts if self.splits else 1
        if self.repair is None:
            return self.margins.transport(features, n_counterparts)
        count = len(self.repair.variables)
        transported = np.empty((n_counterparts, *features.shape), np.float32)
        for start in range(0, len(features), _CHUNK):
            rows = features[start : start + _CHUNK]
            # Without moving features the margins return a single counterpart.
            matched = np.broadcast_to(
                self.margins.transport(rows, n_counterparts), (n_counterparts, *rows.shape)
            )
            for draw in range(n_counterparts):
                uniforms = _uniforms(rows, self.margins, count, draw, n_counterparts)
                transported[draw, start : start + _CHUNK] = self.repair.transport(
                    matched[draw], uniforms
                )
        return transported


@dataclass(frozen=True, slots=True, kw_only=True)
class JointQuantileMethod:
    """Matches the distribution of each feature, then the dependence of pairs, where they differ."""

    name: str = "joint_quantile"
    cost: Cost = SQUARED_L2
    quick: bool = True

    def fit(
        self,
        source: Features,
        target: Features,
        columns: Columns,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> JointQuantileMap:
        """See `MapMethod`."""
        margins = QuantileMethod().fit(source, target, columns)
        transported = margins.random_counterparts(_pair_test_rows(source, seed), seed)
        compared = _pair_test_rows(target, seed)
        tests = PairTests(np.concatenate([transported, compared]), columns, seed)
        pairs = tests.between(np.arange(len(transported) + len(compared)) < len(transported))
        return _repaired(margins, source, target, columns, pairs, seed)

    def refit(
        self,
        fitted: JointQuantileMap,
        source: Features,
        target: Features,
        columns: Columns,
        *,
        seed: int = 0,
    ) -> JointQuantileMap:
        """See `SparseMethod`."""
        margins = QuantileMethod().refit(fitted.margins, source, target, columns)
        pairs = [] if fitted.repair is None else list(fitted.repair.pairs)
        return _repaired(margins, source, target, columns, pairs, seed)

    def identity_check(
        self, features: Features, columns: Columns
    ) -> Callable[[NDArray[np.bool_]], bool]:
        """See `SparseMethod`."""
        margins_are_identity = QuantileMethod().identity_check(features, columns)
        tests = PairTests(features, columns)

        def is_identity(first: NDArray[np.bool_]) -> bool:
            return margins_are_identity(first) and not tests.between(first)

        return is_identity


def _repaired(
    margins: QuantileMap,
    source: Features,
    target: Features,
    columns: Columns,
    pairs: list[tuple[int, int]],
    seed: int,
) -> JointQuantileMap:
    if not pairs:
        return JointQuantileMap(margins=margins, repair=None)
    transported = margins.random_counterparts(_pair_test_rows(source, seed), seed)
    repair = fit_repair(transported, target, columns, pairs, margins.moved, seed)
    return JointQuantileMap(margins=margins, repair=repair)


def _uniforms(
    rows: Features, margins: QuantileMap, count: int, draw: int, n_counterparts: int
) -> NDArray[np.float64]:
    """Uniform numbers that the draws of the margins do not use, `[n, count]`."""
    used = margins.maps.n_uniforms
    return draw_uniforms(rows, used + count, draw, n_counterparts)[:, used:]


class PairTests:
    """Tests of which pairs of variables depend on each other differently in two parts of rows.

    Args:
        rows: Rows with equal margins in all parts, `[n, d]`.
        columns: Description of the columns.
        seed: Seed of the sample that is tested if there are very many rows.
    """

    def __init__(self, rows: Features, columns: Columns, seed: int = 0) -> None:
        self._sample = some_rows(len(rows), 2 * _PAIR_TEST_ROWS, seed)
        self._binned = BinnedRows.of(rows[self._sample], columns)

    def between(self, first: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """Pairs that differ between the rows in `first`, bool `[n]`, and the others."""
        return self._binned.differing(first[self._sample], _LEVEL)


def _pair_test_rows(rows: Features, seed: int) -> Features:
    """The rows on which pairs are tested: all of them, or a sample if there are very many."""
    if len(rows) <= _PAIR_TEST_ROWS:
        return rows
    return rows[some_rows(len(rows), _PAIR_TEST_ROWS, seed)]
