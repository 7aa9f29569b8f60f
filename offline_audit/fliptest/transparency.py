"""The transparency report: what differs between those who flip and their counterparts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.fliptest.marginals import category_codes
from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.transport_map import Features
from offline_audit.permutation.intervals import Interval, skewed_t_interval, wilson
from offline_audit.plain_words import count, percent, some
from offline_audit.presentation import TextTable, json_ready, to_html, to_text

__all__ = ["CategoryShift", "Decide", "FeatureChange", "TransparencyReport", "transparency_report"]

Float = NDArray[np.float64]
# Whether each row has the favourable decision: 1, 0, or −1 where there is no answer, `[n]`.
Decide = Callable[[Features], NDArray[np.int8]]

_MOST_SHOWN = 10
_NAME_WIDTH = 20
_WORDS: dict[Side, str] = {
    "advantaged": "have the favourable decision and their counterparts do not",
    "disadvantaged": "do not have the favourable decision and their counterparts do",
}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransparencyReport:
    """What may lie behind the flips of one side (Definition 2 of the paper).

    The paper's two rankings tell what goes along with the flips; a variable that differs between
    the groups for everyone ranks high in both, whether the model looks at it or not. What is
    undone tells what the model's decision hangs on, one variable at a time.

    Attributes:
        side: Which flips.
        group: People of the group.
        people: With a flip for at least one of their counterparts; None if withheld.
        members: With a flip for most of them; None if withheld.
        share: Of the group, that flips, counterparts counted for their parts; None if withheld.
        features: By undoing where the model was asked, else by magnitude; empty if withheld.
        asked: Flips that the model was asked about.
        undone_by_none: Share of those that no variable alone undoes; None if it was not asked.
        reason: Why there are no figures; None if there are.
        level: Of the intervals.
        smallest_cell: Figures of fewer people are withheld.
        seed: Of the sample of flips that the model was asked about.
    """

    side: Side
    group: int
    people: int | None
    members: int | None
    share: float | None
    features: tuple[FeatureChange, ...]
    asked: int
    undone_by_none: float | None
    reason: str | None
    level: float
    smallest_cell: int
    seed: int

    @property
    def by_magnitude(self) -> tuple[FeatureChange, ...]:
        """Largest mean difference first."""
        return tuple(sorted(self.features, key=lambda each: -abs(each.magnitude)))

    @property
    def by_consistency(self) -> tuple[FeatureChange, ...]:
        """Most consistent difference first."""
        return tuple(sorted(self.by_magnitude, key=lambda each: -abs(each.consistency)))

    @property
    def by_undoing(self) -> tuple[FeatureChange, ...]:
        """What undoes most flips first; empty if the model was not asked."""
        asked = [each for each in self.by_magnitude if each.undone is not None]
        return tuple(sorted(asked, key=lambda each: -(each.undone or 0.0)))

    def of(self, name: str) -> FeatureChange:
        """One variable.

        Raises:
            KeyError: There is none of that name.
        """
        for each in self.features:
            if each.name == name:
                return each
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found: dict[str, Any] = json_ready(self)
        for ranking in ("by_magnitude", "by_consistency", "by_undoing"):
            found[ranking] = [each.name for each in getattr(self, ranking)]
        return found

    def __str__(self) -> str:
        return to_text(self._title, self._table, self._notes)

    def _repr_html_(self) -> str:
        return to_html(self._title, self._table, self._notes)

    @property
    def _title(self) -> str:
        many = (
            f"Fewer than {self.smallest_cell} people"
            if self.people is None
            else f"{count(self.people, 'person', 'people')} ({percent(self.share)} of the group)"
        )
        return f"{self.side.capitalize()}: {many} {_WORDS[self.side]}"

    @property
    def _table(self) -> TextTable | None:
        shown = [each for each in self.features if each.changed > 0][:_MOST_SHOWN]
        if not shown:
            return None
        header = ("variable", "in sd", "interval", "own unit", "sign", "interval")
        asked = ("undone", "interval") if self.asked else ()
        return TextTable(header=(*header, *asked), rows=tuple(map(self._row, shown)))

    def _row(self, each: FeatureChange) -> tuple[str, ...]:
        name = each.name
        name = name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"
        cells = (
            name,
            f"{each.magnitude:.2f}" if each.shifts else f"{each.magnitude:+.2f}",
            ("{:.2f} to {:.2f}" if each.shifts else "{:+.2f} to {:+.2f}").format(
                *each.magnitude_interval
            ),
            "–" if each.difference is None else f"{each.difference:+.3g}",
            f"{each.consistency:+.2f}",
            "{:+.2f} to {:+.2f}".format(*each.consistency_interval),
        )
        if each.undone is None or each.undone_interval is None:
            return (*cells, "–", "–") if self.asked else cells
        low, high = each.undone_interval
        return (*cells, f"{100 * each.undone:.0f}%", f"{100 * low:.0f} to {100 * high:.0f}%")

    @property
    def _notes(self) -> list[str]:
        if self.reason is not None:
            return [f"No figures: {self.reason}."]
        notes = []
        if self.members is not None and self.members != self.people:
            notes.append(f"For {self.members:,} that holds for most of their counterparts.")
        notes.append(
            "Mean of the person's value less the counterpart's, and of its sign (±1: all the "
            f"same way); {100 * self.level:g}% intervals."
        )
        if self.asked:
            notes.append(
                "Undone: flips that turn back if this variable alone is put back to the person's "
                f"own. No variable alone undoes {percent(self.undone_by_none)} of {self.asked:,}."
            )
        missing = sum(each.unanswered for each in self.features)
        if missing:
            notes.append(f"The model did not answer {count(missing, 'time')}; those are left out.")
        changed = [each for each in self.features if each.changed > 0]
        notes += [_shifted(each) for each in changed[:_MOST_SHOWN] if each.shifts]
        if len(changed) > _MOST_SHOWN:
            notes.append(f"{len(changed) - _MOST_SHOWN} more differ and are not shown.")
        same = [each.name for each in self.features if not each.changed]
        return [*notes, f"The same in all flips: {some(same, 8)}."] if same else notes


def _shifted(each: FeatureChange) -> str:
    told = ", ".join(f"{s.name} {100 * s.difference:+.1f}" for s in each.shifts[:4])
    line = f"{each.name}, points more than among the counterparts: {told}."
    if each.commonest is None:
        return line
    change = " → ".join(each.commonest)
    return f"{line} Commonest change: {change}, in {percent(each.commonest_share)} of the flips."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flips:
    """The counterparts that are decided otherwise, r of them, and the m people they belong to.

    Attributes:
        own: The person's features, `[r, d]`.
        other: The counterpart's, `[r, d]`.
        owner: Which of the m people, `[r]`.
        weights: Flips of each person, `[m]`.
    """

    own: Features
    other: Features
    owner: NDArray[np.intp]
    weights: Float

    @classmethod
    def of(cls, flipset: Flipset, side: Side) -> _Flips:
        draws, people = np.nonzero(flipset.flips(side))
        return cls._made(flipset.features[people], flipset.counterparts[draws, people], people)

    @classmethod
    def _made(cls, own: Features, other: Features, people: NDArray[np.intp]) -> _Flips:
        _, owner, weights = np.unique(people, return_inverse=True, return_counts=True)
        return cls(own=own, other=other, owner=owner, weights=weights.astype(np.float64))

    def some(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> _Flips:
        return self._made(self.own[rows], self.other[rows], self.owner[rows])

    def totals(self, values: NDArray[Any]) -> Float:
        """Sum over each person's flips, `[r]` to `[m]`."""
        return np.bincount(self.owner, values, minlength=len(self.weights)).astype(np.float64)

    def mean_interval(self, values: Float, level: float) -> Interval:
        """Of a mean over flips: a ratio of sums over people, linearised, bent for skewness."""
        mean, people = float(values.mean()), len(self.weights)
        totals = self.totals(values)
        residuals = totals - mean * self.weights
        square = float((residuals**2).sum())
        # All the same, but for rounding.
        if people < 2 or square <= 1e-20 * float((totals**2).sum()):
            return mean, mean
        variance = square / self.weights.sum() ** 2 * people / (people - 1)
        skewness = float((residuals**3).sum()) / square**1.5
        return skewed_t_interval(mean, variance, skewness, people - 1, level)

    def share_interval(self, hits: NDArray[np.bool_], level: float) -> Interval:
        """Wilson's, with as many people as would scatter as much; at most those there are."""
        share = float(hits.mean())
        most = float(self.weights.sum() ** 2 / (self.weights**2).sum())
        residuals = self.totals(hits) - share * self.weights
        variance = float((residuals**2).sum() / self.weights.sum() ** 2)
        effective = min(most, share * (1 - share) / variance) if variance > 0 else most
        return wilson(share, effective, level)

    def net_interval(self, signs: NDArray[np.int8], level: float) -> Interval:
        """Of the share above zero less the share below: two Wilson intervals, which exclude.

        Newcombe's hybrid for dependent shares (Statistics in Medicine 17, 1998, 2635, method 10).
        """
        above, below = signs > 0, signs < 0
        p, q = float(above.mean()), float(below.mean())
        (p_low, p_high), (q_low, q_high) = (self.share_interval(x, level) for x in (above, below))
        odds = p * q / max((1 - p) * (1 - q), 1e-12)
        # A share of 1 leaves the other only what it loses itself.
        together = -1.0 if 1.0 in (p, q) else -math.sqrt(odds)

        def reach(a: float, b: float) -> float:
            return math.sqrt(max(a * a - 2 * together * a * b + b * b, 0.0))

        low, high = p - q - reach(p - p_low, q_high - q), p - q + reach(p_high - p, q - q_low)
        return max(low, -1.0), min(high, 1.0)


