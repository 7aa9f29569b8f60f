"""Results of permutation tests, for terminals, notebooks, JSON and figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_audit.permutation.estimates import GroupEstimate
from offline_audit.permutation.permutations import Alternative
from offline_audit.permutation.unknown import Missing
from offline_audit.power import Detectable
from offline_audit.rendering import (
    TextTable,
    bounds,
    compared,
    count,
    detectable,
    json_ready,
    p_equals,
    rate,
    signed,
    to_html,
    to_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison"]


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
        p_value: Mid-p, in which ties count half; None if the question cannot be determined from the
            data, see `reason`.
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
        missing: Unknown groups and labels, and the ranges that they leave open.
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
    missing: Missing
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
    def p_value_kind(self) -> str | None:
        """How the p-value is computed; None without one."""
        if self.p_value is None:
            return None
        if self.exact:
            return "mid-p: exact, ties count half"
        return "mid-p: (b + 1) / (B + 1) of B random permutations, ties count half"

    @property
    def monte_carlo_error(self) -> float | None:
        """Standard error of the p-value from random permutations; 0 if it is exact."""
        if self.p_value is None:
            return None
        if not self.n_resamples:
            return 0.0
        return math.sqrt(self.p_value * (1 - self.p_value) / self.n_resamples)

    @property
    def disagreement(self) -> str | None:
        """Which to believe if interval and p-value, by different methods, disagree about 0."""
        if self.p_value is None or self.interval is None or self.alternative != "two-sided":
            return None
        low, high = self.interval
        includes = low <= 0 <= high
        if includes != (self.p_value <= round(1 - self.confidence_level, 12)):
            return None
        return (
            f"{self.metric} of {self.versus}: the interval {'includes' if includes else 'excludes'}"
            f" 0, but p {p_equals(self.p_value)}. They use different methods; believe the p-value."
        )

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
    def range_notes(self) -> list[str]:
        """What unknown labels and groups leave open, in words."""
        return list(self.missing.notes((self.group.name, self.other.name if self.other else "")))

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
            "p_value_kind": self.p_value_kind,
            "monte_carlo_error": self.monte_carlo_error,
        }

    def plot(self) -> Figure:
        """The effect with its interval."""
        # Imported here, since several comparisons are made of this one.
        from offline_audit.permutation.comparisons import Comparisons

        unknown = self.missing.unknown
        return Comparisons(comparisons=(self,), warnings=(), unknown=unknown).plot()

    def __str__(self) -> str:
        return to_text(self._title, self._table, self._notes)

    def _repr_html_(self) -> str:
        return to_html(self._title, self._table, self._notes)

    @property
    def _title(self) -> str:
        return f"{self.metric} by {self.attribute}: {self.question} {self.missing.unknown}"

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
        notes += self.range_notes
        if self.p_value is None:
            notes.append(f"cannot be determined, no p-value: {self.reason}")
        else:
            outcome = "difference" if self.rejected else "no difference shown"
            how = f"{self.alternative}; ties count half; {self._resampling}"
            p = f"mid-p {p_equals(self.p_value)} ({how})"
            notes.append(f"{outcome} at α = {self.alpha:g}: {p}")
        known = self.missing.known_p_value
        if known is not None and known != self.p_value:
            notes.append(
                f"p {p_equals(known)} for the labelled rows of known groups alone, which is valid "
                "only if what is unknown is missing at random"
            )
        if self.smallest_detectable_effect is not None:
            approximate = ", approximate" * (self.n_resamples is not None)
            notes.append(
                f"smallest detectable effect {detectable(self.smallest_detectable_effect)} (80% "
                f"power at alpha = {self.alpha:g}{approximate})"
            )
        if self.disagreement is not None:
            notes.append(self.disagreement)
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
            f"(b + 1) / (B + 1) of {self.n_resamples:,} random permutations of {self.exchanged}, "
            f"Monte Carlo error {self.monte_carlo_error:.4f}"
        )
