"""Text of the marginals of a flipset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from offline_audit.rendering import TextTable, count, format_p_value, percent, some

if TYPE_CHECKING:
    from offline_audit.fliptest.marginals import Marginal, Marginals

__all__ = ["marginals_text"]

_MAX_VARIABLES = 12
_NAME_WIDTH = 24
_HEADER = ("variable", "members", "others", "SD diff", "interval", "p", "adjusted p")


def marginals_text(marginals: Marginals) -> tuple[str, TextTable | None, Sequence[str]]:
    """Title, table and notes of marginals."""
    return _title(marginals), _table(marginals), _notes(marginals)


def _title(marginals: Marginals) -> str:
    if marginals.members is None or marginals.others is None:
        return f"Members of the flipset ({marginals.side}) compared with the rest of their group"
    return (
        f"{marginals.members:,} members of the flipset ({marginals.side}) compared with the "
        f"{marginals.others:,} others of their group"
    )


def _table(marginals: Marginals) -> TextTable | None:
    rows = tuple(_cells(marginal) for marginal in _with_figures(marginals)[:_MAX_VARIABLES])
    return TextTable(header=_HEADER, rows=rows) if rows else None


def _with_figures(marginals: Marginals) -> list[Marginal]:
    return [marginal for marginal in marginals.variables if marginal.reason is None]


def _cells(marginal: Marginal) -> tuple[str, ...]:
    name = marginal.name
    formatted = percent if marginal.kind == "binary" else _short
    number = "{:.2f}" if marginal.kind == "category" else "{:+.2f}"
    return (
        name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…",
        formatted(marginal.members),
        formatted(marginal.others),
        "–" if marginal.difference is None else number.format(marginal.difference),
        "–" if marginal.interval is None else f"{number} to {number}".format(*marginal.interval),
        format_p_value(marginal.p_value),
        format_p_value(marginal.adjusted_p_value),
    )


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}"


def _notes(marginals: Marginals) -> list[str]:
    if marginals.reason is not None:
        return [f"No table: {marginals.reason}."]
    with_figures = _with_figures(marginals)
    shown = with_figures[:_MAX_VARIABLES]
    notes = [
        (
            "SD diff: members minus others in standard deviations of the group, with "
            f"{100 * marginals.confidence_level:g}% intervals; p for H0: same distribution in "
            "both, adjusted over all variables (Benjamini-Hochberg)."
        ),
        *(_shares_note(m, marginals) for m in shown if m.kind == "category"),
    ]
    if any(marginal.coarse for marginal in with_figures):
        cell = marginals.smallest_cell
        notes.append(
            f"Categories and ranges with fewer than {cell} members or others are merged; figures "
            "of categories are those of the merged ones."
        )
    hidden = len(with_figures) - _MAX_VARIABLES
    if hidden > 0:
        notes.append(f"Not listed: {count(hidden, 'more variable')}.")
    return [*notes, *_reasons(marginals)]


def _reasons(marginals: Marginals) -> list[str]:
    """Variables without figures, by reason."""
    names: dict[str, list[str]] = {}
    for marginal in marginals.variables:
        if marginal.reason is not None:
            names.setdefault(marginal.reason, []).append(marginal.name)
    return [f"Suppressed, as {why}: {some(listed, 8)}." for why, listed in names.items()]


def _shares_note(marginal: Marginal, marginals: Marginals) -> str:
    members, others = marginals.members or 1, marginals.others or 1
    shares = ", ".join(
        f"{b.name} {percent(b.members / members)} ({percent(b.others / others)})"
        for b in marginal.bins
    )
    return f"{marginal.name}, members (others): {shares}."
