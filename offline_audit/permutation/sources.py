"""Rows, counts and histograms, read alike: tallies for ratios, ranked sides for AUCs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offline_audit.checked_arrays import MISSING
from offline_audit.errors import AuditInputError
from offline_audit.permutation.auc_test import RankedSides
from offline_audit.permutation.counts import TableCounts
from offline_audit.permutation.metrics import Metric
from offline_audit.permutation.rows import Rows
from offline_audit.permutation.score_counts import ScoreCounts
from offline_audit.permutation.tally import Exchange, Tally

__all__ = ["GroupSet", "RowSource", "ScoreSource", "Source", "TableSource"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSet:
    """The groups of one attribute or crossing.

    Attributes:
        attribute: Its name.
        names: Of the groups.
        table: Rows by group, label and decision, `[groups + 1, 3, 3]`; the last of each is unknown.
    """

    attribute: str
    names: tuple[str, ...]
    table: Int


class Source(Protocol):
    """Where a test gets its figures from."""

    @property
    def group_sets(self) -> tuple[GroupSet, ...]:
        """Attributes and crossings, in order."""

    @property
    def offers(self) -> frozenset[str]:
        """Which of `decisions`, `labels`, `scores` there are, and `units`."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about the data."""

    def tally(self, place: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type, for a ratio metric and the group set at a place."""

    def ranked(self, place: int, group: Int, others: Int) -> RankedSides:
        """Labelled scores of some groups and some others."""

    def mean_error(self) -> float:
        """How far a difference of mean scores can be off because of bins."""

    def auc_error(self, sides: RankedSides) -> float:
        """How far a difference of AUCs can be off because of bins."""


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
    """From counts."""

    def __init__(self, counts: TableCounts) -> None:
        self.warnings = counts.warnings
        self.group_sets = tuple(
            GroupSet(attribute=each.attribute, names=each.names, table=each.table)
            for each in counts.groups
        )
        tables = [each.table.sum(axis=0) for each in counts.groups]
        labelled = any(table[:MISSING].any() for table in tables)
        decided = any(table[:, :MISSING].any() for table in tables)
        self.offers = frozenset(["labels"] * labelled + ["decisions"] * decided)

    def tally(self, place: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type."""
        return _table_tally(metric, self.group_sets[place].table, exchange)

    def ranked(self, place: int, group: Int, others: Int) -> RankedSides:
        """Never: `offers` has no scores."""
        raise AssertionError

    def mean_error(self) -> float:
        """None."""
        return 0.0

    def auc_error(self, sides: RankedSides) -> float:
        """None."""
        return 0.0


class ScoreSource:
    """From histograms."""

    def __init__(self, scores: ScoreCounts) -> None:
        self.warnings = scores.warnings
        self._scores = scores
        table = scores.counts.sum(axis=3)
        self.group_sets = (GroupSet(attribute=scores.attribute, names=scores.names, table=table),)
        labelled, decided = table[:, :MISSING].any(), table[:, :, :MISSING].any()
        offers = ["scores"] + ["labels"] * bool(labelled) + ["decisions"] * bool(decided)
        self.offers = frozenset(offers)

    def tally(self, place: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type; a score stands in the middle of its bin."""
        if metric.kind == "rate":
            return _table_tally(metric, self.group_sets[place].table, exchange)
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

    def ranked(self, place: int, group: Int, others: Int) -> RankedSides:
        """Labelled scores by bin."""
        by_label = self._scores.counts.sum(axis=2)[:, :MISSING]
        return RankedSides(
            counts=np.stack([by_label[group].sum(axis=0), by_label[others].sum(axis=0)])
        )

    def mean_error(self) -> float:
        """Half a bin in either mean."""
        return float(np.diff(self._scores.edges).max())

    def auc_error(self, sides: RankedSides) -> float:
        """Half of the pairs that share a bin, in either AUC."""
        found = 0.0
        for negatives, positives in sides.counts.astype(np.float64):
            pairs = positives.sum() * negatives.sum()
            found += float((positives * negatives).sum() / pairs / 2) if pairs else 0.0
        return found


class RowSource:
    """From arrays."""

    def __init__(self, rows: Rows) -> None:
        self.warnings = rows.warnings
        self._rows = rows
        self._levels: Int | None = None
        self.group_sets = tuple(
            GroupSet(attribute=each.attribute, names=each.names, table=rows.table(each))
            for each in rows.crossings
        )
        parts = {name: getattr(rows, name) for name in ("decisions", "labels", "scores", "units")}
        self.offers = frozenset(name for name, part in parts.items() if part is not None)

    def tally(self, place: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type."""
        rows = self._rows
        if metric.kind == "rate" and rows.units is None:
            return _table_tally(metric, self.group_sets[place].table, exchange)
        label, decision, codes = rows.label, rows.decision, rows.crossings[place].codes
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
            np.bincount(rows.units, weights=each, minlength=units).astype(np.float64)
            for each in (a, counted)
        )
        return Tally.of_entries(
            a=summed,
            b=size,
            strata=label[first],
            group_of=codes[first],
            weight=np.ones(units, dtype=np.int64),
            exchange=exchange,
        )

    def ranked(self, place: int, group: Int, others: Int) -> RankedSides:
        """Labelled scores."""
        rows = self._rows
        assert rows.scores is not None
        if self._levels is None:
            self._levels = np.unique(rows.scores, return_inverse=True)[1]
        codes = rows.crossings[place].codes
        in_group, in_others = np.isin(codes, group), np.isin(codes, others)
        kept = np.flatnonzero((in_group | in_others) & (rows.label != MISSING))
        level, label, side = self._levels[kept], rows.label[kept], in_others[kept].astype(np.int64)
        levels = int(self._levels.max()) + 1
        counts = np.bincount((side * 2 + label) * levels + level, minlength=4 * levels)
        counts = counts.reshape(2, 2, levels)
        used = counts.any(axis=(0, 1))
        units = None if rows.units is None else (level, label, side, rows.units[kept])
        return RankedSides(counts=counts[:, :, used], units=units)

    def mean_error(self) -> float:
        """None."""
        return 0.0

    def auc_error(self, sides: RankedSides) -> float:
        """None."""
        return 0.0


def _require_one_label(units: Int, label: Int, n: int) -> None:
    lowest, highest = np.full(n, MISSING), np.zeros(n, dtype=np.int64)
    np.minimum.at(lowest, units, label)
    np.maximum.at(highest, units, label)
    mixed = int(np.count_nonzero(lowest != highest))
    if mixed:
        raise AuditInputError(
            f"units: {mixed:,} have rows with different labels, so they cannot change groups "
            "within an outcome"
        )
