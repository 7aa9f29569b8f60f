"""Validated arrays with one value per row, and the data of a test that they provide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.duplicates import UNITS_REMEDY, duplicate_warning, joined_codes
from offline_audit.errors import AuditInputError
from offline_audit.groups import By, Crossing, requested_crossings, to_codes
from offline_audit.permutation.metrics import UNKNOWN_INDEX, Metric
from offline_audit.permutation.permutations import Exchange
from offline_audit.permutation.sources import (
    ExpectedGroups,
    GroupSet,
    RankedGroups,
    TableSource,
    Tally,
    require_expected,
)
from offline_audit.rendering import count
from offline_audit.units import effective_rows, require_one_group
from offline_audit.validation import UNKNOWN, binary, finite, require_length, unit_codes

__all__ = ["RowSource", "Rows", "rows_of"]

Int = NDArray[np.int64]
Int8 = NDArray[np.int8]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of traffic, all arrays `[n]`.

    Attributes:
        crossings: Groups by attribute or crossing, in the requested order.
        decisions: 0, 1, or −1 where it is unknown; None if not passed.
        labels: 0, 1, or −1 where it is unknown; None if not passed.
        scores: None if not passed.
        units: Number of the unit that each row belongs to; None if every row is its own unit.
        warnings: Warnings about the data.
    """

    crossings: tuple[Crossing, ...]
    decisions: Int8 | None
    labels: Int8 | None
    scores: Float | None
    units: Int | None
    warnings: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.crossings[0].codes)

    @property
    def label_index(self) -> Int:
        """Index of each label in tables of counts: 0, 1, or 2 where it is unknown, `[n]`."""
        return self._indices(self.labels)

    @property
    def decision_index(self) -> Int:
        """Index of each decision in tables of counts: 0, 1, or 2 where it is unknown, `[n]`."""
        return self._indices(self.decisions)

    def _indices(self, codes: Int8 | None) -> Int:
        if codes is None:
            return np.full(self.n, UNKNOWN_INDEX)
        return np.where(codes == UNKNOWN, UNKNOWN_INDEX, codes.astype(np.int64))

    def table(self, crossing: Crossing) -> Int:
        """Counts by group, label and decision, `[groups + 1, 3, 3]`; the last group is unknown."""
        groups = len(crossing.names) + 1
        group = np.where(crossing.codes == UNKNOWN, groups - 1, crossing.codes)
        cell = (group * 3 + self.label_index) * 3 + self.decision_index
        return np.bincount(cell, minlength=groups * 9).reshape(groups, 3, 3)


def rows_of(
    *,
    groups: Any,
    decisions: Any = None,
    labels: Any = None,
    scores: Any = None,
    units: Any = None,
    by: By = None,
    expected_groups: ExpectedGroups | None = None,
    score_limits: tuple[float, float] | None = (0.0, 1.0),
) -> Rows:
    """Validate arrays with one value per row.

    Raises:
        AuditInputError: An array or an option is invalid.
    """
    by_attribute = dict(groups) if isinstance(groups, Mapping) else {"group": groups}
    if not by_attribute:
        raise AuditInputError("groups: the mapping is empty; at least one attribute is needed")
    attributes = {}
    for attribute, values in by_attribute.items():
        names, codes = to_codes(values, attribute)
        attributes[attribute] = Crossing(attribute=attribute, names=names, codes=codes)
    names_of = {attribute: crossing.names for attribute, crossing in attributes.items()}
    warnings = require_expected(expected_groups, names_of)
    arrays: dict[str, Any] = {
        "decisions": None if decisions is None else _binary_codes(decisions, "decisions"),
        "labels": None if labels is None else _binary_codes(labels, "labels"),
        "scores": None if scores is None else finite(scores, "scores", score_limits),
        "units": None if units is None else unit_codes(units),
    }
    lengths = {f"groups of {name}": len(crossing.codes) for name, crossing in attributes.items()}
    require_length(lengths | {name: len(a) for name, a in arrays.items() if a is not None})
    crossings = tuple(requested_crossings(attributes, by))
    rows = Rows(crossings=crossings, **arrays, warnings=())
    if rows.units is not None:
        for crossing in crossings:
            require_one_group(rows.units, crossing.codes, crossing.attribute)
    elif rows.scores is not None:
        joined = joined_codes([attribute.codes for attribute in attributes.values()])
        columns = [rows.scores, rows.label_index, rows.decision_index, joined]
        warning = duplicate_warning(columns, UNITS_REMEDY)
        warnings += [] if warning is None else [warning]
    return Rows(crossings=crossings, **arrays, warnings=tuple(warnings))


