"""What happened to people since an alarm `change`: did the flip share rise, and in which groups?

H0 of an alarm: since it was raised, the conditional flip share, given the past, has at no
prediction been above the baseline's.

Sums start at zero with the prediction after the alarm. That is a stopping time, so the mixture of
`monitor.drift.share` against the upper end of the baseline's band is a supermartingale from there
on, whatever raised the alarm. It is tested at every prediction and has to reach 2/α:

    P(an alarm is followed by a false "the flip share rose") ≤ α/2 for the test
                                                             + α/2 for the baseline's band.

The second term is paid once per bundle, the first once per alarm.

The expected change of a likely group s is the mean of E|Δf| weighted by the posterior P(s | x), in
units of the same mean over the calibration rows. It describes, and nothing is tested with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from monitor.drift.share import Band, ShareSums, directions, log_evidence, sums_of

__all__ = ["Effect", "Effects", "change_sums"]

Float = NDArray[np.float64]

# Weight of the baseline's share in the guess X̂, in predictions.
_PRIOR = 100.0
# Least number of predictions for a figure: fewer could describe one person.
_LEAST = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Flip share and expected change since an alarm.

    Attributes:
        n: Number of predictions since the alarm.
        share: Flip share of these predictions; None if there are fewer than 10.
        band: Band that covers their average flip share at all times with probability 1 − level.
        baseline: Flip share of the baseline.
        rose: Whether the flip share has been shown to be above the baseline's band.
        change_ratios: Mean expected change of every likely group over the baseline's; None for a
            group of fewer than 10 people, or without a baseline.
    """

    n: int
    share: float | None
    band: Band
    baseline: float
    rose: bool
    change_ratios: tuple[float | None, ...]


class Effects:
    """Sums of every attribute since its alarm `change`; zero if there is none.

    Attributes:
        totals: Sums of the flips, `[a, 3]`.
        changes: Sums of posteriors, and of posteriors times expected change, per group of every
            attribute, `[g, 2]`.
        rose: Whether the flip share has been shown to be above the baseline's band, `[a]`.
    """

    def __init__(
        self,
        baselines: Sequence[ShareSums],
        groups: Sequence[int],
        changes: Sequence[Float | None],
        *,
        alpha: float,
    ) -> None:
        self._alpha, self._baselines, self._changes = alpha, baselines, changes
        self._against = directions(np.array([sums.band(alpha).high for sums in baselines]))
        self._bar = math.log(2 / alpha)
        ends = np.cumsum([0, *groups]).tolist()
        self._groups = [slice(*pair) for pair in pairwise(ends)]
        self.totals = np.zeros((len(baselines), 3))
        self.changes = np.zeros((ends[-1], 2))
        self.rose = np.zeros(len(baselines), bool)

    def update(
        self, index: int, flips: Sequence[float], change: Float, posterior: Float
    ) -> int | None:
        """Add predictions of an attribute: flips `[n]`, expected change `[n]`, posterior `[n, k]`.

        Returns:
            Position of the prediction that shows that the flip share rose, if one of these does.
        """
        self.changes[self._groups[index]] += change_sums(change, posterior)
        prior = _PRIOR * (self._baselines[index].share or 0.0)
        rows, sums = np.empty((len(flips), 3)), self.totals[index].tolist()
        for row, value in enumerate(flips):
            added = sums_of([value], sums[0] + _PRIOR, sums[1] + prior)
            sums = [old + new for old, new in zip(sums, added, strict=True)]
            rows[row] = sums
        self.totals[index] = sums
        if self.rose[index] or not len(flips):
            return None
        evidence = log_evidence(rows[None], self._against[index : index + 1], self._bar)
        if evidence is None or not (above := evidence[0] >= self._bar).any():
            return None
        self.rose[index] = True
        return int(above.argmax())

    def read(self, index: int) -> Effect:
        """Effect since the alarm of an attribute."""
        count, total, variation = self.totals[index].tolist()
        sums = ShareSums(count=count, total=total, variation=variation)
        return Effect(
            n=int(count),
            share=sums.share if count >= _LEAST else None,
            band=sums.band(self._alpha) if count >= _LEAST else Band(0.0, 1.0),
            baseline=self._baselines[index].share or 0.0,
            rose=bool(self.rose[index]),
            change_ratios=tuple(self._ratios(index)),
        )

    def restart(self, index: int) -> None:
        """Reset the sums of an attribute."""
        self.totals[index], self.rose[index] = 0.0, False
        self.changes[self._groups[index]] = 0.0

    def take(self, index: int, other: Effects) -> None:
        """Replace the sums of an attribute by those of another replica."""
        self.totals[index], self.rose[index] = other.totals[index], other.rose[index]
        self.changes[self._groups[index]] = other.changes[self._groups[index]]

    def _ratios(self, index: int) -> list[float | None]:
        now, before = self.changes[self._groups[index]], self._changes[index]
        if before is None:
            return [None] * len(now)
        return [
            float(total / weight / (base_total / base_weight))
            if weight >= _LEAST and base_weight >= _LEAST and base_total > 0
            else None
            for (weight, total), (base_weight, base_total) in zip(now, before, strict=True)
        ]


def change_sums(change: Float, posterior: Float) -> Float:
    """Sums of posteriors, and of posteriors times expected change, per group, `[k, 2]`.

    Predictions without a finite change or posterior are ignored.
    """
    usable = np.isfinite(change) & (change >= 0) & np.isfinite(posterior).all(1)
    weights = np.clip(posterior[usable], 0.0, 1.0).astype(np.float64)
    return np.stack([weights.sum(0), change[usable].astype(np.float64) @ weights], axis=1)
