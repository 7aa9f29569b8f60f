"""Flip shares of a stream against those of the baseline.

H0: at no prediction has the flip share, given the past, been above the baseline's.

Two ways to an alarm. *All time*: the stream's band lies wholly above the baseline's, which happens
ever with probability at most α under H0; for this it is enough that the average flip share up to
every moment has been no higher than the baseline's. *Windows*: a change after a long clean past
shows late in an average over all of it, so every window that begins with one of the last blocks is
tested against the upper end of the baseline's band, by a mixture that has to reach c / block. As at
most T/block + 1 windows begin by the T-th prediction, each of which reaches that with probability
at most block / c under H0, the union bound gives

    P(false alarm by T) ≤ α + (T + block) / c.

Here an average that is low does not do: a share that is 0 for long and then above the baseline's
alarms, as it should.

*Merging* adds sums. In all-time sums that is one stream in the order in which predictions came. But
pairs of two replicas' windows are not windows that begin one by one: each new block would make
twenty new pairs, and the union bound above would not count them. So of the windows of a merged
watch only those are tested that begin after the merge; the earlier ones are there to be shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from monitor.drift.share import ShareSums, directions, log_evidence, sums_of

__all__ = ["BLOCKS", "CHECKS", "Separation"]

Float = NDArray[np.float64]

BLOCKS = 20
# How often it is asked, in a block, whether shares have separated.
CHECKS = 2
# How many predictions the baseline's share is worth as a first guess.
_PRIOR = 100.0


class Separation:
    """Sums of the flips of every attribute, now and when each of the last blocks began.

    The blocks of all attributes begin together, with every `window` / 20-th prediction.

    Attributes:
        seen: Predictions, usable or not.
        totals: Sums of each attribute, `[a][3]`.
        starts: The same when blocks began, the newest last, `[a, 21, 3]`; the first stays zero.
    """

    def __init__(
        self, baselines: Sequence[ShareSums], *, alpha: float, run_length: float, window: int
    ) -> None:
        self._block = window // BLOCKS
        self._every = self._block // CHECKS
        highs = np.array([sums.band(alpha).high for sums in baselines])
        self._against = directions(highs)
        self._shares = [sums.share or 0.0 for sums in baselines]
        self._all_time_bar = math.log(2 / alpha)
        self._window_bar = math.log(run_length / self._block)
        self.tested = BLOCKS
        self.seen = 0
        self.totals = [[0.0] * 3 for _ in baselines]
        self.starts = np.zeros((len(baselines), 1 + BLOCKS, 3))

    @property
    def tested(self) -> int:
        """How many of the newest windows are tested, of 20; after a merge, those begun since."""
        return self._tested

    @tested.setter
    def tested(self, windows: int) -> None:
        self._tested = windows
        self._bars = np.full(1 + BLOCKS, math.inf)
        self._bars[0] = self._all_time_bar
        self._bars[1 + BLOCKS - windows :] = self._window_bar
        self._least = float(self._bars.min())

    def update(self, flips: Sequence[list[float]]) -> Iterator[tuple[int, int, float]]:
        """Add the flips of each attribute, `[a][n]`.

        Yields:
            Alarms: the prediction's number, the attribute's place, and the log of the evidence.
        """
        start, n = 0, len(flips[0]) if flips else 0
        while start < n:
            stop = min(n, start + self._every - self.seen % self._every)
            for values, sums, share in zip(flips, self.totals, self._shares, strict=False):
                count, total = sums[0] + _PRIOR, sums[1] + _PRIOR * share
                for place, added in enumerate(sums_of(values[start:stop], count, total)):
                    sums[place] += added
            self.seen += stop - start
            start = stop
            if self.seen % self._every == 0:
                yield from self.separated()
            if self.seen % self._block == 0:
                self.starts[:, 1:-1] = self.starts[:, 2:]
                self.starts[:, -1] = self.totals
                if self.tested < BLOCKS:
                    self.tested += 1

    def all_time(self, place: int) -> ShareSums:
        """Sums of an attribute since the start or the last restart."""
        return _sums(self.totals[place])

    def rolling(self, place: int) -> ShareSums:
        """Sums of an attribute over the last blocks."""
        return _sums((self.totals[place] - self.starts[place, 1]).tolist())

    def restart(self, place: int) -> None:
        """Forget an attribute's flips; the baseline stays what it is."""
        self.totals[place] = [0.0] * 3
        self.starts[place] = 0.0

    def absorb(self, other: Separation) -> None:
        """Take in what another replica has seen beside this one; windows are tested anew."""
        self.tested = 0
        self.seen += other.seen
        self.totals = (np.array(self.totals) + other.totals).tolist()
        self.starts = self.starts + other.starts

    def separated(self) -> Iterator[tuple[int, int, float]]:
        """Alarms as things stand, as `update` yields them."""
        windows = np.array(self.totals)[:, None] - self.starts
        evidence = log_evidence(windows, self._against, self._least)
        if evidence is None:
            return
        above = evidence >= self._bars
        for place in np.flatnonzero(above.any(1)).tolist():
            yield self.seen, place, float(evidence[place][above[place]].max())


def _sums(row: Sequence[float]) -> ShareSums:
    count, total, variation = row
    return ShareSums(count=count, total=total, variation=variation)