def _binary_codes(values: Any, name: str) -> Int8:
    return binary(values, name).astype(np.int8)


class RowSource(TableSource):
    """Arrays as the data of a test."""

    def __init__(self, rows: Rows) -> None:
        group_sets = [
            GroupSet(attribute=crossing.attribute, names=crossing.names, table=rows.table(crossing))
            for crossing in rows.crossings
        ]
        super().__init__(group_sets, rows.warnings)
        self._rows = rows
        self._levels: Int | None = None
        parts = {name: getattr(rows, name) for name in ("decisions", "labels", "scores", "units")}
        self.offers = frozenset(name for name, part in parts.items() if part is not None)
        if rows.units is not None:
            self.share_independent = effective_rows(rows.units, rows.n) / rows.n

    def tally(self, index: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type."""
        rows = self._rows
        if metric.kind == "rate" and rows.units is None:
            return super().tally(index, metric, exchange)
        label, decision, codes = rows.label_index, rows.decision_index, rows.crossings[index].codes
        # Of a unit, only rows with a known group count.
        counted = (metric.counted[label, decision] & (codes != UNKNOWN)).astype(np.float64)
        a: Float
        if metric.kind == "rate":
            a = counted * metric.hit[label, decision]
        else:
            assert rows.scores is not None
            a = counted * (label - rows.scores if metric.needs_labels else rows.scores)
        if rows.units is None:
            weight = np.ones(rows.n, dtype=np.int64)
            return Tally.of_entries(a, counted, label, codes, weight, exchange)
        units = int(rows.units.max()) + 1
        first = np.zeros(units, dtype=np.int64)
        # Rows without a group come first, so that the group of the last row is known if any is.
        order = np.argsort(codes != UNKNOWN, kind="stable")
        first[rows.units[order]] = order
        if exchange == "within outcome":
            _require_one_label(rows.units, label, units)
        summed, size = (
            np.bincount(rows.units, weights=part, minlength=units).astype(np.float64)
            for part in (a, counted)
        )
        return Tally.of_entries(
            a=summed,
            b=size,
            strata=label[first],
            group_of=codes[first],
            weight=np.ones(units, dtype=np.int64),
            exchange=exchange,
        )

    def ranked(self, index: int, group: Int, others: Int) -> RankedGroups:
        """Labelled scores."""
        rows = self._rows
        assert rows.scores is not None
        if self._levels is None:
            self._levels = np.unique(rows.scores, return_inverse=True)[1]
        codes = rows.crossings[index].codes
        in_group, in_others = np.isin(codes, group), np.isin(codes, others)
        used_rows = np.flatnonzero((in_group | in_others) & (rows.label_index != UNKNOWN_INDEX))
        level, label, side = (
            self._levels[used_rows],
            rows.label_index[used_rows],
            in_others[used_rows].astype(np.int64),
        )
        levels = int(self._levels.max()) + 1
        counts = np.bincount((side * 2 + label) * levels + level, minlength=4 * levels)
        counts = counts.reshape(2, 2, levels)
        present = counts.any(axis=(0, 1))
        units = None if rows.units is None else (level, label, side, rows.units[used_rows])
        return RankedGroups(counts=counts[:, :, present], units=units)


def _require_one_label(units: Int, label: Int, n: int) -> None:
    lowest, highest = np.full(n, UNKNOWN_INDEX), np.zeros(n, dtype=np.int64)
    np.minimum.at(lowest, units, label)
    np.maximum.at(highest, units, label)
    mixed = int(np.count_nonzero(lowest != highest))
    if mixed:
        raise AuditInputError(
            f"units: {count(mixed, 'unit')} with different labels; all rows of a unit must have "
            'the same label with `exchange="within outcome"`'
        )
