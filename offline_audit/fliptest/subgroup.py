"""A short rule for the members of a flipset, fitted on one half and tested on the other half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.errors import AuditInputError
from offline_audit.fliptest.counts import (
    Counts,
    member_counts,
    share_difference_interval,
    small_cells,
)
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.fliptest.rules import Rule, all_hold, best_rule
from offline_audit.intervals import Interval
from offline_audit.maps.columns import Columns
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import TextTable, json_ready, p_equals, percent, to_html, to_text

__all__ = ["Half", "Subgroup", "name_subgroup"]

Bools = NDArray[np.bool_]

_HEADER = ("half", "inside", "flip", "outside", "flip", "members covered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """Counts of a rule on one half of the group.

    Attributes:
        inside: Number of people for whom the rule is true.
        outside: Number of people for whom it is false.
        flips_inside: Number of members of the flipset inside.
        flips_outside: Number of members outside.
    """

    inside: int
    outside: int
    flips_inside: int
    flips_outside: int

    @property
    def share_inside(self) -> float:
        """Share of members among people inside."""
        return self.flips_inside / max(self.inside, 1)

    @property
    def share_outside(self) -> float:
        """Share of members among people outside."""
        return self.flips_outside / max(self.outside, 1)

    @property
    def covered(self) -> float:
        """Share of members for whom the rule is true."""
        return self.flips_inside / max(self.flips_inside + self.flips_outside, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgroup:
    """A rule that describes the members of a flipset, and its test on held-out rows.

    Attributes:
        side: Side of the flipset.
        conditions: Conditions, all of which must be true; empty without a rule.
        fitted: Counts on the half to which the rule was fitted; None without a rule, or if
            counts are withheld.
        tested: Counts on the other half; None as for `fitted`.
        withheld: Small counts of a half, in words; None if counts are shown. Counts of both halves
            are withheld then: their sum may follow from other figures.
        interval: Interval of the share of flips inside minus outside, on the other half; None as
            for `fitted`.
        p_value: One-sided p-value of Fisher's test on the other half; H0: people inside flip
            no more often than people outside. If counts are withheld, the largest p-value of all
            counts that agree with `withheld`.
        alpha: Significance level of `confirmed`.
        reason: Why there is no rule; None if there is one.
        smallest_cell: Smallest count that is published.
        seed: Seed of the division into halves.
    """

    side: Side
    conditions: Rule = ()
    fitted: Half | None = None
    tested: Half | None = None
    withheld: str | None = None
    interval: Interval | None = None
    p_value: float | None = None
    alpha: float
    reason: str | None = None
    smallest_cell: int
    seed: int

    @property
    def confirmed(self) -> bool:
        """Whether the test on the other half rejects H0."""
        return self.p_value is not None and self.p_value <= self.alpha

    @property
    def rule(self) -> str | None:
        """The conditions as text."""
        return " and ".join(map(str, self.conditions)) or None

    def holds(self, features: Features, columns: Columns) -> Bools:
        """Rows for which the rule is true, `[n, d]` to bool `[n]`; none without a rule."""
        return all_hold(self.conditions, features, columns) & bool(self.conditions)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data: dict[str, Any] = json_ready(self)
        return data | {"rule": self.rule, "confirmed": self.confirmed}

    def __str__(self) -> str:
        return to_text(_title(self), _table(self), _notes(self))

    def _repr_html_(self) -> str:
        return to_html(_title(self), _table(self), _notes(self))


def name_subgroup(
    flipset: Flipset,
    side: Side,
    columns: Columns,
    *,
    seed: int = 0,
    smallest_cell: int = 10,
    most_conditions: int = 3,
    alpha: float = 0.05,
) -> Subgroup:
    """Find a short rule for the members of a flipset, and test it on held-out rows.

    On one half, a decision tree predicts membership from the rows' own features. Among all rules
    made of conditions along its branches, the one with the best weighted relative accuracy is
    chosen: share of people inside × (share of members inside − share of members overall). This
    ranks rules as the share of members inside minus the share of others inside does. A longer
    rule must be better by a margin. On the other half, H0: people inside flip no more often.

    Args:
        flipset: Rows and their counterparts.
        side: Side of the flipset.
        columns: Description of the columns.
        seed: Seed of the division into halves and of the tree.
        smallest_cell: Smallest number of members, and of others, in each half; limits of
            conditions are rounded, so that they are not the value of one person.
        most_conditions: Largest number of conditions in the rule.
        alpha: Significance level at which the rule is confirmed.

    Raises:
        AuditInputError: Shapes do not match, or `most_conditions` is below 1.
    """
    width = flipset.features.shape[1]
    if width != len(columns):
        raise AuditInputError(
            f"columns: {len(columns)} columns are described, but features have {width}"
        )
    if most_conditions < 1:
        raise AuditInputError(f"most_conditions: must be at least 1, not {most_conditions}")
    members = flipset.members(side)
    subgroup = partial(Subgroup, side=side, alpha=alpha, smallest_cell=smallest_cell, seed=seed)
    for mask, role in ((members, "members"), (~members, "others")):
        if mask.sum() < 2 * smallest_cell:
            return subgroup(reason=f"there are fewer than {2 * smallest_cell} {role}")
    first = _half(members, np.random.default_rng(seed))
    rule = best_rule(
        flipset.features[first],
        members[first],
        columns,
        smallest=smallest_cell,
        most=most_conditions,
        seed=seed,
    )
    if not rule:
        return subgroup(reason="no feature separates members from others")
    outside = (~all_hold(rule, flipset.features, columns)).astype(np.intp)
    # Members and others by inside and outside, `[2, 2]`.
    tables = [member_counts(outside[half], 2, members[half]) for half in (first, ~first)]
    if withheld := _small_counts(tables, smallest_cell):
        return subgroup(
            conditions=rule, withheld=withheld, p_value=_largest_p_value(tables[1], smallest_cell)
        )
    fitted, tested = map(_counts, tables)
    return subgroup(
        conditions=rule,
        fitted=fitted,
        tested=tested,
        interval=_interval(tested, 1 - alpha),
        p_value=_p_value(tables[1]),
    )


def _half(members: Bools, rng: np.random.Generator) -> Bools:
    """Mask of a random half of the members and half of the others, `[n]`."""
    chosen = np.zeros(len(members), bool)
    for mask in (members, ~members):
        rows = rng.permutation(np.flatnonzero(mask))
        chosen[rows[: len(rows) // 2]] = True
    return chosen


def _counts(table: Counts) -> Half:
    inside, outside = table.sum(0).tolist()
    return Half(
        inside=inside,
        outside=outside,
        flips_inside=int(table[0, 0]),
        flips_outside=int(table[0, 1]),
    )


def _small_counts(tables: Sequence[Counts], smallest: int) -> str | None:
    """The small counts of some tables `[2, 2]` in words; None if there are none."""
    small = [
        f"fewer than {smallest} {role} {place} the rule"
        for row, role in enumerate(("members", "others"))
        for column, place in enumerate(("inside", "outside"))
        if any(small_cells(table, smallest)[row, column] for table in tables)
    ]
    return " and ".join(small) or None


def _p_value(table: Counts) -> float:
    return float(stats.fisher_exact(table, alternative="greater").pvalue)


def _largest_p_value(table: Counts, smallest: int) -> float:
    """The largest p-value of all tables with the same row totals and the same small cells.

    It is a valid p-value, and does not depend on the size of a small count. The p-value decreases
    in the number of members inside and in the number of others outside, so the ends suffice.
    """
    rows = [_rows_alike(row, smallest) for row in table]
    return max(_p_value(np.stack(both)) for both in product(*rows))


def _rows_alike(row: NDArray[np.int64], smallest: int) -> NDArray[np.int64]:
    """First and last row of two counts with the same total and the same small counts, `[2, 2]`."""
    small = small_cells(row, smallest)
    if not small.any():
        return np.stack([row, row])
    counts = np.arange(row.sum() + 1)
    rows = np.column_stack([counts, counts[::-1]])
    alike = rows[(small_cells(rows, smallest) == small).all(1)]
    return np.asarray(alike[[0, -1]])


def _interval(half: Half, confidence_level: float) -> Interval | None:
    if not half.inside or not half.outside:
        return None
    return share_difference_interval(
        half.share_inside, half.inside, half.share_outside, half.outside, confidence_level
    )


def _title(subgroup: Subgroup) -> str:
    if subgroup.rule is None:
        return f"{subgroup.side.capitalize()}: no rule, as {subgroup.reason}."
    unconfirmed = "" if subgroup.confirmed else " (not confirmed)"
    return f"{subgroup.side.capitalize()}: {subgroup.rule}{unconfirmed}"


def _table(subgroup: Subgroup) -> TextTable | None:
    if subgroup.fitted is None or subgroup.tested is None:
        return None
    rows = (_cells("fitted on", subgroup.fitted), _cells("tested on", subgroup.tested))
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


def _notes(subgroup: Subgroup) -> list[str]:
    if subgroup.p_value is None:
        return []
    verdict = "confirmed" if subgroup.confirmed else "not confirmed"
    test = f"p {p_equals(subgroup.p_value)}, {verdict} at {subgroup.alpha:g}."
    if subgroup.withheld is not None:
        return [
            f"Counts are suppressed, as there are {subgroup.withheld} in a half.",
            f"On the held-out half: {test} This is the largest p-value that such counts allow.",
        ]
    if subgroup.interval is None:
        return []
    points = _points(*subgroup.interval)
    return [f"On the held-out half, the flip rate inside the rule is {points} than outside: {test}"]


def _points(low: float, high: float) -> str:
    """An interval of a difference of shares, in percentage points with their direction."""
    low, high = 100 * low, 100 * high
    if low >= 0:
        return f"{low:.1f} to {high:.1f} points higher"
    if high <= 0:
        return f"{-high:.1f} to {-low:.1f} points lower"
    return f"between {-low:.1f} points lower and {high:.1f} points higher"
