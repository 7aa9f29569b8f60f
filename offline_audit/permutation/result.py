"""Results of permutation tests, for terminals, notebooks, JSON and figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_audit.permutation.estimates import GroupEstimate
from offline_audit.permutation.permutations import Alternative
from offline_audit.plots import Estimate, Kind, interval_figure
from offline_audit.power import Detectable
from offline_audit.rendering import (
    TextTable,
    bounds,
    compared,
    count,
    detectable,
    format_p_value,
    json_ready,
    p_equals,
    rate,
    signed,
    to_html,
    to_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Comparisons"]

# Differences that the text of several comparisons states in a sentence.
_MOST_SENTENCES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric, compared between two groups.

    Attributes:
        metric: Name of the metric.
        question: The question in words.
        attribute: The protected attribute.
        group: The first group.
        other: The group that it is compared with; None for a correlation.
        effect: Metric of the first group minus metric of the other.
        unit: Unit of the effect: `rate`, `score`, `auc`, `correlation`; None for a function.
        direction: Direction of the effect in words; None without an effect.
        interval: Confidence interval of the effect; two-sided for every alternative.
        interval_method: Method of the interval.
        alpha: Significance level of `rejected` and of `smallest_detectable_effect`.
        confidence_level: Confidence level of the interval.
        statistic: The studentized difference.
        p_value: None if the question cannot be determined from the data; see `reason`.
        reason: Why there is no p-value, in words; None if there is one.
        alternative: Which differences count as extreme.
        exchanged: Which rows were permuted, in words.
        n_resamples: Number of random permutations; None if all were enumerated.
        degenerate_resamples: Permutations without a statistic, counted as at least as extreme.
        smallest_detectable_effect: The smallest effects downwards and upwards that this test
            detects in 80% of such samples, if the other group has the pooled metric; None for a
            direction where no effect is. None without an estimate of the error.
        smallest_count: The smallest count that the groups are expected to have under equality;
            None where there is none.
        required_count: The smallest count with which the test runs.
        binning_error: Largest change of the effect that score bins can cause; 0 without bins.
        warnings: Warnings about the data.
        seed: Seed of the random generator.
    """

    metric: str
    question: str
    attribute: str
    group: GroupEstimate
    other: GroupEstimate | None
    effect: float | None
    unit: str | None
    direction: str | None
    interval: tuple[float, float] | None
    interval_method: str
    alpha: float
    confidence_level: float
    statistic: float | None
    p_value: float | None
    reason: str | None
    alternative: Alternative
    exchanged: str
    n_resamples: int | None
    degenerate_resamples: int
    smallest_detectable_effect: Detectable | None
    smallest_count: float | None
    required_count: float
    binning_error: float
    warnings: tuple[str, ...]
    seed: int

    @property
    def determined(self) -> bool:
        """Whether there is a p-value."""
        return self.p_value is not None

    @property
    def rejected(self) -> bool:
        """Whether the p-value is at most `alpha`."""
        return self.p_value is not None and self.p_value <= self.alpha

    @property
    def exact(self) -> bool:
        """Whether all permutations were enumerated."""
        return self.determined and self.n_resamples is None

    @property
    def monte_carlo_error(self) -> float | None:
        """Standard error of the p-value from random permutations; 0 if it is exact."""
        if self.p_value is None:
            return None
        if not self.n_resamples:
            return 0.0
        return math.sqrt(self.p_value * (1 - self.p_value) / self.n_resamples)

    @property
    def sentence(self) -> str | None:
        """Direction, values and interval of the effect, to be quoted; None without an effect."""
        if self.effect is None or self.group.estimate is None:
            return None
        if self.other is None or self.other.estimate is None:
            level = f"{100 * self.confidence_level:g}% interval"
            effect = f"{signed(self.effect)} ({level} {bounds(self.interval)})"
            return f"{self.direction}: {self.metric} {effect}"
        values = compared(
            (self.group.estimate, self.other.estimate),
            self.interval,
            unit=self.unit,
            confidence_level=self.confidence_level,
        )
        return f"{self.direction}: {values}"

    @property
    def versus(self) -> str:
        """Names of the groups that are compared."""
        return f"{self.group.name} against {self.other.name}" if self.other else self.group.name

    def to_dict(self) -> dict[str, Any]:
        """All fields and derived values, for JSON."""
        fields: dict[str, Any] = json_ready(self)
        return fields | {
            "determined": self.determined,
            "rejected": self.rejected,
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
    def _title(self) -> str:
        return f"{self.metric} by {self.attribute}: {self.question}"

    @property
    def _table(self) -> TextTable:
        groups = [group for group in (self.group, self.other) if group is not None]
        return TextTable(
            header=("group", "rows", "counted", "hits", self.metric),
            rows=tuple(
                (
                    group.name,
                    f"{group.rows:,}",
                    f"{group.counted:,}",
                    "–" if group.hits is None else f"{group.hits:,}",
                    rate(group.estimate),
                )
                for group in groups
            ),
        )

    @property
    def _notes(self) -> list[str]:
        one_sided = self.alternative != "two-sided"
        level = f"{100 * self.confidence_level:g}%"
        interval = f"{level} interval {bounds(self.interval)} ({self.interval_method})"
        interval += "; two-sided, unlike the test" * one_sided
        notes = [] if self.sentence is None else [self.sentence]
        notes += [] if self.effect is None else [f"effect {signed(self.effect)}, {interval}"]
        if self.p_value is None:
            notes.append(f"cannot be determined, no p-value: {self.reason}")
        else:
            outcome = "difference" if self.rejected else "no difference shown"
            p = f"p {p_equals(self.p_value)} ({self.alternative}; {self._resampling})"
            notes.append(f"{outcome} at α = {self.alpha:g}: {p}")
        if self.smallest_detectable_effect is not None:
            approximate = ", approximate" * (self.n_resamples is not None)
            notes.append(
                f"smallest detectable effect {detectable(self.smallest_detectable_effect)} (80% "
                f"power at alpha = {self.alpha:g}{approximate})"
            )
        if self.degenerate_resamples:
            notes.append(
                f"{count(self.degenerate_resamples, 'permutation')} left a group without counted "
                "rows and are counted as at least as extreme"
            )
        if self.binning_error:
            notes.append(f"score bins change the effect by at most {self.binning_error:.4f}")
        return notes + [f"! {warning}" for warning in self.warnings]

    @property
    def _resampling(self) -> str:
        if self.n_resamples is None:
            return f"exact, all permutations of {self.exchanged}"
        return (
            f"{self.n_resamples:,} random permutations of {self.exchanged}, Monte Carlo error "
            f"{self.monte_carlo_error:.4f}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """Several comparisons, in the requested order.

    Attributes:
        comparisons: Comparisons of each metric and group.
        warnings: Warnings about the data as a whole.
    """

    comparisons: tuple[Comparison, ...]
    warnings: tuple[str, ...]

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
            "warnings": list(self.warnings),
        }

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
            )
            for comparison in self.comparisons
            if comparison.effect is not None
        ]
        legend: dict[Kind, str] = {
            "difference": "a difference, not corrected for the number of comparisons",
            "none": "no difference shown",
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
            p = f"p {p_equals(one.p_value or 0.0)}"
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
        return f"Permutation tests: {count(len(self.comparisons), 'comparison')}"

    @property
    def _table(self) -> TextTable:
        return TextTable(
            header=("attribute", "metric", "group", "against", "estimate", "other", "effect",
                    "interval", "p"),
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
        if rejected and len(self) > 1:
            notes.append("p-values are not corrected for the number of comparisons")
        notes += [f"no p-value for {', '.join(names)}: {why}" for why, names in reasons.items()]
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
