"""Findings of the permutation test for a window: from its counts, or rows if it names people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from offline_audit.coverage import Unknowns
from offline_audit.errors import AuditInputError
from offline_audit.finding import Finding
from offline_audit.groups import By, crossed_name, requested_attributes, too_few_groups
from offline_audit.permutation.counts import ScoreCounts, TableCounts
from offline_audit.permutation.metrics import FAVOURABLE, METRICS, Metric, metric_named
from offline_audit.permutation.result import Comparison
from offline_audit.permutation.sources import Reference
from offline_audit.permutation.test import permutation_test
from offline_audit.permutation.window_rows import WindowRows, copies_warning
from offline_audit.progress import Progress, reporting
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
    means and AUC on scores in 1,000 bins; crossed attributes on rates only. If the log records the
    people behind requests, rows are read instead, and those of a person are permuted together.

    Args:
        window: Window with outcomes, which contain the groups.
        by: Protected attributes; a tuple crosses its attributes. None for every attribute by
            itself.
        model: Not used; the log contains decisions and scores.
        metrics: Names of `METRICS`.
        reference: Group that the others are compared with, by attribute.
        alpha: Significance level.
        n_resamples: Number of random permutations, where they are not enumerated.
        seed: Seed of the random generator.
        progress: Function that is called with the current task, the steps done and the total;
            True for a progress bar, False for none, None for a bar if stderr is a terminal.

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
    attributes = sorted({name for crossing in crossings for name in crossing})
    rows = WindowRows.read(window, attributes, facts) if window.has_subjects else None
    copies = copies_warning(window, attributes) if rows is None else ()
    rates = [metric for metric in requested if metric.kind == "rate"]
    scored = [metric for metric in requested if metric.kind != "rate"]
    results: list[Finding] = []
    # Rates are enumerated, which is too fast to need progress.
    steps = len(scored) * sum(len(crossing) == 1 for crossing in crossings)
    with reporting(progress, steps) if steps else nullcontext() as reporter:
        for crossing in crossings:
            cells = [_with_positive_favourable(c, facts) for c in counts.of(*crossing).cells]
            name = crossed_name(crossing)
            test = _CrossingTest(
                crossing, tuple(cells), references.get(name), alpha, n_resamples, seed, rows, copies
            )
            table = TableCounts.from_cells(cells) if cells else None
            for metric in rates:
                results += test.findings(metric, table)
            if reporter is None or len(crossing) > 1:
                continue
            histogram = _favourable_scores(window.score_histogram(crossing[0], _BINS), facts)
            scores = ScoreCounts.from_histogram(histogram) if histogram.bars else None
            for metric in scored:
                reporter.doing(f"{metric.name} by {name}")
                results += test.findings(metric, scores)
                reporter.step()
    window.record(results)
    return results


@dataclass(frozen=True, slots=True)
class _CrossingTest:
    """Tests of one attribute, or of several crossed."""

    crossing: tuple[str, ...]
    cells: tuple[Cell, ...]
    reference: str | None
    alpha: float
    n_resamples: int
    seed: int
    rows: WindowRows | None
    warnings: tuple[str, ...]

    def findings(self, metric: Metric, counts: TableCounts | ScoreCounts | None) -> list[Finding]:
        """Findings of one metric, or one finding with the reason why it is not tested."""
        reason = _untestable(metric, self.crossing, self.cells)
        if reason is not None or counts is None:
            return [self._not_tested(metric, reason or "The window is empty.")]
        data: dict[str, Any] = {"counts": counts}
        warnings = self.warnings
        if self.rows is not None:
            data, warnings = self.rows.arguments(self.crossing, metric)
        comparisons = permutation_test(
            **data,
            metrics=metric.name,
            reference=self.reference,
            alpha=self.alpha,
            n_resamples=self.n_resamples,
            seed=self.seed,
            progress=False,
        )
        return [self._finding(comparison, warnings) for comparison in comparisons]

    def _finding(self, comparison: Comparison, warnings: tuple[str, ...]) -> Finding:
        metric, effect = METRICS[comparison.metric], comparison.effect
        assert comparison.other is not None, "a window has no continuous attribute"
        groups = comparison.group, comparison.other
        names = groups[0].name, groups[1].name
        if effect is not None:
            # In a window, decision 1 is the favourable one.
            direction = metric.direction(names, effect, FAVOURABLE)
            comparison = replace(comparison, direction=direction)
        return Finding(
            audit="permutation",
            question=comparison.question,
            attributes=self.crossing,
            groups=names,
            metric=comparison.metric,
            rows={group.name: group.rows for group in groups},
            unknown=comparison.missing.unknown,
            effect=effect,
            interval=comparison.interval,
            range=comparison.missing.effect_range,
            unit=metric.unit,
            direction=comparison.direction,
            disadvantaged=None if effect is None else metric.disadvantaged(names, effect),
            sentences=_sentences(comparison),
            statistic=comparison.statistic,
            p_value=comparison.p_value,
            p_value_kind=comparison.p_value_kind,
            alpha=self.alpha,
            smallest_detectable_effect=comparison.smallest_detectable_effect,
            reason=comparison.reason,
            warnings=(
                *comparison.warnings,
                *filter(None, [comparison.disagreement]),
                *warnings,
            ),
            seed=comparison.seed,
            evidence=comparison.to_dict(),
        )

    @property
    def _unknown(self) -> Unknowns:
        return Unknowns.of_cells(crossed_name(self.crossing), self.cells)

    def _not_tested(self, metric: Metric, reason: str) -> Finding:
        return Finding(
            audit="permutation",
            question=f"is the {metric.description} the same for all groups?",
            attributes=self.crossing,
            groups=(),
            metric=metric.name,
            rows={},
            unknown=self._unknown,
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


def _sentences(comparison: Comparison) -> tuple[str, ...]:
    """Direction and values of the effect, and what unknown groups and labels leave open."""
    if comparison.sentence is None:
        return ()
    return (f"{comparison.sentence}.", *comparison.missing.sentences)


def _references(
    reference: Reference, crossings: Sequence[tuple[str, ...]], window: Window
) -> dict[str, str]:
    """Reference group by attribute; a single name refers to the attributes with such a group."""
    requested = [crossed_name(crossing) for crossing in crossings]
    if isinstance(reference, Mapping):
        if unknown := [name for name in reference if name not in requested]:
            raise AuditInputError(
                f"reference: {', '.join(unknown)} is not requested by `by`; choose from "
                f"{', '.join(requested)}"
            )
        return {name: str(group) for name, group in reference.items()}
    matching = [name for name in requested if reference in window.attributes.get(name, ())]
    if reference is not None and not matching:
        raise AuditInputError(f"reference: {reference!r} is not a group of {', '.join(requested)}")
    return dict.fromkeys(matching, str(reference))


def _untestable(metric: Metric, crossing: tuple[str, ...], cells: Sequence[Cell]) -> str | None:
    """The reason why a metric cannot be tested; None if it can."""
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
