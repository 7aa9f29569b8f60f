"""The table of selection rates and impact ratios that bias audits report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.coverage import Unknowns
from offline_audit.errors import AuditInputError
from offline_audit.groups import By
from offline_audit.intervals import rate_ratio_interval, wilson
from offline_audit.permutation.counts import TableCounts
from offline_audit.permutation.metrics import UNKNOWN_INDEX
from offline_audit.permutation.rows import RowSource, rows_of
from offline_audit.permutation.sources import (
    ExpectedGroups,
    GroupSet,
    TableSource,
    require_expected,
)
from offline_audit.plots import Estimate, Kind, interval_figure
from offline_audit.ranges import impact_ranges
from offline_audit.rendering import (
    TextTable,
    count,
    json_ready,
    percent,
    rate,
    to_html,
    to_text,
)
from offline_audit.validation import require_confidence_level

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SelectionRow", "SelectionTable", "selection_table"]

Int = NDArray[np.int64]

# A rate below four fifths of the highest is taken as evidence of adverse impact
# (29 CFR 1607.4 D, the Uniform Guidelines on Employee Selection Procedures).
FOUR_FIFTHS = 0.8
# Groups with less than this share of the data may be excluded from the ratios
# (6 RCNY § 5-301, rules for New York City's Local Law 144).
SMALL_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRow:
    """One group of the table.

    Attributes:
        attribute: The protected attribute, or several crossed.
        group: Name of the group; None for rows whose group is unknown.
        rows: Rows with a decision.
        selected: Selected rows.
        share: Share of all rows with a decision.
        rate: Selected rows over rows; None without rows.
        rate_interval: Wilson interval of the rate.
        impact_ratio: Rate over the highest rate; None for the unknown group, and if nobody is
            selected in any group.
        impact_interval: Interval of the ratio; None for the group with the highest rate.
        small: Whether the share is below 2%, so that an audit may exclude the ratio.
        rate_range: Smallest and largest rate over all groups that rows of unknown group may be of;
            None for the unknown group, and if there is none.
        impact_range: Smallest and largest impact ratio over these groups.
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
    rate_range: tuple[float, float] | None = None
    impact_range: tuple[float, float] | None = None

    @property
    def below_four_fifths(self) -> bool:
        """Whether the impact ratio is below .8."""
        return self.impact_ratio is not None and self.impact_ratio < FOUR_FIFTHS

    @property
    def surely_below(self) -> bool:
        """Whether the whole interval of the ratio is below .8."""
        return self.impact_interval is not None and self.impact_interval[1] < FOUR_FIFTHS


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionTable:
    """Selection rates by group.

    Attributes:
        table: Groups of each attribute or crossing, in order; the unknown group last.
        confidence_level: Confidence level of the intervals.
        undecided: Number of rows without a decision, which are excluded.
        warnings: Warnings about the data.
        unknown: Numbers of rows of unknown group, with and without a decision.
    """

    table: tuple[SelectionRow, ...]
    confidence_level: float
    undecided: int
    warnings: tuple[str, ...]
    unknown: Unknowns

    def of(self, group: str | None, attribute: str | None = None) -> SelectionRow:
        """The row of one group.

        Raises:
            KeyError: There is none, or more than one.
        """
        rows = [r for r in self.table if r.group == group and attribute in (None, r.attribute)]
        if len(rows) != 1:
            raise KeyError(f"{len(rows)} rows of group {group!r}")
        return rows[0]

    def to_dict(self) -> dict[str, Any]:
        """All fields and derived values, for JSON."""
        fields: dict[str, Any] = json_ready(self)
        for row, entry in zip(self.table, fields["table"], strict=True):
            entry["below_four_fifths"] = row.below_four_fifths
            entry["surely_below"] = row.surely_below
        return fields

    def plot(self) -> Figure:
        """Impact ratios with their intervals, and a line at four fifths."""
        estimates = [
            Estimate(
                name=str(row.group),
                value=row.impact_ratio,
                interval=row.impact_interval,
                kind=_kind(row),
                section=row.attribute,
                rows=(row.rows,),
                range=row.impact_range,
            )
            for row in self.table
            if row.impact_ratio is not None
        ]
        below = [row for row in self.table if row.below_four_fifths]
        title = "No group is selected less than four fifths as often as the most selected group"
        if below:
            lowest = min(below, key=lambda row: row.impact_ratio or 0.0)
            title = self._sentence(lowest).partition(" (")[0]
        legend: dict[Kind, str] = {
            "difference": "whole interval below four fifths",
            "none": "interval includes four fifths, or is above",
            "undetermined": "less than 2% of the data",
        }
        label = "rate over the highest rate of the attribute (line: four fifths)"
        return interval_figure(
            estimates,
            title,
            legend,
            label=label,
            confidence_level=self.confidence_level,
            at=FOUR_FIFTHS,
        )

    def __str__(self) -> str:
        return to_text(self._title, self._text_table, self._notes)

    def _repr_html_(self) -> str:
        return to_html(self._title, self._text_table, self._notes)

    @property
    def _title(self) -> str:
        return f"Selection rates and impact ratios. {self.unknown}"

    def _sentence(self, row: SelectionRow) -> str:
        """A group whose ratio is below four fifths, against the group with the highest rate."""
        best = next(r for r in self.table if r.attribute == row.attribute and _is_best(r))
        level = f"{100 * self.confidence_level:g}% interval"
        return (
            f"{row.attribute}: {row.group} is selected {row.impact_ratio:.2f} times as often as "
            f"{best.group} ({percent(row.rate)} against {percent(best.rate)}; {level} of the ratio "
            f"{_ends(row.impact_interval)})"
        )

    @property
    def _text_table(self) -> TextTable:
        level = f"{100 * self.confidence_level:g}% interval"
        return TextTable(
            header=("attribute", "group", "rows", "share", "selected", "rate", level,
                    "impact ratio", level, ""),
            rows=tuple(_cells(row) for row in self.table),
            words=2,
        )  # fmt: skip

    @property
    def _notes(self) -> list[str]:
        notes = [self._sentence(row) for row in self.table if row.below_four_fifths]
        notes.append(
            "impact ratio: rate over the highest rate of the attribute; ! below four fifths"
        )
        if any(row.below_four_fifths for row in self.table):
            notes.append("!! the whole interval is below four fifths")
        if any(row.small for row in self.table):
            notes.append(
                "* less than 2% of the data: an audit under New York City's Local Law 144 may "
                "exclude the ratio; the highest rate is that of the other groups"
            )
        notes += [_range_note(row) for row in self.table if row.rate_range is not None]
        if self.undecided:
            notes.append(f"excluded: {count(self.undecided, 'row')} without a decision")
        return notes + [f"warning: {warning}" for warning in self.warnings]


