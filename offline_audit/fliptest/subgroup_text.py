"""A subgroup's rule in words, for a terminal and a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offline_audit.plain_words import percent
from offline_audit.presentation import TextTable, p_words

if TYPE_CHECKING:
    from offline_audit.fliptest.subgroup import Half, Subgroup

__all__ = ["subgroup_words"]

_HEADER = ("half", "inside", "flip", "outside", "flip", "members covered")


def subgroup_words(found: Subgroup) -> tuple[str, TextTable | None, list[str]]:
    """The rule, a table of both halves, and notes."""
    return _title(found), _table(found), _notes(found)


def _title(found: Subgroup) -> str:
    whom = "flip either way" if found.side == "either" else f"are {found.side}"
    if found.rule is None:
        return f"No rule for those who {whom}: {found.reason}."
    sure = "" if found.confirmed else " (not confirmed)"
    return f"Those who {whom}: {found.rule}{sure}"


def _table(found: Subgroup) -> TextTable | None:
    if found.found is None or found.tested is None:
        return None
    rows = (_cells("found on", found.found), _cells("tested on", found.tested))
    return TextTable(header=_HEADER, rows=rows)


def _cells(name: str, half: Half) -> tuple[str, ...]:
    return (
        name,
        f"{half.inside:,}",
        percent(half.share_inside),
        f"{half.outside:,}",
        percent(half.share_outside),
        percent(half.covered),
    )


def _notes(found: Subgroup) -> list[str]:
    if found.interval is None:
        return []
    low, high = (100 * end for end in found.interval)
    verdict = "confirmed" if found.confirmed else "not confirmed"
    told = (
        f"On people that it was not found on, {low:+.1f} to {high:+.1f} points more flip inside "
        f"than outside: p {p_words(found.p_value)}, {verdict} at {found.level:g}."
    )
    few = any(half is not None and half.coarse for half in (found.found, found.tested))
    hidden = f"Fewer than {found.smallest_cell} people on a side of the rule are told as none."
    return [told, hidden] if few else [told]
