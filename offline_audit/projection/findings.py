"""From a window to findings of the projection test, which needs rows: four columns of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc

from monitor.traffic.columns import group_column
from offline_audit.correction import Correction
from offline_audit.finding import Finding, Findings
from offline_audit.plain_words import are, count
from offline_audit.projection.criteria import CRITERIA, Criterion
from offline_audit.projection.result import ProjectionResult
from offline_audit.projection.run import projection_test
from offline_audit.window import Window
from offline_audit.window_facts import WindowFacts, computed_by

__all__ = ["projection_findings"]

_UNKNOWN = -1
_BATCH = 1_000_000


def projection_findings(
    window: Window,
    criteria: Sequence[Criterion] = ("statistical_parity", "equalized_odds"),
    by: Sequence[str | tuple[str, ...]] | None = None,
    *,
    tolerance: float = 0.0,
    correction: Correction = "bh",
    level: float = 0.05,
) -> Findings:
    """How far are a window's decisions from fair, and whom would the smallest fair change move?

    The favourable decision, and the favourable label, count as 1. Distances are the log's
    `boundary_distance`, to first order.

    Args:
        window: With outcomes, or nobody's group is known.
        criteria: What must agree between groups.
        by: Protected attributes, each tested on its own; those of a tuple at once. None for every
            attribute on its own.
        tolerance: Gaps up to this count as fair.
        correction: How the number of tests is allowed for.
        level: At which unfairness is called.

    Raises:
        AuditInputError: There is no such criterion, or the favourable decision changed.
        UnknownColumnError: There is no such attribute.
    """
    facts = WindowFacts.of(window.provenance)
    together = [(a,) if isinstance(a, str) else tuple(a) for a in by or window.attributes]
    rows = _Rows.read(window, sorted({a for attributes in together for a in attributes}), facts)
    found = [
        _tested(rows, attributes, criterion, tolerance)
        for attributes in together
        for criterion in criteria
    ]
    return Findings.corrected(
        found, correction=correction, level=level, window=facts, versions=computed_by()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Predictions with a decision and a distance.

    Attributes:
        decisions: 1 for the favourable one, `[n]`.
        distances: To the decision boundary, `[n]`.
        labels: 1 for the favourable one, NaN where it is not known, `[n]`.
        groups: By attribute, None where it is not known, `[n]` each.
        left_out: Predictions without a decision or a distance.
    """

    decisions: NDArray[np.int8]
    distances: NDArray[np.float32]
    labels: NDArray[np.float32]
    groups: dict[str, NDArray[np.object_]]
    left_out: int

    @classmethod
    def read(cls, window: Window, attributes: Sequence[str], facts: WindowFacts) -> _Rows:
        columns = [group_column(attribute) for attribute in attributes]
        wanted = ["decision", "boundary_distance", "label", *columns]
        parts: list[list[NDArray[np.generic]]] = [[] for _ in wanted]
        total = 0
        for batch in window.batches(wanted, _BATCH):
            total += len(batch)
            for part, values in zip(parts, _arrays(batch, attributes, window, facts), strict=True):
                part.append(values)
        joined = [np.concatenate(part) if part else np.empty(0) for part in parts]
        decisions, distances, labels, *codes = joined
        names = (np.array([*window.attributes[a], None], object) for a in attributes)
        return cls(
            decisions=decisions.astype(np.int8),
            distances=distances.astype(np.float32),
            labels=np.where(labels == _UNKNOWN, np.nan, labels).astype(np.float32),
            groups={a: n[c.astype(int)] for a, n, c in zip(attributes, names, codes, strict=True)},
            left_out=total - len(decisions),
        )


def _arrays(
    batch: pa.RecordBatch, attributes: Sequence[str], window: Window, facts: WindowFacts
) -> Iterator[NDArray[np.generic]]:
    """Decisions, distances, labels and codes of groups, of rows that have the first two."""
    there = pc.and_(pc.is_valid(batch["decision"]), pc.is_valid(batch["boundary_distance"]))
    rows = batch.filter(there)
    decisions, labels = (
        pc.fill_null(rows[name].cast(pa.int8()), _UNKNOWN).to_numpy(zero_copy_only=False)
        for name in ("decision", "label")
    )
    if facts.favourable == 0:
        decisions, labels = 1 - decisions, np.where(labels == _UNKNOWN, _UNKNOWN, 1 - labels)
    yield decisions
    yield rows["boundary_distance"].to_numpy(zero_copy_only=False)
    yield labels
    for attribute in attributes:
        words = rows[group_column(attribute)].cast(pa.string())
        codes = pc.index_in(words, pa.array(window.attributes[attribute], pa.string()))
        yield pc.fill_null(codes, _UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int16)


def _tested(
    rows: _Rows,
    attributes: tuple[str, ...],
    criterion: Criterion,
    tolerance: float,
) -> Finding:
    groups = {attribute: rows.groups[attribute] for attribute in attributes}
    reason = _untestable(rows, groups, criterion)
    result = None
    if reason is None:
        result = projection_test(
            rows.decisions,
            rows.distances,
            groups,
            criterion=criterion,
            labels=None if criterion == "statistical_parity" else rows.labels,
            tolerance=tolerance,
        )
    return _finding(result, rows, attributes, criterion, reason)


def _untestable(
    rows: _Rows, groups: dict[str, NDArray[np.object_]], criterion: Criterion
) -> str | None:
    if not len(rows.decisions):
        return "No prediction of the window has a decision and a distance to the boundary."
    for attribute, found in groups.items():
        known = {name for name in dict.fromkeys(found.tolist()) if name is not None}
        if len(known) < 2:
            only = f"only {next(iter(known))} is" if known else "none is"
            return f"Two groups of {attribute} are needed, and {only} known in the window."
    if CRITERIA[criterion] != (None,) and np.isnan(rows.labels).all():
        return "No prediction of the window has a label."
    return None


def _finding(
    result: ProjectionResult | None,
    rows: _Rows,
    attributes: tuple[str, ...],
    criterion: Criterion,
    reason: str | None,
) -> Finding:
    largest = None
    if result is not None:
        reason = result.reason
        largest = max(result.effects, key=lambda effect: abs(effect.gap), default=None)
    sizes: dict[str, int] = {}
    for each in result.counts if result is not None else ():
        name = each.group if len(attributes) == 1 else f"{each.attribute}: {each.group}"
        sizes[name] = sizes.get(name, 0) + each.rows
    return Finding(
        audit="projection",
        question=f"are decisions fair by {criterion.replace('_', ' ')}, and if not, what is the "
        "smallest change that would make them so?",
        attributes=attributes,
        groups=() if largest is None else largest.groups,
        metric=criterion,
        rows=sizes,
        effect=None if largest is None else largest.gap,
        interval=None if largest is None else largest.interval,
        statistic=None if result is None else result.statistic,
        p_value=None if result is None else result.p_value,
        detectable=None if result is None else result.smallest_detectable_effect,
        reason=reason,
        warnings=_warnings(result, rows),
        seed=0,
        evidence={} if result is None else result.to_dict(),
    )


def _warnings(result: ProjectionResult | None, rows: _Rows) -> tuple[str, ...]:
    told = () if result is None else result.warnings
    if not rows.left_out:
        return told
    left_out = count(rows.left_out, "prediction")
    return (*told, f"{left_out} without a decision or a distance {are(rows.left_out)} left out.")
