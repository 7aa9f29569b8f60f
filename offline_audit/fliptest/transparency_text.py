"""A transparency report in words, for a terminal and a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offline_audit.fliptest.feature_changes import FeatureChange
from offline_audit.fliptest.flipset import Side
from offline_audit.plain_words import count, percent, some
from offline_audit.presentation import TextTable

if TYPE_CHECKING:
    from offline_audit.fliptest.transparency import TransparencyReport

__all__ = ["transparency_words"]

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
        f"way); {100 * report.level:g}% intervals, for this map."
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
