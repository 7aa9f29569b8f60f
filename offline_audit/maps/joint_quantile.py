"""The default map: ranks are kept feature by feature, then ties between features are repaired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.columns import Columns
from offline_audit.maps.draws import draw_uniforms
from offline_audit.maps.quantile import QuantileMap, QuantileMethod
from offline_audit.maps.repair import BinnedPeople, Repair, fit_repair, some_rows
from offline_audit.maps.transport_map import SQUARED_L2, Cost, Features, Progress

__all__ = ["JointQuantileMap", "JointQuantileMethod"]

_CHUNK = 1 << 15
# Probability that any pair of variables is repaired if no pair differs.
_LEVEL = 0.01
# Rows per group on which pairs are tested.
_JUDGED = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JointQuantileMap:
    """The monitor's map, and a repair of what it leaves.

    Attributes:
        margins: Feature by feature.
        repair: None where variables hang together alike in both groups.
    """

    margins: QuantileMap
    repair: Repair | None

    @property
    def splits(self) -> bool:
        """Where anything moves: even a numeric feature may hold a point's mass."""
        return self.margins.splits or self.repair is not None

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        n_counterparts = n_counterparts if self.splits else 1
        if self.repair is None:
            return self.margins.transport(features, n_counterparts)
        count = len(self.repair.variables)
        transported = np.empty((n_counterparts, *features.shape), np.float32)
        for start in range(0, len(features), _CHUNK):
            people = features[start : start + _CHUNK]
            pushed = np.broadcast_to(
                self.margins.transport(people, n_counterparts), (n_counterparts, *people.shape)
            )
            for draw in range(n_counterparts):
                uniforms = _uniforms(people, self.margins, count, draw, n_counterparts)
                transported[draw, start : start + _CHUNK] = self.repair.transport(
                    pushed[draw], uniforms
                )
        return transported


@dataclass(frozen=True, slots=True, kw_only=True)
class JointQuantileMethod:
    """Margins are matched where they differ; then ties between features, where those differ."""

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
        # Of very many people some tell as much.
        pushed, there = (
            margins.spread(judged_people(source, seed), seed),
            judged_people(target, seed),
        )
        both = LinkedPairs(np.concatenate([pushed, there]), columns, seed)
        pairs = both.between(np.arange(len(pushed) + len(there)) < len(pushed))
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

    def still(self, people: Features, columns: Columns) -> Callable[[NDArray[np.bool_]], bool]:
        """See `SparseMethod`."""
        margins_stay = QuantileMethod().still(people, columns)
        linked = LinkedPairs(people, columns)

        def moves_nobody(first: NDArray[np.bool_]) -> bool:
            return margins_stay(first) and not linked.between(first)

        return moves_nobody


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
    pushed = margins.spread(judged_people(source, seed), seed)
    repair = fit_repair(pushed, target, columns, pairs, margins.moved, seed)
    return JointQuantileMap(margins=margins, repair=repair)


def _uniforms(
    people: Features, margins: QuantileMap, count: int, draw: int, n_counterparts: int
) -> NDArray[np.float64]:
    """Numbers that the margins' draws have not used, `[n, count]`."""
    used = margins.maps.uniforms
    return draw_uniforms(people, used + count, draw, n_counterparts)[:, used:]


class LinkedPairs:
    """Pairs of variables that hang together otherwise in two parts of some people.

    Args:
        people: With equal margins in all parts, `[n, d]`.
        columns: What the columns are.
        seed: Of the choice among many people.
    """

    def __init__(self, people: Features, columns: Columns, seed: int = 0) -> None:
        self._chosen = some_rows(len(people), 2 * _JUDGED, seed)
        self._people = BinnedPeople.of(people[self._chosen], columns)

    def between(self, first: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """For a split in two, bool `[n]`."""
        return self._people.differing(first[self._chosen], _LEVEL)


def judged_people(people: Features, seed: int) -> Features:
    """As many as pairs are judged on, `[n, d]`; all where they are few."""
    return people if len(people) <= _JUDGED else people[some_rows(len(people), _JUDGED, seed)]
