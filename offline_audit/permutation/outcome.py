"""What a permutation test found, as it prints."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_audit.permutation.rearranged_sums import Alternative
from offline_audit.plain_words import count
from offline_audit.presentation import (
    Estimate,
    TextTable,
    bounds,
    interval_figure,
    json_ready,
    p_words,
    rate,
    signed,
    to_html,
    to_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Comparisons", "Side"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two groups that are compared.

    Attributes:
        name: Of the group; "not …" for all others.
        rows: Of the group.
        counted: Rows that the metric counts: true positives for a TPR, all for a mean score.
        hits: Successes among them, for a rate; positives, for an AUC; else None.
        units: Persons, or whatever rows came in, that the counted rows belong to.
        estimate: The metric; None without counted rows.
    """

    name: str
    rows: int
    counted: int
    hits: int | None
    units: int
    estimate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric, compared between a group and another.

    Attributes:
        metric: Its name.
        question: What is asked, in words.
        attribute: The protected attribute.
        group: The group.
        other: What it is compared with; None for a correlation.
        effect: Metric of the group minus metric of the other.
        interval: Confidence interval of the effect; two-sided, whatever the alternative.
        interval_method: How it was made.
        confidence: Its level.
        statistic: The studentized difference.
        p_value: None where there is not enough data.
        reason: Why there is no p-value, in words; None if there is one.
        alternative: Which differences count as extreme.
        exchanged: Which rows changed groups in the rearrangements, in words.
        draws: Rearrangements drawn; None if all were enumerated.
        degenerate_draws: Draws without a statistic, counted as at least as extreme.
        smallest_detectable: Difference that a two-sided test at 5% finds in 80% of such samples.
        smallest_cell: The smallest count that the groups would be expected to have if they were
            alike; None where it has no meaning.
        least_cell: Below this there is not enough data.
        binning_error: How far binned scores can move the effect; 0 without bins.
        warnings: What to know before the figure is believed.
        seed: Of the draws.
    """

    metric: str
    question: str
    attribute: str
    group: Side
    other: Side | None
    effect: float | None
    interval: tuple[float, float] | None
    interval_method: str
    confidence: float
    statistic: float | None
    p_value: float | None
    reason: str | None
    alternative: Alternative
    exchanged: str
    draws: int | None
    degenerate_draws: int
    smallest_detectable: float | None
    smallest_cell: float | None
    least_cell: float
    binning_error: float
    warnings: tuple[str, ...]
    seed: int

    @property
    def enough_data(self) -> bool:
        """Whether there is a p-value."""
        return self.p_value is not None

    @property
    def exact(self) -> bool:
        """Whether all rearrangements were enumerated."""
        return self.enough_data and self.draws is None

    @property
    def monte_carlo_error(self) -> float | None:
        """Standard error of the p-value by the draws; 0 if it is exact."""
        if self.p_value is None:
            return None
        return 0.0 if not self.draws else math.sqrt(self.p_value * (1 - self.p_value) / self.draws)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found: dict[str, Any] = json_ready(self)
        return found | {
            "enough_data": self.enough_data,
            "exact": self.exact,
            "monte_carlo_error": self.monte_carlo_error,
        }

    def plot(self) -> Figure:
        """The effect with its interval."""
        return Comparisons(comparisons=(self,), warnings=()).plot()

    def __str__(self) -> str:
        return to_text(self._title, self._table, self._notes)

    def _repr_html_(self) -> str:
        return to_html(self._title, self._table, self._notes)

    @property
    def versus(self) -> str:
        """Who is compared with whom."""
        return f"{self.group.name} against {self.other.name}" if self.other else self.group.name

    @property
    def _title(self) -> str:
        return f"{self.metric} by {self.attribute}: {self.question}"

    @property
    def _table(self) -> TextTable:
        sides = [side for side in (self.group, self.other) if side is not None]
        return TextTable(
            header=("group", "rows", "counted", "hits", self.metric),
            rows=tuple(
                (
                    side.name,
                    f"{side.rows:,}",
                    f"{side.counted:,}",
                    "–" if side.hits is None else f"{side.hits:,}",
                    rate(side.estimate),
                )
                for side in sides
            ),
        )

    @property
    def _notes(self) -> list[str]:
        level = f"{100 * self.confidence:g}%"
        shown = f"{level} interval {bounds(self.interval)} ({self.interval_method})"
        shown += "; two-sided, whatever the test is" * self._one_sided
        notes = [] if self.effect is None else [f"effect {signed(self.effect)}, {shown}"]
        if self.reason is not None:
            notes.append(f"no p-value: {self.reason}")
        else:
            notes.append(f"p {_equals(self.p_value)} ({self.alternative}; {self._drawn})")
        if self.smallest_detectable is not None:
            notes.append(
                f"a difference of {self.smallest_detectable:.3f} would be found in 80% of samples "
                f"of this size{' by a two-sided test' * self._one_sided}"
            )
        if self.degenerate_draws:
            notes.append(
                f"{self.degenerate_draws:,} draws left a group without rows that count; they are "
                "counted as at least as extreme"
            )
        if self.binning_error:
            notes.append(f"binned scores can move the effect by at most {self.binning_error:.4f}")
        return notes + [f"warning: {warning}" for warning in self.warnings]

    @property
    def _one_sided(self) -> bool:
        return self.alternative != "two-sided"

    @property
    def _drawn(self) -> str:
        if self.draws is None:
            return f"all rearrangements of {self.exchanged}"
        return (
            f"{self.draws:,} rearrangements of {self.exchanged}, Monte Carlo error "
            f"{self.monte_carlo_error:.4f}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """Several comparisons, in the order in which they were asked for.

    Attributes:
        comparisons: Each metric of each group.
        warnings: About the data as a whole.
    """

    comparisons: tuple[Comparison, ...]
    warnings: tuple[str, ...]

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.comparisons)

    def __len__(self) -> int:
        return len(self.comparisons)

    def __getitem__(self, place: int) -> Comparison:
        return self.comparisons[place]

    def of(self, metric: str, group: str | None = None) -> Comparison:
        """The one comparison of a metric, or of a metric and a group.

        Raises:
            KeyError: There is none, or more than one.
        """
        found = [
            each
            for each in self.comparisons
            if each.metric == metric and group in (None, each.group.name)
        ]
        if len(found) != 1:
            raise KeyError(f"{len(found)} comparisons of {metric} and {group or 'any group'}")
        return found[0]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "comparisons": [each.to_dict() for each in self.comparisons],
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        return to_text(self._title, self._table, self._notes)

    def _repr_html_(self) -> str:
        return to_html(self._title, self._table, self._notes)

    def plot(self) -> Figure:
        """Effects with their intervals, one below the other."""
        shown = [
            Estimate(
                name=f"{each.metric}: {each.versus}",
                value=each.effect,
                interval=each.interval,
                sure=each.enough_data,
            )
            for each in self.comparisons
            if each.effect is not None
        ]
        return interval_figure(shown, "difference (gray: not enough data)")

    @property
    def _title(self) -> str:
        return f"Permutation tests: {count(len(self.comparisons), 'comparison')}"

    @property
    def _table(self) -> TextTable:
        return TextTable(
            header=("attribute", "metric", "group", "against", "estimate", "other", "effect",
                    "interval", "p"),
            rows=tuple(_row(each) for each in self.comparisons),
            words=4,
        )  # fmt: skip

    @property
    def _notes(self) -> list[str]:
        reasons: dict[str, list[str]] = {}
        for each in self.comparisons:
            if each.reason is not None:
                reasons.setdefault(each.reason, []).append(f"{each.metric} of {each.group.name}")
        notes = [f"no p-value for {', '.join(what)}: {why}" for why, what in reasons.items()]
        said = dict.fromkeys(w for each in self.comparisons for w in each.warnings)
        return notes + [f"warning: {w}" for w in dict.fromkeys([*self.warnings, *said])]


def _row(each: Comparison) -> tuple[str, ...]:
    return (
        each.attribute,
        each.metric,
        each.group.name,
        each.other.name if each.other else "",
        rate(each.group.estimate),
        rate(each.other.estimate) if each.other else "",
        signed(each.effect),
        bounds(each.interval),
        p_words(each.p_value),
    )


def _equals(p_value: float | None) -> str:
    words = p_words(p_value)
    return words if words.startswith("<") else f"= {words}"
