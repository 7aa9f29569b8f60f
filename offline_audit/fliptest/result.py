"""Result of a FlipTest: every pair of groups in both directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from offline_audit.criteria import Criterion
from offline_audit.fliptest.flipset import SIDES, Flipset, Identification, Side
from offline_audit.fliptest.marginals import Marginals
from offline_audit.fliptest.resampling import NullSizes, ShareEstimate
from offline_audit.fliptest.subgroup import Subgroup
from offline_audit.fliptest.transparency import TransparencyReport
from offline_audit.maps.validation import MapValidation
from offline_audit.rendering import (
    TextTable,
    count,
    format_p_value,
    json_ready,
    p_equals,
    percent,
    to_html,
    to_text,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FlipDirection", "FlipTestResult"]

_WITHIN = {
    "statistical_parity": "",
    "equal_opportunity": ", among those with label 1",
    "predictive_equality": ", among those with label 0",
    "equalized_odds": ", within each label",
}
_HEADER = ("from → to", "people", "disadvantaged", "advantaged", "net", "null 95%", "p")
_MAX_FEATURES = 3
# Smallest share of a group whose features the summary names.
_SMALLEST_SHARE = 0.0005
# Width of a line, and smallest width of a shortened group name, in characters.
_LINE_WIDTH, _NAME_WIDTH = 100, 3


@dataclass(frozen=True, kw_only=True)
class FlipDirection:
    """Result of one direction: members of a source group transported to a target group.

    Attributes:
        source: Group whose members are transported.
        target: Group to which they are transported.
        label: Label of the transported rows; None for rows of any label.
        rows: Number of rows of source and target.
        rates: Favourable rate of source and target; None for a group below the smallest cell.
        advantaged: Share of the source with the favourable decision whose counterparts do not
            have it; None if it could not be computed.
        disadvantaged: Share without the favourable decision whose counterparts have it.
        gross: Sum of both shares.
        net: Advantaged minus disadvantaged share; for an exact map, the difference of rates.
        null: Null distribution of the gross share; None without permutations.
        smallest_detectable_effect: Smallest gross share detected with 80% power at these sizes.
        validation: Validation of the map on rows to which it was not fitted.
        identification: Range of the flipset over plans of equal cost.
        transparency: Features that differ between flipped rows and counterparts, by side.
        marginals: Comparison of members with the rest of their group, by side.
        subgroups: Rule that describes the members, by side.
        reason: Why there is no p-value; None if there is one.
        warnings: Warnings about the data and the computation.
        flipset: Rows and counterparts; not in `to_dict`, which has aggregates only.
    """

    source: str
    target: str
    label: int | None
    rows: tuple[int, int]
    rates: tuple[float | None, float | None]
    advantaged: ShareEstimate | None = None
    disadvantaged: ShareEstimate | None = None
    gross: ShareEstimate | None = None
    net: ShareEstimate | None = None
    null: NullSizes | None = None
    smallest_detectable_effect: float | None = None
    validation: MapValidation | None = None
    identification: Identification | None = None
    transparency: Mapping[Side, TransparencyReport] = field(default_factory=dict)
    marginals: Mapping[Side, Marginals] = field(default_factory=dict)
    subgroups: Mapping[Side, Subgroup] = field(default_factory=dict)
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    flipset: Flipset | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Source and target, and the label if there is one."""
        label = "" if self.label is None else f", label {self.label}"
        return f"{self.source} → {self.target}{label}"

    @property
    def p_value(self) -> float | None:
        """P-value of the gross share; None if there is a `reason`."""
        return None if self.null is None or self.reason is not None else self.null.p_value

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, aggregates only."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "flipset"]
        data: dict[str, Any] = {name: json_ready(getattr(self, name)) for name in names}
        for name in ("transparency", "marginals", "subgroups"):
            data[name] = {side: part.to_dict() for side, part in getattr(self, name).items()}
        return {**data, "p_value": self.p_value}

    def __str__(self) -> str:
        reports = [str(report) for report in _reports(self)]
        notes = "\n".join(map(wrapped, _direction_notes(self)))
        return "\n\n".join([wrapped(_direction_title(self)), *reports, notes])

    def _repr_html_(self) -> str:
        reports = [report._repr_html_() for report in _reports(self)]
        return to_html(_direction_title(self), None, _direction_notes(self)) + "".join(reports)

    def plot_transparency(self, side: Side) -> Figure:
        """Plot how features differ between flipped rows and counterparts, and which undo flips."""
        from offline_audit.fliptest.figures import draw_transparency

        return draw_transparency(self.transparency[side], f"{self.name}: {side}")

    def plot_marginals(self, side: Side) -> Figure:
        """Plot distributions of the members of a flipset and of their whole group."""
        from offline_audit.fliptest.figures import draw_marginals

        return draw_marginals(self.marginals[side], f"{self.name}: {side}")


