"""Findings of the permutation test for a window, from its counts; no row is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offline_audit.errors import AuditInputError
from offline_audit.finding import Finding
from offline_audit.groups import By, crossed_name, requested_attributes, too_few_groups
from offline_audit.permutation.comparison import Reference
from offline_audit.permutation.counts import ScoreCounts, TableCounts
from offline_audit.permutation.metrics import METRICS, Metric, metric_named
from offline_audit.permutation.result import Comparison
from offline_audit.permutation.test import permutation_test
from offline_audit.progress import Progress, Reporter, reporting
from offline_audit.window.counts import Cell, ScoreBars, ScoreHistogram
from offline_audit.window.provenance import WindowFacts
from offline_audit.window.window import Window

__all__ = ["DEFAULT_METRICS", "findings"]

DEFAULT_METRICS = ("selection_rate", "tpr", "fpr", "ppv", "calibration_gap", "auc")
# Score bins: they change a mean by at most a thousandth.
_BINS = 1_000


def findings(
    window: Window,
    by: By = None,
    *,
    model: Any = None,  # noqa: ARG001 - all adapters have one signature
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    reference: Reference = None,
    alpha: float = 0.05,
    n_resamples: int = 10_000,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> list[Finding]:
    """Compare the groups of a window by metrics, without correction for many tests.

    The favourable decision and the favourable label count as positive. Rates are tested on counts,
    means and AUC on scores in 1,000 bins; crossed attributes on rates only.

    Args:
        window: Window with outcomes, which hold the groups.
        by: Protected attributes; a tuple crosses its attributes. None for every attribute by
            itself.
        model: Not used: the log holds the decisions and scores.
        metrics: Names of `METRICS`.
        reference: Group that the others are compared with, by attribute.
        alpha: Significance level.
        n_resamples: Number of random permutations, where they are not enumerated.
        seed: Seed of the random generator.
        progress: Function that receives what is being done, steps done and steps in all; True for
            a progress bar, False for none, None for a bar on a terminal.

    Raises:
        AuditInputError: A metric or the reference is unknown, or the favourable decision changed
            within the window.
        UnknownColumnError: An attribute is unknown.
    """
    names = [metrics] if isinstance(metrics, str) else metrics
    requested = [metric_named(name) for name in names]
    crossings = requested_attributes(by, list(window.attributes))
    facts = window.facts
    references = _references(reference, crossings, window)
    counts = window.counts(crossings)
    results: list[Finding] = []
    with reporting(progress, len(crossings) * len(requested)) as reporter:
        for crossing in crossings:
            cells = [_with_positive_favourable(c, facts) for c in counts.of(*crossing).cells]
            chosen = references.get(crossed_name(crossing))
            test = _CrossingTest(crossing, chosen, alpha, n_resamples, seed, reporter)
            rates = [metric for metric in requested if metric.kind == "rate"]
            results += test.findings(rates, TableCounts.from_cells(cells) if cells else None, cells)
            scored = [metric for metric in requested if metric.kind != "rate"]
            if scored and len(crossing) == 1:
                histogram = _favourable_scores(window.score_histogram(crossing[0], _BINS), facts)
                scores = ScoreCounts.from_histogram(histogram) if histogram.bars else None
                results += test.findings(scored, scores, cells)
    return results


@dataclass(frozen=True, slots=True)
class _CrossingTest:
    """The tests of one attribute, or of several crossed."""

    crossing: tuple[str, ...]
    reference: str | None
    alpha: float
    n_resamples: int
    seed: int
    reporter: Reporter

    def findings(
        self,
        metrics: Sequence[Metric],
        counts: TableCounts | ScoreCounts | None,
        cells: Sequence[Cell],
    ) -> Iterator[Finding]:
        """Findings of some metrics, or the reason why there are none."""
        for metric in metrics:
            self.reporter.doing(f"{metric.name} by {crossed_name(self.crossing)}")
            reason = _untestable(metric, self.crossing, cells)
            if reason is not None or counts is None:
                yield self._not_tested(metric, reason or "The window is empty.")
            else:
                comparisons = permutation_test(
                    counts=counts,
                    metrics=metric.name,
                    reference=self.reference,
                    alpha=self.alpha,
                    n_resamples=self.n_resamples,
                    seed=self.seed,
                    progress=False,
                )
                yield from map(self._finding, comparisons)
            self.reporter.step()

    def _finding(self, comparison: Comparison) -> Finding:
        metric, effect = METRICS[comparison.metric], comparison.effect
        groups = [group for group in (comparison.group, comparison.other) if group is not None]
        return Finding(
            audit="permutation",
            question=comparison.question,
            attributes=self.crossing,
            groups=tuple(group.name for group in groups),
            metric=comparison.metric,
            rows={group.name: group.rows for group in groups},
            effect=effect,
            interval=comparison.interval,
            unit=metric.unit,
            direction=None if effect is None else metric.direction(groups[0].name, effect),
            statistic=comparison.statistic,
            p_value=comparison.p_value,
            alpha=self.alpha,
            smallest_detectable_effect=comparison.smallest_detectable_effect,
            reason=comparison.reason,
            warnings=comparison.warnings,
            seed=comparison.seed,
            evidence=comparison.to_dict(),
        )

    def _not_tested(self, metric: Metric, reason: str) -> Finding:
        return Finding(
            audit="permutation",
            question=f"is the {metric.description} the same for all groups?",
            attributes=self.crossing,
            groups=(),
            metric=metric.name,
            rows={},
            effect=None,
            interval=None,
            unit=metric.unit,
            statistic=None,
            p_value=None,
            alpha=self.alpha,
            smallest_detectable_effect=None,
            reason=reason,
            seed=self.seed,
            evidence={},
        )


def _references(
    reference: Reference, crossings: Sequence[tuple[str, ...]], window: Window
) -> dict[str, str]:
    """The reference group by attribute; a single name refers to the attribute that has it."""
    requested = [crossed_name(crossing) for crossing in crossings]
    if isinstance(reference, Mapping):
        if unknown := [name for name in reference if name not in requested]:
            raise AuditInputError(
                f"reference: {', '.join(unknown)} not requested; choose from {', '.join(requested)}"
            )
        return {name: str(group) for name, group in reference.items()}
    having = [name for name in requested if reference in window.attributes.get(name, ())]
    if reference is not None and not having:
        raise AuditInputError(f"reference: {reference!r} is not a group of {', '.join(requested)}")
    return dict.fromkeys(having, str(reference))


def _untestable(metric: Metric, crossing: tuple[str, ...], cells: Sequence[Cell]) -> str | None:
    """Why a metric cannot be compared at all; None if it can."""
    known = {cell.groups for cell in cells if None not in cell.groups}
    if reason := too_few_groups([crossed_name(map(str, names)) for names in known], crossing):
        return reason
    if metric.needs_labels and all(cell.label is None for cell in cells):
        return "No prediction of the window has a label."
    return None


def _with_positive_favourable(cell: Cell, facts: WindowFacts) -> Cell:
    """A cell in which 1 is the favourable label and decision."""
    if facts.favourable == 1:
        return cell
    label, decision = (None if v is None else 1 - v for v in (cell.label, cell.decision))
    return replace(cell, label=label, decision=decision)


def _favourable_scores(histogram: ScoreHistogram, facts: WindowFacts) -> ScoreHistogram:
    """A histogram of scores of the favourable class."""
    if facts.favourable == 1:
        return histogram
    return replace(histogram, bars=tuple(map(_reversed, histogram.bars)))


def _reversed(bars: ScoreBars) -> ScoreBars:
    label, decision = (None if v is None else 1 - v for v in (bars.label, bars.decision))
    return replace(bars, label=label, decision=decision, counts=bars.counts[::-1])
