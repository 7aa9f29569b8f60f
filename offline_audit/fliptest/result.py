"""Result of a FlipTest: every pair of groups, both directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_audit.criteria import Criterion
from offline_audit.fliptest.direction import SIDES, FlipDirection
from offline_audit.fliptest.flipset import Side
from offline_audit.fliptest.resampling import ShareEstimate
from offline_audit.rendering import TextTable, json_ready, p_words, percent, to_html, to_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FlipTestResult"]

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


@dataclass(frozen=True, kw_only=True)
class FlipTestResult:
    """Whose decisions would differ in another group, and through which features.

    Attributes:
        attribute: The protected attribute.
        criterion: Within which outcomes people are transported.
        map: Name of the method.
        cost: What it keeps small.
        directions: Every pair of groups, both ways.
        alpha: At which `rejected` answers, without correction for several directions.
        n_counterparts: Counterparts per row where the map splits; more where rows are duplicates.
        seed: Of whatever is random.
        complete: False if the model could no longer be asked; what was found until then is here.
        warnings: What to know before a figure is believed.
    """

    attribute: str
    criterion: Criterion
    map: str
    cost: str
    directions: tuple[FlipDirection, ...]
    alpha: float
    n_counterparts: int
    seed: int
    complete: bool
    warnings: tuple[str, ...]

    def __iter__(self) -> Iterator[FlipDirection]:
        return iter(self.directions)

    def direction(self, source: str, target: str, label: int | None = None) -> FlipDirection:
        """One of them.

        Raises:
            KeyError: There is none, or one for each label and none was named.
        """
        found = [
            each
            for each in self.directions
            if (each.source, each.target) == (source, target) and label in (None, each.label)
        ]
        if len(found) != 1:
            what = "several labels; name one of" if found else "no such direction; there are"
            raise KeyError(f"{what}: {'; '.join(each.name for each in found or self.directions)}")
        return found[0]

    @property
    def rejected(self) -> tuple[FlipDirection, ...]:
        """Those in which more decisions flip than chance explains."""
        return tuple(
            each
            for each in self.directions
            if each.p_value is not None and each.p_value <= self.alpha
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: aggregates only."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "directions"]
        found: dict[str, Any] = {name: json_ready(getattr(self, name)) for name in names}
        return {**found, "directions": [each.to_dict() for each in self.directions]}

    def __str__(self) -> str:
        return to_text(result_title(self), result_table(self), result_notes(self))

    def _repr_html_(self) -> str:
        return to_html(result_title(self), result_table(self), result_notes(self))

    def plot(self) -> Figure:
        """Flipsets of every direction with their intervals, beside what chance makes."""
        return drawn(self)


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
        sound = each.validation is not None and each.validation.passed
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
