"""Result of a FlipTest: every pair of groups in both directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from offline_audit.coverage import Unknowns
from offline_audit.criteria import Criterion
from offline_audit.fliptest.feature_changes import FeatureChange
from offline_audit.fliptest.flipset import SIDES, Flipset, Identification, Side
from offline_audit.fliptest.marginals import Marginals
from offline_audit.fliptest.other_attributes import AttributeChange
from offline_audit.fliptest.resampling import NullSizes, ShareEstimate
from offline_audit.fliptest.result_text import direction_text, result_text
from offline_audit.fliptest.subgroup import Subgroup
from offline_audit.fliptest.transparency import TransparencyReport
from offline_audit.maps.validation import MapValidation
from offline_audit.power import Detectable
from offline_audit.rendering import (
    json_ready,
    percent,
    share_in_words,
    to_html,
    to_text,
    uncorrected,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FlipDirection", "FlipTestResult"]

# What the decisions are called if their names are not known.
_DECISIONS = ("unfavourable", "favourable")
# Smallest share of a group whose features the sentences name.
_SMALLEST_SHARE = 0.0005


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
        of_favourable: Share of the favourable decisions about the source whose counterparts do not
            have them; None if there are few.
        of_unfavourable: Share of the unfavourable decisions about the source whose counterparts
            have the favourable one; None if there are few.
        net: Advantaged minus disadvantaged share; for an exact map, the difference of rates.
        null: Null distribution of the gross share; None without permutations.
        smallest_detectable_effect: Net shares downwards and upwards whose flips are detected with
            at least 80% power at these sizes; None for a direction where no share is. None without
            a test.
        validation: Validation of the map on rows to which it was not fitted.
        identification: Range of the flipset over plans of equal cost.
        transparency: Features that differ between flipped rows and counterparts, by side.
        marginals: Comparison of members with the rest of their group, by side.
        subgroups: Rule that describes the members, by side.
        attribute_changes: Other protected attributes among the features that the map changes.
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
    of_favourable: ShareEstimate | None = None
    of_unfavourable: ShareEstimate | None = None
    net: ShareEstimate | None = None
    null: NullSizes | None = None
    smallest_detectable_effect: Detectable | None = None
    validation: MapValidation | None = None
    identification: Identification | None = None
    transparency: Mapping[Side, TransparencyReport] = field(default_factory=dict)
    marginals: Mapping[Side, Marginals] = field(default_factory=dict)
    subgroups: Mapping[Side, Subgroup] = field(default_factory=dict)
    attribute_changes: tuple[AttributeChange, ...] = ()
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

    @property
    def p_value_kind(self) -> str | None:
        """How the p-value is computed; None without one."""
        if self.p_value is None:
            return None
        return "(b + 1) / (B + 1) of B random permutations, ties count in full"

    @property
    def note(self) -> str | None:
        """Note that several p-values, of flips and of rules, are not corrected; None for one."""
        rules = sum(subgroup.p_value is not None for subgroup in self.subgroups.values())
        return uncorrected(rules + (self.p_value is not None))

    @property
    def balance(self) -> Literal["loses", "gains", "unclear"]:
        """Whether the source loses or gains against the target; unclear without a p-value.

        It loses if its members get the favourable decision less often than their counterparts, with
        an interval of the net share that excludes 0.
        """
        if self.net is None or self.p_value is None:
            return "unclear"
        low, high = self.net.interval
        return "loses" if high < 0 else "gains" if low > 0 else "unclear"

    @property
    def main_features(self) -> tuple[FeatureChange, ...]:
        """Features through which most decisions change; none if the map fails validation."""
        shares = {side: getattr(self, side) for side in SIDES}
        if self.validation is None or not self.validation.passed or None in shares.values():
            return ()
        larger = max(SIDES, key=lambda side: shares[side].value)
        report = self.transparency.get(larger)
        return () if report is None else report.main_features

    @property
    def caveat(self) -> str:
        """What to say where features are named, if the map is not shown to be good; or nothing."""
        unproven = self.validation is not None and self.validation.state == "not shown"
        return " (map not validated)" if unproven else ""

    def sentences(self, words: tuple[str, str] = _DECISIONS) -> tuple[str, ...]:
        """Whose decisions would change, in which direction, and who loses on balance.

        Args:
            words: Names of the unfavourable and of the favourable decision.
        """
        return _sentences(self, words)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, aggregates only."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "flipset"]
        data: dict[str, Any] = {name: json_ready(getattr(self, name)) for name in names}
        if self.validation is not None:
            state = {"state": self.validation.state, "statement": self.validation.statement}
            data["validation"] = {**data["validation"], **state}
        for name in ("transparency", "marginals", "subgroups"):
            data[name] = {side: part.to_dict() for side, part in getattr(self, name).items()}
        own = ("p_value", "p_value_kind", "balance", "note")
        return {**data, **{name: getattr(self, name) for name in own}}

    def __str__(self) -> str:
        title, sentences, notes = direction_text(self)
        first, last = ("\n".join(map(wrapped, part)) for part in ([title, *sentences], notes))
        return "\n\n".join([first, *map(str, self.reports), last])

    def _repr_html_(self) -> str:
        title, sentences, notes = direction_text(self)
        reports = "".join(report._repr_html_() for report in self.reports)
        return to_html(title, None, [*sentences, *notes]) + reports

    @property
    def reports(self) -> list[TransparencyReport | Subgroup | Marginals]:
        """Reports on both sides, in the order in which they are printed."""
        kinds = (self.transparency, self.marginals, self.subgroups)
        return [reports[side] for side in SIDES for reports in kinds if side in reports]

    def plot_transparency(self, side: Side) -> Figure:
        """Plot how features differ between flipped rows and counterparts, and which undo flips."""
        from offline_audit.fliptest.figures import draw_transparency

        return draw_transparency(self.transparency[side], self.name)

    def plot_marginals(self, side: Side) -> Figure:
        """Plot distributions of the members of a flipset and of their whole group."""
        from offline_audit.fliptest.figures import draw_marginals

        return draw_marginals(self.marginals[side], self.name)


def _sentences(direction: FlipDirection, words: tuple[str, str]) -> tuple[str, ...]:
    """Whose decisions would change, in which direction and through what, and who loses."""
    gross, net = direction.gross, direction.net
    if gross is None or net is None:
        return ()
    changed = share_in_words(gross.value, gross.interval)
    total = (
        f"{changed} of the decisions about {direction.source} would change as {direction.target}."
    )
    through = (
        change.sentence(direction.source, direction.caveat)
        for change in direction.attribute_changes
    )
    return total, _balance(direction, words[1]), *_sides(direction, words), *through


def _sides(direction: FlipDirection, words: tuple[str, str]) -> Iterator[str]:
    """One sentence for each kind of decision, and the features behind the changes."""
    parts = {"disadvantaged": direction.of_unfavourable, "advantaged": direction.of_favourable}
    # Features are named only if the map did not fail validation and the share is not negligible.
    passed = direction.validation is not None and direction.validation.passed
    for side, (before, after) in zip(SIDES, (words, words[::-1]), strict=True):
        part, report = parts[side], direction.transparency.get(side)
        if part is not None:
            yield (
                f"Of the {before} decisions about {direction.source}, "
                f"{share_in_words(part.value, part.interval)} would be {after} as "
                f"{direction.target}."
            )
        if report is None or not report.features or not passed:
            continue
        if getattr(direction, side).value >= _SMALLEST_SHARE:
            yield _features(report, direction.caveat)
            yield from _rule(direction.subgroups.get(side))


def _features(report: TransparencyReport, caveat: str) -> str:
    """Features that undo most flips, or those that differ most."""
    features = report.main_features
    if not features:
        return f"These changes depend on several features in combination{caveat}."
    if features[0].undone is None:
        return (
            f"Features that differ most{caveat}: {', '.join(feature.name for feature in features)}."
        )
    undone = ", ".join(f"{feature.name} ({percent(feature.undone)})" for feature in features)
    return f"Share of these changes that one feature alone undoes{caveat}: {undone}."


def _rule(subgroup: Subgroup | None) -> Iterator[str]:
    if subgroup is None or subgroup.rule is None or not subgroup.confirmed:
        return
    if subgroup.tested is None:
        yield f"These changes are more frequent where {subgroup.rule}."
        return
    members = subgroup.tested.flips_inside + subgroup.tested.flips_outside
    most = "Most" if subgroup.tested.flips_inside >= members / 2 else "Less than half"
    yield f"{most} of these changes are where {subgroup.rule}."


def _balance(direction: FlipDirection, favourable: str) -> str:
    """Who loses on balance, with the rates of both groups."""
    net, (one, other) = direction.net, direction.rates
    assert net is not None
    rates = ""
    if one is not None and other is not None:
        rates = (
            f"; {percent(one)} of the decisions about {direction.source} are {favourable}, "
            f"{percent(other)} of those about {direction.target}"
        )
    low, high = (100 * end for end in net.interval)
    if direction.balance != "unclear":
        ends = (-high, -low) if direction.balance == "loses" else (low, high)
        return (
            f"On balance {direction.source} {direction.balance} {100 * abs(net.value):.1f} "
            f"percentage points (95% interval {ends[0]:.1f} to {ends[1]:.1f}){rates}."
        )
    start = "On balance neither group clearly loses"
    if direction.p_value is None:
        start = "Who loses cannot be determined"
    return (
        f"{start}: gains minus losses {100 * net.value:+.1f} percentage points (95% interval "
        f"{low:+.1f} to {high:+.1f}){rates}."
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
        unknown: Numbers of rows of unknown group, and without a label if labels are used.
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
    unknown: Unknowns
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
        directions = [direction.to_dict() for direction in self.directions]
        return {**data, "directions": directions, "note": self.note}

    @property
    def note(self) -> str | None:
        """Note that the p-values of several directions are not corrected; None for one."""
        return uncorrected(sum(direction.p_value is not None for direction in self.directions))

    def __str__(self) -> str:
        return to_text(*result_text(self))

    def _repr_html_(self) -> str:
        return to_html(*result_text(self))

    def plot(self) -> Figure:
        """Plot the flip shares of every direction, with intervals and null distributions."""
        from offline_audit.fliptest.figures import draw_result

        return draw_result(self)
