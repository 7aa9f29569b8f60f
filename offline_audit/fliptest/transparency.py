"""The transparency report: what differs between those who flip and their counterparts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.fliptest.feature_changes import (
    Decide,
    FeatureChange,
    feature_change,
    with_undoing,
)
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.fliptest.weighted_flips import WeightedFlips
from offline_audit.maps.columns import Columns
from offline_audit.rendering import TextTable, count, json_ready, percent, some, to_html, to_text

__all__ = ["TransparencyReport", "transparency_report"]

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransparencyReport:
    """What may lie behind the flips of one side (Definition 2 of the paper).

    The paper's two rankings tell what goes along with the flips; a variable that differs between
    the groups for everyone ranks high in both, whether the model looks at it or not. What is
    undone tells what the model's decision hangs on, one variable at a time.

    Attributes:
        side: Which flips.
        group: People of the group.
        people: With a flip for at least one of their counterparts; None if withheld.
        members: With a flip for most of them; None if withheld.
        share: Of the group, that flips, counterparts counted for their parts; None if withheld.
        features: By undoing where the model was asked, else by magnitude; empty if withheld.
        asked: Flips that the model was asked about.
        undone_by_none: Share of those that no variable alone undoes; None if it was not asked.
        reason: Why there are no figures; None if there are.
        confidence_level: Of the intervals.
        smallest_cell: Figures of fewer people are withheld.
        seed: Of the sample of flips that the model was asked about.
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
        """Largest mean difference first."""
        return tuple(sorted(self.features, key=lambda each: -abs(each.magnitude)))

    @property
    def by_consistency(self) -> tuple[FeatureChange, ...]:
        """Most consistent difference first."""
        return tuple(sorted(self.by_magnitude, key=lambda each: -abs(each.consistency)))

    @property
    def by_undoing(self) -> tuple[FeatureChange, ...]:
        """What undoes most flips first; empty if the model was not asked."""
        asked = [each for each in self.by_magnitude if each.undone is not None]
        return tuple(sorted(asked, key=lambda each: -(each.undone or 0.0)))

    def of(self, name: str) -> FeatureChange:
        """One variable.

        Raises:
            KeyError: There is none of that name.
        """
        return {each.name: each for each in self.features}[name]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found: dict[str, Any] = json_ready(self)
        for ranking in ("by_magnitude", "by_consistency", "by_undoing"):
            found[ranking] = [each.name for each in getattr(self, ranking)]
        return found

    def __str__(self) -> str:
        return to_text(*transparency_words(self))

    def _repr_html_(self) -> str:
        return to_html(*transparency_words(self))


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
    """Tell how those who flip differ from their counterparts, variable by variable.

    Where people have several counterparts each counts for its part, and intervals take the person
    as what is drawn. They hold the map to be known.

    Args:
        flipset: The people and their counterparts.
        side: Which flips.
        columns: What the columns are.
        scale: Standard deviation of each column, `[d]`; the columns of a category share one, as in
            `offline_audit.maps.columns.Scaling`.
        decide: The model, to be asked what undoes a flip; None if it is not there.
        smallest_cell: With fewer people who flip, figures are withheld.
        confidence_level: Of the intervals.
        max_rows: Flips that the model is asked about, once for each variable that differs.
        seed: Of the sample of them, if there are more.

    Raises:
        AuditInputError: Widths do not agree, or the model's answers are none.
    """
    if flipset.features.shape[1] != len(columns) or np.shape(scale) != (len(columns),):
        raise AuditInputError(
            f"columns: there are {len(columns)}, but features are {flipset.features.shape[1]} wide "
            f"and the scale has shape {np.shape(scale)}"
        )
    flips = WeightedFlips.of(flipset, side)
    people, members = len(flips.weights), int(flipset.members(side).sum())
    few = 0 < people < smallest_cell
    reason = f"fewer than {smallest_cell} people flip this way" if few else None
    reason = reason if people else "no one flips this way"
    report = TransparencyReport(
        side=side,
        group=len(flipset),
        people=None if few else people,
        members=None if few or 0 < members < smallest_cell else members,
        share=None if few else flipset.share(side) if people else 0.0,
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
    scale = np.where(scale > 0, scale, 1.0)
    found = [
        feature_change(flips, v, scale, confidence_level, smallest_cell) for v in columns.variables
    ]
    report = replace(report, features=tuple(found))
    if decide is not None:
        kept = np.random.default_rng(seed).permutation(len(flips.owner))[:max_rows]
        asked = flips.take(np.sort(kept))
        told, none = with_undoing(found, asked, side, columns, decide, confidence_level)
        report = replace(report, features=told, asked=len(asked.owner), undone_by_none=none)
    silent = tuple(each for each in report.by_magnitude if each.undone is None)
    return replace(report, features=(*report.by_undoing, *silent))


_MOST_SHOWN = 10
_NAME_WIDTH = 20
_HEADER = ("variable", "in sd", "interval", "own unit", "sign", "interval")
_WORDS: dict[Side, str] = {
    "advantaged": "have the favourable decision and their counterparts do not",
    "disadvantaged": "do not have the favourable decision and their counterparts do",
}


def transparency_words(report: TransparencyReport) -> tuple[str, TextTable | None, list[str]]:
    """A title, a table of the variables that differ, and notes."""
    return _title(report), _table(report), _notes(report)


def _title(report: TransparencyReport) -> str:
    many = (
        f"Fewer than {report.smallest_cell} people"
        if report.people is None
        else f"{percent(report.share)} of the group, {count(report.people, 'person', 'people')} in "
        "whole or in part,"
    )
    return f"{report.side.capitalize()}: {many} {_WORDS[report.side]}"


def _table(report: TransparencyReport) -> TextTable | None:
    shown = [each for each in report.features if each.changed > 0][:_MOST_SHOWN]
    if not shown:
        return None
    if not report.asked:
        return TextTable(header=_HEADER, rows=tuple(map(_cells, shown)))
    rows = tuple((*_cells(each), *_undone_cells(each)) for each in shown)
    return TextTable(header=(*_HEADER, "undone", "interval"), rows=rows)


def _cells(each: FeatureChange) -> tuple[str, ...]:
    name = each.name
    # Of a category the magnitude has no sign.
    figure = "{:.2f}" if each.kind == "category" else "{:+.2f}"
    return (
        name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…",
        figure.format(each.magnitude),
        f"{figure} to {figure}".format(*each.magnitude_interval),
        "–" if each.difference is None else f"{each.difference:+.3g}",
        f"{each.consistency:+.2f}",
        "{:+.2f} to {:+.2f}".format(*each.consistency_interval),
    )


def _undone_cells(each: FeatureChange) -> tuple[str, str]:
    if each.undone is None or each.undone_interval is None:
        return "–", "–"
    low, high = each.undone_interval
    return f"{100 * each.undone:.0f}%", f"{100 * low:.0f} to {100 * high:.0f}%"


def _notes(report: TransparencyReport) -> list[str]:
    if report.reason is not None:
        return [f"No figures: {report.reason}."]
    notes = []
    if report.members is not None and report.members != report.people:
        notes.append(f"For {report.members:,} that holds for most of their counterparts.")
    notes.append(
        "Mean of the person's value less the counterpart's, and of its sign (±1: all the same "
        f"way); {100 * report.confidence_level:g}% intervals, for this map."
    )
    if report.asked:
        notes.append(
            "Undone: flips that turn back if this variable alone is put back to the person's own. "
            f"No variable alone undoes {percent(report.undone_by_none)} of {report.asked:,}."
        )
    missing = sum(each.unanswered for each in report.features)
    if missing:
        notes.append(f"The model did not answer {count(missing, 'time')}; those are left out.")
    changed = [each for each in report.features if each.changed > 0]
    notes += [_shifted(each) for each in changed[:_MOST_SHOWN] if each.shifts]
    if len(changed) > _MOST_SHOWN:
        notes.append(f"{len(changed) - _MOST_SHOWN} more differ and are not shown.")
    same = [each.name for each in report.features if not each.changed]
    return [*notes, f"The same in all flips: {some(same, 8)}."] if same else notes


def _shifted(each: FeatureChange) -> str:
    told = ", ".join(f"{s.name} {100 * s.difference:+.1f}" for s in each.shifts[:4])
    line = f"{each.name}, points more than among the counterparts: {told}."
    if each.commonest is None:
        return line
    change = " → ".join(each.commonest)
    return f"{line} Commonest change: {change}, in {percent(each.commonest_share)} of the flips."
