"""Counts of a window: by group, label and decision; by score bin; by verdict and action."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ibis
import pyarrow as pa

__all__ = [
    "Cell",
    "GroupCounts",
    "ScoreBars",
    "ScoreHistogram",
    "VerdictCounts",
    "binned",
    "histogram_of",
    "marginal_cells",
    "passes",
    "verdict_counts",
]

# Largest number of cells that one query of the engine may return.
_MOST_CELLS = 200_000
# Label and decision are 0, 1 or unknown each.
_LABELS_AND_DECISIONS = 9
# Position of an unknown label or decision in sorted output, after 0 and 1.
_LAST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Number of predictions with the same groups, label and decision.

    Attributes:
        attributes: Protected attributes; several if they are crossed.
        groups: Group of each attribute; None if it is unknown.
        label: Label; None if it is unknown.
        decision: Decision; None if the log has none.
        rows: Number of predictions.
    """

    attributes: tuple[str, ...]
    groups: tuple[str | None, ...]
    label: int | None
    decision: int | None
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """Counts of a window.

    Attributes:
        cells: Cells of every requested attribute or crossing; empty cells are omitted.
    """

    cells: tuple[Cell, ...]

    def of(self, *attributes: str) -> GroupCounts:
        """The counts of one attribute, or of the crossing of several."""
        return GroupCounts(cells=tuple(c for c in self.cells if c.attributes == attributes))

    @property
    def rows(self) -> int:
        """Number of predictions; each attribute or crossing counts the same ones."""
        crossings = {cell.attributes for cell in self.cells}
        return sum(cell.rows for cell in self.cells) // max(len(crossings), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBars:
    """Histogram of the scores of predictions with the same group, label and decision.

    Attributes:
        group: Group; None if it is unknown.
        label: Label; None if it is unknown.
        decision: Decision; None if the log has none.
        counts: Number of predictions in each bin.
        missing: Number of predictions without a score.
    """

    group: str | None
    label: int | None
    decision: int | None
    counts: tuple[int, ...]
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreHistogram:
    """Scores of a window in equal bins from 0 to 1; only the last bin includes its upper edge.

    Attributes:
        attribute: Protected attribute of the groups.
        bins: Number of bins.
        bars: One histogram for each combination of group, label and decision that occurs.
    """

    attribute: str
    bins: int
    bars: tuple[ScoreBars, ...]

    @property
    def edges(self) -> tuple[float, ...]:
        """Edges of the bins, `[bins + 1]`."""
        return tuple(index / self.bins for index in range(self.bins + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCounts:
    """Verdicts and actions of the sidecar; the key None counts predictions without one.

    Attributes:
        verdicts: Number of rows by verdict, for each protected attribute.
        actions: Number of rows by action.
    """

    verdicts: Mapping[str, Mapping[str | None, int]]
    actions: Mapping[str | None, int]


def passes(
    crossings: Sequence[tuple[str, ...]], groups: Mapping[str, int]
) -> list[list[tuple[str, ...]]]:
    """Crossings that are counted by one query each: all together, if their cells are few enough.

    Args:
        crossings: Requested crossings.
        groups: Number of groups of each attribute.
    """

    def cells(crossings: Iterable[tuple[str, ...]]) -> int:
        attributes = {attribute for crossing in crossings for attribute in crossing}
        return _LABELS_AND_DECISIONS * math.prod(groups[a] + 1 for a in attributes)

    together: list[list[tuple[str, ...]]] = []
    for crossing in crossings:
        if together and cells([*together[-1], crossing]) <= _MOST_CELLS:
            together[-1].append(crossing)
        else:
            together.append([crossing])
    return together


def marginal_cells(
    counted: pa.Table, columns: Mapping[str, str], crossing: tuple[str, ...]
) -> list[Cell]:
    """Sum counts over the attributes that a crossing does not have.

    Args:
        counted: Table with the group columns, `label`, `decision` and `rows`.
        columns: Names of the group columns, by attribute.
        crossing: Attributes of the crossing.
    """
    group_values = [counted[columns[attribute]].to_pylist() for attribute in crossing]
    total: Counter[tuple[tuple[str | None, ...], int | None, int | None]] = Counter()
    parts = (counted[name].to_pylist() for name in ("label", "decision", "rows"))
    for groups, label, decision, rows in zip(zip(*group_values, strict=True), *parts, strict=True):
        total[groups, label, decision] += rows
    cells = [
        Cell(attributes=crossing, groups=groups, label=label, decision=decision, rows=rows)
        for (groups, label, decision), rows in total.items()
    ]
    return sorted(cells, key=lambda cell: _order(cell.groups, cell.label, cell.decision))


def binned(rows: Any, bins: int) -> Any:
    """Counts by group, label, decision and score bin; the bin is null where the score is.

    Args:
        rows: Ibis table of `group`, `label`, `decision` and `score`.
        bins: Number of bins.
    """
    # In double precision, since engines multiply single floats in different ways.
    index = (rows.score.cast("float64") * float(bins)).floor().cast("int64")
    index = ibis.ifelse(index >= bins, bins - 1, ibis.ifelse(index < 0, 0, index))
    selected = rows.select("group", "label", "decision", bin=index)
    return selected.group_by("group", "label", "decision", "bin").agg(rows=selected.count())


def histogram_of(attribute: str, bins: int, counted: pa.Table) -> ScoreHistogram:
    """Histogram from the result of `binned`."""
    by_cell: dict[tuple[str | None, int | None, int | None], list[int]] = {}
    for row in counted.to_pylist():
        # One more bin at the end counts rows without a score.
        key = (row["group"], row["label"], row["decision"])
        counts = by_cell.setdefault(key, [0] * (bins + 1))
        counts[bins if row["bin"] is None else row["bin"]] += row["rows"]
    bars = [
        ScoreBars(group=g, label=y, decision=d, counts=tuple(counts[:bins]), missing=counts[bins])
        for (g, y, d), counts in by_cell.items()
    ]
    bars.sort(key=lambda bar: _order((bar.group,), bar.label, bar.decision))
    return ScoreHistogram(attribute=attribute, bins=bins, bars=tuple(bars))


def verdict_counts(counted: pa.Table, columns: Mapping[str, str]) -> VerdictCounts:
    """Marginal counts of verdicts and actions.

    Args:
        counted: Table with the verdict columns, `action` and `rows`.
        columns: Names of the verdict columns, by attribute.
    """
    return VerdictCounts(
        verdicts={a: _marginal(counted, column) for a, column in columns.items()},
        actions=_marginal(counted, "action"),
    )


def _marginal(counted: pa.Table, column: str) -> dict[str | None, int]:
    total: Counter[str | None] = Counter()
    for value, rows in zip(counted[column].to_pylist(), counted["rows"].to_pylist(), strict=True):
        total[value] += rows
    return dict(sorted(total.items(), key=lambda item: (item[0] is None, item[0] or "")))


def _order(
    groups: tuple[str | None, ...], label: int | None, decision: int | None
) -> tuple[tuple[tuple[bool, str], ...], int, int]:
    """Sort key: groups by name, then label, then decision; unknown values last."""
    names = tuple((group is None, group or "") for group in groups)
    label, decision = (_LAST if value is None else value for value in (label, decision))
    return names, label, decision
