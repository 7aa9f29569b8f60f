"""What unknown groups and labels leave open in a comparison, and what they do to its p-value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from offline_audit.coverage import LabelCoverage, Unknowns, equal_shares_p_value
from offline_audit.intervals import Interval
from offline_audit.permutation.compare_ratio import compare_ratio
from offline_audit.permutation.estimates import ComparisonEstimate
from offline_audit.permutation.metrics import LABEL_WORDS, CustomMetric, Metric
from offline_audit.permutation.permutations import PermutationOptions
from offline_audit.permutation.sources import GroupSet, Pair, Tally
from offline_audit.power import Detectable, possible
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
from offline_audit.rendering import bounds, count, p_equals, rate, signed

__all__ = ["Missing", "examine", "label_and_group_warnings", "robust_estimate"]

Int = NDArray[np.int64]

# Level at which rows of unknown group are taken to differ from those of known group.
_LEVEL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Unknown groups and labels of a comparison.

    Attributes:
        unknown: Numbers of rows of unknown group and without a label.
        coverage: Labels by group and decision; None if the metric needs none, or none is missing.
        over_labels: Ranges over all values of the unknown labels; for rates only.
        over_groups: Ranges over all groups that rows of unknown group may be of; for rates only.
        reweighted: Rates of both groups if labels are missing at random within group and decision.
        unknown_rate: Rate of the rows of unknown group; for rates only.
        unknown_p_value: p-value of equal rates of known and unknown groups.
        known_p_value: p-value of the labelled rows of known groups alone; None if it is not tested.
    """

    unknown: Unknowns
    coverage: LabelCoverage | None = None
    over_labels: Ranges | None = None
    over_groups: Ranges | None = None
    reweighted: tuple[float, float] | None = None
    unknown_rate: float | None = None
    unknown_p_value: float | None = None
    known_p_value: float | None = None

    @property
    def effect_range(self) -> tuple[float, float] | None:
        """Range of the effect over the unknown labels, or groups, whichever is wider."""
        parts = [r.effect for r in (self.over_labels, self.over_groups) if r is not None]
        if not parts:
            return None
        return min(low for low, _ in parts), max(high for _, high in parts)

    @property
    def groups_differ(self) -> bool:
        """Whether rows of unknown group differ from the others by more than chance explains."""
        return self.unknown_p_value is not None and self.unknown_p_value <= _LEVEL

    @property
    def sentences(self) -> tuple[str, ...]:
        """What unknown labels and groups leave open of the difference, in sentences."""
        parts = {"values of the unknown labels": self.over_labels}
        parts["groups of the people of unknown group"] = self.over_groups
        return tuple(
            f"Over all {what}, the difference is from {100 * ranges.effect[0]:+.1f} to "
            f"{100 * ranges.effect[1]:+.1f} percentage points."
            for what, ranges in parts.items()
            if ranges is not None
        )

    def notes(self, names: tuple[str, str]) -> Iterator[str]:
        """Ranges and the reweighted estimate, in words."""
        if self.over_labels is not None and self.unknown.labels is not None:
            yield _range_note(self.over_labels, names, "values of the unknown labels")
        if self.reweighted is not None:
            one, other = self.reweighted
            yield (
                f"if labels are missing at random within group and decision: {names[0]} "
                f"{rate(one)}, {names[1]} {rate(other)}, effect {signed(one - other)}"
            )
        if self.over_groups is not None:
            rows = count(sum(self.unknown.groups.values()), "row")
            yield _range_note(self.over_groups, names, f"groups of the {rows} of unknown group")


def _range_note(ranges: Ranges, names: tuple[str, str], what: str) -> str:
    (low, high), (least, most) = ranges.first, ranges.other
    return (
        f"over all {what}: {names[0]} {low:.3f} to {high:.3f}, {names[1]} {least:.3f} to "
        f"{most:.3f}, effect {bounds(ranges.effect)}, ratio {ranges.ratio[0]:.2f} to "
        f"{ranges.ratio[1]:.2f}"
    )


