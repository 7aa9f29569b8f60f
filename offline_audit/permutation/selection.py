"""The table of selection rates that bias audits print, with the four-fifths ratio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.permutation.counts import TableCounts
from offline_audit.permutation.crossing import Intersections
from offline_audit.permutation.intervals import rate_ratio_interval, wilson
from offline_audit.permutation.options import require_confidence
from offline_audit.permutation.rows import Expected, require_expected, rows_of
from offline_audit.permutation.sources import GroupSet, RowSource, TableSource
from offline_audit.presentation import (
    Estimate,
    TextTable,
    interval_figure,
    json_ready,
    rate,
    to_html,
    to_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SelectionRow", "SelectionTable", "selection_table"]

Int = NDArray[np.int64]

# A rate below four fifths of the highest is taken as evidence of adverse impact
# (29 CFR 1607.4 D, the Uniform Guidelines on Employee Selection Procedures).
FOUR_FIFTHS = 0.8
# Groups with less than this share of the data may be left out of the ratios
# (6 RCNY § 5-301, rules for New York City's Local Law 144).
SMALL_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRow:
    """One group of the table.

    Attributes:
        attribute: The protected attribute, or several crossed.
        group: Its name; None where the group is not known.
        rows: With a decision.
        selected: Of those.
        share: Of all rows with a decision.
        rate: Selected over rows; None without rows.
        rate_interval: Wilson's.
        impact_ratio: Rate over the highest rate; None for the unknown group, and where nobody is
            selected in any group.
        impact_interval: Of the ratio; None for the group with the highest rate.
        small: Whether the share is below 2%, so that an audit may leave the ratio out.
    """

    attribute: str
    group: str | None
    rows: int
    selected: int
    share: float
    rate: float | None
    rate_interval: tuple[float, float] | None
    impact_ratio: float | None
    impact_interval: tuple[float, float] | None
    small: bool

    @property
    def below_four_fifths(self) -> bool:
        """Whether the impact ratio is below .8."""
        return self.impact_ratio is not None and self.impact_ratio < FOUR_FIFTHS

    @property
    def surely_below(self) -> bool:
        """Whether all of the ratio's interval is below .8."""
        return self.impact_interval is not None and self.impact_interval[1] < FOUR_FIFTHS


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionTable:
    """Selection rates by group.

    Attributes:
        table: Groups of each attribute and crossing, in order; the unknown group last.
        confidence: Level of the intervals.
        undecided: Rows without a decision, left out; those of the first attribute.
        warnings: What to know before a figure is believed.
    """

    table: tuple[SelectionRow, ...]
    confidence: float
    undecided: int
    warnings: tuple[str, ...]

    def of(self, group: str | None, attribute: str | None = None) -> SelectionRow:
        """One group's row.

        Raises:
            KeyError: There is none, or more than one.
        """
        found = [r for r in self.table if r.group == group and attribute in (None, r.attribute)]
        if len(found) != 1:
            raise KeyError(f"{len(found)} rows of group {group!r}")
        return found[0]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found: dict[str, Any] = json_ready(self)
        for row, told in zip(self.table, found["table"], strict=True):
            told["below_four_fifths"] = row.below_four_fifths
            told["surely_below"] = row.surely_below
        return found

    def plot(self) -> Figure:
        """Impact ratios with their intervals, and a line at four fifths."""
        shown = [
            Estimate(
                name=f"{row.attribute}: {row.group}",
                value=row.impact_ratio,
                interval=row.impact_interval,
                sure=not row.small,
            )
            for row in self.table
            if row.impact_ratio is not None
        ]
        return interval_figure(shown, "impact ratio (line: four fifths)", at=FOUR_FIFTHS)

    def __str__(self) -> str:
        return to_text("Selection rates and impact ratios", self._shown, self._notes)

    def _repr_html_(self) -> str:
        return to_html("Selection rates and impact ratios", self._shown, self._notes)

    @property
    def _shown(self) -> TextTable:
        level = f"{100 * self.confidence:g}% interval"
        return TextTable(
            header=("attribute", "group", "rows", "share", "selected", "rate", level,
                    "impact ratio", level, ""),
            rows=tuple(_cells(row) for row in self.table),
            words=2,
        )  # fmt: skip

    @property
    def _notes(self) -> list[str]:
        notes = ["impact ratio: rate over the highest rate of the attribute; ! below four fifths"]
        if any(row.below_four_fifths for row in self.table):
            notes.append("!! means that all of the interval is below four fifths")
        if any(row.small for row in self.table):
            notes.append(
                "* less than 2% of the data: an audit under New York City's Local Law 144 may "
                "leave the ratio out; the highest rate is taken among the other groups"
            )
        if self.undecided:
            notes.append(f"{self.undecided:,} rows without a decision are left out")
        return notes + [f"warning: {warning}" for warning in self.warnings]


