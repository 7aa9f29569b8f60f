"""Alarms in words and as fields, for logs and responses: aggregates only, no data of a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitor.drift.alarms import Alarm
    from monitor.drift.bound import ShareBound
    from monitor.drift.effect import Effect
    from monitor.drift.share import Band, FlipShare

__all__ = ["below_bound", "bound_fields", "description", "fields", "group_names"]

_CHANGES = {
    "covariates": "the population of requests has probably changed",
    "model": "the classifier has probably changed",
    "treatment": "the classifier treats groups differently than before",
    "unclear": "the expected change for another group has risen; the cause is not decided yet",
}
_OTHERS = {
    "share": (
        "the share of decisions that would flip for at least one other group is above the "
        "baseline's"
    ),
    "margin": "scores have moved up or down",
    "status": "the population has changed in features that predict the group",
}
_SIGNALS = {
    "share": "flip_share",
    "change": "expected_change",
    "margin": "margin",
    "status": "status_posterior",
}
# Least number of predictions for a figure: fewer could describe one person.
_LEAST = 10
_CAUSES = {
    "covariates": "; the population of requests has probably changed",
    "treatment": "; the population shows no change",
}


def description(alarm: Alarm, groups: Sequence[str]) -> str:
    """What an alarm has shown, in one or two sentences; `groups` are the attribute's groups."""
    if alarm.effect is None:
        cause = _CAUSES.get(alarm.cause, "") if alarm.watcher.kind != "status" else ""
        return f"{_OTHERS[alarm.watcher.kind]}{cause}"
    sentences = [f"{_CHANGES[alarm.cause]}; {_share(alarm.effect)}"]
    if ratios := _ratios(alarm.effect, groups):
        sentences.append(f"expected change in units of the baseline's, by likely group: {ratios}")
    return ". ".join(sentences)


def fields(alarm: Alarm, baseline: float | None, share: FlipShare | None) -> dict[str, object]:
    """An alarm as fields of a log record, with the flip share before and after.

    Args:
        alarm: The alarm.
        baseline: Flip share of the baseline.
        share: Flip share of the attribute; None for an alarm of no attribute.
    """
    shown: dict[str, object] = {
        "detector": alarm.watcher.kind,
        "attribute": alarm.watcher.attribute,
        "signal": _SIGNALS[alarm.watcher.kind],
        "cause": alarm.cause,
        "pages": alarm.pages,
        "prediction": alarm.at,
    }
    if share is None:
        return shown
    shown["baseline_flip_share"] = _rounded(baseline)
    effect = alarm.effect
    if effect is not None and effect.share is not None:
        return shown | _share_fields("alarm", effect.n, effect.share, effect.band)
    return shown | _share_fields("all", share.n, share.share, share.band)


def bound_fields(attribute: str, share: FlipShare, bound: ShareBound) -> dict[str, object]:
    """A flip share below its lower bound as fields of a log record."""
    return {
        "attribute": attribute,
        **_share_fields("all", share.n, share.share, share.band),
        "lower_bound": _rounded(bound.share),
        "lower_bound_low": _rounded(bound.low),
    }


def _share_fields(window: str, n: int, share: float | None, band: Band) -> dict[str, object]:
    known = share is not None and n >= _LEAST
    low, high = band if known else (None, None)
    return {
        "flip_share_window": window,
        "flip_share_predictions": n,
        "flip_share": _rounded(share if known else None),
        "flip_share_low": _rounded(low),
        "flip_share_high": _rounded(high),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def below_bound(attribute: str, share: FlipShare, bound: ShareBound) -> str:
    """What it means that a flip share is below its lower bound, in two sentences."""
    return (
        f"the flip share of {attribute} is not established: {share.share or 0:.1%} of decisions "
        f"would flip by estimate (at most {share.band.high:.1%}), and by the rates of decisions of "
        f"likely groups at least {bound.share or 0:.1%} would (at least {bound.low:.1%}), "
        f"{bound.n:,} predictions. Either the maps do not explain the difference between the "
        "groups, or the status posterior is not calibrated on this stream"
    )


def group_names(names: Sequence[str] | None, effect: Effect) -> tuple[str, ...]:
    """Names of the groups of an attribute, or their numbers if the names are unknown."""
    return tuple(names or (f"group {n}" for n in range(1, len(effect.change_ratios) + 1)))


def _share(effect: Effect) -> str:
    if effect.share is None:
        return "too few predictions since the alarm to estimate the share of decisions that flip"
    verb = "rose" if effect.rose else "did not rise measurably"
    return (
        f"the share of decisions that would flip {verb}: baseline {effect.baseline:.1%}, "
        f"since the alarm {effect.share:.1%} ({effect.band.low:.1%} to {effect.band.high:.1%}, "
        f"{effect.n:,} predictions)"
    )


def _ratios(effect: Effect, groups: Sequence[str]) -> str:
    """Groups in descending order of their ratios."""
    names = group_names(groups, effect)
    known = [(r, n) for n, r in zip(names, effect.change_ratios, strict=True) if r is not None]
    return ", ".join(f"{name} {ratio:.2f}" for ratio, name in sorted(known, reverse=True))
