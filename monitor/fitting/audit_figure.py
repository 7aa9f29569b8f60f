"""The picture of the training-time audit: headline, directions, features, flips, calibration."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from monitor.fitting.audit_text import headline_of, who_loses_of
from monitor.fitting.pair_text import as_other
from monitor.fitting.pairs import PairShare

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from monitor.fitting.audit import AttributeAudit, FitAudit

__all__ = ["audit_figure"]

_WIDTH, _ROW = 15.0, 0.3
_MOST_PAIRS, _MOST_FEATURES = 8, 8
# Distinguishable with any colour vision (Okabe and Ito); hatching tells directions apart as well.
_LOSES, _GAINS, _NEUTRAL = "#D55E00", "#0072B2", "0.55"
_HATCH = "////"
# Changes that favour the other group, and changes that favour the own.
_STYLES: tuple[Mapping[str, str], ...] = (
    {"colour": _LOSES, "hatch": _HATCH},
    {"colour": _GAINS, "hatch": ""},
)


def audit_figure(audit: FitAudit) -> Figure:
    """The picture, with one row of panels per attribute."""
    # Imported here, since matplotlib is slow to import and only pictures need it.
    from matplotlib.figure import Figure

    heights = [_height(attribute) for attribute in audit.attributes.values()]
    figure = Figure(figsize=(_WIDTH, 0.4 + sum(heights)), layout="constrained")
    figure.suptitle(_plain(f"Training-time audit of {audit.model}"), fontsize=12)
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (name, attribute) in zip(parts, audit.attributes.items(), strict=True):
        part.suptitle(_title(name, attribute), x=0.005, ha="left", fontsize=11)
        panels = part.subplots(1, 4, gridspec_kw={"width_ratios": [1.5, 1, 1, 0.8]})
        _draw_pairs(panels[0], attribute)
        _draw_features(panels[1], name, attribute)
        _draw_flips(panels[2], attribute)
        _draw_calibration(panels[3], attribute)
        if handles := _legend(attribute):
            part.legend(
                *(handles, [handle.get_label() for handle in handles]), loc="outside lower left",
                fontsize=8, frameon=False, ncols=len(handles),
            )  # fmt: skip
    return figure


def _height(audit: AttributeAudit) -> float:
    return 2.0 + max(_ROW * (len(_pairs(audit)) or len(audit.groups)), 1.3)


def _pairs(audit: AttributeAudit) -> list[PairShare]:
    """Pairs with enough rows, the largest share first."""
    pairs = audit.interval.pairs if audit.interval else ()
    enough = [pair for pair in pairs if pair.enough_rows]
    return sorted(enough, key=lambda pair: -pair.changed.share)[:_MOST_PAIRS]


def _title(name: str, audit: AttributeAudit) -> str:
    """The flip share with its interval and level, and who loses."""
    lines = [headline_of(name, audit), who_loses_of(audit)[0].partition(" (")[0]]
    return _plain("\n".join(textwrap.fill(line, 175) for line in lines))


def _draw_pairs(axes: Axes, audit: AttributeAudit) -> None:
    """Shares of decisions that would change as another group, by direction."""
    pairs = _pairs(audit)
    if not pairs:
        _draw_rates(axes, audit)
        return
    for y, pair in enumerate(pairs):
        shares = 100 * pair.gained.share, 100 * pair.lost.share
        unclear = bool(audit.doubt) or pair.balance == "unclear"
        for share, start, style in zip(shares, (0.0, shares[0]), _STYLES, strict=True):
            axes.barh(
                y, share, left=start, height=0.6, linewidth=1.2, **_filled(style, unclear=unclear)
            )
        axes.plot([100 * pair.changed.low, 100 * pair.changed.high], [y, y], color="black")
        balance = f"{pair.source} {pair.balance}"
        if unclear:
            refuted = audit.doubt or pair.unexplained
            balance = "not established" if refuted else "unclear who loses"
        _beside(axes, y, f"{balance}\nn = {pair.rows:,}")
    _rows(axes, [as_other(pair) for pair in pairs])
    axes.set_title("decisions that would change as another group", fontsize=10)
    axes.set_xlabel("share of the decisions about the group", fontsize=9)
    _in_percent(axes.xaxis)


def _filled(style: Mapping[str, str], *, unclear: bool) -> dict[str, Any]:
    """Style of a bar; hollow if it is unclear who loses."""
    colour, hatch = style["colour"], style["hatch"]
    if unclear:
        return {"facecolor": "white", "edgecolor": colour, "hatch": hatch}
    return {"facecolor": colour, "edgecolor": "white", "hatch": hatch}


def _legend(audit: AttributeAudit) -> list[Any]:
    """Handles of the pairs' panel, as far as it has such bars."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    pairs = _pairs(audit)
    decisions = (audit.unfavourable, audit.favourable)
    handles: list[Any] = [
        Patch(facecolor=style["colour"], edgecolor="white", hatch=style["hatch"], label=label)
        for style, label in zip(
            _STYLES,
            (f"from {one!r} to {other!r}" for one, other in (decisions, decisions[::-1])),
            strict=True,
        )
    ]
    hollow = Patch(facecolor="white", edgecolor="0.3", label="hollow: unclear who loses")
    handles += [hollow] * (bool(audit.doubt) or any(p.balance == "unclear" for p in pairs))
    handles.append(Line2D([], [], color="black", label="95% interval of both"))
    return handles if pairs else []


