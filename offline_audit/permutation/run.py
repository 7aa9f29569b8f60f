"""The permutation test as a caller asks for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.permutation.compare_auc import measured_auc
from offline_audit.permutation.compare_ratio import measured_ratio
from offline_audit.permutation.counts import TableCounts
from offline_audit.permutation.crossing import Intersections
from offline_audit.permutation.custom import CustomMetric, GroupRows, measured_custom
from offline_audit.permutation.identified import label_warnings, not_identified
from offline_audit.permutation.measured import DETECTABLE, Measured
from offline_audit.permutation.metrics import Metric, metric_named
from offline_audit.permutation.options import require_draws, require_limits
from offline_audit.permutation.outcome import Comparison, Comparisons
from offline_audit.permutation.pairs import Reference, pairs_of
from offline_audit.permutation.rearranged_sums import Alternative, Progress, Rearranging
from offline_audit.permutation.rows import Expected, Rows, require_expected, rows_of
from offline_audit.permutation.score_counts import ScoreCounts
from offline_audit.permutation.sources import (
    GroupSet,
    RowSource,
    ScoreSource,
    Source,
    TableSource,
)
from offline_audit.permutation.tally import Exchange

__all__ = ["permutation_test"]

Int = NDArray[np.int64]
Metrics = str | Callable[[GroupRows], float] | Sequence[str | Callable[[GroupRows], float]]

_EXCHANGES = ("counted", "within outcome", "all")


def permutation_test(
    metrics: Metrics,
    *,
    groups: Any = None,
    decisions: Any = None,
    labels: Any = None,
    scores: Any = None,
    units: Any = None,
    counts: TableCounts | ScoreCounts | None = None,
    intersections: Intersections = False,
    reference: Reference = None,
    expected: Expected | None = None,
    alternative: Alternative = "two-sided",
    exchange: Exchange = "counted",
    studentized: bool = True,
    draws: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
    bins: int | None = None,
    score_limits: tuple[float, float] | None = (0.0, 1.0),
    progress: Progress | None = None,
) -> Comparisons:
    """Does a metric differ between protected groups by more than chance explains?

    H0: the metric is the same in both groups, whatever else differs. Group labels are rearranged
    among the rows that the metric counts, T is the studentized difference, and p is the share of
    rearrangements with |T| at least as large, ties counting half. Breaks down where rows depend on
    each other and `units` are not given, and where labels exist for one decision only (then it
    says so). (DiCiccio, Vasudevan, Basu, Kenthapadi and Agarwal, KDD 2020, section 3.)

    Args:
        metrics: Names of `METRICS`, or functions from the rows of one group to a number.
        groups: Group of each row, or a mapping from attributes to such arrays.
        decisions: 0 or 1 of each row; None or NaN where it is not known.
        labels: The same of true labels.
        scores: A number for each row.
        units: Whom each row belongs to, where people occur more than once.
        counts: Counts or histograms in place of arrays.
        intersections: True for every pair of attributes; or tuples of names.
        reference: The group that others are compared with; by default each is with all others.
            With two groups and no reference the first in order of names is, minus the second.
        expected: All groups that there may be; any other name is an error.
        alternative: `greater` if only a larger metric of the group counts.
        exchange: Which rows change groups: those that the metric `counted`; all rows `within
            outcome`, positives with positives (section 3.1); or `all`.
        studentized: False for the plain difference, which is not valid for unequal groups.
        draws: Rearrangements, where not all can be enumerated.
        seed: The same seed draws the same rearrangements.
        confidence: Level of the intervals.
        bins: Of scores, for the draws only; None lets large data be binned, 0 never.
        score_limits: Between which scores must lie; None for any.
        progress: Called with draws done and draws in all.

    Raises:
        AuditInputError: Something given is not what it should be.
    """
    require_draws(alternative=alternative, draws=draws, seed=seed, bins=bins, confidence=confidence)
    require_limits(score_limits)
    if exchange not in _EXCHANGES:
        raise AuditInputError(f"exchange: one of {', '.join(_EXCHANGES)}")
    how = Rearranging(
        alternative=alternative,
        draws=draws,
        seed=seed,
        studentized=studentized,
        bins=bins,
        progress=progress,
    )
    rows = None
    if counts is None:
        if groups is None:
            raise AuditInputError("groups: give arrays, or `counts`")
        rows = rows_of(
            groups=groups,
            decisions=decisions,
            labels=labels,
            scores=scores,
            units=units,
            intersections=intersections,
            expected=expected,
            score_limits=score_limits,
        )
    else:
        _require_counts_alone(counts, (groups, decisions, labels, scores, units))
        if intersections is not False:
            raise AuditInputError("intersections: counts are crossed already, or cannot be")
        require_expected(expected, _names(counts))
    asked = _asked(metrics)
    source = _source(rows, counts)
    run = _Run(source, rows, exchange, confidence, how, reference)
    for metric in asked:
        run.require(metric)
    made = tuple(c for place in range(len(source.group_sets)) for c in run.of(place, asked))
    return Comparisons(comparisons=made, warnings=source.warnings)


def _require_counts_alone(counts: Any, arrays: Sequence[Any]) -> None:
    if not isinstance(counts, TableCounts | ScoreCounts):
        raise AuditInputError(
            "counts: `TableCounts` or `ScoreCounts` are needed; a mapping becomes one by "
            "`TableCounts.from_mapping`"
        )
    if any(part is not None for part in arrays):
        raise AuditInputError("counts: give either arrays or counts, not both")


def _names(counts: TableCounts | ScoreCounts) -> dict[str, tuple[str, ...]]:
    """Groups by attribute."""
    if isinstance(counts, ScoreCounts):
        return {counts.attribute: counts.names}
    return {each.attribute: each.names for each in counts.groups}


def _asked(metrics: Metrics) -> list[Metric | CustomMetric]:
    one = isinstance(metrics, str) or callable(metrics)
    if not one and not isinstance(metrics, Iterable):
        raise AuditInputError("metrics: names or functions are needed")
    listed: list[Any] = [metrics] if one else list(metrics)  # type: ignore[arg-type]
    if not listed:
        raise AuditInputError("metrics: none was given")
    if not all(isinstance(each, str) or callable(each) for each in listed):
        raise AuditInputError("metrics: names or functions are needed")
    return [metric_named(each) if isinstance(each, str) else CustomMetric(each) for each in listed]


def _source(rows: Rows | None, counts: TableCounts | ScoreCounts | None) -> Source:
    if isinstance(counts, ScoreCounts):
        return ScoreSource(counts)
    if isinstance(counts, TableCounts):
        return TableSource(counts)
    assert rows is not None
    return RowSource(rows)


class _Run:
    """All comparisons of one source."""

    def __init__(
        self,
        source: Source,
        rows: Rows | None,
        exchange: Exchange,
        confidence: float,
        how: Rearranging,
        reference: Reference,
    ) -> None:
        self.source, self.rows, self.exchange = source, rows, exchange
        self.confidence, self.how = confidence, how
        self.pairs = pairs_of(source.group_sets, reference)

    def require(self, metric: Metric | CustomMetric) -> None:
        """The metric can be computed from what was given."""
        missing = set(metric.needs) - self.source.offers
        if missing:
            raise AuditInputError(f"{metric.name}: {' and '.join(sorted(missing))} are needed")
        if isinstance(metric, CustomMetric) and self.rows is None:
            raise AuditInputError(f"{metric.name}: a function needs rows, not counts")

    def of(self, place: int, metrics: Sequence[Metric | CustomMetric]) -> Iterator[Comparison]:
        """Comparisons of one attribute or crossing, metric by metric."""
        found = self.source.group_sets[place]
        for metric in metrics:
            tally = None
            if isinstance(metric, Metric) and metric.kind != "auc":
                tally = self.source.tally(place, metric, self.exchange)
            for names, members in self.pairs[place]:
                if isinstance(metric, CustomMetric):
                    assert self.rows is not None
                    codes, error = self.rows.crossings[place].codes, 0.0
                    measured = measured_custom(
                        metric, self.rows, codes, names, members, self.confidence, self.how
                    )
                elif tally is None:
                    sides = self.source.ranked(place, *members)
                    error = self.source.auc_error(sides)
                    measured = measured_auc(sides, names, self.exchange, self.confidence, self.how)
                else:
                    error = self.source.mean_error() if metric.kind == "mean" else 0.0
                    positives = self._positives(metric, found, members)
                    measured = measured_ratio(
                        metric, tally, names, members, positives, self.confidence, self.how
                    )
                yield self._comparison(metric, found, names, members, measured, error)

    @staticmethod
    def _positives(
        metric: Metric, found: GroupSet, members: tuple[Int, Int]
    ) -> tuple[int, int] | None:
        """Rows with label 1 on either side, for a mean that involves the label."""
        if metric.kind != "mean" or not metric.needs_labels:
            return None
        one, two = (int(found.table[places, 1].sum()) for places in members)
        return one, two

    def _comparison(
        self,
        metric: Metric | CustomMetric,
        found: GroupSet,
        names: tuple[str, str],
        members: tuple[Int, Int],
        measured: Measured,
        binning_error: float,
    ) -> Comparison:
        warnings: list[str] = []
        if isinstance(metric, Metric):
            untold = not_identified(metric, found.table, list(zip(names, members, strict=True)))
            measured = measured if untold is None else measured.untold(untold)
            warnings = label_warnings(metric, found.table)
        judged = measured.judged
        one, two = (
            dataclasses.replace(side, rows=int(found.table[places].sum()))
            for side, places in zip(measured.sides, members, strict=True)
        )
        effect = None
        if one.estimate is not None and two.estimate is not None:
            effect = one.estimate - two.estimate
        return Comparison(
            metric=metric.name,
            question=f"is the {metric.words} the same for {names[0]} and {names[1]}?",
            attribute=found.attribute,
            group=one,
            other=two,
            effect=effect,
            interval=measured.interval,
            interval_method=measured.method,
            confidence=self.confidence,
            statistic=None if judged is None else judged.statistic,
            p_value=None if judged is None else judged.p_value,
            reason=measured.reason,
            alternative=self.how.alternative,
            exchanged=self._exchanged(metric),
            draws=0 if judged is None else judged.draws,
            degenerate_draws=0 if judged is None else judged.degenerate,
            smallest_detectable=None if measured.error is None else DETECTABLE * measured.error,
            smallest_cell=measured.cell,
            least_cell=measured.least,
            binning_error=binning_error,
            warnings=tuple(warnings),
            seed=self.how.seed,
        )

    def _exchanged(self, metric: Metric | CustomMetric) -> str:
        unit = "units" if "units" in self.source.offers else "rows"
        if self.exchange == "all" or isinstance(metric, CustomMetric):
            return f"all {unit}"
        if metric.kind == "auc" and unit == "units":
            # Units that hold both labels cannot change within one.
            return "the units that count"
        if self.exchange == "within outcome" or metric.kind == "auc":
            return f"{unit} with the same label"
        return f"the {unit} that count"
