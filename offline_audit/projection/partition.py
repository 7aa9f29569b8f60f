"""Partition of a sample into strata and cells, and the groups that cannot be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.coverage import known_decisions, only_labelled_decision
from offline_audit.criteria import CRITERIA, Criterion, needs_labels
from offline_audit.projection.cells import Constraint, Stratum, cells_of
from offline_audit.projection.sample import Attribute, Sample
from offline_audit.projection.unknown import label_table
from offline_audit.rendering import are, count, some
from offline_audit.validation import UNKNOWN

__all__ = [
    "GroupCount",
    "Partition",
    "partition",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """Numbers of rows and people of a group in one stratum.

    Attributes:
        attribute: Protected attribute.
        group: Name of the group.
        label: Label of the stratum; None for all rows.
        rows: Number of rows.
        positives: Number of rows with decision 1.
        people: Number of units if these are known, else of rows.
        tested: Whether the group is tested.
    """

    attribute: str
    group: str
    label: int | None
    rows: int
    positives: int
    people: int
    tested: bool

    @property
    def rate(self) -> float | None:
        """Share of decision 1; None without rows."""
        return self.positives / self.rows if self.rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A sample, partitioned into the strata and cells of a criterion.

    Attributes:
        strata: Strata that can be tested.
        counts: Counts of every group in every stratum.
        excluded: Warnings that name excluded groups and rows, with the reason.
        untestable: Reasons why strata cannot be tested; empty if all can.
        identified: Whether a row belongs to no group whose labels exist for one decision only,
            `[n]`.
    """

    strata: tuple[Stratum, ...]
    counts: tuple[GroupCount, ...]
    excluded: tuple[str, ...]
    untestable: tuple[str, ...]
    identified: NDArray[np.bool_]


def partition(
    sample: Sample, criterion: Criterion, *, smallest_expected: float, all_distances: bool
) -> Partition:
    """Partition a sample into strata and cells.

    Args:
        sample: The rows.
        criterion: Fairness criterion.
        smallest_expected: Smallest expected number of people for each decision, at equal rates,
            with which a group is tested.
        all_distances: Whether the cost curves contain all rows, not only those within reach.
    """
    strata, counts, excluded, untestable = [], [], [], []
    selective = _selective_groups(sample, criterion)
    identified = ~_unidentified_rows(sample, selective)
    for label in CRITERIA[criterion]:
        in_stratum = np.ones(len(sample.decisions), dtype=bool)
        if label is not None and sample.labels is not None:
            in_stratum = sample.labels == label
        tested, group_counts, reasons = _tested_groups(
            sample, in_stratum, label, selective, smallest_expected
        )
        counts += group_counts
        excluded += reasons
        for index, attribute in enumerate(sample.attributes):
            if len(tested[index]) < 2:
                untestable.append(
                    _why_untestable(
                        attribute, selective[index], group_counts, label, smallest_expected
                    )
                )
        if all(len(groups) > 1 for groups in tested):
            strata.append(
                Stratum(
                    label=label,
                    cells=cells_of(
                        sample, in_stratum & identified, tested, all_distances=all_distances
                    ),
                    constraints=tuple(
                        Constraint(attribute=a, group=g)
                        for a, groups in enumerate(tested)
                        for g in groups
                    ),
                )
            )
    return Partition(
        strata=tuple(strata),
        counts=tuple(counts),
        excluded=tuple(excluded),
        untestable=tuple(untestable),
        identified=identified,
    )


def _selective_groups(sample: Sample, criterion: Criterion) -> list[list[int]]:
    """Groups of each attribute whose labels exist for one decision only."""
    labels = sample.labels
    if not needs_labels(criterion) or labels is None or labels.min() != UNKNOWN:
        return [[] for _ in sample.attributes]
    decisions = [
        only_labelled_decision(*known_decisions(label_table(sample, attribute)[:-1]))
        for attribute in sample.attributes
    ]
    return [np.flatnonzero(by_group != UNKNOWN).tolist() for by_group in decisions]


def _unidentified_rows(
    sample: Sample, selective: Sequence[Sequence[int]], *, ignored: int | None = None
) -> NDArray[np.bool_]:
    """Rows of groups with selective labels, of any attribute except the ignored one, `[n]`."""
    rows = np.zeros(len(sample.decisions), dtype=bool)
    for index, (attribute, groups) in enumerate(zip(sample.attributes, selective, strict=True)):
        if groups and index != ignored:
            rows |= np.isin(attribute.codes, groups)
    return rows


