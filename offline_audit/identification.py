"""Whether labels that are missing unlike in two groups decide how their rates differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from offline_audit.coverage import DECISIONS, LabelCoverage, equal_shares_p_value
from offline_audit.ranges import (
    Counts,
    Ranges,
    RateCells,
    completed_groups,
    completed_labels,
    group_ranges,
    label_ranges,
    reweighted_rate,
)
from offline_audit.rendering import bounds, p_equals, percent, signed

__all__ = ["GapRange", "selected_cells"]

Int = NDArray[np.integer]

# Level of the test that rows of unknown group have the rate of the others.
_LEVEL = 0.05
# Standard errors by which unknown labels may move a gap without a consequence: a test at 5% then
# rejects at most 6% of fair samples.
_NEGLIGIBLE_SHIFT = 0.3


def selected_cells(label: int | None) -> RateCells:
    """The rate of decision 1 within a label; of all rows if it is None."""
    counted = np.zeros((3, 3), dtype=bool)
    counted[slice(None) if label is None else label, :2] = True
    hit = np.zeros((3, 3), dtype=bool)
    hit[:, 1] = True
    return RateCells(counted, hit)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRange:
    """What unknown labels and groups leave open of the gap between two rates.

    Attributes:
        attribute: Protected attribute.
        groups: Names of the groups.
        label: Label within which rates of decision 1 are compared; None for all rows.
        over_labels: Ranges over all values of the unknown labels; None if all are known.
        over_groups: Ranges over all groups of the rows of unknown group; None if all are known.
        reweighted: The gap if labels are missing at random within group and decision.
        coverage: Labels by group and decision; None if all are known, or the label is None.
        unknown_p_value: p-value of equal rates of rows of known and of unknown group.
        p_values: Smallest and largest p-value of equal rates over the known rows and the tables
            that coverage leaves open; None if nothing is open.
        shift: Largest change of the gap by these tables, in standard errors.
    """

    attribute: str
    groups: tuple[str, str]
    label: int | None
    over_labels: Ranges | None
    over_groups: Ranges | None
    reweighted: float | None
    coverage: LabelCoverage | None
    unknown_p_value: float | None
    p_values: tuple[float, float] | None
    shift: float

    @classmethod
    def of(
        cls,
        attribute: str,
        groups: tuple[str, str],
        tables: tuple[Int, Int],
        label: int | None,
        *,
        all_known: Int,
        unknown: Int,
        tests: int = 1,
        share_independent: float = 1.0,
        tolerance: float = 0.0,
    ) -> Self:
        """Examine two groups.

        Args:
            attribute: Protected attribute.
            groups: Names of the groups.
            tables: Rows of each group by label and decision, `[3, 3]`; the last index is unknown.
            label: Label within which rates are compared; None for all rows.
            all_known: Rows of all known groups, `[3, 3]`.
            unknown: Rows of unknown group, `[3, 3]`.
            tests: Number of pairs that are examined, by which p-values of coverage are corrected.
            share_independent: Persons per row; 1 if every row is a person.
            tolerance: Largest gap that counts as fair.
        """
        cells, (one, other) = selected_cells(label), tables
        counts = cells.of(one), cells.of(other)
        of_known, of_unknown = cells.of(all_known), cells.of(unknown)
        completed: list[tuple[Counts, Counts]] = []
        coverage, reweighted, p_value = None, None, None
        if label is not None:
            coverage = LabelCoverage.of(groups, tables, share_independent=share_independent)
            coverage = replace(coverage, p_value=min(1.0, tests * coverage.p_value))
            coverage = None if coverage.complete else coverage
        if coverage is not None:
            first, second = (reweighted_rate(cells, table) for table in tables)
            reweighted = None if first is None or second is None else first - second
            completed += completed_labels(cells, one, other)
        if any(of_unknown):
            p_value = equal_shares_p_value(
                [sum(of_known), sum(of_unknown)], [of_known[0], of_unknown[0]], share_independent
            )
            if p_value <= _LEVEL:
                completed += completed_groups(*counts, of_known, of_unknown)
        return cls(
            attribute=attribute,
            groups=groups,
            label=label,
            over_labels=None if coverage is None else label_ranges(cells, one, other),
            over_groups=group_ranges(*counts, of_unknown) if all(map(sum, counts)) else None,
            reweighted=reweighted,
            coverage=coverage,
            unknown_p_value=p_value,
            p_values=_p_values(counts, completed, share_independent, tolerance),
            shift=_shift(counts, completed) * math.sqrt(share_independent),
        )

    @property
    def differs(self) -> bool:
        """Whether labels or groups are not unknown at random."""
        return any(self._causes())

    @property
    def decisive(self) -> bool:
        """Whether labels or groups that are not unknown at random may move the gap noticeably."""
        return self.differs and self.shift > _NEGLIGIBLE_SHIFT

    @property
    def effect_range(self) -> tuple[float, float] | None:
        """Range of the gap over the unknown labels, or groups, whichever is wider."""
        parts = [r.effect for r in (self.over_labels, self.over_groups) if r is not None]
        if not parts:
            return None
        return min(low for low, _ in parts), max(high for _, high in parts)

    @property
    def reason(self) -> str:
        """Why the rates cannot be compared, if the range is decisive."""
        causes = [*self._causes()]
        text = f"{'; '.join(causes)}, which may decide whether the rates differ"
        if self.effect_range is not None:
            text += f": the gap may be anything from {bounds(self.effect_range)} for all rows"
        if self.reweighted is not None:
            text += (
                f" ({signed(self.reweighted)} if labels are missing at random within group and "
                "decision)"
            )
        return f"{text[0].upper()}{text[1:]}."

    def _causes(self) -> Iterator[str]:
        if self.coverage is not None and self.coverage.differs:
            yield self.coverage.sentence(DECISIONS)
        if self.unknown_p_value is not None and self.unknown_p_value <= _LEVEL:
            yield (
                f"rows of unknown {self.attribute} get decision 1 at another rate than the others "
                f"(p {p_equals(self.unknown_p_value)})"
            )

    @property
    def sentences(self) -> tuple[str, ...]:
        """What unknown labels and groups leave open of the gap, in sentences."""
        within = "" if self.label is None else f" among rows with label {self.label}"
        one, other = self.groups
        parts = {"values of the unknown labels": self.over_labels}
        parts["groups of the rows of unknown group"] = self.over_groups
        return tuple(
            f"Over all {what}, the rate of {one}{within} is {percent(r.first[0])} to "
            f"{percent(r.first[1])} and that of {other} {percent(r.other[0])} to "
            f"{percent(r.other[1])}: a difference of {100 * r.effect[0]:+.1f} to "
            f"{100 * r.effect[1]:+.1f} percentage points."
            for what, r in parts.items()
            if r is not None
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about labels and groups that are not unknown at random."""
        own = list(self.coverage.warnings(DECISIONS)) if self.coverage is not None else []
        if self.unknown_p_value is not None and self.unknown_p_value <= _LEVEL:
            cause = [*self._causes()][-1]
            own.append(f"{cause[0].upper()}{cause[1:]}: groups are not unknown at random.")
        return tuple(own)