def _direction_title(direction: FlipDirection) -> str:
    if direction.gross is None:
        return f"{direction.name}: no result"
    p = "" if direction.p_value is None else f", p {p_equals(direction.p_value)}"
    return (
        f"{direction.name}: the decision would change for {percent(direction.gross.value)} of "
        f"{direction.rows[0]:,} people{p}"
    )


def _reports(direction: FlipDirection) -> list[TransparencyReport | Subgroup | Marginals]:
    kinds = (direction.transparency, direction.marginals, direction.subgroups)
    return [reports[side] for side in SIDES for reports in kinds if side in reports]


def _direction_notes(direction: FlipDirection) -> list[str]:
    notes = [f"No p-value: {direction.reason}"] if direction.reason is not None else []
    if direction.null is not None:
        notes.append(
            f"Null distribution of {count(direction.null.n_resamples, 'permutation')} of the group "
            f"labels: {percent(direction.null.mean)} flip on average, at most "
            f"{percent(direction.null.bound)} in 95% of the permutations."
        )
    if direction.validation is not None:
        notes.append(_validation_note(direction.validation))
    if direction.identification is not None:
        plans = direction.identification
        notes.append(
            f"Exact transport of {plans.rows:,} people with cost {plans.cost}: the choice between "
            "plans of equal cost changes the share of flips by "
            f"{100 * abs(plans.most - plans.fewest):.1f} points."
        )
    if direction.smallest_detectable_effect is not None:
        notes.append(
            "Smallest detectable effect: up to about "
            f"{percent(direction.smallest_detectable_effect)} may flip through differences between "
            "the groups that are too small to detect in this number of people."
        )
    return [*notes, *(f"! {warning}" for warning in direction.warnings)]


def _validation_note(validation: MapValidation) -> str:
    worst = max(validation.variables, key=lambda fit: fit.ks)
    return (
        f"Map validated on {validation.rows[0]:,} held-out people: largest KS "
        f"{worst.ks:.3f} ({worst.name}), AUC {validation.auc:.2f} between transported "
        f"rows and members, mean cost {validation.distance:.2f} (exact transport between samples: "
        f"{validation.exact_distance:.2f})."
    )


