"""Which rows each fairness criterion compares, and what cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.plain_words import count, some
from offline_audit.projection.cells import Cell, Constraint, Stratum
from offline_audit.projection.cost_curve import CostCurve
from offline_audit.projection.sample import Attribute, Sample
from offline_audit.projection.selective_labels import selective_groups, unheard

__all__ = ["CRITERIA", "Criterion", "GroupCount", "Partition", "partition"]

Criterion = Literal[
    "statistical_parity", "equal_opportunity", "predictive_equality", "equalized_odds"
]
# The outcomes within which rates must agree (Examples 1 to 4); None: whatever the outcome.
CRITERIA: Mapping[str, tuple[int | None, ...]] = {
    "statistical_parity": (None,),
    "equal_opportunity": (1,),
    "predictive_equality": (0,),
    "equalized_odds": (1, 0),
}
# How many standard deviations of a rate the curves reach at least: what the law looks at.
_NOISE_REACH = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """Rows and people of a group in one stratum.

    Attributes:
        attribute: The protected attribute.
        group: The group.
        label: The outcome; None for all rows.
        rows: Rows.
        positives: Rows with decision 1.
        people: Units, where they are known; else rows.
        tested: Whether the group takes part.
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
    """A sample, cut into what is compared.

    Attributes:
        strata: Those that can be tested.
        counts: Of every group in every stratum.
        left_out: Why some groups, or rows, take no part, in words.
        impossible: Why a stratum cannot be tested, in words.
    """

    strata: tuple[Stratum, ...]
    counts: tuple[GroupCount, ...]
    left_out: tuple[str, ...]
    impossible: tuple[str, ...]


def partition(
    sample: Sample, criterion: Criterion, *, smallest_expected: float, all_distances: bool
) -> Partition:
    """Cut a sample into strata and cells.

    Args:
        sample: The rows.
        criterion: What must agree.
        smallest_expected: A group takes part if it has so many people for each decision, were the
            rate the same in all groups.
        all_distances: Whether the curves must hold all rows, not only those that may be reached.
    """
    strata, counts, left_out, impossible = [], [], [], []
    for label in CRITERIA[criterion]:
        chosen = np.ones(len(sample.decisions), dtype=bool)
        if label is not None and sample.labels is not None:
            chosen = sample.labels == label
        kept, told, without = _tested(sample, chosen, label, smallest_expected)
        counts += told
        left_out += without
        constraints = tuple(
            Constraint(attribute=a, group=g) for a, groups in enumerate(kept) for g in groups
        )
        for attribute, groups in zip(sample.attributes, kept, strict=True):
            if len(groups) < 2:
                impossible.append(_why_not(sample, attribute, told, label, smallest_expected))
        if all(len(groups) > 1 for groups in kept):
            heard = chosen & ~unheard(sample, label)
            cells = _cells(sample, heard, kept, all_distances=all_distances)
            strata.append(Stratum(label=label, cells=cells, constraints=constraints))
    return Partition(
        strata=tuple(strata),
        counts=tuple(counts),
        left_out=tuple(left_out),
        impossible=tuple(impossible),
    )


def among(label: int | None) -> str:
    """The rows of a stratum in words."""
    return "" if label is None else f" with label {label}"


def _tested(
    sample: Sample, chosen: NDArray[np.bool_], label: int | None, smallest_expected: float
) -> tuple[list[list[int]], list[GroupCount], list[str]]:
    """The groups of each attribute that take part, the counts of all, and why some do not."""
    kept, counts, without = [], [], []
    for attribute in sample.attributes:
        size = len(attribute.groups)
        selective = () if label is None else selective_groups(sample, attribute)
        known = chosen & (attribute.codes >= 0) & ~unheard(sample, label, but=attribute)
        codes = attribute.codes[known]
        rows = np.bincount(codes, minlength=size)
        positives = np.bincount(codes, sample.decisions[known], minlength=size)
        people = _people(sample, known, codes, size)
        # Groups whose labels tell nothing have no say in the common rate either.
        heard = [g for g in range(size) if g not in selective]
        rate = positives[heard].sum() / max(rows[heard].sum(), 1)
        expected = people * min(rate, 1 - rate)
        enough = [g for g in heard if expected[g] >= smallest_expected]
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
                without.append(
                    f"{attribute.name} = {group}{among(label)} is left out: its labels exist for "
                    "one decision only, so its rates within labels are not identified."
                )
            elif g not in enough and 0 < rate < 1:
                without.append(
                    f"{attribute.name} = {group}{among(label)} is left out: "
                    f"{expected[g]:.1f} people expected for the rarer decision, "
                    f"{smallest_expected:g} are needed."
                )
        unknown = int(np.count_nonzero(chosen & (attribute.codes < 0)))
        if unknown:
            without.append(
                f"{count(unknown, 'row')}{among(label)} of unknown {attribute.name} left out."
            )
    return kept, counts, without


