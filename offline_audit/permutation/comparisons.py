"""Several comparisons of permutation tests, for terminals, notebooks, JSON and figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_audit.coverage import Unknowns
from offline_audit.permutation.result import Comparison
from offline_audit.plots import Estimate, Kind, interval_figure
from offline_audit.rendering import (
    TextTable,
    bounds,
    count,
    format_p_value,
    json_ready,
    p_equals,
    rate,
    signed,
    to_html,
    to_text,
    uncorrected,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparisons"]

# Differences that the text of several comparisons states in a sentence.
_MOST_SENTENCES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """Several comparisons, in the requested order.

    Attributes:
        comparisons: Comparisons of each metric and group.
        warnings: Warnings about the data as a whole.
        unknown: Numbers of rows of unknown group and without a label.
    """

    comparisons: tuple[Comparison, ...]
    warnings: tuple[str, ...]
    unknown: Unknowns

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.comparisons)

    def __len__(self) -> int:
        return len(self.comparisons)

    def __getitem__(self, index: int) -> Comparison:
        return self.comparisons[index]

    def of(self, metric: str, group: str | None = None) -> Comparison:
        """The comparison of a metric, or of a metric and a group.

        Raises:
            KeyError: There is none, or more than one.
        """
        matches = [
            comparison
            for comparison in self.comparisons
            if comparison.metric == metric and group in (None, comparison.group.name)
        ]
        if len(matches) != 1:
            raise KeyError(f"{len(matches)} comparisons of {metric} and {group or 'any group'}")
        return matches[0]

    def to_dict(self) -> dict[str, Any]:
        """All comparisons and warnings, for JSON."""
        return {
            "comparisons": [comparison.to_dict() for comparison in self.comparisons],
            "note": self.note,
            "warnings": list(self.warnings),
            "unknown": json_ready(self.unknown),
        }

    @property
    def note(self) -> str | None:
        """Note that the p-values of several comparisons are not corrected; None for one."""
        return uncorrected(sum(comparison.determined for comparison in self.comparisons))

    def plot(self) -> Figure:
        """Effects with their intervals, by attribute and unit."""
        estimates = [
            Estimate(
                name=f"{comparison.metric}: {comparison.versus.replace(' against ', ' – ')}",
                value=comparison.effect,
                interval=comparison.interval,
                kind=(
                    "undetermined"
                    if not comparison.determined
                    else "difference"
                    if comparison.rejected
                    else "none"
                ),
                section=comparison.attribute,
                rows=tuple(g.counted for g in (comparison.group, comparison.other) if g),
                unit=comparison.unit,
                range=comparison.missing.effect_range,
            )
            for comparison in self.comparisons
            if comparison.effect is not None
        ]
        raw = "" if self.note is None else ", not corrected for the number of tests"
        legend: dict[Kind, str] = {
            "difference": f"a difference{raw}",
            "none": f"no difference shown{raw}",
            "undetermined": "cannot be determined",
        }
        levels = [comparison.confidence_level for comparison in self]
        level = levels[0] if levels else 0.95
        return interval_figure(estimates, self._plot_title, legend, confidence_level=level)

    @property
    def _plot_title(self) -> str:
        tested = [comparison for comparison in self.comparisons if comparison.determined]
        rejected = [comparison for comparison in tested if comparison.rejected]
        if len(self) == 1 and tested:
            (one,) = self
            p = f"mid-p {p_equals(one.p_value or 0.0)}"
            if rejected:
                return f"{one.direction} ({p})"
            return f"No difference of {one.metric} shown for {one.versus} ({p})"
        if not tested:
            return "No comparison could be tested"
        return f"{len(rejected)} of {count(len(tested), 'comparison')} show a difference"

    def __str__(self) -> str:
        return to_text(self._title, self._table, self._notes)

    def _repr_html_(self) -> str:
        return to_html(self._title, self._table, self._notes)

    @property
    def _title(self) -> str:
        return f"Permutation tests: {count(len(self.comparisons), 'comparison')}. {self.unknown}"

    @property
    def _table(self) -> TextTable:
        return TextTable(
            header=("attribute", "metric", "group", "against", "estimate", "other", "effect",
                    "interval", "mid-p"),
            rows=tuple(map(_cells, self.comparisons)),
            words=4,
        )  # fmt: skip

    @property
    def _notes(self) -> list[str]:
        reasons: dict[str, list[str]] = {}
        for comparison in self.comparisons:
            if comparison.reason is not None:
                subject = f"{comparison.metric} of {comparison.group.name}"
                reasons.setdefault(comparison.reason, []).append(subject)
        rejected = [c for c in self.comparisons if c.rejected and c.sentence is not None]
        notes = [f"{c.metric} by {c.attribute}: {c.sentence}" for c in rejected[:_MOST_SENTENCES]]
        if others := rejected[_MOST_SENTENCES:]:
            notes.append(f"{count(len(others), 'difference')} more: see the comparisons")
        notes += [] if self.note is None else [self.note]
        notes += [f"no p-value for {', '.join(names)}: {why}" for why, names in reasons.items()]
        notes += [c.disagreement for c in self.comparisons if c.disagreement is not None]
        ranged = [c for c in self.comparisons if c.missing.effect_range is not None]
        for c in ranged[:_MOST_SENTENCES]:
            notes += [f"{c.metric} by {c.attribute}, {note}" for note in c.range_notes]
        own = [warning for comparison in self.comparisons for warning in comparison.warnings]
        return notes + [f"! {w}" for w in dict.fromkeys([*self.warnings, *own])]


def _cells(comparison: Comparison) -> tuple[str, ...]:
    other = comparison.other
    return (
        comparison.attribute,
        comparison.metric,
        comparison.group.name,
        other.name if other else "",
        rate(comparison.group.estimate),
        rate(other.estimate) if other else "",
        signed(comparison.effect),
        bounds(comparison.interval),
        format_p_value(comparison.p_value),
    )