def selection_table(
    *,
    groups: Any = None,
    decisions: Any = None,
    counts: TableCounts | None = None,
    intersections: Intersections = False,
    expected: Expected | None = None,
    confidence: float = 0.95,
) -> SelectionTable:
    """Selection rates of every group, of intersections, and of those whose group is not known.

    The impact ratio is a group's rate over the highest rate among groups that are not small. The
    four-fifths rule is a rule of thumb: with few rows a fair model breaks it often, so read the
    interval beside it, and `permutation_test("selection_rate", …)`.

    Args:
        groups: Group of each row, or a mapping from attributes to such arrays.
        decisions: 0 or 1 of each row; None or NaN where it is not known.
        counts: Counts in place of arrays.
        intersections: True for every pair of attributes; or tuples of names.
        expected: All groups that there may be; any other name is an error.
        confidence: Level of the intervals.

    Raises:
        AuditInputError: Something given is not what it should be.
    """
    source: RowSource | TableSource
    if counts is not None:
        if groups is not None or decisions is not None:
            raise AuditInputError("counts: give either arrays or counts, not both")
        if not isinstance(counts, TableCounts):
            raise AuditInputError("counts: `TableCounts` are needed")
        if intersections is not False:
            raise AuditInputError("intersections: counts are crossed already, or cannot be")
        require_expected(expected, {each.attribute: each.names for each in counts.groups})
        source = TableSource(counts)
    elif groups is None or decisions is None:
        raise AuditInputError("groups and decisions are needed, or `counts`")
    else:
        source = RowSource(
            rows_of(
                groups=groups, decisions=decisions, intersections=intersections, expected=expected
            )
        )
    require_confidence(confidence)
    if "decisions" not in source.offers:
        raise AuditInputError("decisions: none is known")
    rows = tuple(row for found in source.group_sets for row in _rows(found, confidence))
    undecided = int(source.group_sets[0].table[:, :, 2].sum())
    return SelectionTable(
        table=rows, confidence=confidence, undecided=undecided, warnings=source.warnings
    )


def _rows(found: GroupSet, confidence: float) -> list[SelectionRow]:
    declined, selected = (found.table[:, :, decision].sum(axis=1) for decision in (0, 1))
    rows = declined + selected
    total = max(int(rows.sum()), 1)
    known = range(len(found.names))
    large = [g for g in known if rows[g] >= SMALL_SHARE * total and rows[g] > 0]
    best = max(large, key=lambda g: (selected[g] / rows[g], rows[g]), default=None)
    made = []
    for place in range(len(rows)):
        n, hits = int(rows[place]), int(selected[place])
        unknown = place == len(found.names)
        if unknown and n == 0:
            continue
        ratio, interval = None, None
        if best is not None and not unknown and n and selected[best]:
            ratio = float((hits / n) / (selected[best] / rows[best]))
            if place != best:
                top = (int(selected[best]), int(rows[best]))
                interval = rate_ratio_interval(hits, n, *top, confidence)
        made.append(
            SelectionRow(
                attribute=found.attribute,
                group=None if unknown else found.names[place],
                rows=n,
                selected=hits,
                share=n / total,
                rate=hits / n if n else None,
                rate_interval=wilson(hits / n, n, confidence) if n else None,
                impact_ratio=ratio,
                impact_interval=interval,
                small=not unknown and n < SMALL_SHARE * total,
            )
        )
    return made


def _cells(row: SelectionRow) -> tuple[str, ...]:
    flag = "!!" if row.surely_below else "!" if row.below_four_fifths else ""
    return (
        row.attribute,
        row.group if row.group is not None else "(unknown)",
        f"{row.rows:,}",
        f"{100 * row.share:.1f}%",
        f"{row.selected:,}",
        rate(row.rate),
        _ends(row.rate_interval),
        "–" if row.impact_ratio is None else f"{row.impact_ratio:.3f}",
        _ends(row.impact_interval),
        flag + "*" * row.small,
    )


def _ends(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
