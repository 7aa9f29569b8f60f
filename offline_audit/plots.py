"""Figures of estimates with their intervals, for all audits."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Estimate", "Kind", "blank_figure", "interval_figure", "plain"]

# Whether an estimate shows a difference; an estimate without a test is undetermined.
Kind = Literal["difference", "none", "undetermined"]

# Characters of a label line, and of a line of the title.
_NAME_WIDTH, _TITLE_WIDTH = 38, 88
# Inches of a line of a label, of the space between labels, of a heading, and of everything else.
_LINE, _SPACE, _HEADING, _MARGIN = 0.15, 0.15, 0.3, 1.3
# Marker, filling, line and colour: without colours, marker and line tell kinds apart. The colours
# are distinguishable with any colour vision (Okabe and Ito).
_STYLES: Mapping[Kind, Mapping[str, Any]] = {
    "difference": {"marker": "o", "color": "#D55E00", "linewidth": 2.6},
    "none": {"marker": "o", "color": "#0072B2", "linewidth": 1.2, "markerfacecolor": "white"},
    "undetermined": {"marker": "x", "color": "0.45", "linewidth": 1.2, "linestyle": ":"},
}
_RANGE_LABEL = "thin line: all values of unknown groups and labels"
# Scale and label of the axis by unit.
_UNITS: Mapping[str | None, tuple[float, str]] = {
    "rate": (100.0, "difference, percentage points"),
    "score": (1.0, "difference of means of the score"),
    "auc": (1.0, "difference of AUC"),
    "correlation": (1.0, "correlation"),
    None: (1.0, "difference"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate in a figure.

    Attributes:
        name: Label.
        value: Position of the marker.
        interval: Ends of the line; None for the marker alone.
        kind: Whether it shows a difference.
        section: Heading of the estimates that belong together, such as the attribute.
        rows: Numbers of rows behind the estimate.
        unit: Unit; estimates of one unit share an axis, and rates are in percentage points.
        range: Ends of a thin line: what unknown groups and labels leave open; None for none.
    """

    name: str
    value: float
    interval: tuple[float, float] | None
    kind: Kind = "none"
    section: str = ""
    rows: tuple[int, ...] = ()
    unit: str | None = None
    range: tuple[float, float] | None = None


def interval_figure(
    estimates: Sequence[Estimate],
    title: str,
    kinds: Mapping[Kind, str],
    *,
    label: str | None = None,
    confidence_level: float = 0.95,
    at: float = 0.0,
    band: tuple[float, str] | None = None,
) -> Figure:
    """Figure of estimates with their intervals, one below the other, with a panel per unit.

    Args:
        estimates: Estimates, from the top.
        title: What the estimates show.
        kinds: Names of the kinds in the legend.
        label: Label of the horizontal axis; None for that of the unit.
        confidence_level: Confidence level of the intervals.
        at: Position of a vertical line that marks equality, in the unit of the axis.
        band: Half-width and name of a shaded band around equality, in the unit of the axis.
    """
    units = list(dict.fromkeys(estimate.unit for estimate in estimates))
    sections = list(dict.fromkeys(estimate.section for estimate in estimates))
    # Estimates of a section stay together, whatever the order of the tests.
    ordered = sorted(estimates, key=lambda estimate: sections.index(estimate.section))
    panels = [[e for e in ordered if e.unit == unit] for unit in units]
    heights = [_height(panel) for panel in panels]
    figure, first = blank_figure(8.0, _MARGIN + sum(heights) + 0.5 * max(len(panels) - 1, 0))
    figure.suptitle(plain(textwrap.fill(title, _TITLE_WIDTH)), x=0.01, ha="left", fontsize=11)
    if not estimates:
        first.text(0.5, 0.5, "no estimates", ha="center", va="center")
        first.set_axis_off()
        return figure
    first.remove()
    ratios = {"height_ratios": heights}
    axes = list(figure.subplots(len(panels), 1, squeeze=False, gridspec_kw=ratios)[:, 0])
    for panel, unit, drawn in zip(panels, units, axes, strict=True):
        scale, text = _UNITS.get(unit, (1.0, f"difference ({unit})"))
        if band is not None:
            drawn.axvspan(at - band[0], at + band[0], color="0.9", label=band[1])
        _draw_panel(drawn, panel, scale, kinds)
        drawn.axvline(at, color="black", linewidth=0.8)
        level = f"line: {100 * confidence_level:g}% interval"
        drawn.set_xlabel(f"{label or text} ({level})", fontsize=9)
    _draw_legend(figure, axes)
    return figure


def _height(panel: Sequence[Estimate]) -> float:
    """Height of a panel in inches."""
    sections = {estimate.section for estimate in panel} - {""}
    return sum(map(_row_height, panel)) + _HEADING * len(sections)


def _row_height(estimate: Estimate) -> float:
    return _SPACE + _LINE * len(_label(estimate).splitlines())


def _label(estimate: Estimate) -> str:
    return plain(textwrap.fill(estimate.name, _NAME_WIDTH))


def _draw_panel(
    axes: Axes, panel: Sequence[Estimate], scale: float, kinds: Mapping[Kind, str]
) -> None:
    """Draw estimates from the top; the vertical axis is in inches."""
    position, section, ticks = 0.0, "", []
    for estimate in panel:
        if estimate.section != section:
            section = estimate.section
            _draw_beside(axes, position + _HEADING / 2, section, left=True)
            position += _HEADING
        height = _row_height(estimate)
        y = position + height / 2
        position += height
        ticks.append(y)
        style = {"markersize": 6, "markeredgewidth": 1.6, **_STYLES[estimate.kind]}
        ends = estimate.interval or (estimate.value, estimate.value)
        line = {k: v for k, v in style.items() if k in ("color", "linewidth", "linestyle")}
        axes.plot([scale * end for end in ends], [y, y], **line)
        if estimate.range is not None and all(map(math.isfinite, estimate.range)):
            thin = {"color": line["color"], "linewidth": 0.5, "label": _RANGE_LABEL}
            axes.plot([scale * end for end in estimate.range], [y, y], **thin)
        # The legend shows the marker together with its line.
        axes.plot([scale * estimate.value], [y], label=kinds[estimate.kind], **style)
        if estimate.rows:
            numbers = ", ".join(f"{rows:,}" for rows in estimate.rows)
            _draw_beside(axes, y, f"n = {numbers}", left=False)
    axes.set_yticks(ticks, [_label(estimate) for estimate in panel], fontsize=8)
    axes.set_ylim(position, 0.0)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.92")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_beside(axes: Axes, y: float, text: str, *, left: bool) -> None:
    """The heading of a section left of the axis, or the numbers of rows right of it."""
    style: dict[str, Any] = (
        {"x": -0.015, "ha": "right", "weight": "bold", "fontsize": 9}
        if left
        else {"x": 1.01, "ha": "left", "color": "0.35", "fontsize": 7}
    )
    axes.text(y=y, s=plain(text), transform=axes.get_yaxis_transform(), va="center", **style)


def _draw_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Legend below the figure, with one entry per label."""
    entries: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        entries.values(), entries, loc="outside lower center", ncols=2, fontsize=8, frameon=False
    )


def plain(text: str) -> str:
    """Text with escaped dollar signs, which matplotlib reads as formulas."""
    return text.replace("$", r"\$")


def blank_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one panel, outside the global state of pyplot.

    Args:
        width: Width in inches.
        height: Height in inches.
    """
    # Imported here, since matplotlib is slow to import and only plots need it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()
