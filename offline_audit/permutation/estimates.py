"""Figures of one comparison, before they are combined with its description."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Self

from offline_audit.intervals import Interval
from offline_audit.permutation.permutations import PermutationResult
from offline_audit.power import Detectable

__all__ = ["INVERTED", "SMALLEST_UNITS", "ComparisonEstimate", "GroupEstimate"]

# Method of an interval that contains 0 if and only if the test does not reject.
INVERTED = "all differences that the test does not reject"
# Units that either group needs for a mean, a correlation or a function.
SMALLEST_UNITS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEstimate:
    """The metric in one of the two groups that are compared.

    Attributes:
        name: Name of the group; "not …" for all other groups.
        rows: Rows of the group.
        counted: Rows that the metric counts: those with label 1 for a TPR, all for a mean score.
        hits: Successes among them for a rate, positives for an AUC, else None.
        units: Persons, or other units, that the counted rows belong to.
        estimate: Value of the metric; None without counted rows.
    """

    name: str
    rows: int
    counted: int
    hits: int | None
    units: int
    estimate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonEstimate:
    """Figures of one comparison, before they are combined with its description.

    Attributes:
        groups: Both groups, with `rows` not filled in yet.
        interval: Confidence interval of the difference.
        method: Method of the interval.
        detectable: Smallest detectable effects; None if there is no standard error.
        smallest_count: The smallest expected count; None where there is none.
        required_count: The smallest count with which the test runs.
        reason: Why there is no p-value; None if there is one.
        test: Result of the test; None if it did not run.
    """

    groups: tuple[GroupEstimate, GroupEstimate]
    interval: Interval | None = None
    method: str = "none"
    detectable: Detectable | None = None
    smallest_count: float | None = 0.0
    required_count: float
    reason: str | None
    test: PermutationResult | None = None

    def withheld(self, reason: str) -> Self:
        """The same comparison without figures, where the labels do not identify the metric."""
        one, two = (dataclasses.replace(group, estimate=None) for group in self.groups)
        return dataclasses.replace(
            self, groups=(one, two), interval=None, detectable=None, reason=reason, test=None
        )