def _draw_rates(axes: Axes, audit: AttributeAudit) -> None:
    """Rates of the favourable decision, if directions were not computed."""
    rates = {group: rate for group, rate in audit.favoured.items() if rate is not None}
    for y, (group, rate) in enumerate(rates.items()):
        axes.barh(y, 100 * rate, height=0.6, color=_NEUTRAL)
        _beside(axes, y, f"n = {audit.groups[group]:,}")
    _rows(axes, list(rates))
    axes.set_title(_plain(f"rate of {audit.favourable!r}"), fontsize=10)
    axes.set_xlim(0, 100)
    _in_percent(axes.xaxis)


def _draw_features(axes: Axes, name: str, audit: AttributeAudit) -> None:
    top = [item for item in audit.feature_shares[:_MOST_FEATURES] if item[1] > 0]
    axes.barh(range(len(top)), [100 * share for _, share in top], height=0.6, color=_NEUTRAL)
    _rows(axes, [feature for feature, _ in top])
    title = f"{top[0][0]} contributes most" if top else "no feature contributes"
    axes.set_title(_plain(title), fontsize=10)
    axes.set_xlabel(_plain(f"share of the effect of {name} on the score"), fontsize=9)
    _in_percent(axes.xaxis)


def _draw_flips(axes: Axes, audit: AttributeAudit) -> None:
    """Histogram of flip probabilities; those above one half are likely flips."""
    rows = sum(audit.flip_histogram)
    for index, number in enumerate(audit.flip_histogram):
        likely = index >= len(audit.flip_histogram) // 2
        axes.bar(
            *(10 * index + 5, 100 * number / max(rows, 1)), width=9, edgecolor="white",
            color=_LOSES if likely else _NEUTRAL, hatch=_HATCH if likely else "", linewidth=0,
        )  # fmt: skip
    axes.axvline(50, color="black", linewidth=0.8)
    axes.set_title(f"{audit.likely_flips:.1%} of decisions would likely flip", fontsize=10)
    axes.set_xlabel(f"flip probability, group hidden (n = {rows:,})", fontsize=9)
    axes.set_ylabel("share of rows", fontsize=9)
    axes.set_xlim(0, 100)
    for axis in (axes.xaxis, axes.yaxis):
        _in_percent(axis)
    _plain_frame(axes)


def _draw_calibration(axes: Axes, audit: AttributeAudit) -> None:
    status = audit.status
    points = [(100 * p, 100 * o) for p, o in status.reliability]
    axes.plot([0, 100], [0, 100], color="0.6", linewidth=1, linestyle="--", label="exact")
    axes.plot(*zip(*points, strict=True), marker="o", color=_GAINS, label="status model")
    axes.set_title(f"status model: {status.accuracy:.0%} right", fontsize=10)
    axes.set_xlabel(f"predicted (n = {status.rows:,})", fontsize=9)
    axes.set_ylabel("observed share", fontsize=9)
    axes.legend(fontsize=7, frameon=False)
    for axis in (axes.xaxis, axes.yaxis):
        _in_percent(axis)
    _plain_frame(axes)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """Names of horizontal bars, the first at the top."""
    labels = [_plain(textwrap.fill(name, 28)) for name in names]
    axes.set_yticks(range(len(names)), labels, fontsize=8)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    _plain_frame(axes)


def _beside(axes: Axes, y: float, text: str) -> None:
    style: dict[str, Any] = {"va": "center", "fontsize": 7, "color": "0.25"}
    axes.text(1.01, y, _plain(text), transform=axes.get_yaxis_transform(), **style)


def _plain_frame(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _in_percent(axis: Axis) -> None:
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(decimals=None))
    axis.set_tick_params(labelsize=8)


def _plain(text: str) -> str:
    """Escape dollar signs, which matplotlib reads as formulas."""
    return text.replace("$", r"\$")
