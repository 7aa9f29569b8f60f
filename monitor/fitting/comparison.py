"""Compares two classifiers on the same rows: what changes if the second replaces the first?

Also states whether the bundle should be fitted again. The rules are in `docs/bundle.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.drift.reference import DetectorId, DriftReference
from monitor.scoring.baseline import Level
from monitor.scoring.scores import Predictions

__all__ = ["ALPHA", "AttributeComparison", "Comparison", "rise_of", "status_distance"]

# Alpha of the default policy: a score whose p-value is at most this is unusual.
ALPHA = 0.01
_RISE = 0.01
_MOST_ABOVE = 0.10
_FEWEST_ABOVE, _USUAL_ABOVE, _ROWS_FOR_FEWEST = 0.001, 0.005, 1_000
_MOST_SCALE = 2.0
_MOST_DISTANCE = 0.1
# Quantile of the two-sample Kolmogorov-Smirnov statistic at 1%.
_KOLMOGOROV = 1.63
_OLD_DAYS = 365


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeComparison:
    """What changes for one protected attribute.

    Attributes:
        before: Flip share of the old classifier on the rows, with its interval.
        after: Flip share of the new classifier.
        rise: Mean difference of the flips, paired by row.
        rise_low: Lower end of its 95% interval.
        rise_high: Upper end.
        above_before: Number of rows above the baseline with the old classifier.
        above_after: Number of rows above the baseline with the new classifier.
        status_distance: Largest difference between the distribution functions of the status
            posterior on the rows and in the drift reference.
        status_noise: Distance that chance exceeds with a probability of 1%.
    """

    before: Level
    after: Level
    rise: float
    rise_low: float
    rise_high: float
    above_before: int
    above_after: int
    status_distance: float
    status_noise: float

    @property
    def rises(self) -> bool:
        """Whether the new classifier's flip share is clearly higher, by at least one point."""
        return self.rise_low > 0 and self.rise >= _RISE


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What changes if a new classifier replaces the old one, on the same rows.

    Attributes:
        rows: Number of rows.
        source: Source of the rows, in words.
        synthetic: Whether the rows are probe rows, which are not like production.
        differ: Number of decisions that differ.
        gained: Number of decisions that become favourable.
        favourable: Name of the favourable decision.
        unfavourable: Name of the other decision.
        favourable_before: Number of favourable decisions of the old classifier.
        favourable_after: Number of favourable decisions of the new classifier.
        scale_before: Spread of the old classifier's logits on the rows.
        scale_after: Spread of the new classifier's logits on the rows.
        attributes: Comparison by protected attribute.
        fit_days: Days since the fit.
        lacks: Signal that the baseline lacks or the new classifier cannot have, in words; or empty.
    """

    rows: int
    source: str
    synthetic: bool
    differ: int
    gained: int
    favourable: str
    unfavourable: str
    favourable_before: int
    favourable_after: int
    scale_before: float
    scale_after: float
    attributes: Mapping[str, AttributeComparison]
    fit_days: int
    lacks: str = ""

    @property
    def less_fair(self) -> tuple[str, ...]:
        """Attributes whose flip share rises; empty for synthetic rows, which cannot show it."""
        if self.synthetic:
            return ()
        return tuple(name for name, own in self.attributes.items() if own.rises)

    @property
    def refit_reasons(self) -> tuple[str, ...]:
        """Reasons to fit the bundle again; empty if the kept baseline can be used."""
        reasons = [*self._lasting_reasons()]
        if not self.synthetic:
            for name, own in self.attributes.items():
                reasons += self._baseline_reasons(name, own)
        return tuple(reasons)

    def _lasting_reasons(self) -> Iterator[str]:
        if self.fit_days > _OLD_DAYS:
            yield f"the fit is {self.fit_days:,} days old (limit {_OLD_DAYS})"
        if self.lacks:
            yield self.lacks
        low, high = sorted((self.scale_before, self.scale_after))
        if high > _MOST_SCALE * low:
            yield (
                f"the spread of the logits changes from {self.scale_before:.3g} to "
                f"{self.scale_after:.3g} (limit: a factor of {_MOST_SCALE:g}); the baseline is in "
                "units of the logit"
            )

    def _baseline_reasons(self, name: str, own: AttributeComparison) -> Iterator[str]:
        before, after = own.above_before / self.rows, own.above_after / self.rows
        # A higher flip share explains more verdicts `above`; a refit would only hide it.
        if after > _MOST_ABOVE and not own.rises:
            yield (
                f"{after:.1%} of predictions would be above the baseline of {name} (limit "
                f"{_MOST_ABOVE:.0%}), but the flip share does not rise"
            )
        if self.rows >= _ROWS_FOR_FEWEST and after < _FEWEST_ABOVE and before >= _USUAL_ABOVE:
            yield (
                f"{after:.2%} of predictions would be above the baseline of {name}, instead of "
                f"{before:.1%} (limit {_FEWEST_ABOVE:.1%}): it would hardly ever give a verdict"
            )
        if own.status_distance > _MOST_DISTANCE + own.status_noise:
            yield (
                f"the rows differ from the fitted ones in features that predict {name}: distance "
                f"{own.status_distance:.2f} (limit {_MOST_DISTANCE + own.status_noise:.2f})"
            )

    def text(self) -> str:
        """The comparison as text, with aggregates only."""
        return "\n".join([*(f"{name:<12}{text}" for name, text in self._lines()), *self._advice()])

    def _lines(self) -> Iterator[tuple[str, str]]:
        n = self.rows
        yield "rows", f"{n:,} {self.source}"
        lost = self.differ - self.gained
        directions = (
            f"{self.gained:,} become {self.favourable}, {lost:,} become {self.unfavourable}"
        )
        differ = f"{self.differ:,} of {n:,} differ ({self.differ / n:.1%})"
        yield "decisions", f"{differ}: {directions}"
        rates = self.favourable_before / n, self.favourable_after / n
        yield "favourable", f"{self.favourable}: {rates[0]:.1%} before, {rates[1]:.1%} after"
        yield "logits", f"spread {self.scale_before:.3g} before, {self.scale_after:.3g} after"
        for name, own in self.attributes.items():
            shares = f"{_level(own.before)} before, {_level(own.after)} after"
            rise, low, high = (100 * value for value in (own.rise, own.rise_low, own.rise_high))
            difference = f"difference {rise:+.1f} points ({low:+.1f} to {high:+.1f})"
            yield "flip share", f"{name}: {shares}; {difference}"
            before, after = (
                f"{count:,} ({count / n:.1%})" for count in (own.above_before, own.above_after)
            )
            yield "above", f"{name}: the baseline at {ALPHA:.0%}: {before} before, {after} after"

    def _advice(self) -> Iterator[str]:
        if self.synthetic:
            yield (
                "These rows are synthetic: each feature is drawn independently in its range. The "
                "figures are not estimates for production; give rows of a table or of the log."
            )
        if self.favourable_after in (0, self.rows):
            yield (
                "The new classifier makes the same decision for all rows; check the order of its "
                "columns."
            )
        for name in self.less_fair:
            yield (
                f"Less fair: more decisions depend on {name} than before; expect an alarm "
                "of the drift watch. Do not fit a new baseline unless that level is acceptable."
            )
        for reason in self.refit_reasons:
            yield f"Fit again: {reason}."
        if not (self.refit_reasons or self.less_fair or self.synthetic):
            yield "The kept baseline can be used; no reason to fit again was found."


def _level(level: Level) -> str:
    low, high = level.flip_share_low, level.flip_share_high
    return f"{level.flip_share:.1%} (95% interval {low:.1%} to {high:.1%})"


def rise_of(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean difference of paired flips `[n]`, and its normal 95% interval."""
    difference = after - before
    rise = float(difference.mean())
    half = 1.96 * float(difference.std()) / math.sqrt(len(difference))
    return rise, rise - half, rise + half


def status_distance(
    reference: DriftReference, batch: Predictions, attribute: str
) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance of the status posterior to the reference, and its 1% quantile.

    Evaluated at the edges of the reference's bins; for more than two groups, the largest distance
    of a group.
    """
    layout = reference.layout
    own = layout.owners == layout.detectors.index(DetectorId("status", attribute))
    values, distances, fitted = layout.columns(batch), [], 0.0
    for column in np.flatnonzero(own):
        edges, counts = reference.edges[column], reference.counts[column]
        counts = counts[1 : len(edges) + 1]
        fitted = float(counts.sum())
        bins = edges.searchsorted(values[column], side="right") - 1
        rows = np.bincount(bins, minlength=len(edges))
        gap = np.cumsum(rows) / rows.sum() - np.cumsum(counts) / fitted
        distances.append(float(np.abs(gap).max()))
    n = values.shape[1]
    return max(distances), _KOLMOGOROV * math.sqrt(1 / n + 1 / fitted)
