"""Text of a FlipTest and of its directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from offline_audit.rendering import (
    TextTable,
    count,
    detectable,
    format_p_value,
    p_equals,
    percent,
)

if TYPE_CHECKING:
    from offline_audit.fliptest.resampling import ShareEstimate
    from offline_audit.fliptest.result import FlipDirection, FlipTestResult

__all__ = ["direction_text", "result_text"]

_WITHIN = {
    "statistical_parity": "",
    "equal_opportunity": ", among those with label 1",
    "predictive_equality": ", among those with label 0",
    "equalized_odds": ", within each label",
}
_HEADER = (
    *("from → to", "people", "disadvantaged", "advantaged"),
    *("on balance", "null", "p"),
)
# Width of a line, and smallest width of a shortened group name, in characters.
_LINE_WIDTH, _NAME_WIDTH = 100, 3


def direction_text(direction: FlipDirection) -> tuple[str, list[str], list[str]]:
    """Title, sentences and notes of a direction."""
    if direction.gross is None:
        return f"{direction.name}: no result", [], _direction_notes(direction)
    p = "" if direction.p_value is None else f", p {p_equals(direction.p_value)}"
    title = (
        f"{direction.name}: the decision would change for {percent(direction.gross.value)} of "
        f"{direction.rows[0]:,} people{p}"
    )
    return title, list(direction.sentences()), _direction_notes(direction)


def _direction_notes(direction: FlipDirection) -> list[str]:
    notes = [f"No p-value: {direction.reason}"] if direction.reason is not None else []
    if direction.null is not None:
        notes.append(
            f"Null distribution of {count(direction.null.n_resamples, 'permutation')} of the group "
            f"labels: {percent(direction.null.mean)} flip on average, at most "
            f"{percent(direction.null.bound)} in 95% of the permutations."
        )
    if direction.note is not None:
        notes.append(f"{direction.note}.")
    # A map that is not shown to be good has the statement among the warnings.
    if direction.validation is not None and direction.validation.state != "not shown":
        notes.append(direction.validation.statement)
    if direction.identification is not None:
        plans = direction.identification
        notes.append(
            f"Exact transport of {plans.rows:,} people with cost {plans.cost}: the choice between "
            "plans of equal cost changes the share of flips by "
            f"{100 * abs(plans.most - plans.fewest):.1f} points."
        )
    if direction.smallest_detectable_effect is not None:
        shares = detectable(direction.smallest_detectable_effect, "{:+.1%}".format)
        notes.append(
            f"Smallest detectable effect (at least 80% power): a net share of about {shares}. "
            "A smaller share may flip through differences between the groups that are too small to "
            "detect in this number of people."
        )
    return [*notes, *(f"! {warning}" for warning in direction.warnings)]


def result_text(result: FlipTestResult) -> tuple[str, TextTable | None, Sequence[str]]:
    """Title, table and notes of a FlipTest."""
    return _title(result), _table(result), _notes(result)


def _title(result: FlipTestResult) -> str:
    end = "" if result.complete else " Incomplete: see the warnings."
    return (
        f"Would decisions change if people belonged to another group? ({result.attribute}"
        f"{_WITHIN[result.criterion]}; map {result.map}, cost {result.cost}){end} "
        f"{result.unknown}"
    )


def _table(result: FlipTestResult) -> TextTable | None:
    if not result.directions:
        return None
    cells = [_cells(direction) for direction in result.directions]
    widths = [max(map(len, column)) for column in zip(_HEADER[1:], *cells, strict=True)]
    width = _LINE_WIDTH - sum(widths) - 2 * len(widths)
    rows = tuple(
        (_short_name(direction, width), *row)
        for direction, row in zip(result.directions, cells, strict=True)
    )
    return TextTable(header=_HEADER, rows=rows, words=1)


def _short_name(direction: FlipDirection, width: int) -> str:
    """Name of a direction, shortened to a width; the notes below the table have the full name."""
    if len(direction.name) <= width:
        return direction.name
    label = "" if direction.label is None else f", label {direction.label}"
    letters = max((width - len(f" → {label}")) // 2, _NAME_WIDTH)
    names = direction.source, direction.target
    short = [n if len(n) <= letters else f"{n[: letters - 1]}…" for n in names]
    return f"{' → '.join(short)}{label}"


def _cells(direction: FlipDirection) -> tuple[str, ...]:
    return (
        f"{direction.rows[0]:,}",
        _estimate(direction.disadvantaged),
        _estimate(direction.advantaged),
        _net(direction),
        "–" if direction.null is None else f"≤ {percent(direction.null.bound)}",
        format_p_value(direction.p_value),
    )


def _net(direction: FlipDirection) -> str:
    """Net share, as a loss or a gain where that is clear."""
    if direction.net is None:
        return "–"
    if direction.balance == "unclear":
        return "unclear"
    return f"{direction.balance} {percent(abs(direction.net.value))}"


def _estimate(estimate: ShareEstimate | None) -> str:
    if estimate is None:
        return "–"
    low, high = (100 * end for end in estimate.interval)
    return f"{percent(estimate.value)} ({low:.1f} to {high:.1f})"


def _notes(result: FlipTestResult) -> list[str]:
    notes = [note for direction in result.directions for note in _summary(direction)]
    if any(direction.null is not None for direction in result.directions):
        notes.append(
            "null: 95% bound on flips if both groups had the same features (group labels permuted, "
            "maps refitted). It does not show whether the features that differ are justified."
        )
    if kinds := dict.fromkeys(d.p_value_kind for d in result.directions if d.p_value_kind):
        notes.append(f"p: {', '.join(kinds)}.")
    if result.note is not None:
        notes.append(f"{result.note}.")
    return [*notes, *(f"! {warning}" for warning in result.warnings)]


def _summary(direction: FlipDirection) -> Iterator[str]:
    if direction.reason is not None:
        yield f"{direction.name}: no p-value: {direction.reason}"
    # The table has the total.
    if sentences := direction.sentences()[1:]:
        yield f"{direction.name}: {' '.join(sentences)}"
    yield from (f"! {direction.name}: {warning}" for warning in direction.warnings)
