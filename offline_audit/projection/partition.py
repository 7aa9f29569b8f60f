"""Partition of a sample into strata and cells, and what cannot be compared."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.criteria import CRITERIA, Criterion
from offline_audit.projection.cells import Cell, Constraint, CostCurve, Stratum
from offline_audit.projection.sample import Attribute, Sample
from offline_audit.projection.selective_labels import selective_groups, unidentified_rows
from offline_audit.rendering import are, count, some

__all__ = ["GroupCount", "Partition", "partition"]

# Smallest reach of the cost curves, in standard deviations of a rate: what the law evaluates.
_NOISE_REACH = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """Rows and people of a group in one stratum.

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
        """Share of decisions 1."""
        return self.positives / self.rows if self.rows else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A sample, partitioned into what is compared.

    Attributes:
        strata: Strata that can be tested.
        counts: Counts of every group in every stratum.
        excluded: Which groups or rows are excluded, and why.
        untestable: Why strata cannot be tested; empty if all can.
    """

    strata: tuple[Stratum, ...]
    counts: tuple[GroupCount, ...]
    excluded: tuple[str, ...]
    untestable: tuple[str, ...]


def partition(
    sample: Sample, criterion: Criterion, *, smallest_expected: float, all_distances: bool
) -> Partition:
    """Partition a sample into strata and cells.

    Args:
        sample: The rows.
        criterion: Fairness criterion.
        smallest_expected: Smallest expected number of people for each decision, at equal rates,
            with which a group is tested.
        all_distances: Whether the curves must hold all rows, not only those within reach.
    """
    strata, counts, excluded, untestable = [], [], [], []
    for label in CRITERIA[criterion]:
        chosen = np.ones(len(sample.decisions), dtype=bool)
        if label is not None and sample.labels is not None:
            chosen = sample.labels == label
        kept, group_counts, reasons = _tested(sample, chosen, label, smallest_expected)
        counts += group_counts
        excluded += reasons
        constraints = tuple(
            Constraint(attribute=a, group=g) for a, groups in enumerate(kept) for g in groups
        )
        for attribute, groups in zip(sample.attributes, kept, strict=True):
            if len(groups) < 2:
                untestable.append(
                    _why_untestable(sample, attribute, group_counts, label, smallest_expected)
                )
        if all(len(groups) > 1 for groups in kept):
            identified = chosen & ~unidentified_rows(sample, label)
            cells = _cells(sample, identified, kept, all_distances=all_distances)
            strata.append(Stratum(label=label, cells=cells, constraints=constraints))
    return Partition(
        strata=tuple(strata),
        counts=tuple(counts),
        excluded=tuple(excluded),
        untestable=tuple(untestable),
    )


def _among(label: int | None) -> str:
    """The restriction of a stratum, for messages."""
    return "" if label is None else f" with label {label}"


def _tested(
    sample: Sample, chosen: NDArray[np.bool_], label: int | None, smallest_expected: float
) -> tuple[list[list[int]], list[GroupCount], list[str]]:
    """The tested groups of each attribute, the counts of all groups, and why some are excluded."""
    kept, counts, reasons = [], [], []
    for attribute in sample.attributes:
        size = len(attribute.groups)
        selective = () if label is None else selective_groups(sample, attribute)
        known = chosen & (attribute.codes >= 0) & ~unidentified_rows(sample, label, but=attribute)
        codes = attribute.codes[known]
        rows = np.bincount(codes, minlength=size)
        positives = np.bincount(codes, sample.decisions[known], minlength=size)
        people = _people(sample, known, codes, size)
        # Groups with selective labels do not count toward the common rate either.
        identified = [g for g in range(size) if g not in selective]
        rate = positives[identified].sum() / max(rows[identified].sum(), 1)
        expected = people * min(rate, 1 - rate)
        enough = [g for g in identified if expected[g] >= smallest_expected]
        kept.append(enough)
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
            if g in selective:
                reasons.append(
                    f"{attribute.name} = {group}{_among(label)} is excluded: its labels exist for "
                    "one decision only, so its rates within labels are not identified."
                )
            elif g not in enough and 0 < rate < 1:
                reasons.append(
                    f"{attribute.name} = {group}{_among(label)} is excluded: "
                    f"{expected[g]:.1f} people are expected for the rarer decision, "
                    f"and {smallest_expected:g} are needed."
                )
        unknown = int(np.count_nonzero(chosen & (attribute.codes < 0)))
        if unknown:
            joint = "with" if label is None else "and"
            reasons.append(
                f"{count(unknown, 'row')}{_among(label)} {joint} unknown {attribute.name} "
                f"{are(unknown)} excluded."
            )
    return kept, counts, reasons


def _people(
    sample: Sample, known: NDArray[np.bool_], codes: NDArray[np.int32], size: int
) -> NDArray[np.float64]:
    if sample.units is None:
        return np.bincount(codes, minlength=size).astype(np.float64)
    pairs = np.unique(sample.units[known].astype(np.int64) * size + codes)
    return np.bincount(pairs % size, minlength=size).astype(np.float64)


def _why_untestable(
    sample: Sample,
    attribute: Attribute,
    counts: list[GroupCount],
    label: int | None,
    smallest_expected: float,
) -> str:
    """Why fewer than two groups of an attribute can be compared."""
    selective = () if label is None else selective_groups(sample, attribute)
    if selective:
        named = some([attribute.groups[g] for g in selective])
        return (
            f"Fewer than two groups of {attribute.name}{_among(label)} can be compared: labels of "
            f"{named} exist for one decision only, so rates within labels are not identified."
        )
    own = [c for c in counts if c.attribute == attribute.name]
    rows, positives = sum(c.rows for c in own), sum(c.positives for c in own)
    present = [c for c in own if c.rows]
    if not rows:
        return f"Not enough data: no row{_among(label)} has a known {attribute.name}."
    if len(present) < 2:
        return (
            f"Not enough data: {attribute.name} has only one group{_among(label)}, "
            f"{present[0].group}."
        )
    if positives in {0, rows}:
        return (
            f"All decisions{_among(label)} are {int(positives > 0)}: "
            "the rates are equal and nothing can be tested."
        )
    return (
        f"Not enough data: fewer than two groups of {attribute.name}{_among(label)} have "
        f"{smallest_expected:g} people expected for each decision."
    )


def _cells(
    sample: Sample, chosen: NDArray[np.bool_], kept: list[list[int]], *, all_distances: bool
) -> tuple[Cell, ...]:
    """Rows by crossing of groups, without those in no tested group."""
    rows = np.flatnonzero(chosen)
    crossings = math.prod(len(groups) + 1 for groups in kept)
    # The smallest integer type: a stable sort of small integers is linear in the rows.
    small = np.min_scalar_type(2 * crossings)
    joint = np.zeros(len(rows), dtype=small)
    for attribute, groups in zip(sample.attributes, kept, strict=True):
        index = np.zeros(len(attribute.groups) + 1, dtype=small)
        index[groups] = np.arange(1, len(groups) + 1)
        joint *= small.type(len(groups) + 1)
        joint += index[attribute.codes[rows]]
    code = small.type(2) * joint + sample.decisions[rows].astype(small)
    order = rows[np.argsort(code, kind="stable")]
    starts = np.concatenate(([0], np.cumsum(np.bincount(code, minlength=2 * crossings))))
    parts = []
    rates: list[float] = []
    for joined in range(1, crossings):
        negative = order[starts[2 * joined] : starts[2 * joined + 1]]
        positive = order[starts[2 * joined + 1] : starts[2 * joined + 2]]
        if len(negative) + len(positive):
            parts.append((_groups_of(joined, kept), negative, positive))
            rates.append(len(positive) / (len(negative) + len(positive)))
    return tuple(
        _cell(
            sample.distances,
            groups,
            negative,
            positive,
            span=None if all_distances else (min(rates), max(rates)),
        )
        for groups, negative, positive in parts
    )


def _groups_of(joined: int, kept: list[list[int]]) -> tuple[int, ...]:
    """Groups of a cell, from its number."""
    indices = []
    for groups in reversed(kept):
        joined, index = divmod(joined, len(groups) + 1)
        indices.append(groups[index - 1] if index else -1)
    return tuple(reversed(indices))


def _cell(
    distances: NDArray[np.float64],
    groups: tuple[int, ...],
    negative: NDArray[np.intp],
    positive: NDArray[np.intp],
    *,
    span: tuple[float, float] | None,
) -> Cell:
    up: float | None = None
    down: float | None = None
    size = len(negative) + len(positive)
    if span is not None:
        noise = _NOISE_REACH * math.sqrt(size) / 2
        up = max(size * span[1] - len(positive), noise)
        down = max(len(positive) - size * span[0], noise)
    return Cell(
        groups=groups,
        positive_rows=positive,
        negative_rows=negative,
        fall=CostCurve.of(distances[positive], down),
        rise=CostCurve.of(distances[negative], up),
    )
