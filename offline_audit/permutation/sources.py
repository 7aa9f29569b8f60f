"""Rows, counts and histograms behind one interface: tallies for ratios, ranked rows for AUCs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.permutation.auc_test import RankedGroups
from offline_audit.permutation.counts import ScoreCounts, TableCounts
from offline_audit.permutation.metrics import UNKNOWN_INDEX, Metric
from offline_audit.permutation.permutations import Exchange
from offline_audit.permutation.rows import Rows
from offline_audit.rendering import count

__all__ = ["GroupSet", "RowSource", "ScoreSource", "Source", "TableSource", "Tally"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSet:
    """The groups of one attribute or crossing.

    Attributes:
        attribute: Name of the attribute, or the crossed names.
        names: Names of the groups.
        table: Rows by group, label and decision, `[groups + 1, 3, 3]`; the last index of each axis
            is unknown.
    """

    attribute: str
    names: tuple[str, ...]
    table: Int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Units by type and group. A unit is one row, or all rows of one person.

    Every rate and mean is Σa/Σb over units; units with equal a, b and stratum are of one type.

    Attributes:
        values: a and b of each type, `[k, 2]`.
        strata: Stratum of each type, `[k]`; units are permuted within strata.
        type_of: Type of each entry, `[m]`; an entry is one unit or several equal ones.
        group_of: Index of the group of each entry, `[m]`.
        weight: Units of each entry, `[m]`.
    """

    values: Float
    strata: Int
    type_of: Int
    group_of: Int
    weight: Int

    @classmethod
    def of_entries(
        cls, a: Float, b: Float, strata: Int, group_of: Int, weight: Int, exchange: Exchange
    ) -> Self:
        """Determine the types of entries, `[m]` each; entries without a group are excluded."""
        kept = (group_of >= 0) & (weight > 0)
        if exchange == "counted":
            kept &= b > 0
            strata = np.zeros_like(strata)
        elif exchange == "all":
            strata = np.zeros_like(strata)
        a, b, strata = a[kept], b[kept], strata[kept]
        # Constant columns need no sorting.
        parts = [part for part in (strata, b, a) if len(part) and part.min() < part.max()]
        order = np.lexsort(parts[::-1]) if parts else np.arange(len(a))
        sorted_parts = [part[order] for part in parts]
        new = np.zeros(len(order), dtype=bool)
        new[:1] = True
        for part in sorted_parts:
            new[1:] |= part[1:] != part[:-1]
        type_of = np.empty(len(order), dtype=np.int64)
        type_of[order] = np.cumsum(new) - 1
        first = order[new]
        return cls(
            values=np.stack([a[first], b[first]], axis=1),
            strata=strata[first],
            type_of=type_of,
            group_of=group_of[kept],
            weight=weight[kept],
        )

    def between(self, groups: Int, others: Int) -> tuple[Int, Int]:
        """Units of each type in some groups and in some others, `[k]` each."""
        return self._within(groups), self._within(others)

    def _within(self, groups: Int) -> Int:
        own = np.isin(self.group_of, groups)
        units = np.bincount(self.type_of[own], weights=self.weight[own], minlength=len(self.values))
        return units.astype(np.int64)


