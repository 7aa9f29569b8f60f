"""The transparency report: differences between flipped rows and their counterparts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.fliptest.feature_changes import (
    Decide,
    FeatureChange,
    WeightedFlips,
    feature_change,
    with_undone,
)
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.maps.columns import Columns
from offline_audit.rendering import TextTable, count, json_ready, percent, some, to_html, to_text

__all__ = ["TransparencyReport", "transparency_report"]

Float = NDArray[np.float64]

_MAX_VARIABLES = 10
# Features that a summary names.
_MAIN_FEATURES = 3
_NAME_WIDTH = 20
_HEADER = ("variable", "SD diff", "interval", "raw diff", "sign", "interval")
_SIDE_TEXT: dict[Side, str] = {
    "advantaged": "have the favourable decision, but their counterparts do not",
    "disadvantaged": "do not have the favourable decision, but their counterparts do",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransparencyReport:
    """Features that may explain the flips of one side (Definition 2 of the paper).

    The paper's rankings by magnitude and consistency show which variables differ in flips. A
    variable that differs between the groups for everyone ranks high in both, whether the model
    uses it or not. The share of undone flips shows on which single variables the decision
    depends.

    Attributes:
        side: Side of the flipset.
        group: Number of people in the group.
        people: Number of people with a flip for at least one counterpart; None if suppressed.
        members: Number of people with a flip for at least half of the counterparts; None if
            suppressed.
        share: Share of the group that flips, counterparts weighted; None if suppressed.
        features: Changes, ranked by undone flips if the model was called, else by magnitude;
            empty if suppressed.
        asked: Number of flips on which the model decided again.
        undone_by_none: Share of those that no single variable undoes; None if the model was not
            called.
        reason: Why there are no figures; None if there are.
        confidence_level: Confidence level of the intervals.
        smallest_cell: Figures of fewer people are suppressed.
        seed: Seed of the sample of flips on which the model decided again.
    """

    side: Side
    group: int
    people: int | None
    members: int | None
    share: float | None
    features: tuple[FeatureChange, ...]
    asked: int
    undone_by_none: float | None
    reason: str | None
    confidence_level: float
    smallest_cell: int
    seed: int

    @property
    def by_magnitude(self) -> tuple[FeatureChange, ...]:
        """Changes ranked by absolute mean difference."""
        return tuple(sorted(self.features, key=lambda change: -abs(change.magnitude)))

    @property
    def by_consistency(self) -> tuple[FeatureChange, ...]:
        """Changes ranked by absolute consistency."""
        return tuple(sorted(self.by_magnitude, key=lambda change: -abs(change.consistency)))

    @property
    def by_undoing(self) -> tuple[FeatureChange, ...]:
        """Changes ranked by undone flips; empty if the model was not called."""
        decided = [change for change in self.by_magnitude if change.undone is not None]
        return tuple(sorted(decided, key=lambda change: -(change.undone or 0.0)))

    @property
    def main_features(self) -> tuple[FeatureChange, ...]:
        """The first features, without those that undo no flip if the model was called."""
        features = self.features[:_MAIN_FEATURES]
        return tuple(f for f in features if f.undone is None or f.undone > 0)

    def of(self, name: str) -> FeatureChange:
        """Change of one variable.

        Raises:
            KeyError: No such variable.
        """
        return {change.name: change for change in self.features}[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data: dict[str, Any] = json_ready(self)
        for ranking in ("by_magnitude", "by_consistency", "by_undoing"):
            data[ranking] = [change.name for change in getattr(self, ranking)]
        return data

    def __str__(self) -> str:
        return to_text(_title(self), _table(self), _notes(self))

    def _repr_html_(self) -> str:
        return to_html(_title(self), _table(self), _notes(self))


def transparency_report(
    flipset: Flipset,
    side: Side,
    columns: Columns,
    scale: Float,
    decide: Decide | None,
    *,
    smallest_cell: int = 10,
    confidence_level: float = 0.95,
    max_rows: int = 20_000,
    seed: int = 0,
) -> TransparencyReport:
    """Compare flipped rows with their counterparts, variable by variable.

    If people have several counterparts, each counts for its part, and intervals treat the person
    as the sampling unit. Intervals do not include the error of the map.

    Args:
        flipset: Rows and their counterparts.
        side: Side of the flipset.
        columns: Description of the columns.
        scale: Standard deviation of each column, `[d]`; the columns of a category share one, as in
            `offline_audit.maps.columns.Scaling`.
        decide: Model that decides which variables undo a flip; None if it is not available.
        smallest_cell: Smallest number of flipped people for which figures are reported.
        confidence_level: Confidence level of the intervals.
        max_rows: Largest number of flips on which the model decides, once per variable.
        seed: Seed of the sample of flips, if there are more.

    Raises:
        AuditInputError: Shapes do not match, or the model returns invalid decisions.
    """
    if flipset.features.shape[1] != len(columns) or np.shape(scale) != (len(columns),):
        raise AuditInputError(
            f"columns: {len(columns)} columns are described, but features have "
            f"{flipset.features.shape[1]} columns and scale has shape {np.shape(scale)}"
        )
    flips = WeightedFlips.of(flipset, side)
    people, members = len(flips.weights), int(flipset.members(side).sum())
    suppressed = 0 < people < smallest_cell
    reason = f"fewer than {smallest_cell} people with {side} flips" if suppressed else None
    reason = reason if people else f"no {side} flips"
    report = TransparencyReport(
        side=side,
        group=len(flipset),
        people=None if suppressed else people,
        members=None if suppressed or 0 < members < smallest_cell else members,
        share=None if suppressed else flipset.share(side) if people else 0.0,
        features=(),
        asked=0,
        undone_by_none=None,
        reason=reason,
        confidence_level=confidence_level,
        smallest_cell=smallest_cell,
        seed=seed,
    )
    if reason is not None:
        return report
    # A constant column differs nowhere; any scale above zero gives a magnitude of zero.
    scale = np.where(scale > 0, scale, 1.0)
    changes = [
        feature_change(flips, variable, scale, confidence_level, smallest_cell)
        for variable in columns.variables
    ]
    report = replace(report, features=tuple(changes))
    if decide is not None:
        order = np.random.default_rng(seed).permutation(len(flips.owner))
        sample = flips.take(np.sort(order[:max_rows]))
        updated, none = with_undone(changes, sample, side, columns, decide, confidence_level)
        report = replace(report, features=updated, asked=len(sample.owner), undone_by_none=none)
    undecided = tuple(change for change in report.by_magnitude if change.undone is None)
    return replace(report, features=(*report.by_undoing, *undecided))


def _title(report: TransparencyReport) -> str:
    people = (
        f"fewer than {report.smallest_cell} people"
        if report.people is None
        else f"{percent(report.share)} of the group ({count(report.people, 'person', 'people')} "
        "with at least one flip)"
    )
    return f"{report.side.capitalize()}: {people} {_SIDE_TEXT[report.side]}"


def _table(report: TransparencyReport) -> TextTable | None:
    changes = [change for change in report.features if change.changed > 0][:_MAX_VARIABLES]
    if not changes:
        return None
    if not report.asked:
        return TextTable(header=_HEADER, rows=tuple(map(_cells, changes)))
    rows = tuple((*_cells(change), *_undone_cells(change)) for change in changes)
    return TextTable(header=(*_HEADER, "undone", "interval"), rows=rows)


def _cells(change: FeatureChange) -> tuple[str, ...]:
    name = change.name
    # The magnitude of a category has no sign.
    number = "{:.2f}" if change.kind == "category" else "{:+.2f}"
    return (
        name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…",
        number.format(change.magnitude),
        f"{number} to {number}".format(*change.magnitude_interval),
        "–" if change.difference is None else f"{change.difference:+.3g}",
        f"{change.consistency:+.2f}",
        "{:+.2f} to {:+.2f}".format(*change.consistency_interval),
    )


def _undone_cells(change: FeatureChange) -> tuple[str, str]:
    if change.undone is None or change.undone_interval is None:
        return "–", "–"
    low, high = change.undone_interval
    return f"{100 * change.undone:.0f}%", f"{100 * low:.0f} to {100 * high:.0f}%"


def _notes(report: TransparencyReport) -> list[str]:
    if report.reason is not None:
        return [f"No table: {report.reason}."]
    notes = []
    if report.members is not None and report.members != report.people:
        notes.append(f"{report.members:,} flip for at least half of their counterparts.")
    notes.append(
        "Mean of own value minus counterpart's value, and of its sign (±1: all differences have "
        f"one sign); {100 * report.confidence_level:g}% intervals, for this map."
    )
    if report.asked:
        notes.append(
            "Undone: flips that disappear if this variable alone is set back to the person's own "
            f"value. {percent(report.undone_by_none)} of {report.asked:,} flips are not undone by "
            "any single variable."
        )
    failures = sum(change.unanswered for change in report.features)
    if failures:
        notes.append(f"Excluded: {count(failures, 'decision')} that the model did not return.")
    changed = [change for change in report.features if change.changed > 0]
    notes += [_shift_note(change) for change in changed[:_MAX_VARIABLES] if change.shifts]
    if len(changed) > _MAX_VARIABLES:
        hidden = len(changed) - _MAX_VARIABLES
        notes.append(f"Not listed: {count(hidden, 'more variable')} that differ in flips.")
    constant = [change.name for change in report.features if not change.changed]
    return [*notes, f"Equal in all flips: {some(constant, 8)}."] if constant else notes


def _shift_note(change: FeatureChange) -> str:
    shifts = ", ".join(f"{s.name} {100 * s.difference:+.1f}" for s in change.shifts[:4])
    note = f"{change.name}, difference from counterparts in percentage points: {shifts}."
    if change.commonest is None:
        return note
    pair = " → ".join(change.commonest)
    return f"{note} Most frequent change: {pair}, in {percent(change.commonest_share)} of flips."
