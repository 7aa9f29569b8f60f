"""The permutation test: does a metric differ between protected groups?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offline_audit.errors import AuditInputError
from offline_audit.groups import By
from offline_audit.permutation.auc_test import compare_auc
from offline_audit.permutation.compare_ratio import compare_ratio
from offline_audit.permutation.comparisons import Comparisons
from offline_audit.permutation.counts import ScoreCounts, ScoreSource, TableCounts
from offline_audit.permutation.custom import compare_custom
from offline_audit.permutation.estimates import ComparisonEstimate
from offline_audit.permutation.metrics import (
    CustomMetric,
    Metric,
    Metrics,
    not_identified,
    requested_metrics,
)
from offline_audit.permutation.permutations import (
    Alternative,
    Exchange,
    PermutationOptions,
    require_options,
)
from offline_audit.permutation.result import Comparison
from offline_audit.permutation.rows import Rows, RowSource, rows_of
from offline_audit.permutation.sources import (
    ExpectedGroups,
    GroupSet,
    Pair,
    Reference,
    TableSource,
    pairs_of,
    require_expected,
)
from offline_audit.permutation.unknown import (
    examine,
    label_and_group_warnings,
    robust_estimate,
)
from offline_audit.progress import Progress, Reporter, reporting

__all__ = ["permutation_test"]

_EXCHANGES = ("counted", "within outcome", "all")


def permutation_test(
    groups: Any = None,
    decisions: Any = None,
    labels: Any = None,
    scores: Any = None,
    units: Any = None,
    counts: TableCounts | ScoreCounts | None = None,
    *,
    by: By = None,
    metrics: Metrics,
    reference: Reference = None,
    expected_groups: ExpectedGroups | None = None,
    alternative: Alternative = "two-sided",
    exchange: Exchange = "counted",
    studentized: bool = True,
    score_limits: tuple[float, float] | None = (0.0, 1.0),
    bins: int | None = None,
    alpha: float = 0.05,
    confidence_level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Comparisons:
    """Does a metric differ between protected groups by more than chance explains?

    H0: the metric is the same in both groups; everything else may differ. Groups are permuted among
    the rows that the metric counts, T is the studentized difference, and p is the share of
    permutations with |T| at least as large, ties counting half. Invalid if rows are dependent and
    `units` is not passed. Labels that exist for one decision only give a reason and no p-value.
    (DiCiccio, Vasudevan, Basu, Kenthapadi and Agarwal, KDD 2020, section 3.)

    Args:
        groups: Group of each row, or a mapping from attributes to such arrays.
        decisions: Decision of each row, 0 or 1; None or NaN where it is unknown.
        labels: True label of each row, 0 or 1; None or NaN where it is unknown.
        scores: Score of each row.
        units: Person of each row, where people occur more than once.
        counts: Counts or histograms instead of arrays.
        by: Attributes to compare by; a tuple crosses its attributes, "pairs" adds every pair. None
            for every attribute by itself.
        metrics: Names of `METRICS`, or functions from the rows of one group to a number.
        reference: Group that the others are compared with. By default, two groups are compared
            with each other, the first in order of names minus the second, and each of several
            groups with all others.
        expected_groups: Names of all possible groups; any other name is an error.
        alternative: `greater` if only a larger metric of the first group counts.
        exchange: Which rows are permuted: those that the metric `counted`; all rows `within
            outcome`, positives with positives (section 3.1); or `all`.
        studentized: False for the plain difference, which is not valid for unequal groups.
        score_limits: Lowest and highest valid score; None for any.
        bins: Number of score bins, for the random permutations only; None bins large data, 0 never.
        alpha: Significance level.
        confidence_level: Confidence level of the intervals.
        n_resamples: Number of random permutations, where they are not enumerated.
        seed: Seed of the random generator.
        progress: Function that is called with the current task, the steps done and the total;
            True for a progress bar, False for none, None for a bar if stderr is a terminal.

    Raises:
        AuditInputError: An argument is invalid; the message names it.
    """
    require_options(
        alternative=alternative,
        alpha=alpha,
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        seed=seed,
        bins=bins,
    )
    _require_limits(score_limits)
    if exchange not in _EXCHANGES:
        raise AuditInputError(f"exchange: must be one of {', '.join(_EXCHANGES)}")
    source: TableSource
    rows = None
    if counts is None:
        if groups is None:
            raise AuditInputError(
                "groups: missing; pass one group per row, or pass `counts` instead"
            )
        rows = rows_of(
            groups=groups,
            decisions=decisions,
            labels=labels,
            scores=scores,
            units=units,
            by=by,
            expected_groups=expected_groups,
            score_limits=score_limits,
        )
        source = RowSource(rows)
    else:
        if any(array is not None for array in (groups, decisions, labels, scores, units)):
            raise AuditInputError("counts: pass either arrays or counts, not both")
        source = _counted_source(counts, by, expected_groups)
    requested = requested_metrics(metrics)
    run = _ComparisonRun(
        source=source,
        rows=rows,
        pairs=pairs_of(source.group_sets, reference),
        exchange=exchange,
        alpha=alpha,
        confidence_level=confidence_level,
        options=PermutationOptions(
            alternative=alternative,
            n_resamples=int(n_resamples),
            seed=int(seed),
            alpha=alpha,
            studentized=studentized,
            bins=bins,
        ),
    )
    for metric in requested:
        run.require(metric)
    steps = run.steps(requested)
    # Enumeration is too fast to need progress.
    with reporting(progress, steps) if steps else nullcontext() as reporter:
        comparisons = tuple(run.comparisons(requested, reporter))
    return Comparisons(comparisons=comparisons, warnings=source.warnings, unknown=source.unknown)


def _require_limits(limits: Any) -> None:
    if limits is None:
        return
    ends = list(limits) if isinstance(limits, tuple | list | np.ndarray) else []
    numbers = all(isinstance(end, int | float | np.number) for end in ends)
    if len(ends) != 2 or not numbers or not ends[0] < ends[1]:
        raise AuditInputError("score_limits: must be None or two numbers, the lower first")


def _counted_source(counts: Any, by: By, expected_groups: ExpectedGroups | None) -> TableSource:
    if isinstance(counts, ScoreCounts):
        require_expected(expected_groups, {counts.attribute: counts.names})
        return ScoreSource(counts.selected(by))
    if isinstance(counts, TableCounts):
        require_expected(expected_groups, {g.attribute: g.names for g in counts.groups})
        return TableSource(counts.selected(by).groups, counts.warnings)
    raise AuditInputError(
        "counts: must be `TableCounts` or `ScoreCounts`; `TableCounts.from_mapping` converts a "
        "mapping"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ComparisonRun:
    """All comparisons of one call of the test.

    Attributes:
        source: Data of the test.
        rows: Rows behind the source; None for counts.
        pairs: Pairs of each group set of the source.
        exchange: Which units are permuted.
        alpha: Significance level.
        confidence_level: Confidence level of the intervals.
        options: Number of permutations, seed, alternative.
    """

    source: TableSource
    rows: Rows | None
    pairs: list[list[Pair]]
    exchange: Exchange
    alpha: float
    confidence_level: float
    options: PermutationOptions

    def require(self, metric: Metric | CustomMetric) -> None:
        """Check that the data a metric needs is available.

        Raises:
            AuditInputError: Some of it is missing.
        """
        missing = set(metric.needs) - self.source.offers
        if missing:
            raise AuditInputError(f"{metric.name}: needs {' and '.join(sorted(missing))}")
        if isinstance(metric, CustomMetric) and self.rows is None:
            raise AuditInputError(f"{metric.name}: a function needs rows, not counts")

    def steps(self, metrics: Sequence[Metric | CustomMetric]) -> int:
        """Number of random permutations in all."""
        return sum(map(len, self.pairs)) * sum(map(self._n_resamples, metrics))

    def _n_resamples(self, metric: Metric | CustomMetric) -> int:
        """Random permutations of one comparison; 0 for rates of rows, which are enumerated."""
        rate = isinstance(metric, Metric) and metric.kind == "rate"
        single = "units" not in self.source.offers
        return 0 if rate and single and self.exchange == "counted" else self.options.n_resamples

    def comparisons(
        self, metrics: Sequence[Metric | CustomMetric], reporter: Reporter | None
    ) -> Iterator[Comparison]:
        """Comparisons of every attribute or crossing, metric by metric."""
        for index in range(len(self.source.group_sets)):
            for metric in metrics:
                yield from self._compare(index, metric, reporter)

    def _compare(
        self, index: int, metric: Metric | CustomMetric, reporter: Reporter | None
    ) -> Iterator[Comparison]:
        source, level = self.source, self.confidence_level
        groups = source.group_sets[index]
        tally = None
        if isinstance(metric, Metric) and metric.kind != "auc":
            tally = source.tally(index, metric, self.exchange)
        for pair in self.pairs[index]:
            task = f"{metric.name} of {pair.names[0]} and {pair.names[1]}"
            steps = _Steps(reporter, task, self._n_resamples(metric))
            options = replace(self.options, step=steps.take)
            binning_error = 0.0
            if isinstance(metric, CustomMetric):
                assert self.rows is not None
                codes = self.rows.crossings[index].codes
                estimate = compare_custom(
                    metric, self.rows, codes, pair.names, pair.members, level, options
                )
            elif tally is None:
                ranked = source.ranked(index, *pair.members)
                binning_error = source.auc_error(ranked)
                estimate = compare_auc(ranked, pair.names, self.exchange, level, options)
            else:
                binning_error = source.mean_error() if metric.kind == "mean" else 0.0
                positives = _positives(metric, groups, pair)
                estimate = compare_ratio(
                    metric, tally, pair.names, pair.members, positives, level, options
                )
            steps.finish()
            yield self._comparison(metric, groups, pair, estimate, binning_error)

    def _comparison(
        self,
        metric: Metric | CustomMetric,
        groups: GroupSet,
        pair: Pair,
        estimate: ComparisonEstimate,
        binning_error: float,
    ) -> Comparison:
        missing = examine(
            metric,
            groups,
            pair,
            replace(self.source.unknown, groups={groups.attribute: int(groups.table[-1].sum())}),
            share_independent=self.source.share_independent,
        )
        warnings: tuple[str, ...] = ()
        if isinstance(metric, Metric):
            sides = list(zip(pair.names, pair.members, strict=True))
            reason = not_identified(metric, groups.table, sides)
            if reason is not None:
                estimate, missing = estimate.withheld(reason), replace(missing, reweighted=None)
            warnings = tuple(label_and_group_warnings(missing, metric))
            if estimate.test is not None:
                missing = replace(missing, known_p_value=estimate.test.p_value)
            estimate = robust_estimate(
                estimate,
                missing,
                metric,
                groups,
                pair,
                alpha=self.alpha,
                confidence_level=self.confidence_level,
                options=self.options,
                rows_are_units="units" not in self.source.offers,
            )
        test = estimate.test
        one, two = (
            replace(group, rows=int(groups.table[members].sum()))
            for group, members in zip(estimate.groups, pair.members, strict=True)
        )
        effect, direction = None, None
        if one.estimate is not None and two.estimate is not None:
            effect = one.estimate - two.estimate
            direction = metric.direction((one.name, two.name), effect)
        return Comparison(
            metric=metric.name,
            question=f"is the {metric.description} the same for {one.name} and {two.name}?",
            attribute=groups.attribute,
            group=one,
            other=two,
            effect=effect,
            unit=metric.unit,
            direction=direction,
            interval=estimate.interval,
            interval_method=estimate.method,
            alpha=self.alpha,
            confidence_level=self.confidence_level,
            statistic=None if test is None else test.statistic,
            p_value=None if test is None else test.p_value,
            reason=estimate.reason,
            alternative=self.options.alternative,
            exchanged=self._exchanged(metric),
            n_resamples=0 if test is None else test.n_resamples,
            degenerate_resamples=0 if test is None else test.degenerate,
            smallest_detectable_effect=estimate.detectable,
            smallest_count=estimate.smallest_count,
            required_count=estimate.required_count,
            binning_error=binning_error,
            missing=missing,
            warnings=warnings,
            seed=self.options.seed,
        )

    def _exchanged(self, metric: Metric | CustomMetric) -> str:
        unit = "units" if "units" in self.source.offers else "rows"
        if self.exchange == "all" or isinstance(metric, CustomMetric):
            return f"all {unit}"
        if metric.kind == "auc" and unit == "units":
            # Units that have both labels cannot be permuted within one label.
            return "the counted units"
        if self.exchange == "within outcome" or metric.kind == "auc":
            return f"{unit} with the same label"
        return f"the counted {unit}"


class _Steps:
    """Progress of one comparison, which takes all of its steps even if it needs fewer."""

    def __init__(self, reporter: Reporter | None, task: str, total: int) -> None:
        self._reporter, self._remaining = reporter, total
        if reporter is not None:
            reporter.doing(task)

    def take(self, steps: int) -> None:
        """Count permutations as done."""
        self._remaining -= steps
        if self._reporter is not None:
            self._reporter.step(steps)

    def finish(self) -> None:
        """Count the remaining steps as done."""
        self.take(self._remaining)


def _positives(metric: Metric, groups: GroupSet, pair: Pair) -> tuple[int, int] | None:
    """Rows with label 1 of each side, for a mean that involves the label."""
    if metric.kind != "mean" or not metric.needs_labels:
        return None
    one, two = (int(groups.table[members, 1].sum()) for members in pair.members)
    return one, two
