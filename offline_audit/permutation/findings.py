"""From a window's counts to findings of the permutation test; no row is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from offline_audit.correction import Correction
from offline_audit.errors import AuditInputError
from offline_audit.finding import Finding, Findings
from offline_audit.group_counts import Cell
from offline_audit.permutation.counts import TableCounts
from offline_audit.permutation.metrics import Metric, metric_named
from offline_audit.permutation.outcome import Comparison
from offline_audit.permutation.pairs import Reference
from offline_audit.permutation.run import permutation_test
from offline_audit.permutation.score_counts import ScoreCounts
from offline_audit.score_histogram import ScoreBars, ScoreHistogram
from offline_audit.window import Window
from offline_audit.window_facts import WindowFacts, computed_by

__all__ = ["DEFAULT_METRICS", "permutation_findings"]

DEFAULT_METRICS = ("selection_rate", "tpr", "fpr", "ppv", "calibration_gap", "auc")
# Of scores: each moves a mean by at most a thousandth.
_BINS = 1_000


def permutation_findings(
    window: Window,
    metrics: Sequence[str] = DEFAULT_METRICS,
    by: Sequence[str | tuple[str, ...]] | None = None,
    *,
    reference: Reference = None,
    correction: Correction = "bh",
    level: float = 0.05,
    draws: int = 10_000,
    seed: int = 0,
) -> Findings:
    """Compare groups of a window by metrics, each group with all others or with a reference.

    The favourable decision, and the favourable label, count as positive. Rates are tested on
    counts, means and AUC on scores in 1,000 bins; crossed attributes on rates only.

    Args:
        window: With outcomes, or nobody's group is known.
        metrics: Names of `METRICS`.
        by: Protected attributes; tuples of them are crossed. None for every attribute on its own.
        reference: The group that others are compared with, by attribute.
        correction: How the number of tests is allowed for.
        level: At which a difference is called.
        draws: Rearrangements, where not all can be enumerated.
        seed: Of the draws.

    Raises:
        AuditInputError: There is no such metric or reference, or the favourable decision changed.
        UnknownColumnError: There is no such attribute.
    """
    asked = [metric_named(name) for name in metrics]
    crossings = [(a,) if isinstance(a, str) else tuple(a) for a in by or window.attributes]
    facts = WindowFacts.of(window.provenance)
    references = _references(reference, crossings, window)
    counts = window.counts(crossings)
    found: list[Finding] = []
    for crossing in crossings:
        cells = [_positive(cell, facts) for cell in counts.of(*crossing).cells]
        test = _Test(crossing, references.get(" × ".join(crossing)), draws, seed)
        rates = [metric for metric in asked if metric.kind == "rate"]
        found += test.findings(rates, TableCounts.from_cells(cells) if cells else None, cells)
        others = [metric for metric in asked if metric.kind != "rate"]
        if others and len(crossing) == 1:
            histogram = _positive_bars(window.score_histogram(crossing[0], _BINS), facts)
            scores = ScoreCounts.from_histogram(histogram) if histogram.bars else None
            found += test.findings(others, scores, cells)
    return Findings.corrected(
        found, correction=correction, level=level, window=facts, versions=computed_by()
    )


class _Test:
    """The tests of one attribute, or of several crossed."""

    def __init__(
        self, crossing: tuple[str, ...], reference: str | None, draws: int, seed: int
    ) -> None:
        self._crossing, self._reference = crossing, reference
        self._draws, self._seed = draws, seed

    def findings(
        self,
        metrics: Sequence[Metric],
        counts: TableCounts | ScoreCounts | None,
        cells: Sequence[Cell],
    ) -> Iterator[Finding]:
        for metric in metrics:
            reason = _untestable(metric, cells)
            if reason is not None or counts is None:
                yield self._not_tested(metric, reason or "The window is empty.")
                continue
            for comparison in permutation_test(
                metric.name,
                counts=counts,
                reference=self._reference,
                draws=self._draws,
                seed=self._seed,
            ):
                yield self._finding(comparison)

    def _finding(self, found: Comparison) -> Finding:
        sides = [side for side in (found.group, found.other) if side is not None]
        return Finding(
            audit="permutation",
            question=found.question,
            attributes=self._crossing,
            groups=tuple(side.name for side in sides),
            metric=found.metric,
            rows={side.name: side.rows for side in sides},
            effect=found.effect,
            interval=found.interval,
            statistic=found.statistic,
            p_value=found.p_value,
            detectable=found.smallest_detectable,
            reason=found.reason,
            warnings=found.warnings,
            seed=found.seed,
            evidence=found.to_dict(),
        )

    def _not_tested(self, metric: Metric, reason: str) -> Finding:
        return Finding(
            audit="permutation",
            question=f"is the {metric.words} the same for all groups?",
            attributes=self._crossing,
            groups=(),
            metric=metric.name,
            rows={},
            effect=None,
            interval=None,
            statistic=None,
            p_value=None,
            detectable=None,
            reason=reason,
            seed=self._seed,
            evidence={},
        )


def _references(
    reference: Reference, crossings: Sequence[tuple[str, ...]], window: Window
) -> dict[str, str]:
    """The group to compare with, by attribute; one name is of whichever attribute has it."""
    asked = [" × ".join(crossing) for crossing in crossings]
    if isinstance(reference, Mapping):
        if strangers := [name for name in reference if name not in asked]:
            raise AuditInputError(
                f"reference: {', '.join(strangers)} not asked for; there is {', '.join(asked)}"
            )
        return {name: str(group) for name, group in reference.items()}
    having = [name for name in asked if reference in window.attributes.get(name, ())]
    if reference is not None and not having:
        raise AuditInputError(f"reference: no group {reference!r} of {', '.join(asked)}")
    return dict.fromkeys(having, str(reference))


def _untestable(metric: Metric, cells: Sequence[Cell]) -> str | None:
    """Why a metric cannot be compared at all."""
    known = {cell.groups for cell in cells if None not in cell.groups}
    if len(known) < 2:
        only = f"only {' × '.join(map(str, *known))} is" if known else "none is"
        return f"Two groups are needed, and {only} known in the window."
    if metric.needs_labels and all(cell.label is None for cell in cells):
        return "No prediction of the window has a label."
    return None


def _positive(cell: Cell, facts: WindowFacts) -> Cell:
    """A cell in which 1 is favourable."""
    if facts.favourable == 1:
        return cell
    label, decision = (None if v is None else 1 - v for v in (cell.label, cell.decision))
    return replace(cell, label=label, decision=decision)


def _positive_bars(histogram: ScoreHistogram, facts: WindowFacts) -> ScoreHistogram:
    """Scores of the favourable class."""
    if facts.favourable == 1:
        return histogram
    return replace(histogram, bars=tuple(map(_turned, histogram.bars)))


def _turned(bars: ScoreBars) -> ScoreBars:
    label, decision = (None if v is None else 1 - v for v in (bars.label, bars.decision))
    return replace(bars, label=label, decision=decision, counts=bars.counts[::-1])