def transparency_report(
    flipset: Flipset,
    side: Side,
    columns: Columns,
    scale: Float,
    decide: Decide | None,
    *,
    smallest_cell: int = 10,
    level: float = 0.95,
    most_rows: int = 20_000,
    seed: int = 0,
) -> TransparencyReport:
    """Tell how those who flip differ from their counterparts, variable by variable.

    Where people have several counterparts each counts for its part, and intervals take the person
    as what is drawn. They hold the map to be known.

    Args:
        flipset: The people and their counterparts.
        side: Which flips.
        columns: What the columns are.
        scale: Standard deviation of each column, `[d]`; the columns of a category share one, as in
            `offline_audit.maps.scaling.Scaling`.
        decide: The model, to be asked what undoes a flip; None if it is not there.
        smallest_cell: With fewer people who flip, figures are withheld.
        level: Of the intervals.
        most_rows: Flips that the model is asked about, once for each variable that differs.
        seed: Of the sample of them, if there are more.

    Raises:
        AuditInputError: Widths do not agree, or the model's answers are none.
    """
    if flipset.features.shape[1] != len(columns) or np.shape(scale) != (len(columns),):
        raise AuditInputError(
            f"columns: there are {len(columns)}, but features are {flipset.features.shape[1]} wide "
            f"and the scale has shape {np.shape(scale)}"
        )
    flips = _Flips.of(flipset, side)
    people, members = len(flips.weights), int(flipset.members(side).sum())
    few = 0 < people < smallest_cell
    report = TransparencyReport(
        side=side,
        group=len(flipset),
        people=None if few else people,
        members=None if few or 0 < members < smallest_cell else members,
        share=None if few else flipset.share(side) if people else 0.0,
        features=(),
        asked=0,
        undone_by_none=None,
        reason=f"fewer than {smallest_cell} people flip this way" if few else None,
        level=level,
        smallest_cell=smallest_cell,
        seed=seed,
    )
    if not people or few:
        return replace(report, reason=report.reason or "no one flips this way")
    scale = np.where(scale > 0, scale, 1.0)
    found = [_change(flips, v, scale, level, smallest_cell) for v in columns.variables]
    report = replace(report, features=tuple(found))
    if decide is None:
        return replace(report, features=report.by_magnitude)
    kept = np.random.default_rng(seed).permutation(len(flips.owner))[:most_rows]
    asked = flips.some(np.sort(kept))
    undone = np.stack([_undone(asked, variable, side, decide) for variable in columns.variables])
    features = [_with_undone(*each, asked, level) for each in zip(found, undone, strict=True)]
    whole = (undone >= 0).all(0)
    report = replace(
        report,
        features=tuple(features),
        asked=len(asked.owner),
        undone_by_none=float((undone[:, whole] == 0).all(0).mean()) if whole.any() else None,
    )
    silent = tuple(each for each in report.by_magnitude if each.undone is None)
    return replace(report, features=(*report.by_undoing, *silent))


