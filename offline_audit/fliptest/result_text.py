"""A FlipTest in words, for a terminal, a notebook and a risk officer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from offline_audit.fliptest.flipset import Side
from offline_audit.plain_words import count, percent, wrapped
from offline_audit.presentation import TextTable, p_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from offline_audit.fliptest.marginals import Marginals
    from offline_audit.fliptest.result import FlipDirection, FlipTestResult, ShareEstimate
    from offline_audit.fliptest.subgroup import Subgroup
    from offline_audit.fliptest.transparency import TransparencyReport
    from offline_audit.maps.validation import MapValidation

__all__ = [
    "direction_notes",
    "direction_reports",
    "direction_text",
    "direction_title",
    "drawn",
    "result_notes",
    "result_table",
    "result_title",
]

SIDES: tuple[Side, Side] = ("disadvantaged", "advantaged")
_WITHIN = {
    "statistical_parity": "",
    "equal_opportunity": ", among those with label 1",
    "predictive_equality": ", among those with label 0",
    "equalized_odds": ", within each label",
}
_HEADER = ("from → to", "people", "disadvantaged", "advantaged", "net", "by chance", "p")
_MOST_FEATURES = 3
# Share of a group of which features are named.
_LEAST_TOLD = 0.0005
# Letters of a line, and of a group's name that are shown at least.
_WIDTH, _SHORTEST = 100, 3


def result_title(result: FlipTestResult) -> str:
    """The question."""
    end = "" if result.complete else " NOT complete."
    return (
        f"Would decisions differ for people of another group? ({result.attribute}"
        f"{_WITHIN[result.criterion]}; map {result.map}, cost {result.cost}){end}"
    )


def result_table(result: FlipTestResult) -> TextTable | None:
    """A line for every direction."""
    if not result.directions:
        return None
    cells = [_cells(each) for each in result.directions]
    rest = [max(map(len, column)) for column in zip(_HEADER[1:], *cells, strict=True)]
    room = _WIDTH - sum(rest) - 2 * len(rest)
    rows = [(_short(each, room), *row) for each, row in zip(result.directions, cells, strict=True)]
    return TextTable(header=_HEADER, rows=tuple(rows), words=1)


def _short(each: FlipDirection, room: int) -> str:
    """Its name, within so many letters; sentences below the table have the whole."""
    if len(each.name) <= room:
        return each.name
    label = "" if each.label is None else f", label {each.label}"
    letters = max((room - len(f" → {label}")) // 2, _SHORTEST)
    ends = [n if len(n) <= letters else f"{n[: letters - 1]}…" for n in (each.source, each.target)]
    return f"{' → '.join(ends)}{label}"


def _cells(each: FlipDirection) -> tuple[str, ...]:
    p = "–" if each.p_value is None else p_words(each.p_value)
    return (
        f"{each.rows[0]:,}",
        _estimate(each.disadvantaged),
        _estimate(each.advantaged),
        "–" if each.net is None else f"{100 * each.net.value:+.1f}%",
        "–" if each.null is None else f"≤ {percent(each.null.bound)}",
        p,
    )


def _estimate(found: ShareEstimate | None) -> str:
    if found is None:
        return "–"
    low, high = (100 * end for end in found.interval)
    return f"{percent(found.value)} ({low:.1f} to {high:.1f})"


def result_notes(result: FlipTestResult) -> list[str]:
    """What each direction comes to, and what holds for all."""
    notes = [note for each in result.directions for note in _summary(each)]
    if any(each.null is not None for each in result.directions):
        notes.append(
            "By chance: flips if both groups had the same features (group labels permuted, maps "
            "fitted again). It does not ask whether features that do differ may count."
        )
    return [*notes, *(f"! {warning}" for warning in result.warnings)]


def _summary(each: FlipDirection) -> Iterator[str]:
    if each.reason is not None:
        yield f"{each.name}: no evidence: {each.reason}"
    for side in SIDES:
        told = each.transparency.get(side)
        share = getattr(each, side)
        # Neither of a map that does not arrive, nor of next to nobody.
        sound = each.validation is not None and each.validation.sound
        if told is not None and told.features and sound and share.value >= _LEAST_TOLD:
            yield f"{each.name}, {side}: {_through(each, side)}{_who(each, side)}."
    yield from (f"! {each.name}: {warning}" for warning in each.warnings)


def _through(each: FlipDirection, side: Side) -> str:
    """The features that undo most flips, or else those that change most."""
    report = each.transparency[side]
    features = report.features[:_MOST_FEATURES]
    if features[0].undone is None:
        return "differ most in " + ", ".join(feature.name for feature in features)
    told = [
        f"{feature.name} (undoes {percent(feature.undone)})"
        for feature in features
        if feature.undone
    ]
    return "through " + (", ".join(told) or "several features together")


def _who(each: FlipDirection, side: Side) -> str:
    found = each.subgroups.get(side)
    if found is None or found.rule is None or not found.confirmed or found.tested is None:
        return ""
    members = found.tested.flips_inside + found.tested.flips_outside
    if found.tested.flips_inside < members / 2:
        return f"; more often where {found.rule}"
    return f"; mostly {found.rule}"


def direction_title(each: FlipDirection) -> str:
    """Who would fare otherwise."""
    if each.gross is None:
        return f"{each.name}: nothing to show"
    p = "" if each.p_value is None else f", p {_equals(each.p_value)}"
    return (
        f"{each.name}: {percent(each.gross.value)} of {each.rows[0]:,} would be decided "
        f"otherwise{p}"
    )


def _equals(p_value: float) -> str:
    told = p_words(p_value)
    return told if told.startswith("<") else f"= {told}"


def direction_text(each: FlipDirection) -> str:
    """Everything about one direction, for a terminal."""
    parts = [wrapped(direction_title(each)), *(str(report) for report in direction_reports(each))]
    return "\n\n".join([*parts, "\n".join(map(wrapped, direction_notes(each)))])


def direction_reports(
    each: FlipDirection,
) -> list[TransparencyReport | Subgroup | Marginals]:
    """What explains one direction: features, members beside their group, a rule."""
    kinds = (each.transparency, each.marginals, each.subgroups)
    return [reports[side] for side in SIDES for reports in kinds if side in reports]


def direction_notes(each: FlipDirection) -> list[str]:
    """What the figures of one direction rest on."""
    notes = [f"No evidence: {each.reason}"] if each.reason is not None else []
    if each.null is not None:
        notes.append(
            f"With group labels permuted {count(each.null.permutations, 'time')}, "
            f"{percent(each.null.mean)} flip on average and nineteen of twenty times at most "
            f"{percent(each.null.bound)}."
        )
    if each.validation is not None:
        notes.append(_validated(each.validation))
    if each.identification is not None:
        found = each.identification
        notes.append(
            f"By exact transport of {found.rows:,} people with cost {found.cost}, how ties are "
            f"broken moves the flipset by {100 * abs(found.most - found.fewest):.1f} points."
        )
    if each.detectable is not None:
        notes.append(
            f"Through a feature that differs too little between the groups to be seen in so many "
            f"people, up to about {percent(each.detectable)} may flip."
        )
    return [*notes, *(f"! {warning}" for warning in each.warnings)]


def _validated(found: MapValidation) -> str:
    worst = max(found.variables, key=lambda fit: fit.ks)
    return (
        f"Map on {found.rows[0]:,} people it was not fitted to: largest KS {worst.ks:.3f} "
        f"({worst.name}), told from members with AUC {found.auc:.2f}, mean cost "
        f"{found.distance:.2f} (exact transport between samples: {found.exact_distance:.2f})."
    )


def drawn(result: FlipTestResult) -> Figure:
    """A line for every direction."""
    from offline_audit.fliptest.figures import FlipRow, draw_flips

    rows = [
        FlipRow(
            name=each.name,
            advantaged=each.advantaged.value,
            advantaged_interval=each.advantaged.interval,
            disadvantaged=each.disadvantaged.value,
            disadvantaged_interval=each.disadvantaged.interval,
            null_bound=None if each.null is None else each.null.bound,
            sure=each.p_value is not None,
        )
        for each in result.directions
        if each.advantaged is not None and each.disadvantaged is not None
    ]
    return draw_flips(rows, f"Decisions that would differ ({result.attribute})")
