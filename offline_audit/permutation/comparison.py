"""All comparisons of a source: which groups are compared, and each comparison's result."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.groups import require_two_groups, word_of
from offline_audit.permutation.auc_test import compare_auc
from offline_audit.permutation.compare_ratio import compare_ratio
from offline_audit.permutation.custom import CustomMetric, compare_custom
from offline_audit.permutation.identified import label_warnings, not_identified
from offline_audit.permutation.metrics import Metric
from offline_audit.permutation.permutations import Exchange, PermutationOptions
from offline_audit.permutation.result import Comparison, ComparisonEstimate, detectable_effect
from offline_audit.permutation.rows import Rows
from offline_audit.permutation.sources import GroupSet, Source
from offline_audit.progress import Reporter

__all__ = ["ComparisonRun", "Reference", "pairs_of"]

Int = NDArray[np.int64]
# The group that the others are compared with; by attribute, if there are several.
Reference = str | int | Mapping[str, str | int] | None


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
    if isinstance(reference, Mapping):
        known = [groups.attribute for groups in group_sets]
        for attribute in reference:
            if attribute not in known:
                raise AuditInputError(
                    f"reference: unknown attribute {attribute!r}; choose from {', '.join(known)}"
                )
        given = [reference.get(groups.attribute) for groups in group_sets]
        chosen = [None if name is None else word_of(name) for name in given]
    else:
        reference = None if reference is None else word_of(reference)
        # A single name refers to the attribute that has such a group.
        chosen = [reference if reference in groups.names else None for groups in group_sets]
        if reference is not None and not any(chosen):
            names = [name for groups in group_sets for name in groups.names]
            raise AuditInputError(
                f"reference: unknown group {reference!r}; choose from {', '.join(names)}"
            )
    return [list(_pairs(g, name)) for g, name in zip(group_sets, chosen, strict=True)]


def _pairs(groups: GroupSet, reference: str | None) -> Iterator[Pair]:
    names, every = groups.names, np.arange(len(groups.names))
    if reference is not None:
        if reference not in names:
            raise AuditInputError(
                f"reference: {groups.attribute} has no group {reference!r}; choose from "
                f"{', '.join(names)}"
            )
        base = np.array([names.index(reference)])
        for index in every[every != base[0]]:
            yield Pair(names=(names[index], reference), members=(np.array([index]), base))
    elif len(names) == 2:
        yield Pair(names=(names[0], names[1]), members=(every[:1], every[1:]))
    else:
        for index in every:
            sides = (names[index], f"not {names[index]}")
            yield Pair(names=sides, members=(np.array([index]), every[every != index]))


class ComparisonRun:
    """The comparisons of one source.

    Args:
        source: Rows, counts or histograms.
        rows: Rows behind the source; None for counts.
        reference: Group that the others are compared with.
        exchange: Which units are permuted.
        alpha: Significance level.
        confidence_level: Confidence level of the intervals.
        options: Number of permutations, seed, alternative.

    Raises:
        AuditInputError: An attribute has fewer than two groups, or the reference is not a group.
    """

    def __init__(
        self,
        source: Source,
        rows: Rows | None,
        *,
        reference: Reference,
        exchange: Exchange,
        alpha: float,
        confidence_level: float,
        options: PermutationOptions,
    ) -> None:
        self._source, self._rows, self._exchange = source, rows, exchange
        self._alpha, self._confidence_level, self._options = alpha, confidence_level, options
        self._pairs = pairs_of(source.group_sets, reference)

    def require(self, metric: Metric | CustomMetric) -> None:
        """Check that the data a metric needs is available.

        Raises:
            AuditInputError: Some of it is missing.
        """
        missing = set(metric.needs) - self._source.offers
        if missing:
            raise AuditInputError(f"{metric.name}: needs {' and '.join(sorted(missing))}")
        if isinstance(metric, CustomMetric) and self._rows is None:
            raise AuditInputError(f"{metric.name}: a function needs rows, not counts")

    def steps(self, metrics: Sequence[Metric | CustomMetric]) -> int:
        """Number of progress steps in all."""
        return len(metrics) * sum(map(len, self._pairs)) * self._options.n_resamples

    def comparisons(
        self, metrics: Sequence[Metric | CustomMetric], reporter: Reporter
    ) -> Iterator[Comparison]:
        """Comparisons of every attribute or crossing, metric by metric."""
        for index in range(len(self._source.group_sets)):
            for metric in metrics:
                yield from self._compare(index, metric, reporter)

    def _compare(
        self, index: int, metric: Metric | CustomMetric, reporter: Reporter
    ) -> Iterator[Comparison]:
        source, level = self._source, self._confidence_level
        groups = source.group_sets[index]
        tally = None
        if isinstance(metric, Metric) and metric.kind != "auc":
            tally = source.tally(index, metric, self._exchange)
        for pair in self._pairs[index]:
            steps = _Steps(reporter, f"{metric.name} of {pair.names[0]} and {pair.names[1]}")
            options = dataclasses.replace(self._options, step=steps.take)
            binning_error = 0.0
            if isinstance(metric, CustomMetric):
                assert self._rows is not None
                codes = self._rows.crossings[index].codes
                estimate = compare_custom(
                    metric, self._rows, codes, pair.names, pair.members, level, options
                )
            elif tally is None:
                ranked = source.ranked(index, *pair.members)
                binning_error = source.auc_error(ranked)
                estimate = compare_auc(ranked, pair.names, self._exchange, level, options)
            else:
                binning_error = source.mean_error() if metric.kind == "mean" else 0.0
                positives = _positives(metric, groups, pair)
                estimate = compare_ratio(
                    metric, tally, pair.names, pair.members, positives, level, options
                )
            steps.finish(self._options.n_resamples)
            yield self._comparison(metric, groups, pair, estimate, binning_error)

    def _comparison(
        self,
        metric: Metric | CustomMetric,
        groups: GroupSet,
        pair: Pair,
        estimate: ComparisonEstimate,
        binning_error: float,
    ) -> Comparison:
        warnings: list[str] = []
        if isinstance(metric, Metric):
            sides = list(zip(pair.names, pair.members, strict=True))
            reason = not_identified(metric, groups.table, sides)
            estimate = estimate if reason is None else estimate.withheld(reason)
            warnings = label_warnings(metric, groups.table)
        test = estimate.test
        one, two = (
            dataclasses.replace(group, rows=int(groups.table[members].sum()))
            for group, members in zip(estimate.groups, pair.members, strict=True)
        )
        effect = None
        if one.estimate is not None and two.estimate is not None:
            effect = one.estimate - two.estimate
        return Comparison(
            metric=metric.name,
            question=f"is the {metric.description} the same for {one.name} and {two.name}?",
            attribute=groups.attribute,
            group=one,
            other=two,
            effect=effect,
            interval=estimate.interval,
            interval_method=estimate.method,
            alpha=self._alpha,
            confidence_level=self._confidence_level,
            statistic=None if test is None else test.statistic,
            p_value=None if test is None else test.p_value,
            reason=estimate.reason,
            alternative=self._options.alternative,
            exchanged=self._exchanged(metric),
            n_resamples=0 if test is None else test.n_resamples,
            degenerate_resamples=0 if test is None else test.degenerate,
            smallest_detectable_effect=detectable_effect(estimate.error, self._alpha),
            smallest_count=estimate.smallest_count,
            required_count=estimate.required_count,
            binning_error=binning_error,
            warnings=tuple(warnings),
            seed=self._options.seed,
        )

    def _exchanged(self, metric: Metric | CustomMetric) -> str:
        unit = "units" if "units" in self._source.offers else "rows"
        if self._exchange == "all" or isinstance(metric, CustomMetric):
            return f"all {unit}"
        if metric.kind == "auc" and unit == "units":
            # Units that have both labels cannot be permuted within one label.
            return "the counted units"
        if self._exchange == "within outcome" or metric.kind == "auc":
            return f"{unit} with the same label"
        return f"the counted {unit}"


class _Steps:
    """Progress of one comparison, which takes all of its steps even if it needs fewer."""

    def __init__(self, reporter: Reporter, task: str) -> None:
        self._reporter, self._done = reporter, 0
        reporter.doing(task)

    def take(self, steps: int) -> None:
        """Count permutations as done."""
        self._done += steps
        self._reporter.step(steps)

    def finish(self, total: int) -> None:
        """Count the remaining steps as done."""
        self._reporter.step(total - self._done)


def _positives(metric: Metric, groups: GroupSet, pair: Pair) -> tuple[int, int] | None:
    """Rows with label 1 of each side, for a mean that involves the label."""
    if metric.kind != "mean" or not metric.needs_labels:
        return None
    one, two = (int(groups.table[members, 1].sum()) for members in pair.members)
    return one, two