def examine(
    metric: Metric | CustomMetric,
    groups: GroupSet,
    pair: Pair,
    unknown: Unknowns,
    *,
    share_independent: float,
) -> Missing:
    """Count what is unknown in a comparison, and what it leaves open.

    Args:
        metric: The metric.
        groups: Rows by group, label and decision.
        pair: The two sides.
        unknown: Unknown groups and labels of all rows.
        share_independent: Persons per row; 1 if every row is a person.
    """
    if not isinstance(metric, Metric):
        return Missing(unknown=unknown)
    one, other = (groups.table[members].sum(axis=0) for members in pair.members)
    coverage = None
    if metric.needs_labels:
        decisions = (0, 1) if metric.given_decision is None else (metric.given_decision,)
        coverage = LabelCoverage.of(
            pair.names, (one, other), decisions, share_independent=share_independent
        )
        coverage = None if coverage.complete else coverage
    if metric.kind != "rate":
        return Missing(unknown=unknown, coverage=coverage)
    cells = RateCells(metric.counted, metric.hit)
    reweighted = None
    if coverage is not None:
        estimates = [reweighted_rate(cells, table) for table in (one, other)]
        if estimates[0] is not None and estimates[1] is not None:
            reweighted = estimates[0], estimates[1]
    missing = Missing(
        unknown=unknown,
        coverage=coverage,
        over_labels=None if coverage is None else label_ranges(cells, one, other),
        reweighted=reweighted,
    )
    of_unknown = cells.of(groups.table[-1])
    if not any(of_unknown):
        return missing
    known = cells.of(groups.table[:-1].sum(axis=0))
    return replace(
        missing,
        over_groups=group_ranges(cells.of(one), cells.of(other), of_unknown),
        unknown_rate=of_unknown[0] / sum(of_unknown),
        unknown_p_value=equal_shares_p_value(
            [sum(known), sum(of_unknown)], [known[0], of_unknown[0]], share_independent
        ),
    )


def robust_estimate(
    estimate: ComparisonEstimate,
    missing: Missing,
    metric: Metric,
    groups: GroupSet,
    pair: Pair,
    *,
    alpha: float,
    confidence_level: float,
    options: PermutationOptions,
    rows_are_units: bool,
) -> ComparisonEstimate:
    """The estimate with an interval and a p-value that hold for what coverage leaves open.

    A rate whose labels are not all known is tested on the labelled rows, and on the two tables of
    `completed_labels`; p is the largest of the three, and the interval covers all three. So is a
    rate whose unknown groups differ from the known ones, on the tables of `completed_groups`. If
    coverage differs, and the tables disagree about a difference, the question cannot be
    determined. A metric without such tables cannot be determined if coverage differs.

    Args:
        estimate: Estimate of the labelled rows of known groups.
        missing: Unknown groups and labels.
        metric: The metric.
        groups: Rows by group, label and decision.
        pair: The two sides.
        alpha: Significance level.
        confidence_level: Confidence level of the interval.
        options: Number of permutations, seed, alternative.
        rows_are_units: Whether every row is its own unit.
    """
    if estimate.test is None or estimate.test.p_value is None or estimate.interval is None:
        return estimate
    labels_differ = missing.coverage is not None and missing.coverage.differs
    differs = labels_differ or missing.groups_differ
    completed: list[tuple[Counts, Counts]] = []
    if metric.kind == "rate" and rows_are_units:
        cells = RateCells(metric.counted, metric.hit)
        one, other = (groups.table[members].sum(axis=0) for members in pair.members)
        if missing.coverage is not None:
            completed += completed_labels(cells, one, other)
        if missing.groups_differ:
            known = cells.of(groups.table[:-1].sum(axis=0))
            unknown = cells.of(groups.table[-1])
            completed += completed_groups(cells.of(one), cells.of(other), known, unknown)
    elif differs:
        return _without_p_value(estimate, missing, metric)
    options = replace(options, step=None)
    ends = [_of_counts(metric, pair.names, table, confidence_level, options) for table in completed]
    intervals = [estimate.interval, *(end.interval for end in ends if end.interval is not None)]
    tests = [end.test for end in ends if end.test is not None]
    p_values = [estimate.test.p_value, *(t.p_value for t in tests if t.p_value is not None)]
    # A table with too few counts to be tested shows no difference.
    p_values += [1.0] * (len(ends) - len(tests))
    signs = {np.sign(test.statistic) for test in tests if test.statistic is not None}
    if len(signs) > 1 and options.alternative == "two-sided":
        # Between the tables there is one without a difference.
        p_values.append(1.0)
    method = estimate.method
    if completed:
        method += ", over the tables that unknown labels or groups leave open"
    interval = min(low for low, _ in intervals), max(high for _, high in intervals)
    estimate = replace(
        estimate,
        interval=interval,
        method=method,
        detectable=_further(estimate.detectable, estimate.interval, interval),
        test=replace(estimate.test, p_value=max(p_values)),
    )
    if differs and min(p_values) <= alpha < max(p_values):
        return _without_p_value(estimate, missing, metric)
    return estimate