class Source(Protocol):
    """Rows, counts or histograms behind a test."""

    @property
    def group_sets(self) -> tuple[GroupSet, ...]:
        """Attributes and crossings, in order."""

    @property
    def offers(self) -> frozenset[str]:
        """Available data, of `decisions`, `labels`, `scores` and `units`."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reservations about the data."""

    def tally(self, index: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type, for a rate or mean and the group set at an index."""

    def ranked(self, index: int, group: Int, others: Int) -> RankedGroups:
        """Labelled scores of some groups and some other groups."""

    def mean_error(self) -> float:
        """Largest error of a difference of mean scores that bins can cause."""

    def auc_error(self, ranked: RankedGroups) -> float:
        """Largest error of a difference of AUCs that bins can cause."""


def _table_tally(metric: Metric, table: Int, exchange: Exchange) -> Tally:
    groups = len(table) - 1
    known = table[:groups].reshape(groups, 9)
    counted, hit = metric.counted.ravel(), (metric.counted & metric.hit).ravel()
    label = np.repeat(np.arange(3), 3)
    return Tally.of_entries(
        a=np.tile(hit.astype(np.float64), groups),
        b=np.tile(counted.astype(np.float64), groups),
        strata=np.tile(label, groups),
        group_of=np.repeat(np.arange(groups), 9),
        weight=known.ravel(),
        exchange=exchange,
    )


class TableSource:
    """Counts by group, label and decision."""

    def __init__(self, counts: TableCounts) -> None:
        self.warnings = counts.warnings
        self.group_sets = tuple(
            GroupSet(attribute=part.attribute, names=part.names, table=part.table)
            for part in counts.groups
        )
        tables = [part.table.sum(axis=0) for part in counts.groups]
        labelled = any(table[:UNKNOWN_INDEX].any() for table in tables)
        decided = any(table[:, :UNKNOWN_INDEX].any() for table in tables)
        self.offers = frozenset(["labels"] * labelled + ["decisions"] * decided)

    def tally(self, index: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type."""
        return _table_tally(metric, self.group_sets[index].table, exchange)

    def ranked(self, index: int, group: Int, others: Int) -> RankedGroups:
        """No scores: counts hold none.

        Raises:
            AuditInputError: Always.
        """
        raise AuditInputError("scores: counts hold no scores; pass arrays or `ScoreCounts`")

    def mean_error(self) -> float:
        """No bins, no error."""
        return 0.0

    def auc_error(self, ranked: RankedGroups) -> float:
        """No bins, no error."""
        return 0.0


class ScoreSource:
    """Histograms of scores."""

    def __init__(self, scores: ScoreCounts) -> None:
        self.warnings = scores.warnings
        self._scores = scores
        table = scores.counts.sum(axis=3)
        self.group_sets = (GroupSet(attribute=scores.attribute, names=scores.names, table=table),)
        labelled, decided = table[:, :UNKNOWN_INDEX].any(), table[:, :, :UNKNOWN_INDEX].any()
        offers = ["scores"] + ["labels"] * bool(labelled) + ["decisions"] * bool(decided)
        self.offers = frozenset(offers)

    def tally(self, index: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type; a score is represented by the centre of its bin."""
        if metric.kind == "rate":
            return _table_tally(metric, self.group_sets[index].table, exchange)
        known = self._scores.counts[:-1]
        group_of, label, decision, bin_of = np.indices(known.shape)
        score = self._scores.centres[bin_of]
        a = np.where(metric.needs_labels, label - score, score)
        counted = metric.counted[label, decision]
        return Tally.of_entries(
            a=(a * counted).ravel(),
            b=counted.astype(np.float64).ravel(),
            strata=label.ravel(),
            group_of=group_of.ravel(),
            weight=known.ravel(),
            exchange=exchange,
        )

    def ranked(self, index: int, group: Int, others: Int) -> RankedGroups:
        """Labelled scores by bin."""
        by_label = self._scores.counts.sum(axis=2)[:, :UNKNOWN_INDEX]
        return RankedGroups(
            counts=np.stack([by_label[group].sum(axis=0), by_label[others].sum(axis=0)])
        )

    def mean_error(self) -> float:
        """Half a bin in each mean."""
        return float(np.diff(self._scores.edges).max())

    def auc_error(self, ranked: RankedGroups) -> float:
        """Half of the pairs that share a bin, in each AUC."""
        error = 0.0
        for negatives, positives in ranked.counts.astype(np.float64):
            pairs = positives.sum() * negatives.sum()
            error += float((positives * negatives).sum() / pairs / 2) if pairs else 0.0
        return error


class RowSource:
    """Arrays, one value for each row."""

    def __init__(self, rows: Rows) -> None:
        self.warnings = rows.warnings
        self._rows = rows
        self._levels: Int | None = None
        self.group_sets = tuple(
            GroupSet(attribute=crossing.attribute, names=crossing.names, table=rows.table(crossing))
            for crossing in rows.crossings
        )
        parts = {name: getattr(rows, name) for name in ("decisions", "labels", "scores", "units")}
        self.offers = frozenset(name for name, part in parts.items() if part is not None)

    def tally(self, index: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type."""
        rows = self._rows
        if metric.kind == "rate" and rows.units is None:
            return _table_tally(metric, self.group_sets[index].table, exchange)
        label, decision, codes = rows.label_index, rows.decision_index, rows.crossings[index].codes
        counted = metric.counted[label, decision].astype(np.float64)
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
        first[rows.units] = np.arange(rows.n)
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
        kept = np.flatnonzero((in_group | in_others) & (rows.label_index != UNKNOWN_INDEX))
        level, label, side = (
            self._levels[kept],
            rows.label_index[kept],
            in_others[kept].astype(np.int64),
        )
        levels = int(self._levels.max()) + 1
        counts = np.bincount((side * 2 + label) * levels + level, minlength=4 * levels)
        counts = counts.reshape(2, 2, levels)
        used = counts.any(axis=(0, 1))
        units = None if rows.units is None else (level, label, side, rows.units[kept])
        return RankedGroups(counts=counts[:, :, used], units=units)

    def mean_error(self) -> float:
        """No bins, no error."""
        return 0.0

    def auc_error(self, ranked: RankedGroups) -> float:
        """No bins, no error."""
        return 0.0


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
