"""Result of the projection test, with its text, HTML, figure and JSON forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_audit.coverage import Unknowns
from offline_audit.criteria import Criterion
from offline_audit.identification import GapRange
from offline_audit.plots import Estimate, Kind, blank_figure, interval_figure, plain
from offline_audit.power import Detectable
from offline_audit.projection.explanation import Explanation, GroupMove
from offline_audit.projection.gaps import Effect
from offline_audit.projection.partition import GroupCount
from offline_audit.projection.sample import Law
from offline_audit.rendering import (
    TextTable,
    bounds,
    compared,
    detectable,
    json_ready,
    p_equals,
    percent,
    rate,
    signed,
    to_html,
    to_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FAVOURABLE", "DecisionWords", "ProjectionResult"]

_QUESTION = {
    "statistical_parity": "Do groups get decision 1 equally often?",
    "equal_opportunity": "Do groups get decision 1 equally often among rows with label 1?",
    "predictive_equality": "Do groups get decision 1 equally often among rows with label 0?",
    "equalized_odds": "Do groups get decision 1 equally often within each label?",
}
# Largest numbers of groups and of features in the printed explanation, and of sentences on gaps.
_MAX_MOVES = 8
_MAX_FEATURES = 5
_MAX_GAPS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionWords:
    """What decisions and labels are called in sentences.

    Attributes:
        decisions: Names of decisions 0 and 1.
        labels: Names of labels 0 and 1.
    """

    decisions: tuple[str, str] = ("decision 0", "decision 1")
    labels: tuple[str, str] = ("label 0", "label 1")

    def direction(self, effect: Effect) -> str:
        """Whether the first group of a gap gets decision 1 more or less often."""
        one, other = effect.groups
        within = "" if effect.label is None else f" among rows with {self.labels[effect.label]}"
        often = "less often than" if effect.gap < 0 else "more often than"
        often = "as often as" if effect.gap == 0 else often
        return f"{one} gets {self.decisions[1]} {often} {other}{within}"


_NUMBERED = DecisionWords()
# Words where 1 is the favourable decision and label.
FAVOURABLE = DecisionWords(
    decisions=("the unfavourable decision", "the favourable decision"),
    labels=("the unfavourable label", "the favourable label"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionResult:
    """The smallest change of decisions that makes a sample fair, with its p-value.

    Attributes:
        criterion: Fairness criterion.
        attributes: Protected attributes, all tested at once.
        tolerance: Largest gap that counts as fair.
        favoured: Favoured group of each attribute; empty if gaps in both directions count.
        rows: Number of rows.
        rows_compared: Number of those with a known group, and with a label if rates within labels
            are compared.
        statistic: Sum of the distances of the decisions that change (N times the projection
            distance); infinite if no change is fair. None if it was not computed, or is withheld
            because fewer rows change than `smallest_cell`.
        p_value: The p-value; None if it is not defined.
        reason: Reason for a missing p-value; None if there is one.
        monte_carlo_error: Standard error of the p-value if it is simulated, else 0.
        alpha: Significance level of `rejected`.
        law: Law of the p-value.
        effects: Gaps between pairs of groups, with intervals of confidence 1 - alpha.
        smallest_detectable_effect: Gaps downwards and upwards between one group and the others that
            the test detects with 80% power; None for a direction where no gap is. With two groups,
            the rate of the first one differs. None without a p-value.
        counts: Numbers of rows and rates of every group.
        unknown: Numbers of rows of unknown group and without a label.
        ranges: What these leave open of each gap; empty if nothing is unknown.
        explanation: Summary of the smallest fair change; None if it was not computed.
        distances: Method by which the distances were computed.
        certified_gap: Bound on the relative difference between the cost and the optimum.
        warnings: Warnings about the data and the computation.
        seed: Seed of the random generator.
    """

    criterion: Criterion
    attributes: tuple[str, ...]
    tolerance: float
    favoured: tuple[tuple[str, str], ...]
    rows: int
    rows_compared: int
    statistic: float | None
    p_value: float | None
    reason: str | None
    monte_carlo_error: float
    alpha: float
    law: Law
    effects: tuple[Effect, ...]
    smallest_detectable_effect: Detectable | None
    counts: tuple[GroupCount, ...]
    unknown: Unknowns
    ranges: tuple[GapRange, ...]
    explanation: Explanation | None
    distances: str
    certified_gap: float
    warnings: tuple[str, ...]
    seed: int

    @property
    def rejected(self) -> bool | None:
        """Whether fairness is rejected at level alpha; None without a p-value."""
        return None if self.p_value is None else self.p_value <= self.alpha

    @property
    def p_value_kind(self) -> str | None:
        """How the p-value is computed; None without one."""
        if self.p_value is None:
            return None
        if self.monte_carlo_error:
            return "(b + 1) / (B + 1) of B simulations of the limiting law"
        return "asymptotic, by the limiting law"

    @property
    def cost_per_row(self) -> float | None:
        """The projection distance: the statistic divided by the number of rows."""
        return None if self.statistic is None else self.statistic / self.rows

    def range_of(self, effect: Effect) -> tuple[float, float] | None:
        """Smallest and largest gap over the unknown groups or labels; None if all are known."""
        key = effect.attribute, effect.groups, effect.label
        own = (r for r in self.ranges if (r.attribute, r.groups, r.label) == key)
        return next((r.effect_range for r in own), None)

    @property
    def range_sentences(self) -> tuple[str, ...]:
        """What unknown groups and labels leave open of the gaps, in sentences."""
        return tuple(sentence for part in self.ranges[:_MAX_GAPS] for sentence in part.sentences)

    @property
    def clear_gaps(self) -> tuple[Effect, ...]:
        """Gaps whose intervals exclude 0, the largest first; the only gap, if there is one."""
        clear = [e for e in self.effects if e.interval[0] > 0 or e.interval[1] < 0]
        if len(self.effects) == 1:
            clear = list(self.effects)
        return tuple(sorted(clear, key=lambda effect: -abs(effect.gap)))

    def gap_sentences(self, words: DecisionWords = _NUMBERED) -> tuple[str, ...]:
        """Who gets decision 1 less often than whom, and by how much, for every clear gap."""
        counts = {(c.attribute, c.group, c.label): c for c in self.counts}
        sentences = []
        for effect in self.clear_gaps[:_MAX_GAPS]:
            one, other = (
                counts[effect.attribute, group, effect.label].rate or 0.0 for group in effect.groups
            )
            level = 1 - self.alpha
            values = compared((one, other), effect.interval, confidence_level=level)
            sentences.append(f"{words.direction(effect)}: {values}.")
        if self.note is not None:
            sentences.append(self.note)
        return tuple(sentences)

    def fair_change_sentence(self, words: DecisionWords = _NUMBERED) -> str | None:
        """The decisions that the smallest fair change alters; None if it was not computed."""
        change = self.explanation
        if change is None:
            return None
        text = f"The smallest fair change alters {self.fair_change}"
        moves = [_move_in_words(move, change, words) for move in change.moves[:_MAX_MOVES]]
        return f"{text}: {', '.join(moves)}." if moves else f"{text}."

    @property
    def fair_change(self) -> str | None:
        """Decisions that the smallest fair change alters, such as `50 of 500 decisions`."""
        if self.explanation is None:
            return None
        rows = _row_count(self.explanation.rows_moved, self.explanation)
        return f"{rows} of {self.rows_compared:,} decisions"

    def __str__(self) -> str:
        return to_text(_title(self), _table(self), _notes(self))

    def _repr_html_(self) -> str:
        return to_html(_title(self), _table(self), _notes(self))

    def to_dict(self) -> dict[str, Any]:
        """The fields and the derived values, ready for JSON."""
        fields: dict[str, Any] = json_ready(self)
        return {
            **fields,
            "rejected": self.rejected,
            "cost_per_row": json_ready(self.cost_per_row),
            "p_value_kind": self.p_value_kind,
            "note": self.note,
        }

    @property
    def note(self) -> str | None:
        """Note that the intervals of several gaps are not corrected; None for one gap."""
        if len(self.effects) < 2:
            return None
        return "Each interval holds for its gap alone; p is for all gaps together."

    def plot(self) -> Figure:
        """Figure of the gaps with their intervals; the tolerance is shaded."""
        if not self.effects:
            figure, axes = blank_figure(7.0, 1.6)
            axes.set_axis_off()
            axes.text(0.5, 0.5, "No gaps were computed.", ha="center", va="center", color="0.4")
            axes.set_title(plain(_title(self)), fontsize="medium", wrap=True)
            return figure
        counts = {(c.attribute, c.group, c.label): c.rows for c in self.counts}
        estimates = []
        for effect in self.effects:
            label = "" if effect.label is None else f", label {effect.label}"
            kind: Kind = "difference" if effect in self.clear_gaps and self.rejected else "none"
            estimates.append(
                Estimate(
                    name=f"{' – '.join(effect.groups)}{label}",
                    value=effect.gap,
                    interval=effect.interval,
                    kind="undetermined" if self.p_value is None else kind,
                    section=effect.attribute,
                    rows=tuple(counts[effect.attribute, g, effect.label] for g in effect.groups),
                    unit="rate",
                    range=self.range_of(effect),
                )
            )
        alone = "" if self.note is None else " (interval of the gap alone)"
        legend: dict[Kind, str] = {
            "difference": f"a difference{alone}",
            "none": "no difference shown",
            "undetermined": "cannot be determined",
        }
        band = (100 * self.tolerance, "counts as fair") if self.tolerance else None
        return interval_figure(
            estimates,
            self._plot_title,
            legend,
            label="difference of rates of decision 1, percentage points",
            confidence_level=1 - self.alpha,
            band=band,
        )

    @property
    def _plot_title(self) -> str:
        if self.p_value is None:
            return f"No p-value: {self.reason}"
        p = f"p {p_equals(self.p_value)}"
        if not self.rejected or not self.clear_gaps:
            found = "Rates of decision 1 differ" if self.rejected else "No difference shown"
            return f"{found}: {_QUESTION[self.criterion]} ({p})"
        return f"{self.gap_sentences()[0].partition(' (')[0]} ({p})"


def _title(result: ProjectionResult) -> str:
    """The question and the answer."""
    question = f"{_QUESTION[result.criterion]} ({', '.join(result.attributes)})"
    if result.p_value is None:
        return f"{question} {result.unknown} No p-value: {result.reason}"
    answer = "Rates of decision 1 differ" if result.rejected else "No difference shown"
    return f"{question} {answer}: p {p_equals(result.p_value)}. {result.unknown}"


def _table(result: ProjectionResult) -> TextTable | None:
    """Gaps between pairs of groups."""
    if not result.effects:
        return None
    counts = {(c.attribute, c.group, c.label): c for c in result.counts}

    def row(effect: Effect) -> tuple[str, ...]:
        pair = [counts[effect.attribute, group, effect.label] for group in effect.groups]
        return (
            f"{effect.attribute}: {effect.groups[0]} – {effect.groups[1]}",
            "any" if effect.label is None else str(effect.label),
            *(f"{rate(c.rate)} of {c.rows:,}" for c in pair),
            signed(effect.gap),
            bounds(effect.interval),
            detectable(effect.smallest_detectable_effect),
        )

    interval = f"{100 * (1 - result.alpha):g}% interval"
    return TextTable(
        header=("groups", "label", "rate 1", "rate 2", "gap", interval, "detectable"),
        rows=tuple(row(effect) for effect in result.effects),
        words=2,
    )


def _notes(result: ProjectionResult) -> list[str]:
    """Who is behind, the smallest fair change, the smallest detectable effect, and warnings."""
    raw = [] if result.note is None else [result.note]
    notes = list(result.gap_sentences()) if result.rejected else raw
    notes += result.range_sentences
    if result.explanation is not None:
        notes += _explanation_notes(result, result.explanation)
    if result.smallest_detectable_effect is not None:
        notes.append(
            "Smallest detectable effect of one group against the others (80% power, approximate): "
            f"{detectable(result.smallest_detectable_effect)}."
        )
    for attribute, group in result.favoured:
        notes.append(
            f"One-sided test: only a rate of {attribute} = {group} that exceeds another group's by "
            f"more than {result.tolerance:g} counts as unfair."
        )
    if result.tolerance and len(result.favoured) < len(result.attributes):
        notes.append(f"Differences of up to {result.tolerance:g} count as fair.")
    if result.p_value_kind is not None:
        notes.append(f"p: {result.p_value_kind}.")
    return [*notes, *(f"! {warning}" for warning in result.warnings)]


def _explanation_notes(result: ProjectionResult, explanation: Explanation) -> list[str]:
    """The smallest fair change, in total, by group and by feature."""
    total = "" if result.statistic is None else f", total distance {result.statistic:.4g}"
    summary = (
        f"Smallest fair change: {result.fair_change} change{total} (distances: {result.distances})."
    )
    moves = [_move(move, explanation) for move in explanation.moves[:_MAX_MOVES]]
    if explanation.unique is False:
        moves.append("Other changes have the same cost; the one midway between them is shown.")
    return [summary, *moves, *_feature_notes(explanation)]


def _move(move: GroupMove, explanation: Explanation) -> str:
    """One line about the changed rows of a group."""
    groups = ", ".join(f"{a} = {g}" for a, g in move.groups if g is not None)
    label = "" if move.label is None else f", label {move.label}"
    change = f"{move.from_decision} → {1 - move.from_decision}"
    line = f"{groups}{label}: {change}, {_row_count(move.rows, explanation)} rows"
    if move.rows is None:
        return f"{line}."
    return (
        f"{line} ({percent(move.share)} of the group), "
        f"median distance {move.median_distance:.3g}, 90% within {move.distance_90:.3g}."
    )


def _move_in_words(move: GroupMove, explanation: Explanation, words: DecisionWords) -> str:
    """The changed rows of a group, as a part of a sentence."""
    groups = " and ".join(group for _, group in move.groups if group is not None)
    label = "" if move.label is None else f" with {words.labels[move.label]}"
    share = "" if move.share is None else f" ({percent(move.share)} of the group)"
    before, after = words.decisions[move.from_decision], words.decisions[1 - move.from_decision]
    rows = _row_count(move.rows, explanation)
    return f"{rows} about {groups}{label}{share} from {before} to {after}"


def _row_count(rows: float | None, explanation: Explanation) -> str:
    """A number of rows, or its bound if it is withheld."""
    if rows is None:
        return f"fewer than {explanation.smallest_cell}"
    # The last row may change in part.
    return f"about {rows:,.0f}" if explanation.rounded else f"{rows:,.1f}".removesuffix(".0")


def _feature_notes(explanation: Explanation) -> list[str]:
    """Mean changes of the features that change most, by decision."""
    unit = " sd" if explanation.in_standard_deviations else ""
    lines = []
    for decision in (0, 1):
        moves = [f for f in explanation.features if f.from_decision == decision]
        if moves:
            means = ", ".join(f"{f.feature} {f.mean:+.3g}{unit}" for f in moves[:_MAX_FEATURES])
            change = f"{decision} → {1 - decision}"
            lines.append(f"Mean feature change of decisions {change}: {means}.")
    return lines
