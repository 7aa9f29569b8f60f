"""Lower bound on the flip share of a stream, whose groups are hidden.

A map that carries the people of group s onto group t changes at least the difference of their rates
of positive decisions. Hence the flip share of any maps is at least

    B = Σ_s P(s) · max_t |rate(s) − rate(t)|        (`monitor.fitting.bound`, with known groups).

With a status posterior that is calibrated, also among positive and among negative decisions d,

    p_s = P(s, d = 1) = E[P(s | x) · d],        n_s = P(s, d = 0) = E[P(s | x) · (1 − d)],

so that P(s) = p_s + n_s, rate(s) = p_s / (p_s + n_s), and B is a function of 2k means of values in
[0, 1]. Three sums of each give a band that covers its running average at all times
(`monitor.drift.share`).

*Lower end.* P(s) · (rate(s) − rate(t)) = p_s · (1 − rate(t)) − n_s · rate(t) rises in p_s and falls
in n_s and in rate(t), which rises in p_t and falls in n_t. Its least value over the product of the
bands is at their ends; likewise for rate(t) − rate(s). The larger of both least values, or 0, is at
most P(s) · |rate(s) − rate(t)|, and the maximum over t and the sum over s preserve this. Every band
has level α / 4k, two-sided, so by the union bound over 2k means

    P(the lower end is ever above B) ≤ α/2,

the level of one end of a two-sided band of level α. The upper end of the flip share's band has
level α/2 too. If the flip share is at least B, therefore

    P(the flip share's band is ever entirely below the lower end) ≤ α.

B and the flip share refer to the same predictions, and to averages over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from monitor.drift.share import ShareSums, usable_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monitor.drift.reference import Layout

__all__ = ["ShareBound", "ShareBounds"]

Float = NDArray[np.float64]

# The guess X̂ of a value is its mean at the beginning of its block, which needs no running sums.
# Predictions are kept until a block is complete, since few large sums are faster than many small.
_BLOCK = 1_000
# Least number of predictions for a figure: fewer could describe one person.
_LEAST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBound:
    """Lower bound on the flip share of one attribute.

    Attributes:
        n: Number of predictions since the start, or since the last acknowledged alarm `share`.
        share: Estimate; None if there are fewer than 10 predictions. A largest difference of
            estimated rates is biased upwards, so compare the flip share with `low`.
        low: Lower end, which is below the bound at all times with probability 1 − level / 2.
    """

    n: int
    share: float | None
    low: float


class ShareBounds:
    """Sums of every attribute from which the bound follows.

    Attributes:
        sums: Sums of P(s | x) · d for every group s, then of P(s | x) · (1 − d), for one attribute
            after the other: count, total and variation, `[m, 3]`.
        guesses: Guess X̂ for the values of the block, `[m]`.
    """

    def __init__(self, layout: Layout, *, alpha: float) -> None:
        sizes = list(layout.groups.values())
        self._alpha, self._margin, self._posteriors = alpha, len(sizes), layout.posteriors
        self._rows = [slice(*ends) for ends in pairwise(np.cumsum([0, *(2 * k for k in sizes)]))]
        self.sums = np.zeros((2 * sum(sizes), 3))
        self.guesses = np.concatenate([np.full(2 * k, 0.5 / k) for k in sizes])
        self._waiting: list[tuple[Float, Sequence[Float]]] = []
        self._seen = self._first = 0

    def add(self, seen: int, columns: Float, flips: Sequence[Float]) -> None:
        """Add predictions after `seen` earlier ones; the arrays are kept until the block ends.

        Args:
            seen: Number of earlier predictions of the stream.
            columns: Scores that the detectors read, `[c, n]`.
            flips: Flips of every attribute, `[a][n]`. As in the flip share, predictions without
                a usable flip are ignored.
        """
        if not self._waiting:
            self._first = seen
        self._waiting.append((columns, flips))
        self._seen = seen + columns.shape[1]
        if self._seen // _BLOCK > self._first // _BLOCK:
            self.flush()

    def flush(self) -> None:
        """Count the predictions that are kept."""
        if not self._waiting:
            return
        columns = np.concatenate([part for part, _ in self._waiting], axis=1)
        flips = [np.concatenate(parts) for parts in zip(*(f for _, f in self._waiting), strict=True)]
        self._waiting, start = [], self._first
        while start < self._seen:
            stop = min(self._seen, start + _BLOCK - start % _BLOCK)
            part = slice(start - self._first, stop - self._first)
            for index, values in enumerate(flips):
                self._count(index, columns[:, part], values[part])
            if stop % _BLOCK == 0:
                counts, totals, _ = self.sums.T
                np.divide(totals, counts, out=self.guesses, where=counts > 0)
            start = stop

    def read(self, index: int) -> ShareBound:
        """The bound for an attribute."""
        rows = self._all(index)
        n = int(rows[0].count)
        bands = np.array([sums.band(self._alpha / (2 * len(rows))) for sums in rows])
        low, high = bands.T.reshape(2, 2, -1)
        return ShareBound(
            n=n, share=self._share(index) if n >= _LEAST else None, low=_least_bound(low, high)
        )

    def exceeds(self, index: int, flips: ShareSums) -> bool:
        """Whether the band of the flip share is entirely below the lower end of the bound.

        The estimate is above the lower end, so in most cases it answers without solving for bands.
        """
        self.flush()
        return flips.is_below(self._share(index), self._alpha) and flips.is_below(
            self.read(index).low, self._alpha
        )

    def restart(self, index: int) -> None:
        """Reset the sums of an attribute."""
        self.flush()
        self.sums[self._rows[index]] = 0.0

    def merge(self, other: ShareBounds) -> None:
        """Add the sums of another replica."""
        self.flush()
        other.flush()
        self.sums += other.sums

    def _count(self, index: int, columns: Float, flips: Float) -> None:
        """Add predictions of a block: columns `[c, n]`, flips `[n]`."""
        rows, margin = self._rows[index], columns[self._margin]
        weights = columns[self._posteriors[index]]
        if 2 * len(weights) < rows.stop - rows.start:
            weights = np.concatenate([1 - weights, weights])
        usable = usable_values(flips) & np.isfinite(weights).all(0) & ~np.isnan(margin)
        if not usable.all():
            weights, margin = weights[:, usable], margin[usable]
        weights, positive = np.clip(weights, 0.0, 1.0), margin >= 0
        values = np.concatenate([weights * positive, weights * ~positive])
        sums = self.sums[rows]
        sums[:, 0] += values.shape[1]
        sums[:, 1] += values.sum(1)
        values -= self.guesses[rows, None]
        sums[:, 2] += np.einsum("ij,ij->i", values, values)

    def _all(self, index: int) -> list[ShareSums]:
        self.flush()
        return [
            ShareSums(count=count, total=total, variation=variation)
            for count, total, variation in self.sums[self._rows[index]].tolist()
        ]

    def _share(self, index: int) -> float:
        """Estimate of the bound; 0 without predictions. Groups without any weight are ignored."""
        counts, totals, _ = self.sums[self._rows[index]].T
        means = (totals / np.maximum(counts, 1)).reshape(2, -1)
        means = means[:, means.sum(0) > 0]
        return _least_bound(means, means)


def _least_bound(low: Float, high: Float) -> float:
    """Least value of the bound over lower and upper ends of p_s and n_s, `[2, k]` each."""
    (p_low, n_low), (p_high, n_high) = low, high
    least, most = p_low / (p_low + n_high), p_high / (p_high + n_low)
    # Rows are s, columns are t. On the diagonal neither difference is positive.
    above = np.outer(p_low, 1 - most) - np.outer(n_high, most)
    below = np.outer(n_low, least) - np.outer(p_high, 1 - least)
    return float(np.maximum(above, below).max(1, initial=0.0).sum())
