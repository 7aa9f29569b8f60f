"""Figures of one direction from its flipset: shares, and what would contradict or escape them."""

from __future__ import annotations

import math

from scipy import stats

from offline_audit.fliptest.counterparts import Asked
from offline_audit.fliptest.flipset import Flipset
from offline_audit.fliptest.resampling import Resampled, share_interval
from offline_audit.fliptest.result import ShareEstimate
from offline_audit.maps.quantile import FAMILY_LEVEL
from offline_audit.plain_words import percent

__all__ = ["net_estimate", "rate_mismatch", "share_estimate", "unseen_share"]

_CONFIDENCE = 0.95
# How far the rate of carried people may be from that of the target, beyond noise.
_RATE = 0.05


def share_estimate(value: float, error: float | None, rows: int) -> ShareEstimate:
    """A share of so many people, by its standard error."""
    return ShareEstimate(value=value, interval=share_interval(value, error, rows, _CONFIDENCE))


def net_estimate(flipset: Flipset, errors: Resampled | None) -> ShareEstimate:
    """Advantaged less disadvantaged, by its standard error."""
    gross, net = flipset.gross, flipset.net
    plain = math.sqrt(max(gross - net**2, 0.0) / len(flipset))
    reach = float(stats.norm.ppf((1 + _CONFIDENCE) / 2)) * (plain if errors is None else errors.net)
    return ShareEstimate(value=net, interval=(max(net - reach, -1.0), min(net + reach, 1.0)))


def rate_mismatch(flipset: Flipset, target: Asked) -> str | None:
    """Why the map cannot be right: carried people fare otherwise than members of the target.

    A map that makes the groups alike gives carried people the target's rate. This sees what adds up
    over many features of which each differs too little to be moved.
    """
    carried = float(flipset.counterpart_decisions.mean())
    rate = float(target.decisions.mean())
    pooled = (carried + rate) / 2
    noise = math.sqrt(pooled * (1 - pooled) * (1 / len(flipset) + 1 / len(target)))
    if abs(carried - rate) <= _RATE + 3 * noise:
        return None
    return (
        f"the map does not arrive: {percent(carried)} of the carried people have the favourable "
        f"decision, and {percent(rate)} of the group that they are carried to."
    )


def unseen_share(first: int, second: int, variables: int) -> float:
    """What may flip through a feature that differs too little for its test to see.

    The largest distance of two distributions that a test at the level of one variable does not find
    four times in five, in groups of these sizes.
    """
    gap = float(stats.kstwo.isf(FAMILY_LEVEL / variables, round(first * second / (first + second))))
    return min(gap + 0.842 * 0.5 * math.sqrt(1 / first + 1 / second), 1.0)
