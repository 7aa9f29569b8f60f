"""Counts of predictions by protected group, label and decision."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["Cell", "GroupCounts", "marginal_cells", "passes"]

# So many cells at most are asked of the engine at once.
_MOST_CELLS = 200_000
_LABELS_AND_DECISIONS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Predictions that have everything of this in common.

    Attributes:
        attributes: The protected attributes that are crossed; one, if none are.
        groups: The group of each; None where it is not known.
        label: None where it is not known.
        decision: None where the log has none.
        rows: How many.
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
        cells: Of every attribute, or crossing of attributes, that was asked for; none is empty.
    """

    cells: tuple[Cell, ...]

    def of(self, *attributes: str) -> GroupCounts:
        """The counts of one attribute, or of several crossed."""
        return GroupCounts(cells=tuple(c for c in self.cells if c.attributes == attributes))

    @property
    def rows(self) -> int:
        """Predictions that were counted; those of each attribute are the same ones."""
        asked = {cell.attributes for cell in self.cells}
        return sum(cell.rows for cell in self.cells) // max(len(asked), 1)

    def to_arrow(self) -> pa.Table:
        """A table with a row a cell: attributes, groups, label, decision, rows."""
        words = pa.list_(pa.string())
        schema = pa.schema(
            [
                ("attributes", words),
                ("groups", words),
                ("label", pa.int8()),
                ("decision", pa.int8()),
                ("rows", pa.int64()),
            ]
        )
        rows = [{name: getattr(cell, name) for name in schema.names} for cell in self.cells]
        return pa.Table.from_pylist(rows, schema=schema)


def passes(
    asked: Sequence[tuple[str, ...]], groups: Mapping[str, int]
) -> list[list[tuple[str, ...]]]:
    """Which of the asked-for crossings to count together: all, if their cells are few enough."""

    def cells(crossings: Iterable[tuple[str, ...]]) -> int:
        attributes = {attribute for crossing in crossings for attribute in crossing}
        return _LABELS_AND_DECISIONS * math.prod(groups[a] + 1 for a in attributes)

    together: list[list[tuple[str, ...]]] = []
    for crossing in asked:
        if together and cells([*together[-1], crossing]) <= _MOST_CELLS:
            together[-1].append(crossing)
        else:
            together.append([crossing])
    return together


def marginal_cells(
    counted: pa.Table, columns: Mapping[str, str], crossing: tuple[str, ...]
) -> list[Cell]:
    """Sum counts over the attributes that a crossing leaves out.

    Args:
        counted: Columns of groups, `label`, `decision` and `rows`.
        columns: Names of the columns of groups, by attribute.
        crossing: The attributes to keep.
    """
    kept = [counted[columns[attribute]].to_pylist() for attribute in crossing]
    total: Counter[tuple[tuple[str | None, ...], int | None, int | None]] = Counter()
    parts = (counted[name].to_pylist() for name in ("label", "decision", "rows"))
    for groups, label, decision, rows in zip(zip(*kept, strict=True), *parts, strict=True):
        total[groups, label, decision] += rows
    cells = [
        Cell(attributes=crossing, groups=groups, label=label, decision=decision, rows=rows)
        for (groups, label, decision), rows in total.items()
    ]
    return sorted(cells, key=_order)


def _order(cell: Cell) -> tuple[tuple[tuple[bool, str], ...], tuple[int, ...]]:
    """What is not known comes last."""
    numbers = tuple(2 if value is None else value for value in (cell.label, cell.decision))
    return tuple((group is None, group or "") for group in cell.groups), numbers
