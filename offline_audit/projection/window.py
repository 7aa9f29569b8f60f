"""Findings of the projection test of a window of the traffic log."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc

from monitor.traffic.columns import SUBJECT, group_column
from offline_audit.coverage import Unknowns
from offline_audit.criteria import CRITERIA, Criterion
from offline_audit.finding import Finding
from offline_audit.groups import (
    By,
    Crossing,
    crossed,
    requested_attributes,
    too_few_groups,
)
from offline_audit.progress import Progress, reporting
from offline_audit.projection.result import FAVOURABLE, ProjectionResult
from offline_audit.projection.test import projection_test
from offline_audit.rendering import are, count
from offline_audit.validation import UNKNOWN
from offline_audit.window.provenance import WindowFacts
from offline_audit.window.subjects import Subjects, with_one_group
from offline_audit.window.window import Window

__all__ = ["findings"]

# Rows per batch that is read from the window.
_BATCH = 1_000_000
_CRITERIA: tuple[Criterion, ...] = ("statistical_parity", "equalized_odds")


def findings(
    window: Window,
    by: By = None,
    *,
    criteria: Sequence[Criterion] = _CRITERIA,
    tolerance: float = 0.0,
    jointly: bool = False,
    alpha: float = 0.05,
    seed: int = 0,
    progress: Progress | bool | None = None,
    model: Any = None,
) -> list[Finding]:
    """Are the decisions of a window fair, and if not, what is the smallest fair change?

    The favourable decision and the favourable label count as 1. Distances are the logged
    `boundary_distance`, a first-order approximation.

    Args:
        window: Window with outcomes, which contain the groups.
        by: Protected attributes; a tuple is the crossing of its attributes. None: every attribute
            by itself.
        criteria: Fairness criteria, with one finding each.
        tolerance: Largest gap that counts as fair.
        jointly: Whether all entries of `by` are tested together, with one p-value, instead of
            separately.
        alpha: Significance level of the findings. Intervals always have 95% confidence.
        seed: Seed of the random generator.
        progress: Progress function; True for a bar, False for none, None for a bar on a terminal.
        model: Not used; the distances are in the log.

    Returns:
        Findings whose p-values are not corrected for the number of tests.

    Raises:
        AuditInputError: There is no such criterion, or the favourable decision changed within the
            window.
        UnknownColumnError: There is no such attribute in the window.
    """
    del model
    facts = window.facts
    requested = requested_attributes(by, list(window.attributes))
    rows = _Rows.read(window, sorted({name for names in requested for name in names}), facts)
    tests = [requested] if jointly else [[names] for names in requested]
    results = []
    with reporting(progress, len(tests) * len(criteria)) as reporter:
        for test in tests:
            for criterion in criteria:
                reporter.doing(f"projection test, {criterion.replace('_', ' ')}")
                results.append(_test(rows, test, criterion, tolerance, alpha=alpha, seed=seed))
                reporter.step()
    window.record(results)
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Predictions with a decision and a distance.

    Attributes:
        decisions: Decisions, 1 for the favourable one, `[n]`.
        distances: Distances to the decision boundary, `[n]`.
        labels: Labels, 1 for the favourable one, NaN if unknown, `[n]`.
        groups: Groups of each attribute.
        excluded: Number of predictions without a decision or a distance.
        unknown: Numbers of predictions of unknown group and without a label, excluded ones too.
        units: Person of each row, `[n]`; None if the log does not record people.
        unit_warnings: How many rows have no known person.
    """

    decisions: NDArray[np.int8]
    distances: NDArray[np.float32]
    labels: NDArray[np.float32]
    groups: dict[str, Crossing]
    excluded: int
    unknown: Unknowns
    units: NDArray[np.int64] | None = None
    unit_warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, window: Window, attributes: Sequence[str], facts: WindowFacts) -> _Rows:
        """Read the columns of the test from a window."""
        group_columns = [group_column(attribute) for attribute in attributes]
        columns = ["decision", "boundary_distance", "label", *group_columns]
        parts: list[list[NDArray[np.generic]]] = [[] for _ in columns]
        total, subjects = 0, Subjects() if window.has_subjects else None
        wanted = columns if subjects is None else [*columns, SUBJECT]
        for batch in window.batches(wanted, _BATCH):
            total += len(batch)
            if subjects is not None:
                subjects.add(batch.filter(_testable(batch))[SUBJECT])
            for part, values in zip(parts, _arrays(batch, attributes, window, facts), strict=True):
                part.append(values)
        joined = [np.concatenate(part) if part else np.empty(0) for part in parts]
        decisions, distances, labels, *codes = joined
        return cls(
            decisions=decisions.astype(np.int8),
            distances=distances.astype(np.float32),
            labels=np.where(labels == UNKNOWN, np.nan, labels).astype(np.float32),
            groups={
                name: Crossing(
                    attribute=name,
                    names=tuple(window.attributes[name]),
                    codes=part.astype(np.int64),
                )
                for name, part in zip(attributes, codes, strict=True)
            },
            excluded=total - len(decisions),
            units=None if subjects is None else subjects.units,
            unit_warnings=() if subjects is None else subjects.warnings,
            unknown=_unknowns(window, attributes),
        )

    def unknown_of(self, attributes: Sequence[str]) -> Unknowns:
        """Unknown groups of some attributes, and unknown labels."""
        return replace(
            self.unknown, groups={name: self.unknown.groups[name] for name in attributes}
        )

    def crossing(self, attributes: tuple[str, ...]) -> Crossing:
        """Groups of one attribute, or of the crossing of several."""
        if len(attributes) == 1:
            return self.groups[attributes[0]]
        return crossed([self.groups[name] for name in attributes])


