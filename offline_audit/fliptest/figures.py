"""Figures of a FlipTest: flip shares by direction, feature differences, marginals."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_audit.fliptest.counts import Bin
from offline_audit.fliptest.feature_changes import FeatureChange
from offline_audit.fliptest.marginals import Marginal, Marginals
from offline_audit.fliptest.transparency import TransparencyReport
from offline_audit.intervals import Interval
from offline_audit.plots import Kind, blank_figure, plain
from offline_audit.rendering import count, p_equals, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from offline_audit.fliptest.result import FlipDirection, FlipTestResult

__all__ = [
    "FlipRow",
    "draw_flips",
    "draw_marginals",
    "draw_result",
    "draw_transparency",
    "flip_rows",
    "flips_title",
]

# Distinguishable with any colour vision and in print (Okabe and Ito).
_BLUE, _ORANGE, _GREEN, _GRAY = "#0072B2", "#D55E00", "#009E73", "0.65"
_MAX_VARIABLES = 10
_MAX_PANELS = 6
_NAME_WIDTH = 24
_TITLE_WIDTH = 92
# Hatching tells disadvantaged bars and members of a flipset apart without colours.
_HATCH = "////"
# Significance level at which panels say that a variable differs.
_ALPHA = 0.05
# Marker of both sides together by outcome: filled for a difference, hollow if none is shown.
_BOTH: Mapping[Kind, tuple[str, str, str]] = {
    "difference": ("D", "black", "both, a difference"),
    "none": ("D", "white", "both, no difference shown"),
    "undetermined": ("x", "black", "both, not tested"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRow:
    """Figures of one direction in a plot.

    Attributes:
        name: Name of the direction, such as `women → men`.
        advantaged: Share of the group with the favourable decision whose counterparts do not have
            it.
        advantaged_interval: Interval of that share; None for no interval.
        disadvantaged: Share without the favourable decision whose counterparts have it.
        disadvantaged_interval: Interval of that share; None for no interval.
        null_bound: 95% quantile of the gross share under the null hypothesis; None if unknown.
        kind: Whether more decisions change than under the null; bars without a test are pale.
        rows: Number of people in the group; None if unknown.
    """

    name: str
    advantaged: float
    advantaged_interval: Interval | None
    disadvantaged: float
    disadvantaged_interval: Interval | None
    null_bound: float | None
    kind: Kind = "difference"
    rows: int | None = None


def draw_result(result: FlipTestResult) -> Figure:
    """Plot every direction that has shares."""
    raw = "" if result.note is None else ", not corrected for the number of tests"
    return draw_flips(flip_rows(result), flips_title(result), raw)


def flip_rows(result: FlipTestResult) -> list[FlipRow]:
    """Figures of every direction that has shares."""
    return [
        FlipRow(
            name=direction.name,
            advantaged=direction.advantaged.value,
            advantaged_interval=direction.advantaged.interval,
            disadvantaged=direction.disadvantaged.value,
            disadvantaged_interval=direction.disadvantaged.interval,
            null_bound=None if direction.null is None else direction.null.bound,
            kind=_kind(direction, result.alpha),
            rows=direction.rows[0],
        )
        for direction in result.directions
        if direction.advantaged is not None and direction.disadvantaged is not None
    ]


def _kind(direction: FlipDirection, alpha: float) -> Kind:
    if direction.p_value is None:
        return "undetermined"
    return "difference" if direction.p_value <= alpha else "none"


def flips_title(result: FlipTestResult) -> str:
    """Which group loses most, or that none clearly loses."""
    losing = [d for d in result.directions if d.balance == "loses" and d.disadvantaged]
    if not losing:
        return f"{result.attribute}: no group clearly loses"
    most = max(losing, key=lambda d: d.disadvantaged.value if d.disadvantaged else 0.0)
    assert most.disadvantaged is not None
    within = "" if most.label is None else f" with label {most.label}"
    share = percent(most.disadvantaged.value)
    return (
        f"{result.attribute}: {most.source}{within} loses most. {share} do not get the favourable "
        f"decision, and would as {most.target}"
    )


def draw_flips(rows: Sequence[FlipRow], title: str, raw: str = "") -> Figure:
    """Plot flip shares of each side, and their sum next to its size under the null.

    Args:
        rows: Directions.
        title: Title of the figure.
        raw: What the legend adds to outcomes, if they are not corrected for several tests.
    """
    names = [plain(_wrapped(row.name, 3)) for row in rows]
    figure, axes = blank_figure(8.0, 1.8 + 0.6 * max(len(rows), 1))
    _set_title(figure, title)
    if not rows:
        return _empty(figure)
    for y, row in enumerate(rows):
        _flip_row(axes, y, row, raw)
    # Pairs of groups, which have two directions, are separated.
    for y in range(2, len(rows), 2):
        axes.axhline(y - 0.5, color="0.85", linewidth=0.8)
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_xlim(left=0)
    axes.set_xlabel("people whose decision would change (line: 95% interval)", fontsize=9)
    _in_percent(axes.xaxis)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    _legend(figure, axes)
    return figure


def _flip_row(axes: Axes, y: int, row: FlipRow, raw: str) -> None:
    opacity = 0.35 if row.kind == "undetermined" else 1.0
    sides = (
        (y - 0.17, row.disadvantaged, row.disadvantaged_interval, _ORANGE, "disadvantaged", _HATCH),
        (y + 0.17, row.advantaged, row.advantaged_interval, _BLUE, "advantaged", ""),
    )
    for position, share, interval, colour, side, hatch in sides:
        label = side if row.kind != "undetermined" else f"{side}, not tested"
        axes.barh(
            *(position, 100 * share), height=0.28, color=colour, alpha=opacity, label=label,
            hatch=hatch, edgecolor="white", linewidth=0,
        )  # fmt: skip
        if interval is not None:
            ends = [100 * end for end in interval]
            axes.plot(ends, [position] * 2, color="black", linewidth=1.2)
    if row.null_bound is not None:
        axes.plot(
            *([100 * row.null_bound] * 2, [y - 0.4, y + 0.4]), color="0.5", linewidth=3,
            label="both, 95% quantile under the null", clip_on=False,
        )  # fmt: skip
    marker, filling, label = _BOTH[row.kind]
    label += raw if row.kind != "undetermined" else ""
    both = 100 * (row.advantaged + row.disadvantaged)
    axes.plot(
        *([both], [y]), marker, color="black", markerfacecolor=filling, markersize=6, label=label
    )
    if row.rows is not None:
        axes.text(
            *(1.01, y, f"n = {row.rows:,}"), transform=axes.get_yaxis_transform(), va="center",
            color="0.35", fontsize=7,
        )  # fmt: skip


def _in_percent(axis: Axis) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(decimals=None))
    axis.set_tick_params(labelsize=8)


def _set_title(figure: Figure, title: str, width: int = _TITLE_WIDTH) -> None:
    figure.suptitle(plain(textwrap.fill(title, width)), x=0.01, ha="left", fontsize=11)


def draw_transparency(report: TransparencyReport, name: str) -> Figure:
    """Plot mean difference, mean sign and, if the model was called, undone flips by variable.

    Args:
        report: The report.
        name: Name of the direction.
    """
    changes = [change for change in report.features if change.changed > 0][:_MAX_VARIABLES]
    with_undone = report.asked > 0
    figure, axes = _panels(1, 3 if with_undone else 2, 9.5, 1.7 + 0.34 * max(len(changes), 2))
    _set_title(figure, _transparency_title(report, name))
    if not changes:
        return _empty(figure, report.reason or "no variable differs")
    _bars(axes[0], [(c.magnitude, c.magnitude_interval) for c in changes], _BLUE)
    axes[0].set_xlabel("mean difference, sd", fontsize=9)
    _bars(axes[1], [(c.consistency, c.consistency_interval) for c in changes], _GREEN)
    axes[1].set_xlabel("mean sign (consistency)", fontsize=9)
    axes[1].set_xlim(-1.05, 1.05)
    if with_undone:
        _bars(axes[2], [_undone_percent(change) for change in changes], _ORANGE)
        axes[2].set_xlabel("flips undone by it alone", fontsize=9)
        axes[2].set_xlim(0, 102)
        _in_percent(axes[2].xaxis)
    names = [plain(_wrapped(change.name)) for change in changes]
    axes[0].set_yticks(range(len(changes)), names, fontsize=8)
    for panel in axes[1:]:
        panel.set_yticks(range(len(changes)), [""] * len(changes))
    _legend(figure, axes[0], _filled_and_hollow())
    return figure


def _filled_and_hollow() -> list[Any]:
    """Handles of a legend for bars whose interval excludes or includes 0, in no panel's colour."""
    from matplotlib.patches import Patch

    return [
        Patch(facecolor=filling, edgecolor="0.35", label=f"95% interval (line) {verb} 0")
        for filling, verb in (("0.35", "excludes"), ("white", "includes"))
    ]


