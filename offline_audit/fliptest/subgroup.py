"""A short rule for who is in a flipset, fitted on one half of the group and tested on the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.errors import AuditInputError
from offline_audit.fliptest.differences import share_difference_interval
from offline_audit.fliptest.disclosure import Counts, few_people, member_counts, told_counts
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.fliptest.rules import Condition, all_hold, best_rule
from offline_audit.intervals import Interval
from offline_audit.maps.columns import Columns
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import TextTable, json_ready, p_words, percent, to_html, to_text

__all__ = ["Half", "Subgroup", "name_subgroup"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """What a rule does on one half of the group.

    Attributes:
        inside: People for whom the rule is true.
        outside: The others.
        flips_inside: Members of the flipset among those inside.
        flips_outside: Members among the others.
        coarse: Whether fewer than the smallest cell are told as none.
    """

    inside: int
    outside: int
    flips_inside: int
    flips_outside: int
    coarse: bool

    @property
    def share_inside(self) -> float:
        """Of those inside, that flips."""
        return self.flips_inside / max(self.inside, 1)

    @property
    def share_outside(self) -> float:
        """Of those outside, that flips."""
        return self.flips_outside / max(self.outside, 1)

    @property
    def covered(self) -> float:
        """Share of the members that the rule holds."""
        return self.flips_inside / max(self.flips_inside + self.flips_outside, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgroup:
    """A rule that names where the flips are, and whether it held on people it was not found on.

    Attributes:
        side: Which members.
        conditions: All must be true; empty if no rule was found.
        found: On the half that it was found on; None without a rule, or if too few are on both
            sides of it.
        tested: On the other half; None likewise.
        interval: Of the share of flips inside less that outside, on the other half.
        p_value: That inside no more flip than outside, on the other half (Fisher, one-sided).
        alpha: At which it is confirmed.
        reason: Why there is no rule; None if there is one.
        smallest_cell: Fewer people are told as none.
        seed: Of the halves.
    """

    side: Side | Literal["either"]
    conditions: tuple[Condition, ...] = ()
    found: Half | None = None
    tested: Half | None = None
    interval: Interval | None = None
    p_value: float | None = None
    alpha: float
    reason: str | None = None
    smallest_cell: int
    seed: int

    @property
    def confirmed(self) -> bool:
        """Whether the rule holds on the other half too."""
        return self.p_value is not None and self.p_value <= self.alpha

    @property
    def rule(self) -> str | None:
        """The conditions in words."""
        return " and ".join(map(str, self.conditions)) or None

    def holds(self, features: Features, columns: Columns) -> Bools:
        """For whom the rule is true, `[n, d]` to bool `[n]`; for no one without a rule."""
        return all_hold(self.conditions, features, columns) & bool(self.conditions)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found: dict[str, Any] = json_ready(self)
        return found | {"rule": self.rule, "confirmed": self.confirmed}

    def __str__(self) -> str:
        return to_text(*subgroup_words(self))

    def _repr_html_(self) -> str:
        return to_html(*subgroup_words(self))


def name_subgroup(
    flipset: Flipset,
    side: Side | Literal["either"],
    columns: Columns,
    *,
    seed: int = 0,
    smallest_cell: int = 10,
    most_conditions: int = 3,
    alpha: float = 0.05,
) -> Subgroup:
    """Find a short rule for who is in the flipset, and test it on people it has not seen.

    On one half a decision tree predicts membership from people's own features. Of all rules made
    of conditions along its branches the one with the best weighted relative accuracy is taken
    (share of people inside times (share of members inside less share of members in all), which
    ranks rules as share of members inside less share of others inside does); a longer rule must
    be better by a margin. On the other half, H0: no more people flip inside than outside.

    Args:
        flipset: The people and their counterparts.
        side: Which members; `either` takes both sides together.
        columns: What the columns are.
        seed: Of the halves.
        smallest_cell: Each half needs as many members and as many others; limits are rounded, so
            that they are no one's own value.
        most_conditions: In the rule.
        alpha: At which the rule is confirmed.

    Raises:
        AuditInputError: Widths do not agree, or no condition is allowed.
    """
    width = flipset.features.shape[1]
    if width != len(columns):
        raise AuditInputError(f"columns: there are {len(columns)}, but features are {width} wide")
    if most_conditions < 1:
        raise AuditInputError(f"most_conditions: at least 1 is needed, not {most_conditions}")
    parts = (
        flipset.parts("advantaged") + flipset.parts("disadvantaged")
        if side == "either"
        else flipset.parts(side)
    )
    members = parts >= 0.5
    made = partial(Subgroup, side=side, alpha=alpha, smallest_cell=smallest_cell, seed=seed)
    for who, whom in ((members, "members"), (~members, "others")):
        if who.sum() < 2 * smallest_cell:
            return made(reason=f"there are fewer than {2 * smallest_cell} {whom}")
    first = _half(members, np.random.default_rng(seed))
    conditions = best_rule(
        flipset.features[first],
        members[first],
        columns,
        smallest=smallest_cell,
        most=most_conditions,
        seed=seed,
    )
    if not conditions:
        return made(reason="no feature tells them from the others")
    outside = (~all_hold(conditions, flipset.features, columns)).astype(np.intp)
    # Those inside first, `[2, 2]` each.
    found, tested = (member_counts(outside[who], 2, members[who]) for who in (first, ~first))
    told = _half_figures(tested, smallest_cell)
    return made(
        conditions=conditions,
        found=_half_figures(found, smallest_cell),
        tested=told,
        interval=_interval(told, 1 - alpha),
        p_value=float(stats.fisher_exact(tested, alternative="greater").pvalue),
    )


def _half(members: Bools, rng: np.random.Generator) -> Bools:
    """Half of the members and half of the others, bool `[n]`."""
    chosen = np.zeros(len(members), bool)
    for who in (members, ~members):
        rows = rng.permutation(np.flatnonzero(who))
        chosen[rows[: len(rows) // 2]] = True
    return chosen


def _half_figures(table: Counts, smallest: int) -> Half | None:
    told = told_counts(table, smallest)
    if few_people(told, smallest).any():
        return None
    inside, outside = told.sum(0).tolist()
    return Half(
        inside=inside,
        outside=outside,
        flips_inside=int(told[0, 0]),
        flips_outside=int(told[0, 1]),
        coarse=bool((told != table).any()),
    )


def _interval(half: Half | None, confidence_level: float) -> Interval | None:
    if half is None or not half.inside or not half.outside:
        return None
    return share_difference_interval(
        half.share_inside, half.inside, half.share_outside, half.outside, confidence_level
    )


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
        f"than outside: p {p_words(found.p_value)}, {verdict} at {found.alpha:g}."
    )
    few = any(half is not None and half.coarse for half in (found.found, found.tested))
    hidden = f"Fewer than {found.smallest_cell} people on a side of the rule are told as none."
    return [told, hidden] if few else [told]