def _people(
    sample: Sample, known: NDArray[np.bool_], codes: NDArray[np.int32], size: int
) -> NDArray[np.float64]:
    if sample.units is None:
        return np.bincount(codes, minlength=size).astype(np.float64)
    pairs = np.unique(sample.units[known].astype(np.int64) * size + codes)
    return np.bincount(pairs % size, minlength=size).astype(np.float64)


def _why_not(
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
            f"Fewer than two groups of {attribute.name}{among(label)} can be compared: labels of "
            f"{named} exist for one decision only, so rates within labels are not identified."
        )
    mine = [c for c in counts if c.attribute == attribute.name]
    rows, positives = sum(c.rows for c in mine), sum(c.positives for c in mine)
    present = [c for c in mine if c.rows]
    if not rows:
        return f"Not enough data: there is no row{among(label)} of known {attribute.name}."
    if len(present) < 2:
        return (
            f"Not enough data: {attribute.name} has one group only{among(label)}, "
            f"{present[0].group}."
        )
    if positives in {0, rows}:
        return (
            f"All decisions{among(label)} are {int(positives > 0)}: "
            "rates agree and nothing can be tested."
        )
    return (
        f"Not enough data: fewer than two groups of {attribute.name}{among(label)} have "
        f"{smallest_expected:g} people expected for each decision."
    )


def _cells(
    sample: Sample, chosen: NDArray[np.bool_], kept: list[list[int]], *, all_distances: bool
) -> tuple[Cell, ...]:
    """Rows by crossing of groups; those of no tested group are in none."""
    rows = np.flatnonzero(chosen)
    many = math.prod(len(groups) + 1 for groups in kept)
    # Whole numbers as small as they can be: a stable sort of those is linear in the rows.
    small = np.min_scalar_type(2 * many)
    joint = np.zeros(len(rows), dtype=small)
    for attribute, groups in zip(sample.attributes, kept, strict=True):
        place = np.zeros(len(attribute.groups) + 1, dtype=small)
        place[groups] = np.arange(1, len(groups) + 1)
        joint *= small.type(len(groups) + 1)
        joint += place[attribute.codes[rows]]
    code = small.type(2) * joint + sample.decisions[rows].astype(small)
    order = rows[np.argsort(code, kind="stable")]
    starts = np.concatenate(([0], np.cumsum(np.bincount(code, minlength=2 * many))))
    found = []
    rates: list[float] = []
    for joined in range(1, many):
        negative = order[starts[2 * joined] : starts[2 * joined + 1]]
        positive = order[starts[2 * joined + 1] : starts[2 * joined + 2]]
        if len(negative) + len(positive):
            found.append((_places(joined, kept), negative, positive))
            rates.append(len(positive) / (len(negative) + len(positive)))
    return tuple(
        _cell(
            sample.distances,
            groups,
            negative,
            positive,
            span=None if all_distances else (min(rates), max(rates)),
        )
        for groups, negative, positive in found
    )


def _places(joined: int, kept: list[list[int]]) -> tuple[int, ...]:
    """Groups of a cell by its number."""
    places = []
    for groups in reversed(kept):
        joined, place = divmod(joined, len(groups) + 1)
        places.append(groups[place - 1] if place else -1)
    return tuple(reversed(places))


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
