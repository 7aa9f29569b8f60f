"""The flip share of a stream as a band that holds at every moment.

For X in [0, 1], a guess X̂ made before X is seen, λ in (0, 1) and ψ(λ) = −log(1 − λ) − λ,

    exp(λ Σ(X − μ) − ψ(λ) Σ(X − X̂)²)

is a supermartingale when μ is the mean of X given the past (Fan, Grama and Liu 2015, Lemma 4.1;
Howard, Ramdas, McAuliffe and Sekhon 2021, Theorem 4). So is its mixture over fixed λ, which by
Ville's inequality exceeds 1/α ever with probability at most α: the means m at which it does not are
a confidence sequence for the running average of the conditional means. The stream need not be
stationary. All that is needed is three sums, and the sums of two streams add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Band", "FlipShare", "ShareSums", "directions", "log_evidence", "sums_of", "usable_sums"]

Float = NDArray[np.float64]

# λ is best near √(2 log(1/α) / Σ(X − X̂)²): these serve from a hundred predictions to a billion, the
# earlier ones with more weight.
_RATES = 0.5 * 0.5 ** np.arange(14)
_COSTS = -np.log1p(-_RATES) - _RATES
_LOG_WEIGHTS = np.log(0.8 ** np.arange(14) * (1 - 0.8) / (1 - 0.8**14))
# More than rounding in single precision, less than any flip.
_TOLERANCE = 1e-5
# More than these tolerances and the rounding of a sum come to, for each value.
_SLACK = 1e-4


class Band(NamedTuple):
    """An interval for a share."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSums:
    """Sums from which a band follows.

    Attributes:
        count: Values seen, n.
        total: ΣX.
        variation: Σ(X − X̂)².
    """

    count: float
    total: float
    variation: float

    @classmethod
    def of(cls, values: Float) -> Self:
        """Sums of values in [0, 1] in the order in which they came, `[n]`."""
        count, total, variation = sums_of(values.tolist(), 1.0, 0.5)
        return cls(count=count, total=total, variation=variation)

    @property
    def share(self) -> float | None:
        """The mean; None before the first value."""
        return self.total / self.count if self.count else None

    def band(self, alpha: float) -> Band:
        """Holds the mean at every moment of a stream with probability 1 − α, α/2 on each side."""
        low = _lower(self.count, self.total, self.variation, math.log(2 / alpha))
        rest = _lower(self.count, self.count - self.total, self.variation, math.log(2 / alpha))
        return Band(low, 1 - rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipShare:
    """The flip share of one attribute.

    Attributes:
        n: Predictions since the start, or since its alarm was last acknowledged.
        share: Their mean; None without any.
        band: Holds the average flip share of these predictions at all moments at once, with
            probability 1 − level.
        rolling_n: Predictions in the last blocks.
        rolling_share: Their mean.
        rolling_band: The same for the window that began with the oldest of these blocks: each
            window's band holds at the stated level, not all windows' at once.
        baseline: The band of the baseline.
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
        """Whether the band lies wholly above the baseline's."""
        return self.band.low > self.baseline.high


def sums_of(values: list[float], count: float, total: float) -> tuple[int, float, float]:
    """Count, total and variation of values in [0, 1]; others, and NaN, are passed over.

    The guess X̂ is the mean of what came before; `count` and `total` are what it starts from. A loop
    over floats is faster than arrays at the size of a batch.
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


def usable_sums(sums: Float) -> NDArray[np.bool_]:
    """Whether values in [0, 1] can have these sums, `[..., 3]`, up to rounding."""
    count, total, variation = np.moveaxis(sums, -1, 0)
    slack = _SLACK * (1 + count)
    usable: NDArray[np.bool_] = (count >= 0) & (count == np.floor(count))
    for part in (total, variation):
        usable &= (part >= -slack) & (part <= count + slack)
    return usable


def directions(means: Float) -> Float:
    """From sums to the mixture's exponents against means of at most m: m `[a]`, to `[a, 3, λ]`."""
    return np.array([[-m * _RATES, _RATES, -_COSTS] for m in means.tolist()])


def log_evidence(sums: Float, against: Float, least: float) -> Float | None:
    """Log of the mixture: sums `[a, w, 3]`, `directions` `[a, 3, λ]`, to `[a, w]`.

    None where it is below `least` everywhere, which mostly shows before any exponential is taken.
    """
    exponents = sums @ against
    exponents += _LOG_WEIGHTS
    if exponents.max() + math.log(len(_RATES)) < least:
        return None
    return _log_sum(exponents)


def _log_sum(exponents: Float) -> Float:
    top = exponents.max(-1)
    found: Float = top + np.log(np.exp(exponents - top[..., None]).sum(-1))
    return found


def _lower(count: float, total: float, variation: float, target: float) -> float:
    """The m at which the log evidence against at most m falls to a target.

    It is convex and falls with m, so Newton's steps from 0 stay below the root: stopping early
    would only widen the band.
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
