"""Data of a test: its groups, the pairs that are compared, and counts by type or by score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from offline_audit.coverage import Unknowns
from offline_audit.errors import AuditInputError
from offline_audit.groups import require_names, require_two_groups, word_of
from offline_audit.permutation.metrics import UNKNOWN_INDEX, Metric
from offline_audit.permutation.permutations import Exchange

__all__ = [
    "ExpectedGroups",
    "GroupSet",
    "Pair",
    "RankedGroups",
    "Reference",
    "TableSource",
    "Tally",
    "pairs_of",
    "require_expected",
]

Int = NDArray[np.int64]
Float = NDArray[np.float64]
# Names of all possible groups; by attribute, if there are several.
ExpectedGroups = Sequence[str | int] | Mapping[str, Sequence[str | int]]
# The group that the others are compared with; by attribute, if there are several.
Reference = str | int | Mapping[str, str | int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSet:
    """The groups of one attribute or crossing, with their counts.

    Attributes:
        attribute: Name of the attribute, or the crossed names.
        names: Names of the groups.
        table: Rows by group, label and decision, `[groups + 1, 3, 3]`; the last index of each axis
            is unknown.
    """

    attribute: str
    names: tuple[str, ...]
    table: Int


def require_expected(
    expected_groups: ExpectedGroups | None, names: Mapping[str, Sequence[str]]
) -> list[str]:
    """Check the group names of each attribute; returns warnings about similar names.

    Raises:
        AuditInputError: A name is not expected, or `expected_groups` has the wrong type.
    """
    by_attribute = isinstance(expected_groups, Mapping)
    if expected_groups is not None:
        _require_lists(expected_groups, names)
    warnings: list[str] = []
    for attribute, known in names.items():
        listed: Any = expected_groups
        if by_attribute:
            listed = listed.get(attribute)
        expected = None if listed is None else [word_of(name) for name in listed]
        warnings += require_names(known, expected, attribute)
    return warnings


def _require_lists(expected_groups: Any, attributes: Iterable[str]) -> None:
    by_attribute = isinstance(expected_groups, Mapping)
    lists = list(expected_groups.values()) if by_attribute else [expected_groups]
    if any(isinstance(names, str | bytes) or not isinstance(names, Iterable) for names in lists):
        raise AuditInputError(
            "expected_groups: must be a list of names, or a mapping from attributes to such lists"
        )
    known = list(attributes)
    for attribute in expected_groups if by_attribute else ():
        if attribute not in known:
            raise AuditInputError(
                f"expected_groups: unknown attribute {attribute!r}; choose from {', '.join(known)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two sides of a comparison.

    Attributes:
        names: Names of the sides.
        members: Indices of the groups of each side.
    """

    names: tuple[str, str]
    members: tuple[Int, Int]


def pairs_of(group_sets: Sequence[GroupSet], reference: Reference) -> list[list[Pair]]:
    """Pairs of each attribute or crossing.

    Raises:
        AuditInputError: An attribute has fewer than two groups, or the reference is not a group.
    """
    for groups in group_sets:
        require_two_groups(groups.names, groups.attribute)
    references = _references(group_sets, reference)
    return [list(_pairs(g, name)) for g, name in zip(group_sets, references, strict=True)]


def _references(group_sets: Sequence[GroupSet], reference: Reference) -> list[str | None]:
    """Reference group of each attribute or crossing; None if it has no reference."""
    if isinstance(reference, Mapping):
        known = [groups.attribute for groups in group_sets]
        for attribute in reference:
            if attribute not in known:
                raise AuditInputError(
                    f"reference: unknown attribute {attribute!r}; choose from {', '.join(known)}"
                )
        by_attribute = [reference.get(attribute) for attribute in known]
        return [None if name is None else word_of(name) for name in by_attribute]
    if reference is None:
        return [None] * len(group_sets)
    # A single name refers to the attribute that has such a group.
    group = word_of(reference)
    references = [group if group in groups.names else None for groups in group_sets]
    if not any(references):
        names = [name for groups in group_sets for name in groups.names]
        raise AuditInputError(f"reference: unknown group {group!r}; choose from {', '.join(names)}")
    return references


