"""Counts by group, label and decision, in place of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from offline_audit.checked_arrays import MISSING, is_missing
from offline_audit.errors import AuditInputError
from offline_audit.group_names import crossed_name, require_names, word_of
from offline_audit.permutation.rows import Expected, expected_of, require_expected_kind

__all__ = ["CountedGroups", "TableCounts", "whole_number"]

Int = NDArray[np.int64]
# Sums of so many still fit into 64 bits, and are exact as floats.
_MOST_ROWS = 10**15


class CountedCell(Protocol):
    """What `offline_audit.group_counts.Cell` has."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """That are crossed."""

    @property
    def groups(self) -> tuple[str | None, ...]:
        """Of each."""

    @property
    def label(self) -> int | None:
        """None where it is not known."""

    @property
    def decision(self) -> int | None:
        """The same."""

    @property
    def rows(self) -> int:
        """How many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedGroups:
    """Counts by the groups of one attribute, or of several crossed.

    Attributes:
        attribute: Its name, or the names joined.
        names: Of the groups.
        table: Rows by group, label and decision, `[groups + 1, 3, 3]`; the last group is unknown,
            and so are the last label and the last decision.
    """

    attribute: str
    names: tuple[str, ...]
    table: Int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts:
    """Counts of a window or of a table that someone else made.

    Attributes:
        groups: One for each attribute or crossing.
        warnings: What is odd about them.
    """

    groups: tuple[CountedGroups, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_cells(cls, cells: Iterable[CountedCell], expected: Expected | None = None) -> Self:
        """From the cells of a window's `GroupCounts`.

        Raises:
            AuditInputError: A count, a label or a name is not what it should be.
        """
        found: dict[str, dict[str | None, Int]] = {}
        for cell in cells:
            attribute = crossed_name(cell.attributes)
            known = [name for name in cell.groups if name is not None]
            name = crossed_name(known) if len(known) == len(cell.groups) else None
            table = found.setdefault(attribute, {}).setdefault(name, np.zeros((3, 3), np.int64))
            place = _place(cell.label, "label"), _place(cell.decision, "decision")
            table[place] += whole_number(cell.rows, f"counts of {attribute}")
        return cls._checked(found, expected)

    @classmethod
    def from_mapping(
        cls,
        counts: Mapping[Any, Mapping[Any, int]],
        attribute: str = "group",
        expected: Expected | None = None,
    ) -> Self:
        """From `{group: {(label, decision): rows}}`; None for what is not known.

        Raises:
            AuditInputError: A count, a label or a name is not what it should be.
        """
        shape = "counts: {group: {(label, decision): rows}} is needed"
        if not isinstance(counts, Mapping):
            raise AuditInputError(shape)
        found: dict[str | None, Int] = {}
        for name, cells in counts.items():
            if not isinstance(cells, Mapping):
                raise AuditInputError(shape)
            word = None if is_missing(name) else word_of(name) or None
            table = found.setdefault(word, np.zeros((3, 3), dtype=np.int64))
            for pair, rows in cells.items():
                if not isinstance(pair, tuple) or len(pair) != 2:
                    raise AuditInputError(shape)
                place = _place(pair[0], "label"), _place(pair[1], "decision")
                table[place] += whole_number(rows, f"counts of {attribute}")
        return cls._checked({attribute: found}, expected)

    @classmethod
    def _checked(
        cls, found: Mapping[str, Mapping[str | None, Int]], expected: Expected | None
    ) -> Self:
        if not found:
            raise AuditInputError("counts: there are none")
        require_expected_kind(expected, found)
        groups, warnings = [], []
        for attribute, tables in found.items():
            names = sorted(name for name in tables if name is not None)
            warnings += require_names(names, expected_of(expected, attribute), attribute)
            unknown = tables.get(None, np.zeros((3, 3), dtype=np.int64))
            table = np.stack([*(tables[name] for name in names), unknown])
            groups.append(CountedGroups(attribute=attribute, names=tuple(names), table=table))
        return cls(groups=tuple(groups), warnings=tuple(warnings))


def whole_number(value: Any, where: str) -> int:
    """A count.

    Raises:
        AuditInputError: It is negative, or no whole number, as a weight would be.
    """
    try:
        number = float("nan") if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not number.is_integer() or not 0 <= number <= _MOST_ROWS:
        raise AuditInputError(
            f"{where}: counts are whole numbers from 0 to 10¹⁵; weights and rates are none"
        )
    return int(value)


def _place(value: Any, name: str) -> int:
    if is_missing(value):
        return MISSING
    if isinstance(value, str) or value not in (0, 1):
        raise AuditInputError(f"counts: a {name} is neither 0 nor 1 nor None")
    return int(value)
