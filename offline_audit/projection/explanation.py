"""Aggregates of the rows that the smallest fair change alters, by group and by feature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.boundary import BoundaryDistances
from offline_audit.projection.cells import Cell, CostCurve, Stratum
from offline_audit.projection.fair_change import FairChange
from offline_audit.projection.sample import Sample

__all__ = ["Explanation", "FeatureMove", "GroupMove", "changed_rows", "explain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """Rows of one group, or crossing of groups, whose decision the smallest fair change alters.

    Attributes:
        groups: Group of each attribute; None if it is not tested.
        label: Label within which groups are compared; None for all rows.
        from_decision: Decision before the change.
        rows: Number of rows that change, the last one in part; None if fewer than `smallest_cell`.
            Rounded to multiples of `smallest_cell` if the number of another group is withheld.
        share: Share of the group's rows; withheld or rounded like `rows`.
        median_distance: Median distance of the rows that change; withheld like `rows`.
        distance_90: 90% quantile of those distances; withheld like `rows`.
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
    """Mean change of a feature over the rows that change from one decision to the other.

    Attributes:
        feature: Name of the feature.
        from_decision: Decision before the change.
        mean: Mean change, in standard deviations of the feature if these are known.
        mean_absolute: Mean absolute change, in the same unit.
    """

    feature: str
    from_decision: int
    mean: float
    mean_absolute: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Summary of the smallest fair change.

    Attributes:
        moves: Changes by group and decision, most rows first; groups without changes are omitted.
        features: Changes of features, largest first; empty if they are unknown.
        in_standard_deviations: Whether `features` are in standard deviations.
        rows_moved: Total number of rows that change, the last ones in part; None if fewer than
            `smallest_cell`. Rounded if the number of a group is withheld, so that subtraction does
            not reveal it.
        rounded: Whether numbers and shares of rows are rounded to multiples of `smallest_cell`.
        unique: Whether no other change has the same cost; None if this was not examined.
        smallest_cell: Smallest number of rows whose figures are shown.
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
    """Rows that change, with weights.

    Attributes:
        rows: Indices of the rows, `[k]`.
        weights: Weight of each row, 1 or less if the row changes in part, `[k]`.
    """

    rows: NDArray[np.intp]
    weights: NDArray[np.float64]

    @property
    def count(self) -> float:
        """Weighted number of rows."""
        return float(self.weights.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Disclosure:
    """Rules by which numbers of rows are withheld or rounded, to protect small groups.

    Attributes:
        smallest: Smallest number that is disclosed.
        rounded: Whether numbers are rounded to multiples of `smallest`.
    """

    smallest: int
    rounded: bool

    def rows(self, count: float) -> float | None:
        """The disclosed number of rows; None if it is withheld."""
        if _is_few(count, self.smallest):
            return None
        if not self.rounded:
            return count
        return float(max(round(count / self.smallest), 1) * self.smallest) if count else 0.0


def _is_few(count: float, smallest: int) -> bool:
    """Whether a number of changed rows is positive and too small to be disclosed."""
    # A row that changes in part counts as one row.
    return 0 < math.ceil(count - 1e-9) < smallest


def explain(
    sample: Sample,
    strata: Sequence[Stratum],
    changes: Sequence[FairChange],
    boundary: BoundaryDistances,
    *,
    smallest_cell: int,
) -> Explanation:
    """Summarise the rows that change.

    Rows at the same distance share the change, so that the result does not depend on row order.
    """
    entries: list[tuple[Stratum, Cell, int, _Moved]] = []
    by_decision: dict[int, list[_Moved]] = {0: [], 1: []}
    for stratum, change in zip(strata, changes, strict=True):
        for index, cell in enumerate(stratum.cells):
            for decision, count in ((0, change.rise[index]), (1, change.fall[index])):
                if count <= 1e-9:
                    continue
                moved = _nearest_rows(sample.distances, cell, decision, float(count))
                by_decision[decision].append(moved)
                entries.append((stratum, cell, decision, moved))
    disclosure = _Disclosure(
        smallest=smallest_cell,
        rounded=any(_is_few(moved.count, smallest_cell) for *_, moved in entries),
    )
    # Sorted by the disclosed number: the order must not reveal withheld numbers.
    entries.sort(key=lambda entry: -(disclosure.rows(entry[-1].count) or 0.0))
    features = [
        feature
        for decision in (0, 1)
        for feature in _feature_moves(by_decision[decision], decision, boundary, smallest_cell)
    ]
    features.sort(key=lambda move: -move.mean_absolute)
    unique = [change.unique for change in changes]
    return Explanation(
        moves=tuple(_group_move(sample, *entry, disclosure) for entry in entries),
        features=tuple(features),
        in_standard_deviations=boundary.scales is not None,
        rows_moved=disclosure.rows(sum(moved.count for *_, moved in entries)),
        rounded=disclosure.rounded,
        unique=None if None in unique else all(unique),
        smallest_cell=smallest_cell,
    )


def changed_rows(
    sample: Sample, strata: Sequence[Stratum], changes: Sequence[FairChange]
) -> NDArray[np.intp]:
    """Indices of the rows that change, in whole or in part."""
    rows = [np.empty(0, dtype=np.intp)]
    for stratum, change in zip(strata, changes, strict=True):
        for index, cell in enumerate(stratum.cells):
            for decision, count in ((0, change.rise[index]), (1, change.fall[index])):
                if count > 1e-9:
                    moved = _nearest_rows(sample.distances, cell, decision, float(count))
                    rows.append(moved.rows)
    return np.unique(np.concatenate(rows))


def _nearest_rows(
    distances: NDArray[np.float64], cell: Cell, decision: int, count: float
) -> _Moved:
    """The nearest rows of one decision; those at the largest distance share the remainder."""
    rows, curve = _side(cell, decision)
    threshold = curve.threshold(count)
    row_distances = distances[rows]
    nearer, tied = row_distances < threshold, row_distances == threshold
    weights = nearer.astype(np.float64)
    weights[tied] = max(count - int(nearer.sum()), 0.0) / max(int(tied.sum()), 1)
    changed = weights > 0
    return _Moved(rows=rows[changed], weights=np.minimum(weights[changed], 1.0))


def _side(cell: Cell, decision: int) -> tuple[NDArray[np.intp], CostCurve]:
    """Rows of a cell with one decision, and the cost of changing it."""
    if decision:
        return cell.positive_rows, cell.fall
    return cell.negative_rows, cell.rise


def _group_move(
    sample: Sample,
    stratum: Stratum,
    cell: Cell,
    decision: int,
    moved: _Moved,
    disclosure: _Disclosure,
) -> GroupMove:
    """The disclosed figures of the rows of a cell that change from one decision."""
    rows = disclosure.rows(moved.count)
    groups = tuple(
        (attribute.name, attribute.groups[g] if g >= 0 else None)
        for attribute, g in zip(sample.attributes, cell.groups, strict=True)
    )
    distances = sample.distances[moved.rows]
    return GroupMove(
        groups=groups,
        label=stratum.label,
        from_decision=decision,
        rows=rows,
        share=None if rows is None else min(rows / cell.size, 1.0),
        median_distance=None if rows is None else _quantile(distances, moved.weights, 0.5),
        distance_90=None if rows is None else _quantile(distances, moved.weights, 0.9),
    )


def _quantile(values: NDArray[np.float64], weights: NDArray[np.float64], share: float) -> float:
    """Weighted quantile."""
    order = np.argsort(values)
    cumulated = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulated, share * cumulated[-1])])


def _feature_moves(
    moved: Sequence[_Moved],
    decision: int,
    boundary: BoundaryDistances,
    smallest: int,
) -> list[FeatureMove]:
    """Mean feature changes of the rows that change from one decision."""
    if not moved or boundary.changes is None:
        return []
    rows = np.concatenate([part.rows for part in moved])
    weights = np.concatenate([part.weights for part in moved])
    if _is_few(float(weights.sum()), smallest):
        return []
    change = boundary.changes(rows)
    if boundary.scales is not None:
        change = change / np.where(boundary.scales > 0, boundary.scales, 1.0)
    weights = weights / weights.sum()
    return [
        FeatureMove(feature=name, from_decision=decision, mean=float(m), mean_absolute=float(a))
        for name, m, a in zip(
            boundary.feature_names, weights @ change, weights @ np.abs(change), strict=True
        )
    ]
