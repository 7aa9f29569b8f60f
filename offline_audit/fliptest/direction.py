"""Result of one direction of a FlipTest: members of a source group transported to a target."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.fliptest.identification import Identification
from offline_audit.fliptest.marginals import Marginals
from offline_audit.fliptest.resampling import NullSizes, ShareEstimate
from offline_audit.fliptest.subgroup import Subgroup
from offline_audit.fliptest.transparency import TransparencyReport
from offline_audit.maps.validation import MapValidation
from offline_audit.rendering import count, json_ready, p_words, percent, to_html, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SIDES", "FlipDirection"]

SIDES: tuple[Side, Side] = ("disadvantaged", "advantaged")


@dataclass(frozen=True, kw_only=True)
class FlipDirection:
    """Members of one group, transported to another.

    Attributes:
        source: Whose members are transported.
        target: To which group.
        label: The outcome within which they are; None for all.
        rows: Members of source and target.
        rates: Share of each that has the favourable decision; None of a group without members.
        advantaged: Share of the source that has the favourable decision while the counterpart has
            not; None where nothing could be computed.
        disadvantaged: The reverse.
        gross: Both together.
        net: Advantaged less disadvantaged; rates of the groups fix it for an exact map.
        null: How large flipsets are if group labels mean nothing; None if that was not asked.
        smallest_detectable_effect: Smallest gross share detected with 80% power at these sizes.
        validation: Of the map, on people it was not fitted to.
        identification: Of the flipset, for the map's cost.
        transparency: By side: features by how much, how consistently, and which undoes the flip.
        marginals: By side: members beside the rest of their group.
        subgroups: By side: a rule that names who flips.
        reason: Why there is no p-value; None if there is one.
        warnings: What to know before a figure is believed.
        flipset: The people; not in `to_dict`, which holds aggregates only.
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
        """Source and target, and the label where there is one."""
        label = "" if self.label is None else f", label {self.label}"
        return f"{self.source} → {self.target}{label}"

    @property
    def p_value(self) -> float | None:
        """That chance alone flips as many; None without evidence."""
        return None if self.null is None or self.reason is not None else self.null.p_value

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: aggregates only."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "flipset"]
        found: dict[str, Any] = {name: json_ready(getattr(self, name)) for name in names}
        for name in ("transparency", "marginals", "subgroups"):
            found[name] = {side: each.to_dict() for side, each in getattr(self, name).items()}
        return {**found, "p_value": self.p_value}

    def __str__(self) -> str:
        return direction_text(self)

    def _repr_html_(self) -> str:
        parts = [report._repr_html_() for report in direction_reports(self)]
        return to_html(direction_title(self), None, direction_notes(self)) + "".join(parts)

    def plot_transparency(self, side: Side) -> Figure:
        """Features by how much, how consistently they differ, and which undoes the flip."""
        from offline_audit.fliptest.figures import draw_transparency

        return draw_transparency(self.transparency[side], f"{self.name}: {side}")

    def plot_marginals(self, side: Side) -> Figure:
        """Members of a flipset beside the rest of their group."""
        from offline_audit.fliptest.figures import draw_marginals

        return draw_marginals(self.marginals[side], f"{self.name}: {side}")


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
            f"With group labels permuted {count(each.null.n_resamples, 'time')}, "
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
    if each.smallest_detectable_effect is not None:
        notes.append(
            f"Through a feature that differs too little between the groups to be seen in so many "
            f"people, up to about {percent(each.smallest_detectable_effect)} may flip."
        )
    return [*notes, *(f"! {warning}" for warning in each.warnings)]


def _validated(found: MapValidation) -> str:
    worst = max(found.variables, key=lambda fit: fit.ks)
    return (
        f"Map on {found.rows[0]:,} people it was not fitted to: largest KS {worst.ks:.3f} "
        f"({worst.name}), told from members with AUC {found.auc:.2f}, mean cost "
        f"{found.distance:.2f} (exact transport between samples: {found.exact_distance:.2f})."
    )