@dataclass(frozen=True, kw_only=True)
class FlipTestResult:
    """Whose decisions would change in another group, and through which features.

    Attributes:
        attribute: Protected attribute.
        criterion: Fairness criterion; it sets the labels within which rows are transported.
        map: Name of the map method.
        cost: Name of the transport cost that the map minimizes.
        directions: Results of every pair of groups, in both directions.
        alpha: Significance level of `rejected`, not corrected for several directions.
        n_counterparts: Counterparts per row where the map splits; more where rows are duplicates.
        seed: Seed of the random generator.
        complete: False if the model failed during the test; later results are missing.
        warnings: Warnings about the data and the computation.
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
        """Result of one direction.

        Raises:
            KeyError: No such direction, or there are several labels and `label` is None.
        """
        matches = [
            direction
            for direction in self.directions
            if (direction.source, direction.target) == (source, target)
            and label in (None, direction.label)
        ]
        if len(matches) != 1:
            error = "several labels; pass one of" if matches else "no such direction; there are"
            names = "; ".join(direction.name for direction in matches or self.directions)
            raise KeyError(f"{error}: {names}")
        return matches[0]

    @property
    def rejected(self) -> tuple[FlipDirection, ...]:
        """Directions in which more decisions flip than under the null hypothesis."""
        return tuple(
            direction
            for direction in self.directions
            if direction.p_value is not None and direction.p_value <= self.alpha
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, aggregates only."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "directions"]
        data: dict[str, Any] = {name: json_ready(getattr(self, name)) for name in names}
        return {**data, "directions": [direction.to_dict() for direction in self.directions]}

    def __str__(self) -> str:
        return to_text(_title(self), _table(self), _notes(self))

    def _repr_html_(self) -> str:
        return to_html(_title(self), _table(self), _notes(self))

    def plot(self) -> Figure:
        """Plot the flip shares of every direction, with intervals and null distributions."""
        from offline_audit.fliptest.figures import draw_result

        return draw_result(self)


def _title(result: FlipTestResult) -> str:
    end = "" if result.complete else " Incomplete: see the warnings."
    return (
        f"Would decisions change if people belonged to another group? ({result.attribute}"
        f"{_WITHIN[result.criterion]}; map {result.map}, cost {result.cost}){end}"
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
        "–" if direction.net is None else f"{100 * direction.net.value:+.1f}%",
        "–" if direction.null is None else f"≤ {percent(direction.null.bound)}",
        format_p_value(direction.p_value),
    )


def _estimate(estimate: ShareEstimate | None) -> str:
    if estimate is None:
        return "–"
    low, high = (100 * end for end in estimate.interval)
    return f"{percent(estimate.value)} ({low:.1f} to {high:.1f})"


def _notes(result: FlipTestResult) -> list[str]:
    notes = [note for direction in result.directions for note in _summary(direction)]
    if any(direction.null is not None for direction in result.directions):
        notes.append(
            "null 95%: bound on flips if both groups had the same features (group labels permuted, "
            "maps refitted). It does not show whether the features that differ are justified."
        )
    return [*notes, *(f"! {warning}" for warning in result.warnings)]


def _summary(direction: FlipDirection) -> Iterator[str]:
    if direction.reason is not None:
        yield f"{direction.name}: no p-value: {direction.reason}"
    # Features are named only if the map is validated and the share is not negligible.
    validated = direction.validation is not None and direction.validation.passed
    for side in SIDES:
        report, share = direction.transparency.get(side), getattr(direction, side)
        if report is None or not report.features or not validated:
            continue
        if share.value >= _SMALLEST_SHARE:
            subgroup = _subgroup_text(direction.subgroups.get(side))
            yield f"{direction.name}, {side}: {_features_text(report)}{subgroup}."
    yield from (f"! {direction.name}: {warning}" for warning in direction.warnings)


def _features_text(report: TransparencyReport) -> str:
    """Features that undo most flips, or those that differ most."""
    features = report.features[:_MAX_FEATURES]
    if features[0].undone is None:
        return "features that differ most: " + ", ".join(feature.name for feature in features)
    undoing = [
        f"{feature.name} ({percent(feature.undone)} of flips undone)"
        for feature in features
        if feature.undone
    ]
    return "features: " + (", ".join(undoing) or "several in combination")


def _subgroup_text(subgroup: Subgroup | None) -> str:
    if subgroup is None or subgroup.rule is None or not subgroup.confirmed:
        return ""
    if subgroup.tested is None:
        return ""
    members = subgroup.tested.flips_inside + subgroup.tested.flips_outside
    minority = subgroup.tested.flips_inside < members / 2
    return f"; rule: {subgroup.rule}{' (less than half of the flips)' * minority}"
