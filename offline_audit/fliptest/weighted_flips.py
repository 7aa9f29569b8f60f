"""Flips of people who may have several counterparts each, and intervals that know of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.intervals import Interval, skewed_t_interval, wilson
from offline_audit.maps.transport_map import Features

__all__ = ["WeightedFlips"]

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedFlips:
    """The counterparts that are decided otherwise, r of them, and the m people they belong to.

    Attributes:
        own: The person's features, `[r, d]`.
        other: The counterpart's, `[r, d]`.
        owner: Which of the m people, `[r]`.
        weights: Flips of each person, `[m]`.
    """

    own: Features
    other: Features
    owner: NDArray[np.intp]
    weights: Float

    @classmethod
    def of(cls, flipset: Flipset, side: Side) -> WeightedFlips:
        """Of one side."""
        draws, people = np.nonzero(flipset.flips(side))
        return cls._made(flipset.features[people], flipset.counterparts[draws, people], people)

    @classmethod
    def _made(cls, own: Features, other: Features, people: NDArray[np.intp]) -> WeightedFlips:
        _, owner, weights = np.unique(people, return_inverse=True, return_counts=True)
        return cls(own=own, other=other, owner=owner, weights=weights.astype(np.float64))

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> WeightedFlips:
        """Some of them."""
        return self._made(self.own[rows], self.other[rows], self.owner[rows])

    def totals(self, values: NDArray[Any]) -> Float:
        """Sum over each person's flips, `[r]` to `[m]`."""
        return np.bincount(self.owner, values, minlength=len(self.weights)).astype(np.float64)

    def mean_interval(self, values: Float, confidence_level: float) -> Interval:
        """Of a mean over flips: a ratio of sums over people, linearised, bent for skewness."""
        mean, people = float(values.mean()), len(self.weights)
        totals = self.totals(values)
        residuals = totals - mean * self.weights
        square = float((residuals**2).sum())
        # All the same, but for rounding.
        if people < 2 or square <= 1e-20 * float((totals**2).sum()):
            return mean, mean
        variance = square / self.weights.sum() ** 2 * people / (people - 1)
        skewness = float((residuals**3).sum()) / square**1.5
        return skewed_t_interval(mean, variance, skewness, people - 1, confidence_level)

    def share_interval(self, hits: NDArray[np.bool_], confidence_level: float) -> Interval:
        """Wilson's, with as many people as would scatter as much; at most those there are."""
        share = float(hits.mean())
        most = float(self.weights.sum() ** 2 / (self.weights**2).sum())
        residuals = self.totals(hits) - share * self.weights
        variance = float((residuals**2).sum() / self.weights.sum() ** 2)
        effective = min(most, share * (1 - share) / variance) if variance > 0 else most
        return wilson(share, effective, confidence_level)

    def net_interval(self, signs: NDArray[np.int8], confidence_level: float) -> Interval:
        """Of the share above zero less the share below: two Wilson intervals, which exclude.

        Newcombe's hybrid for dependent shares (Statistics in Medicine 17, 1998, 2635, method 10).
        """
        above, below = signs > 0, signs < 0
        p, q = float(above.mean()), float(below.mean())
        (p_low, p_high), (q_low, q_high) = (
            self.share_interval(x, confidence_level) for x in (above, below)
        )
        odds = p * q / max((1 - p) * (1 - q), 1e-12)
        # A share of 1 leaves the other only what it loses itself.
        together = -1.0 if 1.0 in (p, q) else -math.sqrt(odds)

        def reach(a: float, b: float) -> float:
            return math.sqrt(max(a * a - 2 * together * a * b + b * b, 0.0))

        low, high = p - q - reach(p - p_low, q_high - q), p - q + reach(p_high - p, q - q_low)
        return max(low, -1.0), min(high, 1.0)