def _in_label(label: int | None) -> str:
    """The restriction of a stratum, for messages."""
    return "" if label is None else f" with label {label}"


def _tested_groups(
    sample: Sample,
    in_stratum: NDArray[np.bool_],
    label: int | None,
    selective: Sequence[Sequence[int]],
    smallest_expected: float,
) -> tuple[list[list[int]], list[GroupCount], list[str]]:
    """The tested groups of each attribute, the counts of all groups, and why some are excluded."""
    tested, counts, reasons = [], [], []
    for index, attribute in enumerate(sample.attributes):
        size = len(attribute.groups)
        known = in_stratum & (attribute.codes >= 0)
        known &= ~_unidentified_rows(sample, selective, ignored=index)
        codes = attribute.codes[known]
        rows = np.bincount(codes, minlength=size)
        positives = np.bincount(codes, sample.decisions[known], minlength=size)
        people = _people(sample, known, codes, size)
        # The common rate is that of the identified groups only.
        identified = [g for g in range(size) if g not in selective[index]]
        rate = positives[identified].sum() / max(rows[identified].sum(), 1)
        expected = people * min(rate, 1 - rate)
        enough = [g for g in identified if expected[g] >= smallest_expected]
        tested.append(enough)
        for g, group in enumerate(attribute.groups):
            counts.append(
                GroupCount(
                    attribute=attribute.name,
                    group=group,
                    label=label,
                    rows=int(rows[g]),
                    positives=int(positives[g]),
                    people=int(people[g]),
                    tested=g in enough,
                )
            )
            if g in selective[index]:
                reasons.append(
                    f"{attribute.name} = {group}{_in_label(label)} is excluded: its labels exist "
                    "for one decision only, or nearly so: rates within labels are not identified."
                )
            elif g not in enough and 0 < rate < 1:
                reasons.append(
                    f"{attribute.name} = {group}{_in_label(label)} is excluded: "
                    f"{expected[g]:.1f} people are expected for the rarer decision, "
                    f"and {smallest_expected:g} are needed."
                )
        unknown = int(np.count_nonzero(in_stratum & (attribute.codes < 0)))
        if unknown:
            joint = "with" if label is None else "and"
            reasons.append(
                f"{count(unknown, 'row')}{_in_label(label)} {joint} unknown {attribute.name} "
                f"{are(unknown)} excluded."
            )
    return tested, counts, reasons


def _people(
    sample: Sample, known: NDArray[np.bool_], codes: NDArray[np.int32], size: int
) -> NDArray[np.float64]:
    """Number of people in each group, `[groups]`."""
    if sample.units is None:
        return np.bincount(codes, minlength=size).astype(np.float64)
    pairs = np.unique(sample.units[known].astype(np.int64) * size + codes)
    return np.bincount(pairs % size, minlength=size).astype(np.float64)


def _why_untestable(
    attribute: Attribute,
    selective: Sequence[int],
    counts: list[GroupCount],
    label: int | None,
    smallest_expected: float,
) -> str:
    """Why fewer than two groups of an attribute can be compared."""
    if selective:
        names = some([attribute.groups[g] for g in selective])
        return (
            f"Fewer than two groups of {attribute.name}{_in_label(label)} can be compared: labels "
            f"of {names} exist for one decision only, so rates within labels are not identified, "
            "and more rows of this kind do not help."
        )
    own = [c for c in counts if c.attribute == attribute.name]
    rows, positives = sum(c.rows for c in own), sum(c.positives for c in own)
    present = [c for c in own if c.rows]
    if not rows:
        return f"No row{_in_label(label)} has a known {attribute.name}."
    if len(present) < 2:
        return f"{attribute.name} has only one group{_in_label(label)}, {present[0].group}."
    if positives in {0, rows}:
        return (
            f"All decisions{_in_label(label)} are {int(positives > 0)}: "
            "the rates are equal and nothing can be tested."
        )
    return (
        f"Fewer than two groups of {attribute.name}{_in_label(label)} have "
        f"an expected count of at least {smallest_expected:g} for each decision."
    )