def _unknowns(window: Window, attributes: Sequence[str]) -> Unknowns:
    facts = window.provenance.rows
    return Unknowns(
        rows=facts.rows,
        groups={name: facts.rows - facts.grouped.get(name, 0) for name in attributes},
        labels=facts.rows - facts.labelled,
    )


def _arrays(
    batch: pa.RecordBatch, attributes: Sequence[str], window: Window, facts: WindowFacts
) -> Iterator[NDArray[np.generic]]:
    """Decisions, distances, labels and group codes of rows with a decision and a distance."""
    rows = batch.filter(_testable(batch))
    decisions, labels = (
        pc.fill_null(rows[name].cast(pa.int8()), UNKNOWN).to_numpy(zero_copy_only=False)
        for name in ("decision", "label")
    )
    if facts.favourable == 0:
        decisions, labels = 1 - decisions, np.where(labels == UNKNOWN, UNKNOWN, 1 - labels)
    yield decisions
    yield rows["boundary_distance"].to_numpy(zero_copy_only=False)
    yield labels
    for attribute in attributes:
        names = rows[group_column(attribute)].cast(pa.string())
        codes = pc.index_in(names, pa.array(window.attributes[attribute], pa.string()))
        yield pc.fill_null(codes, UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int16)


def _testable(batch: pa.RecordBatch) -> pa.Array:
    """Rows with a decision and a distance."""
    return pc.and_(pc.is_valid(batch["decision"]), pc.is_valid(batch["boundary_distance"]))


def _test(
    rows: _Rows,
    requested: Sequence[tuple[str, ...]],
    criterion: Criterion,
    tolerance: float,
    *,
    alpha: float,
    seed: int,
) -> Finding:
    """The finding of one test: of one attribute or crossing, or of several jointly."""
    crossings = [rows.crossing(attributes) for attributes in requested]
    warnings = rows.unit_warnings
    if rows.units is not None:
        for index, crossing in enumerate(crossings):
            codes, own = with_one_group(rows.units, crossing.codes)
            crossings[index] = dataclasses.replace(crossing, codes=codes)
            warnings += own
    attributes = tuple(dict.fromkeys(name for names in requested for name in names))
    reason = _untestable(rows, crossings, criterion)
    result = None
    if reason is None:
        result = projection_test(
            groups={c.attribute: np.array([*c.names, None], object)[c.codes] for c in crossings},
            decisions=rows.decisions,
            distances=rows.distances,
            labels=None if criterion == "statistical_parity" else rows.labels,
            units=rows.units,
            criterion=criterion,
            tolerance=tolerance,
            seed=seed,
        )
    finding = _finding(result, rows, attributes, criterion, reason, alpha=alpha, seed=seed)
    return dataclasses.replace(finding, warnings=(*finding.warnings, *warnings))


