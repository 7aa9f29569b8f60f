"""Confidence sequence of the flip share of a stream: a band that is valid at every time.

For X in [0, 1], a guess X̂ made before X is seen, λ in (0, 1) and ψ(λ) = −log(1 − λ) − λ,

    exp(λ Σ(X − μ) − ψ(λ) Σ(X − X̂)²)

is a supermartingale when μ is the mean of X given the past (Fan, Grama and Liu 2015, Lemma 4.1;
Howard, Ramdas, McAuliffe and Sekhon 2021, Theorem 4). So is its mixture over fixed λ. By Ville's
inequality the probability that the mixture ever exceeds 1/α is at most α, so the means m at which
it does not are a confidence sequence for the running average of the conditional means. The stream
need not be stationary. Three sums suffice, and the sums of two streams add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Band",
    "FlipShare",
    "ShareSums",
    "directions",
    "log_evidence",
    "sums_of",
    "usable_sums",
    "usable_values",
]

Float = NDArray[np.float64]

# The best λ is about √(2 log(1/α) / Σ(X − X̂)²). These cover 10² to 10⁹ predictions; larger rates,
# which serve early predictions, have more weight.
_RATES = 0.5 * 0.5 ** np.arange(14)
_COSTS = -np.log1p(-_RATES) - _RATES
_LOG_WEIGHTS = np.log(0.8 ** np.arange(14) * (1 - 0.8) / (1 - 0.8**14))
# More than rounding in single precision, less than any flip.
_TOLERANCE = 1e-5
# Bound per value on these tolerances and the rounding of a sum.
_SLACK = 1e-4


class Band(NamedTuple):
    """An interval for a share."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSums:
    """Sums from which a band follows.

    Attributes:
        count: Number of values, n.
        total: ΣX.
        variation: Σ(X − X̂)².
    """

    count: float
    total: float
    variation: float

    @classmethod
    def of(cls, values: Float) -> Self:
        """Sums of values in [0, 1], in order of arrival, `[n]`."""
        count, total, variation = sums_of(values.tolist(), 1.0, 0.5)
        return cls(count=count, total=total, variation=variation)

    @property
    def share(self) -> float | None:
        """Mean of the values; None if there are none."""
        return self.total / self.count if self.count else None

    def band(self, alpha: float) -> Band:
        """Band that covers the mean at all times of a stream with probability 1 − α, two-sided."""
        low = _lower(self.count, self.total, self.variation, math.log(2 / alpha))
        rest = _lower(self.count, self.count - self.total, self.variation, math.log(2 / alpha))
        return Band(low, 1 - rest)

    def is_below(self, mean: float, alpha: float) -> bool:
        """Whether the band of level α is entirely below a mean, without solving for the band."""
        target = math.log(2 / alpha)
        sums = np.array([[[self.count, self.count - self.total, self.variation]]])
        evidence = log_evidence(sums, directions(np.array([1 - mean])), target)
        return evidence is not None and float(evidence[0, 0]) > target


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipShare:
    """Flip share of one attribute, with bands.

    Attributes:
        n: Number of predictions since the start, or since the last acknowledged alarm.
        share: Flip share of these predictions; None if there are none.
        band: Band that covers the average flip share at all times with probability 1 − level.
        rolling_n: Number of predictions in the last blocks.
        rolling_share: Flip share of these predictions; None if there are none.
        rolling_band: Band for the window that began with the oldest of these blocks. The level
            applies to one window, not to all windows simultaneously.
        baseline: Band of the baseline.
    """

    n: int
    share: float | None
    band: Band
    rolling_n: int
    rolling_share: float | None
    rolling_band: Band
    baseline: Band

    @property
    def separated(self) -> bool:
        """Whether the band is entirely above the baseline's."""
        return self.band.low > self.baseline.high


def sums_of(values: list[float], count: float, total: float) -> tuple[int, float, float]:
    """Count, total and variation of values in [0, 1]; NaN and values outside are ignored.

    The guess X̂ is the mean of the earlier values; `count` and `total` are its initial sums. At the
    size of a batch a loop over floats is faster than arrays.
    """
    least, most = -_TOLERANCE, 1 + _TOLERANCE
    n, added, variation = 0, 0.0, 0.0
    for value in values:
        if least <= value <= most:
            miss = value - (total + added) / (count + n)
            variation += miss * miss
            added += value
            n += 1
    return n, added, variation


def usable_values(values: Float) -> NDArray[np.bool_]:
    """Whether values `[n]` are in [0, 1], up to rounding, so that `sums_of` counts them."""
    usable: NDArray[np.bool_] = (values >= -_TOLERANCE) & (values <= 1 + _TOLERANCE)
    return usable


def usable_sums(sums: Float) -> NDArray[np.bool_]:
    """Whether sums `[..., 3]` are possible for values in [0, 1], up to rounding."""
    count, total, variation = np.moveaxis(sums, -1, 0)
    slack = _SLACK * (1 + count)
    usable: NDArray[np.bool_] = (count >= 0) & (count == np.floor(count))
    for part in (total, variation):
        usable &= (part >= -slack) & (part <= count + slack)
    return usable


def directions(means: Float) -> Float:
    """Matrices `[a, 3, λ]` that map sums to exponents of the mixture against means m `[a]`."""
    return np.array([[-m * _RATES, _RATES, -_COSTS] for m in means.tolist()])


def log_evidence(sums: Float, against: Float, least: float) -> Float | None:
    """Log of the mixture, `[a, w]`, from sums `[a, w, 3]` and `directions` `[a, 3, λ]`.

    None if it is below `least` everywhere, which a bound usually shows without exponentials.
    """
    exponents = sums @ against
    exponents += _LOG_WEIGHTS
    if exponents.max() + math.log(len(_RATES)) < least:
        return None
    return _log_sum(exponents)


def _log_sum(exponents: Float) -> Float:
    top = exponents.max(-1)
    log_sum: Float = top + np.log(np.exp(exponents - top[..., None]).sum(-1))
    return log_sum


def _lower(count: float, total: float, variation: float, target: float) -> float:
    """The m at which the log evidence against a mean of at most m equals a target.

    The log evidence is convex and decreasing in m, so Newton's iterates from 0 stay below the root:
    stopping early can only widen the band.
    """
    fixed, m = total * _RATES - variation * _COSTS + _LOG_WEIGHTS, 0.0
    for _ in range(100):
        exponents = fixed - m * count * _RATES
        value = float(_log_sum(exponents))
        slope = count * float(np.exp(exponents - value) @ _RATES)
        if value <= target or slope == 0:
            break
        step = (value - target) / slope
        m += step
        if step < 1e-13:
            break
    return m
