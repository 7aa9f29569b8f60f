"""Change of one variable between those who flip and their counterparts, and what undoes a flip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.fliptest.differences import category_length
from offline_audit.fliptest.flipset import Side
from offline_audit.fliptest.weighted_flips import WeightedFlips
from offline_audit.intervals import Interval
from offline_audit.maps.columns import Columns, Variable, category_codes
from offline_audit.maps.transport_map import Features

__all__ = ["CategoryShift", "Decide", "FeatureChange", "feature_change", "with_undoing"]

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryShift:
    """How much more often those who flip are in a category than their counterparts.

    Attributes:
        name: Of the category.
        difference: Share of those who flip less share of their counterparts.
        interval: Of the difference.
    """

    name: str
    difference: float
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureChange:
    """One variable of those who flip, less that of their counterparts: x − G(x).

    For a category the magnitude is the length of the vector of its columns' mean differences, over
    the scale that these share: on two categories that is what one binary column would have. Its
    consistency is the difference of the category that changes most.

    Attributes:
        name: Of the feature, or of the category.
        kind: `category` for one-hot columns.
        magnitude: Mean difference in standard deviations; of a category without a sign.
        magnitude_interval: Of the magnitude.
        difference: Mean difference in the variable's own unit; None for a category.
        consistency: Mean sign of the difference: ±1 if all differ the same way.
        consistency_interval: Of the consistency.
        changed: Share of flips in which the variable differs.
        undone: Share of flips that turn back if this variable alone is put back to the person's
            own value; None if the model was not asked.
        undone_interval: Of that share.
        unanswered: Flips that are left out of it, since the model gave no answer.
        shifts: Differences by category, the largest first; empty for a single number.
        commonest: The commonest change of category, from the person's to the counterpart's; None
            if fewer people than the smallest cell have it.
        commonest_share: Of the flips.
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
    """Compare one variable.

    Args:
        flips: The people and the counterparts that are decided otherwise.
        variable: Which.
        scale: Standard deviation of each column, above zero, `[d]`.
        confidence_level: Of the intervals.
        smallest: Changes of category that fewer people have are not named.
    """
    if variable.kind == "category":
        return _category_change(flips, variable, scale, confidence_level, smallest)
    column = variable.columns[0]
    difference = flips.own[:, column].astype(np.float64) - flips.other[:, column]
    signs = np.sign(difference).astype(np.int8)
    mean, spread = float(difference.mean()), float(scale[column])
    same_way = flips.net_interval(signs, confidence_level)
    # 0 and 1 differ by their sign, whose interval holds where no one in the sample differs too.
    ends = (
        same_way if variable.kind == "binary" else flips.mean_interval(difference, confidence_level)
    )
    return FeatureChange(
        name=variable.name,
        kind=variable.kind,
        magnitude=mean / spread,
        magnitude_interval=(ends[0] / spread, ends[1] / spread),
        difference=mean,
        consistency=float(signs.mean()),
        consistency_interval=same_way,
        changed=float((signs != 0).mean()),
    )


def _category_change(
    flips: WeightedFlips, variable: Variable, scale: Float, confidence_level: float, smallest: int
) -> FeatureChange:
    own, other = (category_codes(rows, variable) for rows in (flips.own, flips.other))
    shifts = []
    for place, name in enumerate(variable.categories):
        signs = (own == place).astype(np.int8) - (other == place)
        shifts.append(
            CategoryShift(
                name=name,
                difference=float(signs.mean()),
                interval=flips.net_interval(signs, confidence_level),
            )
        )
    encoded, spread = shifts[: len(variable.columns)], float(scale[variable.columns[0]])
    magnitude, ends = category_length(
        [shift.difference for shift in encoded], [shift.interval for shift in encoded], spread
    )
    # A category of few people would name them.
    many = [_people(flips, own, other, place) >= smallest for place in range(len(shifts))]
    told = [shift for shift, kept in zip(shifts, many, strict=True) if kept]
    largest = max(shifts, key=lambda shift: abs(shift.difference))
    commonest, share = _commonest(flips, own, other, variable.categories, smallest)
    return FeatureChange(
        name=variable.name,
        kind=variable.kind,
        magnitude=magnitude,
        magnitude_interval=ends,
        difference=None,
        consistency=largest.difference,
        consistency_interval=largest.interval,
        changed=float((own != other).mean()),
        shifts=tuple(sorted(told, key=lambda shift: -abs(shift.difference))),
        commonest=commonest,
        commonest_share=share,
    )