def selection_table(
    groups: Any = None,
    decisions: Any = None,
    counts: TableCounts | None = None,
    *,
    by: By = None,
    expected_groups: ExpectedGroups | None = None,
    confidence_level: float = 0.95,
) -> SelectionTable:
    """Selection rates of every group, and of rows whose group is unknown.

    The impact ratio is a group's rate over the highest rate among groups that are not small. The
    four-fifths rule is a rule of thumb: with few rows a fair model often violates it, so read the
    interval too, and use `permutation_test(…, metrics="selection_rate")`.

    Args:
        groups: Group of each row, or a mapping from attributes to such arrays.
        decisions: Decision of each row, 0 or 1; None or NaN where it is unknown.
        counts: Counts instead of arrays.
        by: Attributes to tabulate; a tuple crosses its attributes, "pairs" adds every pair. None
            for every attribute.
        expected_groups: Names of all possible groups; any other name is an error.
        confidence_level: Confidence level of the intervals.

    Raises:
        AuditInputError: An argument is invalid; the message names it.
    """
    source: TableSource
    if counts is not None:
        if groups is not None or decisions is not None:
            raise AuditInputError("counts: pass either arrays or counts, not both")
        if not isinstance(counts, TableCounts):
            raise AuditInputError("counts: must be `TableCounts`")
        source = TableSource(counts.selected(by).groups, counts.warnings)
        require_expected(expected_groups, {g.attribute: g.names for g in counts.groups})
    elif groups is None or decisions is None:
        raise AuditInputError("groups, decisions: pass both arrays, or `counts`")
    else:
        source = RowSource(
            rows_of(groups=groups, decisions=decisions, by=by, expected_groups=expected_groups)
        )
    require_confidence_level(confidence_level)
    if "decisions" not in source.offers:
        raise AuditInputError("decisions: at least one known decision is needed")
    rows = tuple(row for groups in source.group_sets for row in _rows(groups, confidence_level))
    undecided = int(source.group_sets[0].table[:, :, UNKNOWN_INDEX].sum())
    return SelectionTable(
        table=rows,
        confidence_level=confidence_level,
        undecided=undecided,
        warnings=source.warnings,
        unknown=source.unknown,
    )


def _rows(groups: GroupSet, confidence_level: float) -> list[SelectionRow]:
    not_selected, selected = (groups.table[:, :, decision].sum(axis=1) for decision in (0, 1))
    rows = not_selected + selected
    total = max(int(rows.sum()), 1)
    known = range(len(groups.names))
    large = [g for g in known if rows[g] >= SMALL_SHARE * total and rows[g] > 0]
    best = max(large, key=lambda g: (selected[g] / rows[g], rows[g]), default=None)
    counts = [(int(s), int(n)) for s, n in zip(selected, not_selected, strict=True)]
    ranges = impact_ranges(counts[:-1], counts[-1], large) if any(counts[-1]) else None
    table = []
    for index in range(len(rows)):
        n, hits = int(rows[index]), int(selected[index])
        unknown = index == len(groups.names)
        if unknown and n == 0:
            continue
        ratio, interval = None, None
        if best is not None and not unknown and n and selected[best]:
            ratio = float((hits / n) / (selected[best] / rows[best]))
            if index != best:
                top = (int(selected[best]), int(rows[best]))
                interval = rate_ratio_interval(hits, n, *top, confidence_level)
        table.append(
            SelectionRow(
                attribute=groups.attribute,
                group=None if unknown else groups.names[index],
                rows=n,
                selected=hits,
                share=n / total,
                rate=hits / n if n else None,
                rate_interval=wilson(hits / n, n, confidence_level) if n else None,
                impact_ratio=ratio,
                impact_interval=interval,
                small=not unknown and n < SMALL_SHARE * total,
                rate_range=None if ranges is None or unknown else ranges[index][0],
                impact_range=None if ranges is None or unknown else ranges[index][1],
            )
        )
    return table


def _range_note(row: SelectionRow) -> str:
    """Rate and impact ratio over all groups of the unknown rows."""
    return (
        f"{row.attribute}: over all groups of the rows of unknown group, the rate of {row.group} "
        f"is {_ends(row.rate_range)} and its impact ratio {_ends(row.impact_range)}"
    )


def _is_best(row: SelectionRow) -> bool:
    """Whether a group has the highest rate, with which others are compared."""
    return row.impact_ratio is not None and row.impact_interval is None and not row.small


def _kind(row: SelectionRow) -> Kind:
    if row.small:
        return "undetermined"
    return "difference" if row.surely_below else "none"


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
