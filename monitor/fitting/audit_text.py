"""The text of the training-time audit, for readers who do not know the method."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

from monitor.fitting.intervals import LOW, MODERATE, FlipShareInterval
from monitor.fitting.pair_text import as_other, pair_lines, who_loses

if TYPE_CHECKING:
    from monitor.fitting.audit import AttributeAudit
    from monitor.fitting.bound import FlipShareBound
    from monitor.fitting.separability import Separability

__all__ = ["LIMITS", "attribute_lines", "headline_of", "who_loses_of", "wrapped"]

_TOP = 5
_LEAST_SHARE = 0.02
# A larger AUC was not measured where shares are right.
_CLEAR_AUC = 0.7
_NEARLY_CERTAIN = 0.99
_CLEARLY = (
    "The maps miss how features depend on each other; shares may be wrong even if the rates of "
    "decisions agree. "
)


def attribute_lines(name: str, audit: AttributeAudit) -> list[str]:
    """The lines of one attribute; with several groups, shares of pairs come first."""
    level = audit.level
    headline, pairs = [wrapped("Share of flips", _headline(name, audit))], _pairs(audit)
    lines = [
        *_who_loses(audit),
        *(headline + pairs if len(audit.groups) == 2 else pairs + headline),
        wrapped("Decisions", _decisions(audit)),
        *([wrapped("Lower bound", _bound(name, audit.bound))] if _is_positive(audit.bound) else []),
        wrapped(
            "Likely flips",
            f"{audit.likely_flips:.1%} of decisions have a flip probability above one half.",
        ),
        wrapped("Predictability", _predictability(name, audit)),
    ]
    top = [
        (feature, share) for feature, share in audit.feature_shares[:_TOP] if share >= _LEAST_SHARE
    ]
    if top:
        features = ", ".join(f"{feature} {share:.0%}" for feature, share in top)
        lines.insert(
            -1,
            wrapped("Main features", f"Share of the effect of {name} on the score: {features}."),
        )
    if level.mean is not None and level.variance is not None and level.outliers is not None:
        lines.append(
            wrapped(
                "Prediction sensitivity",
                f"mean {level.mean:.3g}, variance {level.variance:.3g}; {level.outliers:.2%} of "
                "rows are more than five standard deviations above the mean.",
            )
        )
    if audit.dependence:
        lines.append(wrapped("Assumptions", _assumptions(name, audit.dependence)))
    if audit.separability:
        lines.append(wrapped("Maps", _separability(audit.separability)))
    if audit.unknown:
        text = (
            f"The group of {audit.unknown:,} audited rows is not known: it is missing, or the spec "
            "excludes it."
        )
        lines.append(wrapped("Unknown groups", text))
    return lines


def headline_of(name: str, audit: AttributeAudit) -> str:
    """The share of flips with its interval, and its level or why that is not known."""
    share, low, high = audit.headline
    other = f"another {name}" if len(audit.groups) == 2 else f"at least one other {name}"
    estimate = (
        f"bout {share:.1%} of decisions (95% interval {_covered(audit.interval)}: {low:.1%} to "
        f"{high:.1%}) would change for the same person with {other}."
    )
    if audit.doubt:
        return f"The share is not established: {audit.doubt}. On this input, a{estimate}"
    return f"A{estimate} {_verdict(audit)}"


def _headline(name: str, audit: AttributeAudit) -> str:
    count = len(audit.groups)
    rows = audit.interval.rows if audit.interval else sum(audit.groups.values()) + audit.unknown
    text = (
        f"{headline_of(name, audit)} Of the {rows:,} rows of this estimate, that share is about "
        f"{audit.headline[0] * rows:,.0f} rows. "
    )
    if count > 2:
        text += (
            f"This share grows with the number of groups (here {count}); shares of pairs do not. "
        )
    return (
        f"{text}In production, whether a prediction is unusual is relative to this baseline: "
        "unfairness present at fit time makes none unusual. Likely flips are counted in any case."
    )


def who_loses_of(audit: AttributeAudit) -> list[str]:
    """Paragraphs that say which group loses, or why that is not known."""
    if audit.doubt:
        return [f"This cannot be determined: {audit.doubt}."]
    if audit.interval is None:
        return ["Not computed without refits of the maps (`--refits`); see the rates."]
    return who_loses(audit.interval.pairs, audit.favourable, audit.unfavourable)


def _who_loses(audit: AttributeAudit) -> list[str]:
    paragraphs = who_loses_of(audit)
    titles = ["Who loses", *[""] * len(paragraphs)]
    return [wrapped(title, text) for title, text in zip(titles, paragraphs, strict=False)]


def _pairs(audit: AttributeAudit) -> list[str]:
    """Shares of pairs of groups; lines of a table stay as they are."""
    if audit.interval is None or audit.doubt:
        return []
    lines = pair_lines(audit.interval.pairs, audit.favourable, audit.unfavourable)
    titles = ["Pairs of groups", *[""] * len(lines)]
    return [
        f"  {line}" if line.startswith("  ") else wrapped(title, line)
        for title, line in zip(titles, lines, strict=False)
    ]


def _covered(interval: FlipShareInterval | None) -> str:
    return "over data and fit" if interval else "over sampling only, not the fit"


def _verdict(audit: AttributeAudit) -> str:
    """The level in words, or the reason why it is not known."""
    interval, bound = audit.interval, audit.bound
    if bound is not None and not audit.reaches_bound:
        return (
            f"The share is not established: by the rates of decisions at least {bound.share:.1%} "
            f"({bound.low:.1%} to {bound.high:.1%}) must change, more than estimated. The "
            "transport maps do not explain the difference between the groups, and flip "
            "probabilities are too low."
        )
    if missed := audit.unexplained:
        others = f" and {len(missed) - 1} more" if len(missed) > 1 else ""
        return (
            "The share is not established: the transport maps do not explain the difference "
            f"between groups ({as_other(missed[0])}{others}), see the pairs of groups."
        )
    if interval is not None and not interval.identified:
        return (
            "The level is not identified: it depends on which of several features the group "
            f"affects, from {interval.lowest_order:.1%} to {interval.highest_order:.1%} (see "
            "Assumptions)."
        )
    if interval is None or interval.enough_rows:
        return f"That is {_size(audit.headline[0])}."
    return (
        f"Not enough rows to tell a low share (at most {LOW:.0%}) from a high one (above "
        f"{MODERATE:.0%}): {interval.rows:,} were used, about {interval.rows_needed:,} would do."
    )


def _is_positive(bound: FlipShareBound | None) -> TypeGuard[FlipShareBound]:
    """Whether a lower bound says anything."""
    return bound is not None and bound.high > 0


def _bound(name: str, bound: FlipShareBound) -> str:
    return (
        f"At least {bound.share:.1%} of decisions (95% interval over rows: {bound.low:.1%} to "
        f"{bound.high:.1%}) must change for any map between the groups of {name}, since their "
        "rates of decisions differ."
    )


def _assumptions(name: str, dependence: tuple[Mapping[str, tuple[str, ...]], ...]) -> str:
    orders = [
        ", ".join(f"{moved} given {' and '.join(given)}" for moved, given in order.items())
        for order in dependence
    ]
    text = f"Groups of {name} differ in how features depend on each other. Transported: {orders[0]}"
    if len(orders) == 1:
        return f"{text}."
    return (
        f"{text}; or {'; or '.join(orders[1:])}. The data do not identify which is right, so "
        f"scores average over {'both' if len(orders) == 2 else 'all'}. A causal order in the spec "
        "(`order`) decides it."
    )


def _size(flip_share: float) -> str:
    """Level of a flip share in words, with its threshold."""
    if flip_share <= LOW:
        return f"low (at most {LOW:.0%})"
    if flip_share <= MODERATE:
        return f"moderate ({LOW:.0%} to {MODERATE:.0%})"
    return f"high (above {MODERATE:.0%})"


def _decisions(audit: AttributeAudit) -> str:
    shares = {g: share for g, share in audit.favoured.items() if share is not None}
    rates = ", ".join(
        f"{group} {share:.1%} of {audit.groups[group]:,}" for group, share in shares.items()
    )
    text = f"Rate of the favourable decision {audit.favourable!r} in evaluation rows: {rates}."
    if set(shares.values()) in ({0.0}, {1.0}):
        text += (
            " All rows get the same decision, so none can flip. Check that the spec lists the "
            "features in the order of the classifier's input."
        )
    return text


def _predictability(name: str, audit: AttributeAudit) -> str:
    status = audit.status
    text = (
        f"The group is predicted correctly from the features for {status.accuracy:.0%} of rows; "
        f"always predicting the largest group would reach {status.majority:.0%}. The calibration "
        f"error is {status.calibration_error:.1%} on average."
    )
    if not audit.is_input and status.accuracy >= _NEARLY_CERTAIN > status.majority:
        largest = f" (main feature: {audit.feature_shares[0][0]})" if audit.feature_shares else ""
        return (
            f"{text} Some feature nearly is the group{largest}. If an input is {name} itself under "
            "another name, name it as `feature` of the attribute in the spec; otherwise the "
            "traffic log stores it like any other feature."
        )
    if status.predictable:
        return text
    if not status.conclusive:
        return f"{text} There are too few rows to tell whether that is better than chance."
    return (
        f"{text} That is hardly better than chance: the features contain no proxies of {name}, so "
        "its scores are not informative."
    )


def _separability(results: Sequence[Separability]) -> str:
    """The pair of groups with the largest AUC."""
    largest = max(results, key=lambda result: result.auc)
    return (
        f"A classifier tells transported rows from real ones with AUC {largest.auc:.2f} "
        f"({largest.source} as {largest.target}, the largest; chance is 0.50 with a standard "
        f"error of {largest.error:.2f}). {_CLEARLY if largest.auc > _CLEAR_AUC else ''}This is "
        "supporting evidence only."
    )


# What no figure of the audit shows.
LIMITS = (
    "Whether a feature that differs between groups is a legitimate reason: it is transported like "
    "any other. What a group causes: the same person in another group is assumed to keep the rank "
    "among its members. Errors of the maps that leave rates of decisions unchanged, and rows that "
    "are unlike these."
)


def wrapped(title: str, text: str) -> str:
    """A paragraph with its title in a column of its own."""
    return textwrap.fill(
        text, width=96, initial_indent=f"  {title:<26}", subsequent_indent=" " * 28
    )