def _people(
    flips: WeightedFlips, own: NDArray[np.intp], other: NDArray[np.intp], place: int
) -> int:
    """How many people who flip have a category, or have it in a counterpart."""
    return len(np.unique(flips.owner[(own == place) | (other == place)]))


def _commonest(
    flips: WeightedFlips,
    own: NDArray[np.intp],
    other: NDArray[np.intp],
    names: tuple[str, ...],
    smallest: int,
) -> tuple[tuple[str, str] | None, float | None]:
    """The commonest change of category and its share of the flips, if enough people have it."""
    pairs = own * len(names) + other
    counts = np.bincount(pairs[own != other], minlength=len(names) ** 2)
    top = int(counts.argmax())
    if not counts[top] or len(np.unique(flips.owner[pairs == top])) < smallest:
        return None, None
    before, after = divmod(top, len(names))
    return (names[before], names[after]), float(counts[top] / len(pairs))


# Whether each row has the favourable decision: 1, 0, or −1 where there is no answer, `[n]`.
Decide = Callable[[Features], NDArray[np.int8]]


def with_undoing(
    changes: Sequence[FeatureChange],
    flips: WeightedFlips,
    side: Side,
    columns: Columns,
    decide: Decide,
    confidence_level: float,
) -> tuple[tuple[FeatureChange, ...], float | None]:
    """Changes with the share of flips that each undoes, and the share that none undoes alone.

    Args:
        changes: Of the variables, in their order.
        flips: That the model is asked about, once for each variable that differs.
        side: Which flips these are.
        columns: What the columns are.
        decide: The model.
        confidence_level: Of the intervals.

    Raises:
        AuditInputError: The model's answers are none.
    """
    undone = np.stack([_undone(flips, variable, side, decide) for variable in columns.variables])
    told = tuple(
        _with_undone(change, each, flips, confidence_level)
        for change, each in zip(changes, undone, strict=True)
    )
    answered = (undone >= 0).all(0)
    none = float((undone[:, answered] == 0).all(0).mean()) if answered.any() else None
    return told, none


def _undone(
    flips: WeightedFlips, variable: Variable, side: Side, decide: Decide
) -> NDArray[np.int8]:
    """Whether each flip turns back with the person's own value: 1, 0, −1 without answer, `[r]`."""
    at = list(variable.columns)
    differs = (flips.own[:, at] != flips.other[:, at]).any(1)
    found = np.zeros(len(differs), np.int8)
    if not differs.any():
        return found
    rows = flips.other[differs]
    rows[:, at] = flips.own[differs][:, at]
    answers = np.asarray(decide(rows))
    if answers.shape != (len(rows),) or not np.isin(answers, (-1, 0, 1)).all():
        raise AuditInputError(
            f"decide: for {len(rows)} rows as many answers of 1, 0 or -1 are needed, not an array "
            f"of shape {answers.shape}"
        )
    if (answers < 0).all():
        # What does not differ would make it look as if nothing were undone.
        return np.full(len(differs), -1, np.int8)
    back = 1 if side == "advantaged" else 0
    found[differs] = np.where(answers < 0, -1, answers == back)
    return found


def _with_undone(
    change: FeatureChange, undone: NDArray[np.int8], asked: WeightedFlips, confidence_level: float
) -> FeatureChange:
    answered = undone >= 0
    if not answered.any():
        return replace(change, unanswered=len(undone))
    told, hits = asked.take(answered), undone[answered] == 1
    return replace(
        change,
        undone=float(hits.mean()),
        undone_interval=told.share_interval(hits, confidence_level),
        unanswered=int((~answered).sum()),
    )
