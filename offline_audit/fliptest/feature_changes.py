"""Change of one variable between flipped rows and their counterparts, and undone flips."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.fliptest.counts import OTHER_CATEGORIES, category_length
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.intervals import Interval, skewed_t_interval, wilson
from offline_audit.maps.columns import Columns, Variable, category_codes
from offline_audit.maps.transport_map import Features

__all__ = [
    "CategoryShift",
    "Decide",
    "FeatureChange",
    "WeightedFlips",
    "feature_change",
    "with_undone",
]

Float = NDArray[np.float64]
Codes = NDArray[np.intp]
# Favourable decision of rows `[n, d]`: 1, 0, or −1 if the model fails, `[n]`.
Decide = Callable[[Features], NDArray[np.int8]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedFlips:
    """Flips of one side: r pairs of a row and a counterpart, of m people.

    A person with several counterparts may have several flips. These are dependent, so intervals
    treat the person as the sampling unit.

    Attributes:
        own: Features of the row of each flip, `[r, d]`.
        other: Features of the counterpart of each flip, `[r, d]`.
        owner: Index of the person of each flip, `[r]`.
        weights: Number of flips of each person, `[m]`.
    """

    own: Features
    other: Features
    owner: Codes
    weights: Float

    @classmethod
    def of(cls, flipset: Flipset, side: Side) -> WeightedFlips:
        """All flips of one side of a flipset."""
        draws, people = np.nonzero(flipset.flips(side))
        return cls._indexed(flipset.features[people], flipset.counterparts[draws, people], people)

    @classmethod
    def _indexed(cls, own: Features, other: Features, people: Codes) -> WeightedFlips:
        _, owner, weights = np.unique(people, return_inverse=True, return_counts=True)
        return cls(own=own, other=other, owner=owner, weights=weights.astype(np.float64))

    def take(self, rows: Codes | NDArray[np.bool_]) -> WeightedFlips:
        """Flips at these indices, or of this mask."""
        return self._indexed(self.own[rows], self.other[rows], self.owner[rows])

    def totals(self, values: NDArray[Any]) -> Float:
        """Sum of values over the flips of each person, `[r]` to `[m]`."""
        return np.bincount(self.owner, values, minlength=len(self.weights)).astype(np.float64)

    def mean_interval(self, values: Float, confidence_level: float) -> Interval:
        """Interval of a mean over flips: linearized ratio of sums, corrected for skewness."""
        mean, people = float(values.mean()), len(self.weights)
        totals = self.totals(values)
        residuals = totals - mean * self.weights
        square = float((residuals**2).sum())
        # Residuals of floating-point error only: all values are equal.
        if people < 2 or square <= 1e-20 * float((totals**2).sum()):
            return mean, mean
        variance = square / self.weights.sum() ** 2 * people / (people - 1)
        skewness = float((residuals**3).sum()) / square**1.5
        return skewed_t_interval(mean, variance, skewness, people - 1, confidence_level)

    def share_interval(self, hits: NDArray[np.bool_], confidence_level: float) -> Interval:
        """Wilson's interval of a share of flips, with an effective number of people."""
        share = float(hits.mean())
        # Kish's effective sample size; the design effect may reduce it further.
        max_effective_n = float(self.weights.sum() ** 2 / (self.weights**2).sum())
        residuals = self.totals(hits) - share * self.weights
        variance = float((residuals**2).sum() / self.weights.sum() ** 2)
        effective = (
            min(max_effective_n, share * (1 - share) / variance)
            if variance > 0
            else max_effective_n
        )
        return wilson(share, effective, confidence_level)

    def net_interval(self, signs: NDArray[np.int8], confidence_level: float) -> Interval:
        """Interval of the share of positive signs minus the share of negative signs.

        Newcombe's hybrid for dependent shares (Statistics in Medicine 17, 1998, 2635, method 10).
        """
        positive, negative = signs > 0, signs < 0
        p, q = float(positive.mean()), float(negative.mean())
        (p_low, p_high), (q_low, q_high) = (
            self.share_interval(hits, confidence_level) for hits in (positive, negative)
        )
        odds = p * q / max((1 - p) * (1 - q), 1e-12)
        # Correlation of the two shares, which exclude each other. Where one share is 1, the other
        # can only gain what the first loses.
        correlation = -1.0 if 1.0 in (p, q) else -math.sqrt(odds)

        def half_width(a: float, b: float) -> float:
            return math.sqrt(max(a * a - 2 * correlation * a * b + b * b, 0.0))

        low = p - q - half_width(p - p_low, q_high - q)
        high = p - q + half_width(p_high - p, q - q_low)
        return max(low, -1.0), min(high, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryShift:
    """Difference in the share of one category between flipped rows and their counterparts.

    Attributes:
        name: Name of the category.
        difference: Share among flipped rows minus share among counterparts.
        interval: Confidence interval of the difference.
    """

    name: str
    difference: float
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureChange:
    """Difference of one variable between flipped rows and counterparts: x − G(x).

    The magnitude of a category is the length of the vector of its columns' mean differences,
    divided by their common scale. For two categories it equals that of one binary column. The
    consistency of a category is the difference of the category that changes most.

    Attributes:
        name: Name of the feature, or of the group of one-hot columns.
        kind: Kind of the variable; `category` for one-hot columns.
        magnitude: Mean difference in standard deviations; without sign for a category.
        magnitude_interval: Interval of the magnitude.
        difference: Mean difference in the variable's own unit; None for a category.
        consistency: Mean sign of the difference; ±1 if all differences have one sign.
        consistency_interval: Interval of the consistency.
        changed: Share of flips in which the variable differs.
        undone: Share of flips that are undone if this variable alone is set back to the row's
            own value; None if the model was not called.
        undone_interval: Interval of that share.
        unanswered: Number of flips excluded from it because the model failed.
        shifts: Differences by category, the largest first; empty for other kinds. Categories of
            fewer people than the smallest cell are merged, and so are those in the magnitude and
            the consistency; empty if one category is left.
        commonest: Most frequent change of category, from the row to the counterpart; None if it
            occurs for fewer people than the smallest cell.
        commonest_share: Share of flips with that change.
    """

    name: str
    kind: Literal["numeric", "integer", "binary", "category"]
    magnitude: float
    magnitude_interval: Interval
    difference: float | None
    consistency: float
    consistency_interval: Interval
    changed: float
    undone: float | None = None
    undone_interval: Interval | None = None
    unanswered: int = 0
    shifts: tuple[CategoryShift, ...] = ()
    commonest: tuple[str, str] | None = None
    commonest_share: float | None = None


def feature_change(
    flips: WeightedFlips, variable: Variable, scale: Float, confidence_level: float, smallest: int
) -> FeatureChange:
    """Compare one variable between flipped rows and their counterparts.

    Args:
        flips: Flips of one side.
        variable: Variable to compare.
        scale: Standard deviation of each column, above zero, `[d]`.
        confidence_level: Confidence level of the intervals.
        smallest: Smallest number of people for whom a change of category is named.
    """
    if variable.kind == "category":
        return _category_change(flips, variable, scale, confidence_level, smallest)
    column = variable.columns[0]
    difference = flips.own[:, column].astype(np.float64) - flips.other[:, column]
    signs = np.sign(difference).astype(np.int8)
    mean, spread = float(difference.mean()), float(scale[column])
    net = flips.net_interval(signs, confidence_level)
    # The difference of a binary variable is its sign. The interval of the sign is also valid if
    # no row in the sample differs.
    low, high = (
        net if variable.kind == "binary" else flips.mean_interval(difference, confidence_level)
    )
    return FeatureChange(
        name=variable.name,
        kind=variable.kind,
        magnitude=mean / spread,
        magnitude_interval=(low / spread, high / spread),
        difference=mean,
        consistency=float(signs.mean()),
        consistency_interval=net,
        changed=float((signs != 0).mean()),
    )


def _category_change(
    flips: WeightedFlips, variable: Variable, scale: Float, confidence_level: float, smallest: int
) -> FeatureChange:
    own, other = (category_codes(rows, variable) for rows in (flips.own, flips.other))
    changed = float((own != other).mean())
    names, codes = _published_categories(flips, own, other, variable.categories, smallest)
    # Without names, the figures of the categories are a mean over all flips like those of numbers.
    shown = names or variable.categories
    codes = codes if names else np.arange(len(shown))
    own, other = codes[own], codes[other]
    shifts = []
    for code, name in enumerate(shown):
        signs = (own == code).astype(np.int8) - (other == code)
        shift = CategoryShift(
            name=name,
            difference=float(signs.mean()),
            interval=flips.net_interval(signs, confidence_level),
        )
        shifts.append(shift)
    # A dropped reference category has no column, so it is not part of the length.
    dropped = {int(codes[-1])} if variable.dropped else set()
    encoded = [shift for code, shift in enumerate(shifts) if code not in dropped]
    magnitude, interval = category_length(
        [shift.difference for shift in encoded],
        [shift.interval for shift in encoded],
        float(scale[variable.columns[0]]),
    )
    largest = max(shifts, key=lambda shift: abs(shift.difference))
    occurring = [shift for code, shift in enumerate(shifts) if code in own or code in other]
    commonest, share = _commonest_change(flips, own, other, shown, smallest)
    return FeatureChange(
        name=variable.name,
        kind=variable.kind,
        magnitude=magnitude,
        magnitude_interval=interval,
        difference=None,
        consistency=largest.difference,
        consistency_interval=largest.interval,
        changed=changed,
        shifts=tuple(sorted(occurring, key=lambda shift: -abs(shift.difference))) if names else (),
        commonest=commonest,
        commonest_share=share,
    )


def _published_categories(
    flips: WeightedFlips, own: Codes, other: Codes, names: tuple[str, ...], smallest: int
) -> tuple[tuple[str, ...], Codes]:
    """Names of categories that may be published, and the index of each category among them.

    A category of few people could identify them. Such categories are merged, and further ones
    until enough people have one of them before or after; at least two, because the differences of
    all categories add up to 0. No names if no other category remains.
    """
    has = np.zeros((len(flips.weights), len(names)), bool)
    has[flips.owner, own] = has[flips.owner, other] = True
    people = has.sum(0)
    merged = (people > 0) & (people < smallest)
    if not merged.any():
        return names, np.arange(len(names))
    for code in np.argsort(people, kind="stable"):
        if merged.sum() > 1 and has[:, merged].any(1).sum() >= smallest:
            break
        merged[code] |= people[code] > 0
    if not people[~merged].any():
        return (), np.zeros(len(names), np.intp)
    kept = tuple(name for name, hidden in zip(names, merged, strict=True) if not hidden)
    codes = np.where(merged, len(kept), np.cumsum(~merged) - 1)
    return (*kept, OTHER_CATEGORIES), codes


def _commonest_change(
    flips: WeightedFlips, own: Codes, other: Codes, names: tuple[str, ...], smallest: int
) -> tuple[tuple[str, str] | None, float | None]:
    """Most frequent change of category and its share of flips, if enough people have it."""
    pairs = own * len(names) + other
    counts = np.bincount(pairs[own != other], minlength=len(names) ** 2)
    top = int(counts.argmax())
    if not counts[top] or len(np.unique(flips.owner[pairs == top])) < smallest:
        return None, None
    before, after = divmod(top, len(names))
    return (names[before], names[after]), float(counts[top] / len(pairs))


def with_undone(
    changes: Sequence[FeatureChange],
    flips: WeightedFlips,
    side: Side,
    columns: Columns,
    decide: Decide,
    confidence_level: float,
) -> tuple[tuple[FeatureChange, ...], float | None]:
    """Add the share of flips that each variable undoes.

    Args:
        changes: Changes of the variables, in the order of `columns`.
        flips: Flips on which the model decides again, once per variable that differs.
        side: Side of the flips.
        columns: Description of the columns.
        decide: Model.
        confidence_level: Confidence level of the intervals.

    Returns:
        The changes, and the share of flips that no single variable undoes.

    Raises:
        AuditInputError: The model returns invalid decisions.
    """
    undone = np.stack([_undone(flips, variable, side, decide) for variable in columns.variables])
    updated = tuple(
        _with_undone_share(change, row, flips, confidence_level)
        for change, row in zip(changes, undone, strict=True)
    )
    decided = (undone >= 0).all(0)
    none = float((undone[:, decided] == 0).all(0).mean()) if decided.any() else None
    return updated, none


def _undone(
    flips: WeightedFlips, variable: Variable, side: Side, decide: Decide
) -> NDArray[np.int8]:
    """Whether the row's own value undoes each flip: 1, 0, −1 if the model fails, `[r]`."""
    columns = list(variable.columns)
    differs = (flips.own[:, columns] != flips.other[:, columns]).any(1)
    undone = np.zeros(len(differs), np.int8)
    if not differs.any():
        return undone
    rows = flips.other[differs]
    rows[:, columns] = flips.own[differs][:, columns]
    decisions = np.asarray(decide(rows))
    if decisions.shape != (len(rows),) or not np.isin(decisions, (-1, 0, 1)).all():
        raise AuditInputError(
            f"decide: must return {len(rows)} decisions of 1, 0 or -1, one per row; the array has "
            f"shape {decisions.shape}"
        )
    if (decisions < 0).all():
        # Zeros for the rows that do not differ would suggest that the variable undoes nothing.
        return np.full(len(differs), -1, np.int8)
    own_decision = 1 if side == "advantaged" else 0
    undone[differs] = np.where(decisions < 0, -1, decisions == own_decision)
    return undone


def _with_undone_share(
    change: FeatureChange, undone: NDArray[np.int8], flips: WeightedFlips, confidence_level: float
) -> FeatureChange:
    decided = undone >= 0
    if not decided.any():
        return replace(change, unanswered=len(undone))
    hits = undone[decided] == 1
    return replace(
        change,
        undone=float(hits.mean()),
        undone_interval=flips.take(decided).share_interval(hits, confidence_level),
        unanswered=int((~decided).sum()),
    )
