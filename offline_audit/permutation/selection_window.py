"""Findings of the selection table and the scoring table of a window, from its counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offline_audit.coverage import Unknowns
from offline_audit.errors import AuditInputError
from offline_audit.finding import Finding
from offline_audit.groups import By, crossed_name, requested_attributes, too_few_groups
from offline_audit.permutation.counts import TableCounts
from offline_audit.permutation.impact import SelectionRow
from offline_audit.permutation.metrics import FAVOURABLE, METRICS
from offline_audit.permutation.result import Comparison
from offline_audit.permutation.selection import SelectionTable, table_of
from offline_audit.permutation.sources import TableSource
from offline_audit.permutation.test import permutation_test
from offline_audit.permutation.window_rows import WindowRows, copies_warning
from offline_audit.progress import Progress, reporting
from offline_audit.rendering import are, compared, count
from offline_audit.window.counts import Cell
from offline_audit.window.window import Window

__all__ = ["findings"]

_CONFIDENCE = 0.95
_RATES = ("selection_rate", "scoring_rate")
_WORDS = {"selection_rate": FAVOURABLE[0], "scoring_rate": "scores above the median"}


def findings(
    window: Window,
    by: By = None,
    *,
    model: Any = None,  # noqa: ARG001 - all adapters have one signature
    metrics: str | Sequence[str] = _RATES,
    alpha: float = 0.05,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> list[Finding]:
    """Compare each group with the group that has the highest rate, as bias audits do.

    One finding for each group but the highest: the difference of the rates, with its p-value, and
    the impact ratio with its interval. The highest rate is picked from the data, so p-values and
    intervals of differences are corrected for the number of groups (Bonferroni). The evidence is
    the table of `selection_table`, or of `scoring_table`.

    Args:
        window: Window with outcomes, which contain the groups.
        by: Protected attributes; a tuple crosses its attributes. None for every attribute by
            itself.
        model: Not used; the log contains decisions and scores.
        metrics: `selection_rate`, the share that gets the favourable decision; `scoring_rate`, the
            share whose score for the favourable decision is above the median of the window; or
            both.
        alpha: Significance level.
        seed: Seed of the permutations of people, if the log records them; others are enumerated.
        progress: Function that is called with the current task, the steps done and the total;
            True for a progress bar, False for none, None for a bar if stderr is a terminal.

    Raises:
        AuditInputError: A metric is unknown, or the favourable decision changed within the window.
        UnknownColumnError: An attribute is unknown.
    """
    requested = [metrics] if isinstance(metrics, str) else list(metrics)
    if not requested or not set(requested) <= set(_RATES):
        raise AuditInputError(f"metrics: choose one or both of {', '.join(_RATES)}")
    crossings = requested_attributes(by, list(window.attributes))
    results: list[Finding] = []
    attributes = sorted({name for crossing in crossings for name in crossing})
    people = None
    if window.has_subjects:
        people = WindowRows.read(window, attributes, window.facts)
    copies = () if people is not None else copies_warning(window, attributes)
    steps = len(requested) * len(crossings)
    with reporting(progress, steps) if steps else nullcontext() as reporter:
        for metric in requested:
            cells, median = _cells(window, crossings, metric)
            for crossing in crossings:
                if reporter is not None:
                    reporter.doing(f"{metric} by {crossed_name(crossing)}")
                own = [cell for cell in cells if cell.attributes == crossing]
                test = _TableTest(metric, crossing, own, median, people, copies, alpha, seed)
                results += test.findings()
                if reporter is not None:
                    reporter.step()
    window.record(results)
    return results


def _cells(
    window: Window, crossings: list[tuple[str, ...]], metric: str
) -> tuple[list[Cell], float | None]:
    """Cells in which decision 1 is the favourable one, or a score above the median."""
    favourable = window.facts.favourable
    if metric == "scoring_rate":
        median = window.median_score()
        if median is None:
            return [], None
        # The score is that of class 1.
        counts = window.counts_above(median, crossings, reverse=favourable == 0)
        return list(counts.cells), median if favourable == 1 else 1 - median
    cells = list(window.counts(crossings).cells)
    if favourable == 1:
        return cells, None
    flipped = [None if cell.decision is None else 1 - cell.decision for cell in cells]
    return [replace(c, decision=d) for c, d in zip(cells, flipped, strict=True)], None


@dataclass(frozen=True, slots=True)
class _TableTest:
    """The table of one attribute or crossing, and the tests of its groups."""

    metric: str
    crossing: tuple[str, ...]
    cells: list[Cell]
    median: float | None
    people: WindowRows | None
    copies: tuple[str, ...]
    alpha: float
    seed: int

    def findings(self) -> Iterator[Finding]:
        """Findings of all groups but the highest, or one with the reason why there are none."""
        known = {cell.groups for cell in self.cells if None not in cell.groups}
        reason = too_few_groups([crossed_name(map(str, names)) for names in known], self.crossing)
        decided = [cell for cell in self.cells if cell.decision is not None and cell.rows]
        if not decided and (reason is None or not self.cells):
            what = "score" if self.metric == "scoring_rate" else "decision"
            reason = f"No prediction of the window has a {what}."
        if reason is not None:
            yield self._not_tested(reason)
            return
        source = TableSource(TableCounts.from_cells(self.cells).groups, ())
        table = table_of(source, _CONFIDENCE, self.median)
        best = next((row for row in table.table if row.best), None)
        if best is None:
            yield self._not_tested(f"No group {_WORDS[self.metric]}, so there are no ratios.")
            return
        groups = [row for row in table.table if row.group is not None and not row.best]
        for row in groups:
            yield self._finding(table, row, best, tests=len(groups))

    def _finding(
        self, table: SelectionTable, row: SelectionRow, best: SelectionRow, tests: int
    ) -> Finding:
        names = str(row.group), str(best.group)
        hidden = next((r for r in table.table if r.group is None), None)
        own: tuple[str, ...] = self.copies
        if self.people is None:
            comparison = _compared(row, best, hidden, self.alpha, tests)
        else:
            comparison, own = self._of_people(self.people, names, tests)
        effect = comparison.effect
        direction = None
        if effect is not None:
            more = "less" if effect < 0 else "more" if effect > 0 else "as"
            than = "as" if effect == 0 else "than"
            direction = f"{names[0]} {_WORDS[self.metric]} {more} often {than} {names[1]}"
        p = comparison.p_value
        return Finding(
            audit="selection",
            question=f"is the {self.metric.replace('_', ' ')} of {names[0]} as high as that of "
            f"{names[1]}, the highest?",
            attributes=self.crossing,
            groups=names,
            metric=self.metric,
            rows={str(r.group): r.rows for r in (row, best)},
            unknown=table.unknown,
            effect=effect,
            interval=comparison.interval,
            range=comparison.missing.effect_range,
            unit="rate",
            direction=direction,
            disadvantaged=None if not effect else names[0] if effect < 0 else names[1],
            sentences=() if effect is None else _sentences(str(direction), table, row, comparison),
            statistic=comparison.statistic,
            p_value=None if p is None else min(tests * p, 1.0),
            p_value_kind=comparison.p_value_kind,
            alpha=self.alpha,
            smallest_detectable_effect=comparison.smallest_detectable_effect,
            reason=comparison.reason,
            warnings=(
                *table.warnings,
                *comparison.warnings,
                *_excluded(table, row, self.crossing),
                *own,
            ),
            seed=self.seed,
            evidence=table.to_dict(),
        )

    def _of_people(
        self, people: WindowRows, names: tuple[str, str], tests: int
    ) -> tuple[Comparison, tuple[str, ...]]:
        """Test of two groups in which the rows of a person are taken together, and warnings."""
        data, warnings = people.arguments(self.crossing, METRICS["selection_rate"])
        (groups,) = data["groups"].values()
        if self.median is not None:
            above = people.scores > self.median
            data["decisions"] = np.where(np.isnan(people.scores), np.nan, above)
        # Named by their order, which is that of the comparison.
        order = {names[0]: "1", names[1]: "2", None: None}
        chosen = np.array([group in order for group in groups], bool)
        data["groups"] = {self.attribute: [order[group] for group in groups[chosen]]}
        data |= {name: data[name][chosen] for name in ("decisions", "units")}
        comparison = permutation_test(
            **{name: data[name] for name in ("groups", "decisions", "units")},
            metrics="selection_rate",
            alpha=self.alpha / tests,
            confidence_level=1 - (1 - _CONFIDENCE) / tests,
            seed=self.seed,
            progress=False,
        )[0]
        rows = (
            "Rows of one person are taken together in p-value and interval of the difference; the "
            "interval of the impact ratio counts rows, and is too narrow if people have several."
        )
        return comparison, (*warnings, rows)

    @property
    def attribute(self) -> str:
        """Name of the attribute or crossing."""
        return crossed_name(self.crossing)

    def _not_tested(self, reason: str) -> Finding:
        rate = self.metric.replace("_", " ")
        return Finding(
            audit="selection",
            question=f"is the {rate} of all groups as high as the highest?",
            attributes=self.crossing,
            groups=(),
            metric=self.metric,
            rows={},
            unknown=Unknowns.of_cells(crossed_name(self.crossing), self.cells),
            effect=None,
            interval=None,
            unit="rate",
            statistic=None,
            p_value=None,
            alpha=self.alpha,
            smallest_detectable_effect=None,
            reason=reason,
            seed=self.seed,
            evidence={},
        )


def _compared(
    row: SelectionRow, best: SelectionRow, hidden: SelectionRow | None, alpha: float, tests: int
) -> Comparison:
    """Test of two groups at levels that are divided by the number of tests."""
    # Named by their order, which is that of the comparison.
    counts = {
        name: {(None, 1): r.selected, (None, 0): r.rows - r.selected}
        for name, r in (("1", row), ("2", best), (None, hidden))
        if r is not None
    }
    return permutation_test(
        counts=TableCounts.from_mapping(counts),
        metrics="selection_rate",
        alpha=alpha / tests,
        confidence_level=1 - (1 - _CONFIDENCE) / tests,
    )[0]


def _sentences(
    direction: str, table: SelectionTable, row: SelectionRow, comparison: Comparison
) -> tuple[str, ...]:
    """The difference of the rates, and the impact ratio."""
    assert comparison.other is not None
    values = (comparison.group.estimate or 0.0, comparison.other.estimate or 0.0)
    difference = compared(values, comparison.interval, unit="rate")
    return f"{direction}: {difference}.", f"Impact ratio {table.ratio_in_words(row)}."


def _excluded(
    table: SelectionTable, row: SelectionRow, crossing: tuple[str, ...]
) -> tuple[str, ...]:
    """Warnings about predictions and groups that are not in the ratios."""
    name = crossed_name(crossing)
    what = "selection" if table.median is None else "scoring"
    unknown = [r.rows for r in table.table if r.group is None]
    warnings = [
        f"{count(rows, 'prediction')} with an unknown group of {name} {are(rows)} not included in "
        f"the ratios of {what} rates."
        for rows in unknown
    ]
    if table.undecided:
        missing = "decision" if table.median is None else "score"
        verb = are(table.undecided)
        text = f"{count(table.undecided, 'prediction')} without a {missing} {verb} excluded."
        warnings.append(text)
    if row.small:
        warnings.append(
            f"{row.group} has less than 2% of the data; an audit under Local Law 144 may exclude "
            "its ratio."
        )
    return tuple(warnings)
