"""Counts by group, label and decision, and histograms of scores, as input instead of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.groups import By, crossed_name, word_of
from offline_audit.permutation.metrics import UNKNOWN_INDEX, Metric
from offline_audit.permutation.permutations import Exchange
from offline_audit.permutation.rows import rows_of
from offline_audit.permutation.sources import (
    ExpectedGroups,
    GroupSet,
    RankedGroups,
    TableSource,
    Tally,
    require_expected,
)
from offline_audit.rendering import count
from offline_audit.validation import finite, is_missing, is_whole

if TYPE_CHECKING:
    from offline_audit.window.counts import Cell, ScoreHistogram

__all__ = ["ScoreCounts", "ScoreSource", "TableCounts"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]
# Sums of this many rows fit into 64 bits and are exact as floats.
_MOST_ROWS = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts:
    """Counts of a window or of any other table.

    Attributes:
        groups: Counts of each attribute or crossing.
        warnings: Warnings about the data.
    """

    groups: tuple[GroupSet, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_cells(
        cls, cells: Iterable[Cell], expected_groups: ExpectedGroups | None = None
    ) -> Self:
        """Create counts from the cells of a window's `GroupCounts`.

        Raises:
            AuditInputError: A count, a label or a name is invalid.
        """
        tables: dict[str, dict[str | None, Int]] = {}
        for cell in cells:
            attribute = crossed_name(cell.attributes)
            known = [name for name in cell.groups if name is not None]
            name = crossed_name(known) if len(known) == len(cell.groups) else None
            table = tables.setdefault(attribute, {}).setdefault(name, np.zeros((3, 3), np.int64))
            index = _index(cell.label, "label"), _index(cell.decision, "decision")
            table[index] += _whole_number(cell.rows, f"counts of {attribute}")
        return cls._validated(tables, expected_groups)

    @classmethod
    def from_mapping(
        cls,
        counts: Mapping[Any, Mapping[Any, int]],
        attribute: str = "group",
        expected_groups: ExpectedGroups | None = None,
    ) -> Self:
        """Create counts from `{group: {(label, decision): rows}}`; None means unknown.

        Raises:
            AuditInputError: A count, a label or a name is invalid.
        """
        shape = "counts: must have the form {group: {(label, decision): rows}}"
        if not isinstance(counts, Mapping):
            raise AuditInputError(shape)
        tables: dict[str | None, Int] = {}
        for name, cells in counts.items():
            if not isinstance(cells, Mapping):
                raise AuditInputError(shape)
            group = None if is_missing(name) else word_of(name) or None
            table = tables.setdefault(group, np.zeros((3, 3), dtype=np.int64))
            for pair, rows in cells.items():
                if not isinstance(pair, tuple) or len(pair) != 2:
                    raise AuditInputError(shape)
                index = _index(pair[0], "label"), _index(pair[1], "decision")
                table[index] += _whole_number(rows, f"counts of {attribute}")
        return cls._validated({attribute: tables}, expected_groups)

    def selected(self, by: By) -> Self:
        """Counts of the requested attributes and crossings only.

        Raises:
            AuditInputError: There are no counts of one of them.
        """
        if by is None:
            return self
        known = {groups.attribute: groups for groups in self.groups}
        entries = [by] if isinstance(by, str | tuple) else by
        names = [entry if isinstance(entry, str) else crossed_name(entry) for entry in entries]
        for name in names:
            if name not in known:
                raise AuditInputError(f"by: no counts of {name!r}; choose from {', '.join(known)}")
        return replace(self, groups=tuple(known[name] for name in names))

    @classmethod
    def _validated(
        cls,
        tables: Mapping[str, Mapping[str | None, Int]],
        expected_groups: ExpectedGroups | None,
    ) -> Self:
        if not tables:
            raise AuditInputError("counts: empty; at least one count is needed")
        names = {a: sorted(n for n in groups if n is not None) for a, groups in tables.items()}
        warnings = require_expected(expected_groups, names)
        counted = []
        for attribute, groups in tables.items():
            unknown = groups.get(None, np.zeros((3, 3), dtype=np.int64))
            table = np.stack([*(groups[name] for name in names[attribute]), unknown])
            known = tuple(names[attribute])
            counted.append(GroupSet(attribute=attribute, names=known, table=table))
        return cls(groups=tuple(counted), warnings=tuple(warnings))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCounts:
    """Histograms of scores by group, label and decision.

    Attributes:
        attribute: The protected attribute.
        names: Names of the groups.
        edges: Edges of the bins, ascending, `[bins + 1]`.
        counts: Rows by group, label, decision and bin, `[groups + 1, 3, 3, bins]`; the last group,
            label and decision are unknown.
        unscored: Number of rows without a score.
        warnings: Warnings about the data.
    """

    attribute: str
    names: tuple[str, ...]
    edges: Float
    counts: Int
    unscored: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def centres(self) -> Float:
        """Centres of the bins, `[bins]`."""
        centres: Float = (self.edges[1:] + self.edges[:-1]) / 2
        return centres

    def selected(self, by: By) -> Self:
        """These counts, if `by` requests their attribute.

        Raises:
            AuditInputError: `by` requests another attribute or a crossing.
        """
        if by not in (None, self.attribute, [self.attribute], (self.attribute,)):
            raise AuditInputError(
                f"by: these ScoreCounts are of {self.attribute!r} only; pass "
                f"by={self.attribute!r} or None"
            )
        return self

    @classmethod
    def from_histogram(
        cls, histogram: ScoreHistogram, expected_groups: ExpectedGroups | None = None
    ) -> Self:
        """Create histograms from a window's `ScoreHistogram`.

        Raises:
            AuditInputError: A count is negative, or a name is not expected.
        """
        bars = histogram.bars
        names = sorted({bar.group for bar in bars if bar.group is not None})
        attribute = histogram.attribute
        warnings = require_expected(expected_groups, {attribute: names})
        edges = np.array(histogram.edges, dtype=np.float64)
        counts = np.zeros((len(names) + 1, 3, 3, len(edges) - 1), dtype=np.int64)
        for bar in bars:
            group = len(names) if bar.group is None else names.index(bar.group)
            label, decision = (UNKNOWN_INDEX if v is None else v for v in (bar.label, bar.decision))
            counts[group, label, decision] += [_whole_number(n, "scores") for n in bar.counts]
        unscored = sum(_whole_number(bar.missing, "scores") for bar in bars)
        return cls(
            attribute=attribute,
            names=tuple(names),
            edges=edges,
            counts=counts,
            unscored=unscored,
            warnings=(*warnings, *_unscored_warnings(unscored)),
        )

    @classmethod
    def from_arrays(
        cls,
        *,
        groups: Any,
        decisions: Any = None,
        labels: Any = None,
        scores: Any,
        bins: int = 256,
        attribute: str = "group",
        expected_groups: ExpectedGroups | None = None,
    ) -> Self:
        """Count rows of arrays in equal bins from 0 to 1.

        Raises:
            AuditInputError: An array is invalid.
        """
        if not is_whole(bins) or bins < 2:
            raise AuditInputError("bins: must be a whole number of at least 2")
        if scores is None:
            raise AuditInputError("scores: one number per row is needed")
        lowest, highest = _extremes(scores)
        if lowest < 0 or highest > 1:
            raise AuditInputError("scores: must be from 0 to 1; rescale them")
        rows = rows_of(
            groups={attribute: groups},
            scores=scores,
            labels=labels,
            decisions=decisions,
            expected_groups=expected_groups,
        )
        assert rows.scores is not None
        names = rows.crossings[0].names
        codes = np.where(rows.crossings[0].codes < 0, len(names), rows.crossings[0].codes)
        bin_of = np.minimum((rows.scores * bins).astype(np.int64), bins - 1)
        flat = ((codes * 3 + rows.label_index) * 3 + rows.decision_index) * bins + bin_of
        shape = (len(names) + 1, 3, 3, bins)
        counts = np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)
        return cls(
            attribute=attribute,
            names=names,
            edges=np.linspace(0, 1, bins + 1),
            counts=counts.astype(np.int64),
            warnings=rows.warnings,
        )


class ScoreSource(TableSource):
    """Histograms of scores as the data of a test."""

    def __init__(self, scores: ScoreCounts) -> None:
        table = scores.counts.sum(axis=3)
        groups = GroupSet(attribute=scores.attribute, names=scores.names, table=table)
        super().__init__([groups], scores.warnings)
        self.offers |= {"scores"}
        self._scores = scores

    def tally(self, index: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type; a score is represented by the centre of its bin."""
        if metric.kind == "rate":
            return super().tally(index, metric, exchange)
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
        """Half the width of the widest bin, for each of the two means."""
        return float(np.diff(self._scores.edges).max())

    def auc_error(self, ranked: RankedGroups) -> float:
        """Half of the share of pairs in the same bin, for each of the two AUCs."""
        error = 0.0
        for negatives, positives in ranked.counts.astype(np.float64):
            pairs = positives.sum() * negatives.sum()
            error += float((positives * negatives).sum() / pairs / 2) if pairs else 0.0
        return error


def _whole_number(value: Any, where: str) -> int:
    """A count as an integer.

    Raises:
        AuditInputError: It is negative or not a whole number, as a weight would be.
    """
    try:
        number = float("nan") if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not number.is_integer() or not 0 <= number <= _MOST_ROWS:
        raise AuditInputError(
            f"{where}: counts must be whole numbers from 0 to 10¹⁵, not weights or rates"
        )
    return int(value)


def _index(value: Any, name: str) -> int:
    if isinstance(value, int) and value in (0, 1):
        return int(value)
    # Missing values first: pandas' NA cannot be compared.
    if value is None or is_missing(value):
        return UNKNOWN_INDEX
    if isinstance(value, str) or value not in (0, 1):
        raise AuditInputError(f"counts: every {name} must be 0, 1 or None")
    return int(value)


def _extremes(scores: Any) -> tuple[float, float]:
    numbers = finite(scores, "scores")
    return float(numbers.min(initial=0.0)), float(numbers.max(initial=1.0))


def _unscored_warnings(unscored: int) -> list[str]:
    return [f"Excluded: {count(unscored, 'row')} without a score."] * bool(unscored)
