"""The default map: quantile maps of single features, then a repair of their dependence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.columns import Columns
from offline_audit.maps.draws import draw_uniforms
from offline_audit.maps.quantile import QuantileMap, QuantileMethod
from offline_audit.maps.repair import BinnedRows, Repair, fit_repair, some_rows
from offline_audit.maps.transport_map import SQUARED_L2, Cost, Features, Progress

__all__ = ["JointQuantileMap", "JointQuantileMethod"]

# Rows transported at once.
_CHUNK = 1 << 15
# Probability that any pair of variables is repaired if no pair differs.
_LEVEL = 0.01
# Rows per group on which pairs are tested; more change little.
_PAIR_TEST_ROWS = 20_000


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
