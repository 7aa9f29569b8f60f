"""Figures of a FlipTest: flip shares by direction, feature differences, marginals."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offline_audit.fliptest.counts import Bin
from offline_audit.fliptest.feature_changes import FeatureChange
from offline_audit.fliptest.marginals import Marginal, Marginals
from offline_audit.fliptest.transparency import TransparencyReport
from offline_audit.intervals import Interval
from offline_audit.rendering import blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from offline_audit.fliptest.result import FlipTestResult

__all__ = ["FlipRow", "draw_flips", "draw_marginals", "draw_result", "draw_transparency"]

# Distinguishable with any colour vision and in print (Okabe and Ito).
_BLUE, _ORANGE, _GREEN, _GRAY = "#0072B2", "#D55E00", "#009E73", "0.65"
_MAX_VARIABLES = 10
_MAX_PANELS = 6
_NAME_WIDTH = 24
_TITLE_WIDTH = 96


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
        tested: Whether there is a p-value; bars without one are pale.
    """

    name: str
    advantaged: float
    advantaged_interval: Interval | None
    disadvantaged: float
    disadvantaged_interval: Interval | None
    null_bound: float | None
    tested: bool = True


def draw_result(result: FlipTestResult) -> Figure:
    """Plot every direction that has shares."""
    rows = [
        FlipRow(
            name=direction.name,
            advantaged=direction.advantaged.value,
            advantaged_interval=direction.advantaged.interval,
            disadvantaged=direction.disadvantaged.value,
            disadvantaged_interval=direction.disadvantaged.interval,
            null_bound=None if direction.null is None else direction.null.bound,
            tested=direction.p_value is not None,
        )
        for direction in result.directions
        if direction.advantaged is not None and direction.disadvantaged is not None
    ]
    return draw_flips(rows, f"Decisions that would change ({result.attribute})")


def draw_flips(rows: Sequence[FlipRow], title: str) -> Figure:
    """Plot flip shares of each side, and their sum next to its size under the null."""
    names = [_wrapped(row.name, 3) for row in rows]
    figure, axes = blank_figure(8.0, 2.0 + 0.6 * max(len(rows), 1))
    axes.set_title(_title(title), fontsize="medium")
    if not rows:
        return _empty(figure)
    for y, row in enumerate(rows):
        _flip_row(axes, y, row)
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_xlim(left=0)
    axes.set_xlabel("people whose decision would change, % of the group", fontsize=9)
    _legend(figure, axes)
    return figure


def _flip_row(axes: Axes, y: int, row: FlipRow) -> None:
    if row.null_bound is not None:
        label = "both, 95% quantile under the null"
        axes.barh(y, 100 * row.null_bound, height=0.84, color="0.88", label=label)
    opacity = 1.0 if row.tested else 0.35
    sides = (
        (y - 0.17, row.disadvantaged, row.disadvantaged_interval, _ORANGE, "disadvantaged"),
        (y + 0.17, row.advantaged, row.advantaged_interval, _BLUE, "advantaged"),
    )
    for position, share, interval, colour, side in sides:
        label = side if row.tested else f"{side}, not tested"
        axes.barh(position, 100 * share, height=0.28, color=colour, alpha=opacity, label=label)
        if interval is not None:
            ends = [100 * end for end in interval]
            axes.plot(ends, [position] * 2, color="black", linewidth=1.2, label="interval")
    both = 100 * (row.advantaged + row.disadvantaged)
    axes.plot([both], [y], "D", color="black", alpha=opacity, markersize=5, label="both")