def _change(
    flips: _Flips, variable: Variable, scale: Float, level: float, smallest: int
) -> FeatureChange:
    if variable.kind == "category":
        return _category_change(flips, variable, scale, level, smallest)
    column = variable.columns[0]
    difference = flips.own[:, column].astype(np.float64) - flips.other[:, column]
    signs = np.sign(difference).astype(np.int8)
    mean, spread = float(difference.mean()), float(scale[column])
    same_way = flips.net_interval(signs, level)
    # 0 and 1 differ by their sign, whose interval holds where no one in the sample differs too.
    ends = same_way if variable.kind == "binary" else flips.mean_interval(difference, level)
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
    flips: _Flips, variable: Variable, scale: Float, level: float, smallest: int
) -> FeatureChange:
    own, other = (category_codes(rows, variable) for rows in (flips.own, flips.other))
    shifts = []
    for place, name in enumerate(variable.categories):
        signs = (own == place).astype(np.int8) - (other == place)
        shifts.append(
            CategoryShift(
                name=name,
                difference=float(signs.mean()),
                interval=flips.net_interval(signs, level),
            )
        )
    spread, drawn = float(scale[variable.columns[0]]), shifts[: len(variable.columns)]
    near = [
        0.0 if s.interval[0] <= 0 <= s.interval[1] else min(map(abs, s.interval)) for s in drawn
    ]
    far = [max(map(abs, s.interval)) for s in drawn]
    shifts.sort(key=lambda shift: -abs(shift.difference))
    commonest, share = _commonest(flips, own, other, variable.categories, smallest)
    return FeatureChange(
        name=variable.name,
        kind=variable.kind,
        magnitude=math.hypot(*(shift.difference for shift in drawn)) / spread,
        magnitude_interval=(math.hypot(*near) / spread, math.hypot(*far) / spread),
        difference=None,
        consistency=shifts[0].difference,
        consistency_interval=shifts[0].interval,
        changed=float((own != other).mean()),
        shifts=tuple(shifts),
        commonest=commonest,
        commonest_share=share,
    )


def _commonest(
    flips: _Flips,
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


def _undone(flips: _Flips, variable: Variable, side: Side, decide: Decide) -> NDArray[np.int8]:
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
    change: FeatureChange, undone: NDArray[np.int8], asked: _Flips, level: float
) -> FeatureChange:
    answered = undone >= 0
    if not answered.any():
        return replace(change, unanswered=len(undone))
    told, hits = asked.some(answered), undone[answered] == 1
    return replace(
        change,
        undone=float(hits.mean()),
        undone_interval=told.share_interval(hits, level),
        unanswered=int((~answered).sum()),
    )
