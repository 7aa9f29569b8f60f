"""Figures of flips: how many in each direction, what differs, and who they are."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offline_audit.fliptest.disclosure import Bin
from offline_audit.fliptest.feature_changes import FeatureChange
from offline_audit.fliptest.marginals import Marginal, Marginals
from offline_audit.fliptest.transparency import TransparencyReport
from offline_audit.intervals import Interval
from offline_audit.rendering import blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FlipRow", "draw_flips", "draw_marginals", "draw_transparency"]

# Told apart with any colour vision, and in print (Okabe and Ito).
_BLUE, _ORANGE, _GREEN, _GRAY = "#0072B2", "#D55E00", "#009E73", "0.65"
_MOST_VARIABLES = 10
_MOST_PANELS = 6
_NAME_WIDTH = 24
_TITLE_WIDTH = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRow:
    """One direction, as it is drawn.

    Attributes:
        name: Of the direction, such as `women → men`.
        advantaged: Share of the group that has the favourable decision and whose counterparts do
            not.
        advantaged_interval: Of that share; None for a point alone.
        disadvantaged: Share that does not and whose counterparts do.
        disadvantaged_interval: Of that share; None for a point alone.
        null_bound: Share of flips, both sides together, that 95% of fits to groups that do not
            differ stay below; None if it is not known.
        sure: False draws it pale: it was not tested.
    """

    name: str
    advantaged: float
    advantaged_interval: Interval | None
    disadvantaged: float
    disadvantaged_interval: Interval | None
    null_bound: float | None
    sure: bool = True


def draw_flips(rows: Sequence[FlipRow], title: str) -> Figure:
    """Shares of flips by direction: of each side, and of both beside what chance alone would do."""
    names = [_wrapped(row.name, 3) for row in rows]
    figure, axes = blank_figure(8.0, 2.0 + 0.6 * max(len(rows), 1))
    axes.set_title(_title(title), fontsize="medium")
    if not rows:
        return _empty(figure)
    for place, row in enumerate(rows):
        _flip_row(axes, place, row)
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_xlim(left=0)
    axes.set_xlabel("people whose counterparts are decided otherwise, % of the group", fontsize=9)
    _legend(figure, axes)
    return figure


def _flip_row(axes: Axes, place: int, row: FlipRow) -> None:
    if row.null_bound is not None:
        chance = "both, by chance alone (19 of 20 below)"
        axes.barh(place, 100 * row.null_bound, height=0.84, color="0.88", label=chance)
    strength = 1.0 if row.sure else 0.35
    sides = (
        (place - 0.17, row.disadvantaged, row.disadvantaged_interval, _ORANGE, "disadvantaged"),
        (place + 0.17, row.advantaged, row.advantaged_interval, _BLUE, "advantaged"),
    )
    for at, share, interval, colour, label in sides:
        label = label if row.sure else f"{label}, no test"
        axes.barh(at, 100 * share, height=0.28, color=colour, alpha=strength, label=label)
        if interval is not None:
            ends = [100 * end for end in interval]
            axes.plot(ends, [at, at], color="black", linewidth=1.2, label="interval")
    both = 100 * (row.advantaged + row.disadvantaged)
    axes.plot([both], [place], "D", color="black", alpha=strength, markersize=5, label="both")


def draw_transparency(report: TransparencyReport, title: str) -> Figure:
    """Rankings side by side: mean difference, mean sign and, where asked, what undoes flips."""
    shown = [each for each in report.features if each.changed > 0][:_MOST_VARIABLES]
    asked = report.asked > 0
    panels = 3 if asked else 2
    figure, axes = _panels(1, panels, 9.5, 1.3 + 0.34 * max(len(shown), 2))
    figure.suptitle(_title(title), fontsize="medium")
    if not shown:
        return _empty(figure, report.reason or "nothing differs")
    _bars(axes[0], [(e.magnitude, e.magnitude_interval) for e in shown], _BLUE)
    axes[0].set_xlabel("mean difference, sd", fontsize=9)
    _bars(axes[1], [(e.consistency, e.consistency_interval) for e in shown], _GREEN)
    axes[1].set_xlabel("mean sign (consistency)", fontsize=9)
    axes[1].set_xlim(-1.05, 1.05)
    if asked:
        _bars(axes[2], [_undone_percent(each) for each in shown], _ORANGE)
        axes[2].set_xlabel("undone by it alone, % of flips", fontsize=9)
        axes[2].set_xlim(0, 102)
    axes[0].set_yticks(range(len(shown)), [_wrapped(each.name) for each in shown], fontsize=8)
    for each in axes[1:]:
        each.set_yticks(range(len(shown)), [""] * len(shown))
    return figure


def draw_marginals(marginals: Marginals, title: str) -> Figure:
    """The variables that differ most: the whole group in gray, members of the flipset beside it."""
    shown = [each for each in marginals.variables if len(each.bins) > 1][:_MOST_PANELS]
    across = min(max(len(shown), 1), 3)
    down = -(-max(len(shown), 1) // across)
    figure, axes = _panels(down, across, 3.4 * across, 0.9 + 2.6 * down)
    figure.suptitle(_title(title, 32 * across), fontsize="medium")
    if not shown:
        return _empty(figure, marginals.reason or "nothing to show")
    for panel, each in zip(axes, shown, strict=False):
        _histogram(panel, each)
    for spare in axes[len(shown) :]:
        spare.set_axis_off()
    for first in axes[::across]:
        first.set_ylabel("share, %", fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure


def _panels(down: int, across: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    figure, only = blank_figure(width, height)
    only.remove()
    grid = figure.subplots(down, across, squeeze=False)
    return figure, list(grid.flat)


def _undone_percent(each: FeatureChange) -> tuple[float, Interval | None]:
    if each.undone is None or each.undone_interval is None:
        return 0.0, None
    low, high = each.undone_interval
    return 100 * each.undone, (100 * low, 100 * high)


def _bars(axes: Axes, values: Sequence[tuple[float, Interval | None]], colour: str) -> None:
    """Bars from zero with intervals, the first at the top."""
    axes.barh(range(len(values)), [value for value, _ in values], height=0.6, color=colour)
    for place, (_, interval) in enumerate(values):
        if interval is not None:
            axes.plot(interval, [place, place], color="black", linewidth=1.2)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)


def _histogram(axes: Axes, each: Marginal) -> None:
    members = sum(b.members for b in each.bins)
    group = sum(b.members + b.others for b in each.bins)
    places = range(len(each.bins))
    whole = [100 * (b.members + b.others) / group for b in each.bins]
    flipped = [100 * b.members / members for b in each.bins]
    axes.bar([p - 0.2 for p in places], whole, width=0.4, color=_GRAY, label="whole group")
    axes.bar([p + 0.2 for p in places], flipped, width=0.4, color=_ORANGE, label="flipset")
    crowded = sum(len(_label(b)) for b in each.bins) > 26
    axes.set_xticks(
        list(places),
        [_label(b) for b in each.bins],
        fontsize=7,
        rotation=40 if crowded else 0,
        ha="right" if crowded else "center",
        rotation_mode="anchor",
    )
    axes.tick_params(axis="y", labelsize=8)
    axes.set_title(_wrapped(each.name), fontsize=9)


def _label(each: Bin) -> str:
    return textwrap.shorten(each.name.replace(" to ", "–"), 14, placeholder="…")


def _legend(figure: Figure, axes: Axes) -> None:
    """Below the figure, with each thing named once."""
    handles, labels = axes.get_legend_handles_labels()
    # Of several with one name the first stands for all.
    named = dict(reversed(list(zip(labels, handles, strict=True))))
    figure.legend(
        named.values(), named, loc="outside lower center", ncols=2, fontsize=8, frameon=False
    )


def _empty(figure: Figure, words: str = "nothing to show") -> Figure:
    for axes in figure.axes:
        axes.set_axis_off()
    figure.text(0.5, 0.45, words, ha="center", va="center", color="0.4")
    return figure


def _wrapped(name: str, lines: int = 2) -> str:
    return "\n".join(textwrap.wrap(name, _NAME_WIDTH, max_lines=lines, placeholder="…"))


def _title(title: str, width: int = _TITLE_WIDTH) -> str:
    return textwrap.fill(title, width)