def draw_transparency(report: TransparencyReport, title: str) -> Figure:
    """Plot mean difference, mean sign and, if the model was called, undone flips by variable."""
    changes = [change for change in report.features if change.changed > 0][:_MAX_VARIABLES]
    with_undone = report.asked > 0
    figure, axes = _panels(1, 3 if with_undone else 2, 9.5, 1.3 + 0.34 * max(len(changes), 2))
    figure.suptitle(_title(title), fontsize="medium")
    if not changes:
        return _empty(figure, report.reason or "no variable differs")
    _bars(axes[0], [(c.magnitude, c.magnitude_interval) for c in changes], _BLUE)
    axes[0].set_xlabel("mean difference, sd", fontsize=9)
    _bars(axes[1], [(c.consistency, c.consistency_interval) for c in changes], _GREEN)
    axes[1].set_xlabel("mean sign (consistency)", fontsize=9)
    axes[1].set_xlim(-1.05, 1.05)
    if with_undone:
        _bars(axes[2], [_undone_percent(change) for change in changes], _ORANGE)
        axes[2].set_xlabel("undone by it alone, % of flips", fontsize=9)
        axes[2].set_xlim(0, 102)
    names = [_wrapped(change.name) for change in changes]
    axes[0].set_yticks(range(len(changes)), names, fontsize=8)
    for panel in axes[1:]:
        panel.set_yticks(range(len(changes)), [""] * len(changes))
    return figure


def draw_marginals(marginals: Marginals, title: str) -> Figure:
    """Plot the variables that differ most: whole group and members of the flipset."""
    variables = [m for m in marginals.variables if len(m.bins) > 1][:_MAX_PANELS]
    across = min(max(len(variables), 1), 3)
    down = -(-max(len(variables), 1) // across)
    figure, axes = _panels(down, across, 3.4 * across, 0.9 + 2.6 * down)
    figure.suptitle(_title(title, 32 * across), fontsize="medium")
    if not variables:
        return _empty(figure, marginals.reason or "no variable to plot")
    for panel, marginal in zip(axes, variables, strict=False):
        _histogram(panel, marginal)
    for unused in axes[len(variables) :]:
        unused.set_axis_off()
    for first in axes[::across]:
        first.set_ylabel("share, %", fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure


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
    """Draw bars from zero with intervals, the first at the top."""
    axes.barh(range(len(values)), [value for value, _ in values], height=0.6, color=colour)
    for y, (_, interval) in enumerate(values):
        if interval is not None:
            axes.plot(interval, [y, y], color="black", linewidth=1.2)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)


def _histogram(axes: Axes, marginal: Marginal) -> None:
    members = sum(b.members for b in marginal.bins)
    group = sum(b.members + b.others for b in marginal.bins)
    positions = range(len(marginal.bins))
    whole = [100 * (b.members + b.others) / group for b in marginal.bins]
    flipped = [100 * b.members / members for b in marginal.bins]
    axes.bar([p - 0.2 for p in positions], whole, width=0.4, color=_GRAY, label="whole group")
    axes.bar([p + 0.2 for p in positions], flipped, width=0.4, color=_ORANGE, label="flipset")
    crowded = sum(len(_label(b)) for b in marginal.bins) > 26
    axes.set_xticks(
        list(positions),
        [_label(b) for b in marginal.bins],
        fontsize=7,
        rotation=40 if crowded else 0,
        ha="right" if crowded else "center",
        rotation_mode="anchor",
    )
    axes.tick_params(axis="y", labelsize=8)
    axes.set_title(_wrapped(marginal.name), fontsize=9)


def _label(bin_: Bin) -> str:
    return textwrap.shorten(bin_.name.replace(" to ", "–"), 14, placeholder="…")


def _legend(figure: Figure, axes: Axes) -> None:
    """Draw a legend below the figure, with one entry per label."""
    handles, labels = axes.get_legend_handles_labels()
    # Reversed, so that the first handle of each label is the one that remains.
    by_label = dict(reversed(list(zip(labels, handles, strict=True))))
    figure.legend(
        by_label.values(), by_label, loc="outside lower center", ncols=2, fontsize=8, frameon=False
    )


def _empty(figure: Figure, text: str = "no result") -> Figure:
    for axes in figure.axes:
        axes.set_axis_off()
    figure.text(0.5, 0.45, text, ha="center", va="center", color="0.4")
    return figure


def _wrapped(name: str, lines: int = 2) -> str:
    return "\n".join(textwrap.wrap(name, _NAME_WIDTH, max_lines=lines, placeholder="…"))


def _title(title: str, width: int = _TITLE_WIDTH) -> str:
    return textwrap.fill(title, width)