def _of_counts(
    metric: Metric,
    names: tuple[str, str],
    counts: tuple[Counts, Counts],
    confidence_level: float,
    options: PermutationOptions,
) -> ComparisonEstimate:
    """Estimate and test of a rate from hits and misses of both groups."""
    tally = Tally(
        values=np.array([[1.0, 1.0], [0.0, 1.0]]),
        strata=np.zeros(2, dtype=np.int64),
        type_of=np.array([0, 1, 0, 1]),
        group_of=np.array([0, 0, 1, 1]),
        weight=np.array(counts, dtype=np.int64).ravel(),
    )
    members = np.array([0]), np.array([1])
    return compare_ratio(metric, tally, names, members, None, confidence_level, options)


def _without_p_value(
    estimate: ComparisonEstimate, missing: Missing, metric: Metric
) -> ComparisonEstimate:
    return replace(estimate, test=None, detectable=None, reason=_undetermined(missing, metric))


def _further(
    detectable: Detectable | None, known: Interval, completed: Interval
) -> Detectable | None:
    """Smallest detectable effects if all tables must show a difference.

    An effect upwards is shown by the table with the lowest estimate, which is lower than that of
    the labelled rows by as much as the interval is.
    """
    if detectable is None:
        return None
    down, up = detectable
    down = None if down is None else down - max(completed[1] - known[1], 0.0)
    up = None if up is None else up + max(known[0] - completed[0], 0.0)
    return possible((down, up), 0.0, -1.0, 1.0)


def label_and_group_warnings(missing: Missing, metric: Metric) -> Iterator[str]:
    """Warnings about labels and groups that are not unknown at random."""
    if missing.coverage is not None:
        yield from missing.coverage.warnings(LABEL_WORDS)
    if missing.groups_differ:
        yield f"{_unknown_sentence(missing, metric)}."


def _undetermined(missing: Missing, metric: Metric) -> str:
    """Why the data do not show whether there is a difference, and what to believe instead."""
    causes = []
    if missing.coverage is not None and missing.coverage.differs:
        causes.append(missing.coverage.sentence(LABEL_WORDS))
    if missing.groups_differ:
        causes.append(_unknown_sentence(missing, metric))
    what = "labels" if not missing.groups_differ else "groups" if len(causes) == 1 else "both"
    text = f"{'; '.join(causes)}, and the unknown {what} decide whether {metric.name} differs"
    if missing.effect_range is None:
        return text
    text += f": it may be anything from {bounds(missing.effect_range)} for all rows"
    if missing.reweighted is not None and what != "groups":
        one, other = missing.reweighted
        text += (
            f" ({signed(one - other)} if labels are missing at random within group and decision)"
        )
    return text


def _unknown_sentence(missing: Missing, metric: Metric) -> str:
    assert missing.unknown_p_value is not None
    return (
        f"{metric.name} is {rate(missing.unknown_rate)} for rows of unknown group, unlike that of "
        f"the others (p {p_equals(missing.unknown_p_value)}), so groups are not unknown at random"
    )
