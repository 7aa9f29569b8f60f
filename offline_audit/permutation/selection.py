"""The tables of selection rates, of scoring rates and of impact ratios that bias audits report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from offline_audit.coverage import Unknowns
from offline_audit.errors import AuditInputError
from offline_audit.groups import By
from offline_audit.permutation.counts import TableCounts
from offline_audit.permutation.impact import FOUR_FIFTHS, Impact, SelectionRow, impact_rows
from offline_audit.permutation.metrics import UNKNOWN_INDEX
from offline_audit.permutation.rows import RowSource, rows_of
from offline_audit.permutation.sources import ExpectedGroups, TableSource, require_expected
from offline_audit.plots import Estimate, Kind, interval_figure
from offline_audit.rendering import (
    TextTable,
    count,
    json_ready,
    percent,
    rate,
    to_html,
    to_text,
)
from offline_audit.validation import (
    UNKNOWN,
    numbers_of,
    require_confidence_level,
    require_length,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SelectionTable", "scoring_table", "selection_table", "table_of"]

# Share of scores above the median below which the table says so; without ties it is a half.
_FEW_ABOVE = 0.475
_IN_WORDS: dict[Impact, str] = {
    "below": "below four fifths by more than chance explains",
    "may be chance": "below four fifths, which may be chance",
    "not below": "not below four fifths",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionTable:
    """Selection rates, or scoring rates, by group.

    Attributes:
        table: Groups of each attribute or crossing, in order; the unknown group last.
        confidence_level: Confidence level of the intervals.
        undecided: Number of rows without a decision, or without a score, which are excluded.
        warnings: Warnings about the data.
        unknown: Numbers of rows of unknown group, with and without a decision or a score.
        median: Median score of a table of scoring rates; None for a table of selection rates.
    """

    table: tuple[SelectionRow, ...]
    confidence_level: float
    undecided: int
    warnings: tuple[str, ...]
    unknown: Unknowns
    median: float | None = None

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
            entry["impact"] = row.impact
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
        below = [row for row in self.table if row.surely_below]
        title = f"No group {self._verb} less than four fifths as often as the highest, by more "
        title += "than chance explains"
        if below:
            lowest = min(below, key=lambda row: row.impact_ratio or 0.0)
            title = self.sentence(lowest).partition(" (")[0]
        legend: dict[Kind, str] = {
            "difference": _IN_WORDS["below"],
            "none": "not below, or it may be chance",
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
        if self.median is None:
            return f"Selection rates and impact ratios. {self.unknown}"
        share = f"share above the median score, {self.median:g}"
        return f"Scoring rates ({share}) and impact ratios. {self.unknown}"

    @property
    def _verb(self) -> str:
        return "is selected" if self.median is None else "scores above the median"

    def sentence(self, row: SelectionRow) -> str:
        """A group whose ratio is below four fifths, against the group with the highest rate."""
        best = next(r for r in self.table if r.attribute == row.attribute and r.best)
        return (
            f"{row.attribute}: {row.group} {self._verb} {row.impact_ratio:.2f} times as often as "
            f"{best.group} ({percent(row.rate)} against {percent(best.rate)}): impact ratio "
            f"{self.ratio_in_words(row)}"
        )

    def ratio_in_words(self, row: SelectionRow) -> str:
        """An impact ratio with its interval, and whether it is below four fifths."""
        assert row.impact is not None
        level = f"{100 * self.confidence_level:g}% interval"
        ends = _ends(row.impact_interval)
        return f"{row.impact_ratio:.3f} ({level} {ends}), {_IN_WORDS[row.impact]}"

    @property
    def _text_table(self) -> TextTable:
        level = f"{100 * self.confidence_level:g}% interval"
        hits = "selected" if self.median is None else "above median"
        return TextTable(
            header=("attribute", "group", "rows", "share", hits, "rate", level,
                    "impact ratio", level, ""),
            rows=tuple(_cells(row) for row in self.table),
            words=2,
        )  # fmt: skip

    @property
    def _notes(self) -> list[str]:
        notes = [self.sentence(row) for row in self.table if row.below_four_fifths]
        notes.append(
            "impact ratio: rate over the highest rate of the attribute; its interval allows for "
            "each group that may truly have the highest rate"
        )
        impacts = {row.impact for row in self.table}
        if "below" in impacts:
            notes.append(f"! {_IN_WORDS['below']}: the whole interval is below 0.8")
        if "may be chance" in impacts:
            notes.append(
                "may be chance: the ratio is below four fifths, but its interval includes 0.8"
            )
        if any(row.small for row in self.table):
            notes.append(
                "* less than 2% of the data: an audit under New York City's Local Law 144 may "
                "exclude the ratio; the highest rate is that of the other groups"
            )
        notes += [
            f"{count(row.rows, 'row')} with an unknown group of {row.attribute}: assessed, but not "
            "included in the ratios"
            for row in self.table
            if row.group is None
        ]
        notes += [_range_note(row) for row in self.table if row.rate_range is not None]
        if self.undecided:
            missing = "decision" if self.median is None else "score"
            notes.append(f"excluded: {count(self.undecided, 'row')} without a {missing}")
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
    four-fifths rule is a rule of thumb: with few rows a fair model often violates it, so only
    ratios whose interval is below four fifths are marked. For tools that score: `scoring_table`.

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
    return table_of(source, confidence_level)


def scoring_table(
    groups: Any = None,
    scores: Any = None,
    *,
    by: By = None,
    expected_groups: ExpectedGroups | None = None,
    confidence_level: float = 0.95,
) -> SelectionTable:
    """Scoring rates of every group: the share with a score above the median of all scores.

    The table of New York City's Local Law 144 for tools that score people instead of selecting them
    (6 RCNY § 5-301 and § 5-303). The median is that of all rows with a score, whatever their group;
    a score that equals it is not above it.

    Args:
        groups: Group of each row, or a mapping from attributes to such arrays.
        scores: Score of each row, on any scale; None or NaN where there is none.
        by: Attributes to tabulate; a tuple crosses its attributes, "pairs" adds every pair. None
            for every attribute.
        expected_groups: Names of all possible groups; any other name is an error.
        confidence_level: Confidence level of the intervals.

    Raises:
        AuditInputError: An argument is invalid; the message names it.
    """
    if groups is None or scores is None:
        raise AuditInputError("groups, scores: pass both arrays")
    numbers = numbers_of(scores, "scores")
    known = ~np.isnan(numbers)
    if not known.any():
        raise AuditInputError("scores: at least one known score is needed")
    if np.isinf(numbers).any():
        raise AuditInputError("scores: a value is infinite; exclude such rows")
    median = float(np.median(numbers[known]))
    rows = rows_of(groups=groups, by=by, expected_groups=expected_groups)
    require_length({"groups": rows.n, "scores": len(numbers)})
    above = np.where(known, numbers > median, UNKNOWN).astype(np.int8)
    return table_of(RowSource(replace(rows, decisions=above)), confidence_level, median)


def table_of(
    source: TableSource,
    confidence_level: float,
    median: float | None = None,
) -> SelectionTable:
    """The table of counts, in which decision 1 means selected, or above the median score."""
    require_confidence_level(confidence_level)
    if "decisions" not in source.offers:
        raise AuditInputError("decisions: at least one known decision is needed")
    warnings = list(source.warnings)
    decided = source.group_sets[0].table.sum(axis=(0, 1))[:UNKNOWN_INDEX]
    above = float(decided[1] / decided.sum())
    if median is not None and above < _FEW_ABOVE:
        warnings.append(
            f"{percent(above)} of the scores are above the median instead of half, since many "
            "scores are equal to it."
        )
    rows = (row for groups in source.group_sets for row in impact_rows(groups, confidence_level))
    return SelectionTable(
        table=tuple(rows),
        confidence_level=confidence_level,
        undecided=int(source.group_sets[0].table[:, :, UNKNOWN_INDEX].sum()),
        warnings=tuple(warnings),
        unknown=source.unknown,
        median=median,
    )


def _range_note(row: SelectionRow) -> str:
    """Rate and impact ratio over all groups of the unknown rows."""
    return (
        f"{row.attribute}: over all groups of the rows of unknown group, the rate of {row.group} "
        f"is {_ends(row.rate_range)} and its impact ratio {_ends(row.impact_range)}"
    )


def _kind(row: SelectionRow) -> Kind:
    if row.small:
        return "undetermined"
    return "difference" if row.surely_below else "none"


def _cells(row: SelectionRow) -> tuple[str, ...]:
    flag = {"below": "!", "may be chance": "may be chance"}.get(row.impact or "", "")
    certain = row.best and row.impact_interval == (1.0, 1.0)
    return (
        row.attribute,
        row.group if row.group is not None else "(unknown)",
        f"{row.rows:,}",
        f"{100 * row.share:.1f}%",
        f"{row.selected:,}",
        rate(row.rate),
        _ends(row.rate_interval),
        "–" if row.impact_ratio is None else f"{row.impact_ratio:.3f}",
        _ends(None if certain else row.impact_interval),
        " ".join(filter(None, (flag, "*" * row.small))),
    )


def _ends(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
