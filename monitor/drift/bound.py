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
    from monitor.drift.reference import Layout
    from monitor.scoring.scores import Predictions

__all__ = ["ShareBound", "ShareBounds"]

Float = NDArray[np.float64]

# Number of predictions that are counted together, which is faster than one batch after the other.
# The guess X̂ of a value is the mean at the beginning of its block.
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
        sums: Count, total and variation of P(s | x) · d and of P(s | x) · (1 − d), for every group
            of every attribute, `[g, 2, 3]`.
        guesses: Guess X̂ for the values of the block, `[g, 2]`.
    """

    def __init__(self, layout: Layout, *, alpha: float) -> None:
        sizes = list(layout.groups.values())
        self._alpha, self._names = alpha, list(layout.groups)
        self._groups = [slice(*ends) for ends in pairwise(np.cumsum([0, *sizes]).tolist())]
        self.sums = np.zeros((sum(sizes), 2, 3))
        self.guesses = np.repeat([0.5 / k for k in sizes], sizes)[:, None] * np.ones(2)
        # Posteriors, flips, and the margin, of the predictions of a block.
        self._block = np.empty((len(self.sums) + len(sizes) + 1, _BLOCK))
        self._first = self._end = 0

    def add(self, seen: int, batch: Predictions) -> None:
        """Add predictions, after `seen` earlier ones.

        Predictions without a usable flip, which the flip share ignores, a margin or a posterior are
        ignored.
        """
        start, n = 0, len(batch.margin)
        while start < n:
            position = (seen + start) % _BLOCK
            if self._first == self._end:
                self._first = position
            stop = min(n, start + _BLOCK - position)
            self._end = position + stop - start
            kept, rows = self._block[:, position : self._end], slice(start, stop)
            kept[-1] = batch.margin[rows]
            for index, name in enumerate(self._names):
                signals = batch.attributes[name]
                kept[self._groups[index]] = signals.posterior[rows].T
                kept[len(self.sums) + index] = signals.hard_flips[rows]
            if self._end == _BLOCK:
                self.flush()
                counts, totals, _ = np.moveaxis(self.sums, -1, 0)
                np.divide(totals, counts, out=self.guesses, where=counts > 0)
                self._first = self._end = 0
            start = stop

    def flush(self) -> None:
        """Count the predictions of the block that are not counted yet."""
        if self._first == self._end:
            return
        block = self._block[:, self._first : self._end]
        self._first = self._end
        values, margin = block[:-1], block[-1]
        # The ends are NaN if a value is.
        if usable_values(np.array([values.min(), values.max(), 0 * margin.sum()])).all():
            self._count(block, slice(len(self.sums)))
            return
        usable, known = usable_values(values), ~np.isnan(margin)
        for index, groups in enumerate(self._groups):
            own = usable[groups].all(0) & usable[len(self.sums) + index] & known
            self._count(block[:, own], groups)

    def read(self, index: int) -> ShareBound:
        """The bound for an attribute."""
        self.flush()
        sums = self.sums[self._groups[index]]
        n, level = int(sums[0, 0, 0]), self._alpha / (2 * len(sums) * 2)
        bands = np.array([_share_sums(row).band(level) for row in sums.reshape(-1, 3)])
        low, high = bands.T.reshape(2, -1, 2)
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
        self.sums[self._groups[index]] = 0.0

    def merge(self, other: ShareBounds) -> None:
        """Add the sums of another replica."""
        self.flush()
        other.flush()
        self.sums += other.sums

    def _count(self, block: Float, groups: slice) -> None:
        """Add predictions `[.., n]` to the sums of groups."""
        positive = (block[-1] >= 0).astype(np.float64)
        decisions = np.array([positive, 1 - positive]).T
        weights, guesses, n = block[groups], self.guesses[groups], len(decisions)
        totals, squares = weights.dot(decisions), (weights * weights).dot(decisions)
        sums = self.sums[groups]
        sums[..., 0] += n
        sums[..., 1] += totals
        # Σ(X − X̂)² with one guess for all.
        sums[..., 2] += squares - guesses * (2 * totals - n * guesses)

    def _share(self, index: int) -> float:
        """Estimate of the bound; 0 without predictions. Groups without any weight are ignored."""
        counts, totals, _ = np.moveaxis(self.sums[self._groups[index]], -1, 0)
        means = totals / np.maximum(counts, 1)
        means = means[means.sum(1) > 0]
        return _least_bound(means, means)


def _share_sums(row: Float) -> ShareSums:
    count, total, variation = row.tolist()
    return ShareSums(count=count, total=total, variation=variation)


def _least_bound(low: Float, high: Float) -> float:
    """Least value of the bound over lower and upper ends of p_s and n_s, `[k, 2]` each."""
    (p_low, n_low), (p_high, n_high) = low.T, high.T
    least, most = p_low / (p_low + n_high), p_high / (p_high + n_low)
    # Rows are s, columns are t. On the diagonal neither difference is positive.
    above = np.outer(p_low, 1 - most) - np.outer(n_high, most)
    below = np.outer(n_low, least) - np.outer(p_high, 1 - least)
    return float(np.maximum(above, below).max(1, initial=0.0).sum())
