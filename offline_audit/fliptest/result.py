"""What a FlipTest found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.fliptest.identification import Identification
from offline_audit.fliptest.marginals import Marginals
from offline_audit.fliptest.resampling import NullSizes
from offline_audit.fliptest.result_text import (
    direction_notes,
    direction_reports,
    direction_text,
    direction_title,
    drawn,
    result_notes,
    result_table,
    result_title,
)
from offline_audit.fliptest.subgroup import Subgroup
from offline_audit.fliptest.transparency import TransparencyReport
from offline_audit.maps.validation import MapValidation
from offline_audit.presentation import json_ready, to_html, to_text
from offline_audit.projection.criteria import Criterion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FlipDirection", "FlipTestResult", "ShareEstimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEstimate:
    """A share of a group, or a difference of two, with its interval.

    Attributes:
        value: The estimate.
        interval: That covers it with 95% confidence.
    """

    value: float
    interval: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class FlipDirection:
    """Members of one group, carried to another.

    Attributes:
        source: Whose members are carried.
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
        detectable: The smallest gross share that these people would show four times in five.
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
    detectable: float | None = None
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


@dataclass(frozen=True, kw_only=True)
class FlipTestResult:
    """Whose decisions would differ in another group, and through which features.

    Attributes:
        attribute: The protected attribute.
        criterion: Within which outcomes people are carried.
        map: Name of the method.
        cost: What it keeps small.
        directions: Every pair of groups, both ways.
        level: At which `rejected` answers, without correction for several directions.
        draws: Counterparts of each person, where the map splits; more where people are alike.
        seed: Of whatever is random.
        complete: False if the model could no longer be asked; what was found until then is here.
        warnings: What to know before a figure is believed.
    """

    attribute: str
    criterion: Criterion
    map: str
    cost: str
    directions: tuple[FlipDirection, ...]
    level: float
    draws: int
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
            if each.p_value is not None and each.p_value <= self.level
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
