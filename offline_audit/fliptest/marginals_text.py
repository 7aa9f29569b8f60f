"""Marginals of a flipset in words, for a terminal and a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offline_audit.plain_words import percent
from offline_audit.presentation import TextTable, p_words

if TYPE_CHECKING:
    from offline_audit.fliptest.marginals import Marginal, Marginals

__all__ = ["marginals_words"]

_MOST_SHOWN = 12
_NAME_WIDTH = 24
_HEADER = ("variable", "members", "others", "in sd", "interval", "p", "adjusted p")


def marginals_words(found: Marginals) -> tuple[str, TextTable | None, list[str]]:
    """A title, a table of the variables that differ most, and notes."""
    shown = found.variables[:_MOST_SHOWN]
    table = TextTable(header=_HEADER, rows=tuple(map(_cells, shown))) if shown else None
    return _title(found), table, _notes(found)


def _title(found: Marginals) -> str:
    if found.members is None or found.others is None:
        return f"Members of the flipset, {found.side}, against the rest of their group"
    return (
        f"{found.members:,} members of the flipset, {found.side}, against the {found.others:,} "
        "others of their group"
    )


def _cells(each: Marginal) -> tuple[str, ...]:
    name = each.name
    shown = percent if each.kind == "binary" else _short
    figure = "{:.2f}" if each.kind == "category" else "{:+.2f}"
    return (
        name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…",
        shown(each.members),
        shown(each.others),
        "–" if each.difference is None else figure.format(each.difference),
        "–" if each.interval is None else f"{figure} to {figure}".format(*each.interval),
        p_words(each.p_value),
        p_words(each.adjusted_p_value),
    )


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}"


def _notes(found: Marginals) -> list[str]:
    if found.reason is not None:
        return [f"No figures: {found.reason}."]
    meant = (
        "In sd: members less others in standard deviations of the group, with "
        f"{100 * found.level:g}% intervals; p of the same distribution in both, adjusted for all "
        "variables (Benjamini and Hochberg)."
    )
    categories = [each for each in found.variables[:_MOST_SHOWN] if each.kind == "category"]
    notes = [meant, *(_shares(each, found) for each in categories if len(each.bins) > 1)]
    if any(each.coarse for each in found.variables):
        notes.append(f"Fewer than {found.smallest_cell} people are told as none or put together.")
    hidden = len(found.variables) - _MOST_SHOWN
    return [*notes, f"{hidden} more variables are not shown."] if hidden > 0 else notes


def _shares(each: Marginal, found: Marginals) -> str:
    members, others = found.members or 1, found.others or 1
    told = (
        f"{b.name} {percent(b.members / members)} ({percent(b.others / others)})" for b in each.bins
    )
    return f"{each.name}, members (others): {', '.join(told)}."
