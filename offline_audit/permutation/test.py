"""The permutation test: does a metric differ between protected groups?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from offline_audit.errors import AuditInputError
from offline_audit.groups import By
from offline_audit.permutation.comparison import ComparisonRun, Reference
from offline_audit.permutation.counts import ScoreCounts, TableCounts
from offline_audit.permutation.custom import CustomMetric, GroupRows
from offline_audit.permutation.metrics import Metric, metric_named
from offline_audit.permutation.permutations import (
    Alternative,
    Exchange,
    PermutationOptions,
    require_options,
)
from offline_audit.permutation.result import Comparisons
from offline_audit.permutation.rows import ExpectedGroups, require_expected, rows_of
from offline_audit.permutation.sources import RowSource, ScoreSource, Source, TableSource
from offline_audit.progress import Progress, reporting

__all__ = ["permutation_test"]

Metrics = str | Callable[[GroupRows], float] | Sequence[str | Callable[[GroupRows], float]]

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
    `units` are not given. Labels that exist for one decision only give a reason and no p-value.
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
        progress: Function that receives what is being done, steps done and steps in all; True for
            a progress bar, False for none, None for a bar on a terminal.

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
    source: Source
    rows = None
    if counts is None:
        if groups is None:
            raise AuditInputError("groups: pass arrays, or `counts`")
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
    requested = _requested_metrics(metrics)
    run = ComparisonRun(
        source,
        rows,
        reference=reference,
        exchange=exchange,
        alpha=alpha,
        confidence_level=confidence_level,
        options=PermutationOptions(
            alternative=alternative,
            n_resamples=n_resamples,
            seed=seed,
            studentized=studentized,
            bins=bins,
        ),
    )
    for metric in requested:
        run.require(metric)
    with reporting(progress, run.steps(requested)) as reporter:
        comparisons = tuple(run.comparisons(requested, reporter))
    return Comparisons(comparisons=comparisons, warnings=source.warnings)


def _require_limits(limits: Any) -> None:
    if limits is None:
        return
    ends = list(limits) if isinstance(limits, tuple | list | np.ndarray) else []
    numbers = all(isinstance(end, int | float | np.number) for end in ends)
    if len(ends) != 2 or not numbers or not ends[0] < ends[1]:
        raise AuditInputError("score_limits: must be None or two numbers, the lower first")


def _counted_source(counts: Any, by: By, expected_groups: ExpectedGroups | None) -> Source:
    if isinstance(counts, ScoreCounts):
        require_expected(expected_groups, {counts.attribute: counts.names})
        return ScoreSource(counts.selected(by))
    if isinstance(counts, TableCounts):
        require_expected(expected_groups, {each.attribute: each.names for each in counts.groups})
        return TableSource(counts.selected(by))
    raise AuditInputError(
        "counts: must be `TableCounts` or `ScoreCounts`; `TableCounts.from_mapping` converts a "
        "mapping"
    )


def _requested_metrics(metrics: Metrics) -> list[Metric | CustomMetric]:
    one = isinstance(metrics, str) or callable(metrics)
    listed: Any = [metrics] if one else metrics
    if not isinstance(listed, Iterable):
        raise AuditInputError("metrics: must be names or functions")
    listed = list(listed)
    if not listed:
        raise AuditInputError("metrics: at least one metric is needed")
    if not all(isinstance(metric, str) or callable(metric) for metric in listed):
        raise AuditInputError("metrics: must be names or functions")
    return [metric_named(m) if isinstance(m, str) else CustomMetric(m) for m in listed]