def _transparency_title(report: TransparencyReport, name: str) -> str:
    people = "" if report.people is None else f" ({count(report.people, 'person', 'people')})"
    start = f"{name}, {report.side}{people}"
    main = report.main_features
    if not main:
        return start
    if main[0].undone is None:
        return f"{start}: {main[0].name} differs most"
    return f"{start}: {main[0].name} alone undoes {100 * main[0].undone:.0f}% of the flips"


def draw_marginals(marginals: Marginals, name: str) -> Figure:
    """Plot the variables that differ most: whole group and members of the flipset.

    Args:
        marginals: The comparison.
        name: Name of the direction.
    """
    variables = [m for m in marginals.variables if len(m.bins) > 1][:_MAX_PANELS]
    across = min(max(len(variables), 1), 3)
    down = -(-max(len(variables), 1) // across)
    figure, axes = _panels(down, across, 3.4 * across, 0.9 + 2.6 * down)
    _set_title(figure, _marginals_title(marginals, variables, name), 30 * across)
    if not variables:
        return _empty(figure, marginals.reason or "no variable to plot")
    for panel, marginal in zip(axes, variables, strict=False):
        _histogram(panel, marginal)
    for unused in axes[len(variables) :]:
        unused.set_axis_off()
    for first in axes[::across]:
        first.set_ylabel("share of the people", fontsize=9)
    _legend(figure, axes[0])
    return figure


def _marginals_title(marginals: Marginals, variables: Sequence[Marginal], name: str) -> str:
    start = f"{name}, {marginals.side}"
    differing = [m for m in variables if _differs(m)]
    if not differing:
        return f"{start}: no variable is shown to differ between members and their group"
    names = ", ".join(marginal.name for marginal in differing[:2])
    return f"{start}: members of the flipset differ from their group most in {names}"


def _differs(marginal: Marginal) -> bool:
    p = marginal.adjusted_p_value
    return p is not None and p <= _ALPHA


def _panels(down: int, across: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    figure, axes = blank_figure(width, height)
    axes.remove()
    grid = figure.subplots(down, across, squeeze=False)
    return figure, list(grid.flat)


def _undone_percent(change: FeatureChange) -> tuple[float, Interval | None]:
    if change.undone is None or change.undone_interval is None:
        return 0.0, None
    low, high = change.undone_interval
    return 100 * change.undone, (100 * low, 100 * high)


def _bars(axes: Axes, values: Sequence[tuple[float, Interval | None]], colour: str) -> None:
    """Draw bars from zero with intervals, the first at the top; hollow if zero is possible."""
    for y, (value, interval) in enumerate(values):
        clear = interval is not None and (interval[0] > 0 or interval[1] < 0)
        axes.barh(
            *(y, value), height=0.6, color=colour if clear else "white", edgecolor=colour,
            linewidth=1.2,
        )  # fmt: skip
        if interval is not None:
            axes.plot(interval, [y, y], color="black", linewidth=1.2)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _histogram(axes: Axes, marginal: Marginal) -> None:
    members = sum(b.members for b in marginal.bins)
    group = sum(b.members + b.others for b in marginal.bins)
    positions = range(len(marginal.bins))
    whole = [100 * (b.members + b.others) / group for b in marginal.bins]
    flipped = [100 * b.members / members for b in marginal.bins]
    bars: dict[str, Any] = {"width": 0.4, "edgecolor": "white", "linewidth": 0}
    axes.bar(
        *([p - 0.2 for p in positions], whole), color=_GRAY, label=f"whole group (n = {group:,})",
        **bars,
    )  # fmt: skip
    axes.bar(
        *([p + 0.2 for p in positions], flipped), color=_ORANGE, hatch=_HATCH,
        label=f"members of the flipset (n = {members:,})", **bars,
    )  # fmt: skip
    crowded = sum(len(_label(b)) for b in marginal.bins) > 26
    axes.set_xticks(
        list(positions),
        [plain(_label(b)) for b in marginal.bins],
        fontsize=7,
        rotation=40 if crowded else 0,
        ha="right" if crowded else "center",
        rotation_mode="anchor",
    )
    _in_percent(axes.yaxis)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    answer = "differs" if _differs(marginal) else "no difference shown"
    if marginal.adjusted_p_value is not None:
        answer += f", p {p_equals(marginal.adjusted_p_value)}"
    weight = "bold" if _differs(marginal) else "normal"
    title = f"{plain(_wrapped(marginal.name))}\n({answer})"
    axes.set_title(title, fontsize=9, weight=weight)


def _label(bin_: Bin) -> str:
    return textwrap.shorten(bin_.name.replace(" to ", "–"), 14, placeholder="…")


def _legend(figure: Figure, axes: Axes, more: Sequence[Any] = ()) -> None:
    """Draw a legend below the figure, with one entry per label."""
    entries: dict[str, Any] = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        entries.setdefault(label, handle)
    entries |= {handle.get_label(): handle for handle in more}
    figure.legend(
        entries.values(), entries, loc="outside lower center", ncols=3, fontsize=8, frameon=False
    )


def _empty(figure: Figure, text: str = "no result") -> Figure:
    for axes in figure.axes:
        axes.set_axis_off()
    figure.text(0.5, 0.45, text, ha="center", va="center", color="0.4")
    return figure


def _wrapped(name: str, lines: int = 2) -> str:
    return "\n".join(textwrap.wrap(name, _NAME_WIDTH, max_lines=lines, placeholder="…"))
