"""A projection result in words, as a table and as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offline_audit.plain_words import percent
from offline_audit.presentation import (
    Estimate,
    TextTable,
    blank_figure,
    bounds,
    interval_figure,
    p_words,
    rate,
    signed,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from offline_audit.projection.effects import Effect
    from offline_audit.projection.explanation import Explanation, GroupMove
    from offline_audit.projection.result import ProjectionResult

__all__ = ["drawn", "notes_of", "table_of", "title_of"]

_QUESTION = {
    "statistical_parity": "Do groups get decision 1 equally often?",
    "equal_opportunity": "Do groups get decision 1 equally often among those with label 1?",
    "predictive_equality": "Do groups get decision 1 equally often among those with label 0?",
    "equalized_odds": "Do groups get decision 1 equally often within each label?",
}
_MOST_MOVES = 8
_MOST_FEATURES = 5


def title_of(result: ProjectionResult) -> str:
    """The question and the answer."""
    question = f"{_QUESTION[result.criterion]} ({', '.join(result.attributes)})"
    if result.p_value is None:
        return f"{question} No p-value: {result.reason}"
    verdict = "No" if result.rejected else "No evidence against it"
    return f"{question} {verdict}: p = {p_words(result.p_value)}.".replace("p = <", "p <")


def table_of(result: ProjectionResult) -> TextTable | None:
    """Gaps between pairs of groups."""
    if not result.effects:
        return None
    rates = {(c.attribute, c.group, c.label): c for c in result.counts}

    def row(effect: Effect) -> tuple[str, ...]:
        pair = [rates[effect.attribute, group, effect.label] for group in effect.groups]
        return (
            f"{effect.attribute}: {effect.groups[0]} – {effect.groups[1]}",
            "any" if effect.label is None else str(effect.label),
            *(f"{rate(c.rate)} of {c.rows:,}" for c in pair),
            signed(effect.gap),
            bounds(effect.interval),
            rate(effect.detectable),
        )

    level = f"{100 * (1 - result.alpha):g}% interval"
    return TextTable(
        header=("groups", "label", "rate 1", "rate 2", "gap", level, "detectable"),
        rows=tuple(row(effect) for effect in result.effects),
        words=2,
    )


def notes_of(result: ProjectionResult) -> list[str]:
    """What the smallest fair change does, what the sample could show, and warnings."""
    notes = []
    if result.explanation is not None:
        notes += _change(result, result.explanation)
    if result.smallest_detectable_effect is not None:
        notes.append(
            f"With 80% power the test sees any one group {result.smallest_detectable_effect:.3f} "
            "or more away from the others."
        )
    if result.tolerance:
        whom = "; ".join(f"{a} = {g} ahead" for a, g in result.favoured) or "gaps"
        notes.append(f"Counted as fair: {whom} by up to {result.tolerance:g}.")
    return [*notes, *result.warnings]


def _change(result: ProjectionResult, explained: Explanation) -> list[str]:
    many = _rows(explained.rows_moved, explained)
    far = "" if result.statistic is None else f", total distance {result.statistic:.4g}"
    first = (
        f"Smallest fair change: {many} of {result.rows:,} decisions turn{far} "
        f"(distances {result.distances})."
    )
    shown = [_move(move, explained) for move in explained.moves[:_MOST_MOVES]]
    if explained.unique is False:
        shown.append("Other changes cost as little; this one lies in their middle.")
    return [first, *shown, *_features(explained)]


def _move(move: GroupMove, explained: Explanation) -> str:
    who = ", ".join(f"{a} = {g}" for a, g in move.groups if g is not None)
    label = "" if move.label is None else f", label {move.label}"
    way = f"{move.from_decision} → {1 - move.from_decision}"
    told = f"{who}{label}: {way}, {_rows(move.rows, explained)} rows"
    if move.rows is None:
        return f"{told}."
    return (
        f"{told} ({percent(move.share)} of the group), "
        f"median distance {move.median_distance:.3g}, nine of ten within {move.distance_90:.3g}."
    )


def _rows(rows: float | None, explained: Explanation) -> str:
    if rows is None:
        return f"fewer than {explained.smallest_cell}"
    return f"about {rows:,.0f}" if explained.rounded else f"{rows:,.1f}"


def _features(explained: Explanation) -> list[str]:
    unit = " sd" if explained.in_standard_deviations else ""
    lines = []
    for decision in (0, 1):
        moves = [f for f in explained.features if f.from_decision == decision][:_MOST_FEATURES]
        if moves:
            told = ", ".join(f"{f.feature} {f.mean:+.3g}{unit}" for f in moves)
            lines.append(f"Mean change of those that turn from {decision}: {told}.")
    return lines


def drawn(result: ProjectionResult) -> Figure:
    """Gaps as points with intervals; 0 is where groups agree."""
    if not result.effects:
        figure, axes = blank_figure(7.0, 1.6)
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no gaps to show", ha="center", va="center", color="0.4")
        axes.set_title(title_of(result), fontsize="medium", wrap=True)
        return figure
    estimates = []
    for effect in result.effects:
        label = "" if effect.label is None else f" (label {effect.label})"
        attribute = f"{effect.attribute}: " if len(result.attributes) > 1 else ""
        name = f"{attribute}{effect.groups[0]} – {effect.groups[1]}{label}"
        estimates.append(Estimate(name=name, value=effect.gap, interval=effect.interval))
    figure = interval_figure(estimates, "difference of rates of decision 1")
    (axes,) = figure.axes
    axes.axvspan(-result.tolerance, result.tolerance, color="0.9")
    axes.set_title(title_of(result), fontsize="medium", wrap=True)
    return figure