def _pairs(groups: GroupSet, reference: str | None) -> Iterator[Pair]:
    names, indices = groups.names, np.arange(len(groups.names))
    if reference is not None:
        if reference not in names:
            raise AuditInputError(
                f"reference: {groups.attribute} has no group {reference!r}; choose from "
                f"{', '.join(names)}"
            )
        base = np.array([names.index(reference)])
        for index in indices[indices != base[0]]:
            yield Pair(names=(names[index], reference), members=(np.array([index]), base))
    elif len(names) == 2:
        yield Pair(names=(names[0], names[1]), members=(indices[:1], indices[1:]))
    else:
        for index in indices:
            sides = (names[index], f"not {names[index]}")
            yield Pair(names=sides, members=(np.array([index]), indices[indices != index]))


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
        included = (group_of >= 0) & (weight > 0)
        if exchange == "counted":
            included &= b > 0
        if exchange != "within outcome":
            strata = np.zeros_like(strata)
        a, b, strata = a[included], b[included], strata[included]
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
            group_of=group_of[included],
            weight=weight[included],
        )

    def between(self, groups: Int, others: Int) -> tuple[Int, Int]:
        """Units of each type in some groups and in some others, `[k]` each."""
        return self._within(groups), self._within(others)

    def _within(self, groups: Int) -> Int:
        own = np.isin(self.group_of, groups)
        units = np.bincount(self.type_of[own], weights=self.weight[own], minlength=len(self.values))
        return units.astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedGroups:
    """Labelled, scored rows of two groups, by distinct score.

    Attributes:
        counts: Rows by group, label and distinct score in ascending order, `[2, 2, levels]`.
        units: Level, label, group and unit of each row, where rows belong to units; else None.
    """

    counts: Int
    units: tuple[Int, Int, Int, Int] | None = None

    @property
    def rows(self) -> int:
        """Rows of both groups."""
        return int(self.counts.sum())

    @property
    def classes(self) -> Int:
        """Negatives and positives of each group, `[2, 2]`; units with such rows, if given."""
        if self.units is None:
            totals: Int = self.counts.sum(axis=2)
            return totals
        _, label, group_of, unit = self.units
        counts = [
            [len(np.unique(unit[(group_of == g) & (label == y)])) for y in (0, 1)] for g in (0, 1)
        ]
        return np.array(counts, dtype=np.int64)

    def binned(self, bins: int) -> Self:
        """The same rows with neighbouring scores merged.

        Every bin has about the same share of the positives and negatives, so that a rare class is
        not merged into one bin.
        """
        by_label = self.counts.sum(axis=0)
        shares = (by_label / by_label.sum(axis=1, keepdims=True)).mean(axis=0)
        filled = np.floor(np.cumsum(shares) * bins)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(filled)) + 1])
        return type(self)(counts=np.add.reduceat(self.counts, starts, axis=2))


class TableSource:
    """Counts by group, label and decision; subclasses add scores and units.

    Attributes:
        group_sets: Attributes and crossings, in order.
        warnings: Warnings about the data.
        offers: Available data, of `decisions`, `labels`, `scores` and `units`.
        share_independent: Persons per row; 1 if every row is a person.
    """

    share_independent: float = 1.0

    def __init__(self, group_sets: Sequence[GroupSet], warnings: tuple[str, ...]) -> None:
        self.group_sets, self.warnings = tuple(group_sets), warnings
        tables = [groups.table.sum(axis=0) for groups in group_sets]
        labelled = any(table[:UNKNOWN_INDEX].any() for table in tables)
        decided = any(table[:, :UNKNOWN_INDEX].any() for table in tables)
        self.offers = frozenset(["labels"] * labelled + ["decisions"] * decided)

    @property
    def unknown(self) -> Unknowns:
        """Numbers of rows of unknown group, by attribute or crossing, and without a label."""
        tables = {groups.attribute: groups.table for groups in self.group_sets}
        return Unknowns.of_tables(tables, labels="labels" in self.offers)

    def tally(self, index: int, metric: Metric, exchange: Exchange) -> Tally:
        """Units by type, for a rate or mean and the group set at an index."""
        table = self.group_sets[index].table
        groups = len(table) - 1
        counted, hit = metric.counted.ravel(), (metric.counted & metric.hit).ravel()
        label = np.repeat(np.arange(3), 3)
        return Tally.of_entries(
            a=np.tile(hit.astype(np.float64), groups),
            b=np.tile(counted.astype(np.float64), groups),
            strata=np.tile(label, groups),
            group_of=np.repeat(np.arange(groups), 9),
            weight=table[:groups].ravel(),
            exchange=exchange,
        )

    def ranked(self, index: int, group: Int, others: Int) -> RankedGroups:
        """Labelled scores of some groups and some other groups.

        Raises:
            AuditInputError: The source has no scores.
        """
        attribute = self.group_sets[index].attribute
        raise AuditInputError(
            f"scores: counts of {attribute} have no scores; pass arrays or `ScoreCounts`"
        )

    def mean_error(self) -> float:
        """Largest error of a difference of mean scores that bins can cause."""
        return 0.0

    def auc_error(self, ranked: RankedGroups) -> float:
        """Largest error of a difference of AUCs that bins can cause."""
        return 0.0
