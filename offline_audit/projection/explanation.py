"""Whom the smallest fair change moves, how far, and along which features: aggregates only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.boundary import BoundaryDistances
from offline_audit.projection.cells import Cell, Stratum
from offline_audit.projection.common_rate import Turns
from offline_audit.projection.cost_curve import CostCurve
from offline_audit.projection.sample import Sample

__all__ = ["Explanation", "FeatureMove", "GroupMove", "explain", "moved_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """The rows of one group, or crossing of groups, whose decision the smallest fair change turns.

    Attributes:
        groups: The group of each attribute; None where it takes no part.
        label: The outcome within which they are compared; None for all rows.
        from_decision: What their decision is; it turns to the other.
        rows: How many turn, the last in part; None if fewer than the smallest cell. Rounded to
            whole smallest cells where another group's are withheld.
        share: Of the group's rows; None or rounded as above.
        median_distance: Of those that turn; None if fewer than the smallest cell.
        distance_90: Nine of ten of those that turn move no farther; None as above.
    """

    groups: tuple[tuple[str, str | None], ...]
    label: int | None
    from_decision: int
    rows: float | None
    share: float | None
    median_distance: float | None
    distance_90: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMove:
    """How a feature changes in the rows that turn from one decision.

    Attributes:
        feature: Its name.
        from_decision: What the decision was.
        mean: Mean change, in standard deviations of the feature where those are known.
        mean_absolute: Mean size of the change, likewise.
    """

    feature: str
    from_decision: int
    mean: float
    mean_absolute: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the smallest fair change does.

    Attributes:
        moves: By group and decision, most rows first; groups that stay are not here.
        features: Those that change most first; empty if changes are not known.
        in_standard_deviations: Whether features are told in their standard deviations.
        rows_moved: In all, the last ones in part; None if fewer than the smallest cell. Rounded
            where a group's are withheld, which could be told by subtraction.
        rounded: Whether rows, shares and rows moved are rounded to whole smallest cells.
        unique: Whether it is the only smallest change; None if that was not looked into.
        smallest_cell: Figures of fewer rows are withheld.
    """

    moves: tuple[GroupMove, ...]
    features: tuple[FeatureMove, ...]
    in_standard_deviations: bool
    rows_moved: float | None
    rounded: bool
    unique: bool | None
    smallest_cell: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """Rows that turn, and how much of each."""

    rows: NDArray[np.intp]
    parts: NDArray[np.float64]

    @property
    def count(self) -> float:
        """How many, parts added up."""
        return float(self.parts.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """How counts of rows are told, so that few people cannot be told apart."""

    smallest: int
    rounded: bool

    def rows(self, count: float) -> float | None:
        if is_few(count, self.smallest):
            return None
        if not self.rounded:
            return count
        return float(max(round(count / self.smallest), 1) * self.smallest) if count else 0.0


def is_few(count: float, smallest: int) -> bool:
    """Whether some people turn, and so few that their figures are withheld."""
    # One that turns in part is a person all the same.
    return 0 < math.ceil(count - 1e-9) < smallest


def explain(
    sample: Sample,
    strata: Sequence[Stratum],
    turns: Sequence[Turns],
    boundary: BoundaryDistances,
    *,
    smallest_cell: int,
) -> Explanation:
    """Sum up the rows that turn.

    Rows at the same distance share what turns of them, so that the order of rows has no say.
    """
    found: list[tuple[Stratum, Cell, int, _Moved]] = []
    moved: dict[int, list[_Moved]] = {0: [], 1: []}
    for stratum, turn in zip(strata, turns, strict=True):
        for place, cell in enumerate(stratum.cells):
            for decision, count in ((0, turn.rise[place]), (1, turn.fall[place])):
                if count <= 1e-9:
                    continue
                part = _turned(sample.distances, cell, decision, float(count))
                moved[decision].append(part)
                found.append((stratum, cell, decision, part))
    told = _Told(
        smallest=smallest_cell,
        rounded=any(is_few(part.count, smallest_cell) for *_, part in found),
    )
    found.sort(key=lambda each: -(told.rows(each[-1].count) or 0.0))
    features = [
        feature
        for decision in (0, 1)
        for feature in _feature_moves(moved[decision], decision, boundary, smallest_cell)
    ]
    features.sort(key=lambda move: -move.mean_absolute)
    alone = [turn.unique for turn in turns]
    return Explanation(
        moves=tuple(_group_move(sample, *each, told) for each in found),
        features=tuple(features),
        in_standard_deviations=boundary.scales is not None,
        rows_moved=told.rows(sum(part.count for *_, part in found)),
        rounded=told.rounded,
        unique=None if None in alone else all(alone),
        smallest_cell=smallest_cell,
    )


def moved_rows(
    sample: Sample, strata: Sequence[Stratum], turns: Sequence[Turns]
) -> NDArray[np.intp]:
    """Places of the rows that turn, in whole or in part."""
    found = [np.empty(0, dtype=np.intp)]
    for stratum, turn in zip(strata, turns, strict=True):
        for place, cell in enumerate(stratum.cells):
            for decision, count in ((0, turn.rise[place]), (1, turn.fall[place])):
                if count > 1e-9:
                    found.append(_turned(sample.distances, cell, decision, float(count)).rows)
    return np.unique(np.concatenate(found))


def _turned(distances: NDArray[np.float64], cell: Cell, decision: int, count: float) -> _Moved:
    """The nearest rows of one decision; those at the last distance share the rest."""
    rows, curve = _side(cell, decision)
    threshold = curve.threshold(count)
    near = distances[rows]
    inside, last = near < threshold, near == threshold
    parts = inside.astype(np.float64)
    parts[last] = max(count - int(inside.sum()), 0.0) / max(int(last.sum()), 1)
    kept = parts > 0
    return _Moved(rows=rows[kept], parts=np.minimum(parts[kept], 1.0))


def _side(cell: Cell, decision: int) -> tuple[NDArray[np.intp], CostCurve]:
    if decision:
        return cell.positive_rows, cell.fall
    return cell.negative_rows, cell.rise


def _group_move(
    sample: Sample, stratum: Stratum, cell: Cell, decision: int, part: _Moved, told: _Told
) -> GroupMove:
    rows = told.rows(part.count)
    named = tuple(
        (attribute.name, attribute.groups[g] if g >= 0 else None)
        for attribute, g in zip(sample.attributes, cell.groups, strict=True)
    )
    far = sample.distances[part.rows]
    return GroupMove(
        groups=named,
        label=stratum.label,
        from_decision=decision,
        rows=rows,
        share=None if rows is None else min(rows / cell.size, 1.0),
        median_distance=None if rows is None else _quantile(far, part.parts, 0.5),
        distance_90=None if rows is None else _quantile(far, part.parts, 0.9),
    )


def _quantile(values: NDArray[np.float64], parts: NDArray[np.float64], share: float) -> float:
    order = np.argsort(values)
    running = np.cumsum(parts[order])
    return float(values[order][np.searchsorted(running, share * running[-1])])


def _feature_moves(
    moved: Sequence[_Moved],
    decision: int,
    boundary: BoundaryDistances,
    smallest: int,
) -> list[FeatureMove]:
    """Mean changes of the rows that turn from one decision."""
    if not moved or boundary.changes is None:
        return []
    rows = np.concatenate([part.rows for part in moved])
    parts = np.concatenate([part.parts for part in moved])
    if is_few(float(parts.sum()), smallest):
        return []
    change = boundary.changes(rows)
    if boundary.scales is not None:
        change = change / np.where(boundary.scales > 0, boundary.scales, 1.0)
    weights = parts / parts.sum()
    return [
        FeatureMove(feature=name, from_decision=decision, mean=float(m), mean_absolute=float(a))
        for name, m, a in zip(
            boundary.feature_names, weights @ change, weights @ np.abs(change), strict=True
        )
    ]
