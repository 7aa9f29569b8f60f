"""Smallest effects that a test detects with 80% power, downwards and upwards."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, gammaln

__all__ = [
    "POWER",
    "Critical",
    "Detectable",
    "detectable_rates",
    "normal_detectable_rates",
    "possible",
]

Float = NDArray[np.float64]
# The smallest detectable effects downwards (negative) and upwards; None where no effect that the
# data allow has this power.
Detectable = tuple[float | None, float | None]
# From numbers of hits in both groups, `[k]`, the counts of the first group up to which, and from
# which, a test rejects, `[k]` each, interpolated between counts.
Critical = Callable[[Float], tuple[Float, Float]]

POWER = 0.8
# Numbers computed for the critical counts; at totals between these nodes they are interpolated.
_COMPUTED, _FEWEST_NODES, _MOST_NODES = 3_000, 6, 60
# Most counts of the other group over which the power is averaged.
_MOST_COUNTS = 61
# Standard deviations of the other group's count that are covered.
_DEVIATIONS = 4.0
# Effects up to this many standard errors lie within the computed totals.
_GUESS = 4.5
# Effects at which the power is computed if the largest possible one has too little.
_SCANNED = 16


def normal_detectable_rates(
    n: float, m: float, rate: float, shifts: tuple[float, float]
) -> Detectable:
    """The effects at which a rate differs from `rate` by a number of standard errors.

    With p = rate + d, d² = shift² (p (1 − p) / n + rate (1 − rate) / m): a quadratic equation, with
    one root for each direction.

    Args:
        n: Rows of the first group, whose rate differs.
        m: Rows of the other group.
        rate: Rate of the other group.
        shifts: Standard errors of the difference, downwards and upwards; 1.96 + 0.84 for a normal
            test at 5%.
    """
    effects = []
    for sign, shift in zip((-1, 1), shifts, strict=True):
        square, linear = 1 + shift**2 / n, shift**2 * (1 - 2 * rate) / n
        constant = shift**2 * rate * (1 - rate) * (1 / n + 1 / m)
        root = math.sqrt(linear**2 + 4 * square * constant)
        effects.append((linear + sign * root) / (2 * square))
    return possible((effects[0], effects[1]), rate, 0.0, 1.0)


def possible(effects: Detectable, value: float, low: float, high: float) -> Detectable:
    """The effects that move a value no further than its lowest and highest possible value."""
    down, up = effects
    return (
        None if down is None or value + down < low else down,
        None if up is None or value + up > high else up,
    )


def detectable_rates(
    n: int, m: int, rate: float, critical: Critical, *, smallest: float = 0.0
) -> Detectable:
    """The effects at which a test of two rates rejects in 80% of samples, from its critical counts.

    The other group has `rate`, the first one rate + d. The power is the mean, over the other
    group's count, of the probability that the first group's count is critical.

    Args:
        n: Rows of the first group.
        m: Rows of the other group.
        rate: Rate of the other group.
        critical: Critical counts of the test.
        smallest: Smallest expected count, of hits or misses under equal rates, with which the test
            runs.
    """
    counts, weights = _other_counts(m, rate)
    guess = normal_detectable_rates(n, m, rate, (_GUESS, _GUESS))
    down, up = (
        limit if effect is None else effect
        for effect, limit in zip(guess, (-rate, 1 - rate), strict=True)
    )
    least = counts[0] + n * max(rate + down, 0.0)
    most = counts[-1] + n * min(rate + up, 1.0)
    width = 12 * math.sqrt(min(n, m) * rate * (1 - rate)) + 12
    nodes = int(np.clip(_COMPUTED / width, _FEWEST_NODES, _MOST_NODES))
    totals = np.unique(np.rint(np.linspace(max(least, 1), min(most, n + m - 1), nodes)))
    lower, upper = critical(totals)
    # Beyond these counts a side is never critical; extrapolated counts may be far beyond.
    lower, upper = np.maximum(lower, -1.0), np.minimum(upper, n + 1.0)
    needed = smallest * (n + m) / min(n, m)
    # Range of the first group's count in which the test runs.
    first, last = np.ceil(needed - counts), np.floor(n + m - needed - counts)
    at_most = np.minimum(np.floor(_crossing(totals, lower, counts) + 1e-9), last)
    at_least = np.maximum(np.ceil(_crossing(totals, upper, counts) - 1e-9), first)

    def power_down(d: float) -> float:
        p = max(rate + d, 0.0)
        beyond = np.maximum(at_most + 1, first)
        return float(weights @ (_above(first, n, p) - _above(beyond, n, p)))

    def power_up(d: float) -> float:
        p = min(rate + d, 1.0)
        beyond = np.maximum(last + 1, at_least)
        return float(weights @ (_above(at_least, n, p) - _above(beyond, n, p)))

    return _solved(power_down, -rate), _solved(power_up, 1 - rate)


def _other_counts(m: int, rate: float) -> tuple[Float, Float]:
    """Counts of the other group and their probabilities, `[k]`; evenly spaced if there are many."""
    spread = _DEVIATIONS * math.sqrt(m * rate * (1 - rate)) + 1
    low, high = max(math.floor(m * rate - spread), 0), min(math.ceil(m * rate + spread), m)
    counts = np.unique(np.rint(np.linspace(low, high, min(high - low + 1, _MOST_COUNTS))))
    logs = -gammaln(counts + 1) - gammaln(m - counts + 1)
    logs += counts * math.log(rate) + (m - counts) * math.log1p(-rate)
    weights = np.exp(logs - logs.max())
    return counts, weights / weights.sum()


def _crossing(totals: Float, critical: Float, counts: Float) -> Float:
    """Critical count of the first group, given the count of the other one, `[k]`."""
    # The other group's count at each node; it increases with the total.
    others = np.maximum.accumulate(totals - critical)
    return np.interp(counts, others, critical)


def _above(counts: Float, n: int, p: float) -> Float:
    """Probability of at least these counts among n rows with rate p, `[k]`."""
    inside = np.clip(counts, 1, n)
    probabilities = betainc(inside, n - inside + 1, p)
    return np.where(counts <= 0, 1.0, np.where(counts > n, 0.0, probabilities))


def _solved(power: Callable[[float], float], limit: float) -> float | None:
    """The smallest effect between 0 and a limit with a power of 80%; None if there is none."""
    low, high = 0.0, limit
    if power(limit) < POWER:
        # With too few hits or misses in both groups the test does not run, so a smaller effect can
        # have more power.
        effects = np.linspace(0.0, limit, _SCANNED + 1)
        index = next((i for i, d in enumerate(effects) if power(float(d)) >= POWER), None)
        if index is None:
            return None
        low, high = float(effects[index - 1]), float(effects[index])
    return float(brentq(lambda d: power(d) - POWER, low, high, xtol=1e-5 * abs(limit), rtol=1e-4))