def _gap_and_error(counts: tuple[Counts, Counts]) -> tuple[float, float]:
    """Gap of two rates and its standard error, with one hit and one miss added to each group."""
    (p, n), (q, m) = (((hits + 1) / (sum_ + 2), sum_ + 2) for hits, sum_ in _sums(counts))
    return p - q, math.sqrt(p * (1 - p) / n + q * (1 - q) / m)


def _sums(counts: tuple[Counts, Counts]) -> list[tuple[int, int]]:
    return [(hits, hits + misses) for hits, misses in counts]


def _shift(counts: tuple[Counts, Counts], completed: Sequence[tuple[Counts, Counts]]) -> float:
    """Largest change of the gap from the known rows to completed ones, in standard errors."""
    gap, error = _gap_and_error(counts)
    return max((abs(_gap_and_error(pair)[0] - gap) for pair in completed), default=0.0) / error


def _p_values(
    counts: tuple[Counts, Counts],
    completed: Sequence[tuple[Counts, Counts]],
    share_independent: float,
    tolerance: float,
) -> tuple[float, float] | None:
    """Smallest and largest p-value over the known rows and completed ones; None without any."""
    if not completed:
        return None
    parts = [_gap_and_error(pair) for pair in (counts, *completed)]
    p_values = [
        2 * ndtr(-max(abs(gap) - tolerance, 0.0) / error * math.sqrt(share_independent))
        for gap, error in parts
    ]
    gaps = [gap for gap, _ in parts]
    # Between tables with gaps of both signs there is one without a gap.
    largest = 1.0 if min(gaps) <= 0 <= max(gaps) else max(p_values)
    return float(min(p_values)), float(largest)