def _untestable(rows: _Rows, crossings: Sequence[Crossing], criterion: Criterion) -> str | None:
    """Reason why no test is possible; None if one is."""
    if not len(rows.decisions):
        return "No prediction of the window has a decision and a distance to the boundary."
    for crossing in crossings:
        known = [crossing.names[code] for code in np.unique(crossing.codes) if code != UNKNOWN]
        if reason := too_few_groups(known, crossing.attribute):
            return reason
    if CRITERIA[criterion] != (None,) and np.isnan(rows.labels).all():
        return "No prediction of the window has a label."
    return None


def _finding(
    result: ProjectionResult | None,
    rows: _Rows,
    attributes: tuple[str, ...],
    criterion: Criterion,
    reason: str | None,
    *,
    alpha: float,
    seed: int,
) -> Finding:
    """The finding of a result, or of the reason why there is none."""
    largest = None
    if result is not None:
        reason = result.reason
        largest = max(result.effects, key=lambda effect: abs(effect.gap), default=None)
    sizes: dict[str, int] = {}
    for group in result.counts if result is not None else ():
        several = result is not None and len(result.attributes) > 1
        name = f"{group.attribute}: {group.group}" if several else group.group
        sizes[name] = sizes.get(name, 0) + group.rows
    return Finding(
        audit="projection",
        question=f"Are decisions fair by {criterion.replace('_', ' ')}, and if not, what is the "
        "smallest change that would make them fair?",
        attributes=attributes,
        groups=() if largest is None else largest.groups,
        metric=criterion,
        rows=sizes,
        unknown=rows.unknown_of(attributes),
        effect=None if largest is None else largest.gap,
        interval=None if largest is None else largest.interval,
        range=None if result is None or largest is None else result.range_of(largest),
        unit=None if largest is None else "rate",
        direction=None if largest is None else FAVOURABLE.direction(largest),
        disadvantaged=None if result is None else _disadvantaged(result),
        explanation=None if result is None else result.fair_change,
        sentences=() if result is None else _sentences(result),
        statistic=None if result is None else result.statistic,
        p_value=None if result is None else result.p_value,
        p_value_kind=None if result is None else result.p_value_kind,
        alpha=alpha,
        smallest_detectable_effect=None if result is None else result.smallest_detectable_effect,
        reason=reason,
        warnings=_warnings(result, rows),
        seed=seed,
        evidence={} if result is None else result.to_dict(),
    )


def _disadvantaged(result: ProjectionResult) -> str | None:
    """The group with the lower rate in the largest gap, if that gap is clear."""
    if not result.clear_gaps or result.clear_gaps[0].gap == 0:
        return None
    largest = result.clear_gaps[0]
    return largest.groups[0] if largest.gap < 0 else largest.groups[1]


def _sentences(result: ProjectionResult) -> tuple[str, ...]:
    """Who is behind, and the smallest fair change, where 1 is the favourable decision."""
    change = result.fair_change_sentence(FAVOURABLE)
    gaps = (*result.gap_sentences(FAVOURABLE), *result.range_sentences)
    return (*gaps, *([] if change is None else [change]))


def _warnings(result: ProjectionResult | None, rows: _Rows) -> tuple[str, ...]:
    """Warnings of the result and about excluded predictions."""
    warnings = () if result is None else result.warnings
    if not rows.excluded:
        return warnings
    excluded = count(rows.excluded, "prediction")
    verb = are(rows.excluded)
    return (*warnings, f"{excluded} without a decision or a distance {verb} excluded.")
