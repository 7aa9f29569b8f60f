"""The monitor's own map: feature by feature, everyone keeps her rank; categories by least mass."""

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
from offline_audit.maps.draws import draw_shifts
from offline_audit.maps.transport_map import SQUARED_L2, Cost, Features, Progress

__all__ = ["FAMILY_LEVEL", "QuantileMap", "QuantileMethod", "feature_differences"]

# Chance that any feature moves between two groups that do not differ at all.
FAMILY_LEVEL = 0.05
# People transported at once.
_CHUNK = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileMap:
    """From group 0 to group 1 of the monitor's maps.

    Attributes:
        maps: As the monitor has them.
        columns: What the columns are.
    """

    maps: TransportMaps
    columns: Columns

    @property
    def moved(self) -> tuple[str, ...]:
        """Variables that differ between the groups; all others stay."""
        ordered = [feature.name for feature in self.columns.features if feature.kind != "onehot"]
        names = [*ordered, *(group.name for group in self.columns.one_hot_groups)]
        moves = torch.cat([self.maps.ordered_moves[0, 1], self.maps.category_moves[0, 1]])
        return tuple(name for name, move in zip(names, moves.tolist(), strict=True) if move)

    @property
    def splits(self) -> bool:
        """Where anything moves: even a numeric feature may hold a point's mass."""
        return bool(self.moved)

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        n_counterparts = n_counterparts if self.splits else 1
        transported = np.empty((n_counterparts, *features.shape), np.float32)
        shifts = torch.from_numpy(draw_shifts(self.maps.uniforms, n_counterparts))[:, None]
        for start in range(0, len(features), _CHUNK):
            rows = torch.from_numpy(np.ascontiguousarray(features[start : start + _CHUNK]))
            uniforms = shifted_uniforms(row_uniforms(rows, self.maps.uniforms)[None], shifts)
            transported[:, start : start + _CHUNK] = self._moved(rows, uniforms)
        return transported

    def spread(self, features: Features, seed: int) -> Features:
        """One counterpart of each, `[n, d]`, drawn anew even for people who are alike."""
        rng = np.random.default_rng([seed, 0])
        transported = np.empty_like(features)
        for start in range(0, len(features), _CHUNK):
            rows = torch.from_numpy(np.ascontiguousarray(features[start : start + _CHUNK]))
            uniforms = rng.random((1, len(rows), self.maps.uniforms), np.float32)
            transported[start : start + _CHUNK] = self._moved(rows, torch.from_numpy(uniforms))[0]
        return transported

    def _moved(self, rows: Tensor, uniforms: Tensor) -> Features:
        """Rows `[n, d]` by uniform numbers `[e, n, u]`, to `[e, n, d]`."""
        here = torch.zeros(uniforms.shape[:2], dtype=torch.long)
        moved: Features = self.maps.carry(rows, here, here + 1, uniforms).features.numpy()
        return moved


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileMethod:
    """Ranks are kept feature by feature; how features hang together stays as in the source."""

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
        held = fitted.maps.ordered_moves.numpy(), fitted.maps.category_moves.numpy()
        return _fit(source, target, columns, held)

    def still(self, people: Features, columns: Columns) -> Callable[[NDArray[np.bool_]], bool]:
        """See `SparseMethod`."""
        differences = feature_differences(people, columns)
        level = FAMILY_LEVEL / len(columns.variables)

        def moves_nobody(first: NDArray[np.bool_]) -> bool:
            return not any(part.any() for part in differences.between(first, level))

        return moves_nobody


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


def feature_differences(people: Features, columns: Columns) -> FeatureDifferences:
    """These people, ready to be split as `fit_transport_maps` splits them."""
    place = {name: column for column, name in enumerate(columns.names)}
    kinds = [feature for feature in columns.features if feature.kind != "onehot"]
    return FeatureDifferences(
        people,
        [place[feature.name] for feature in kinds],
        np.array([feature.kind == "numeric" for feature in kinds], bool),
        [[place[name] for name in group.features] for group in columns.one_hot_groups],
    )
