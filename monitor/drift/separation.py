"""Flip shares of a stream against those of the baseline.

H0: at no prediction has the conditional flip share, given the past, been above the baseline's.

An alarm is raised in two cases. *All time*: the stream's band is entirely above the baseline's. The
probability that this ever happens is at most α under H0, and also if only the running average of
the flip share has never been above the baseline's. *Windows*: an average over a long past reacts
late to a change, so every window that begins with one of the last blocks is tested against the
upper end of the baseline's band, by a mixture that has to reach c / block. At most T/block + 1
windows begin by the T-th prediction, and each reaches that with probability at most block / c under
H0, so the union bound gives

    P(false alarm by T) ≤ α + (T + block) / c.

For windows a low average is not enough: a share that is 0 for a long time and then above the
baseline's raises an alarm, as intended.

*Merging* adds sums. All-time sums are then those of one stream, in order of arrival. Windows of a
merged watch are tested only if they begin after the merge; earlier ones are informative. Testing
pairs of windows of two replicas would add twenty tests per block, which the union bound does not
count.
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
# Number of tests per block.
CHECKS = 2
# Weight of the baseline's share in the guess X̂, in predictions.
_PRIOR = 100.0


class Separation:
    """Sums of the flips of every attribute, now and at the beginning of each of the last blocks.

    A block begins with every `window` / 20-th prediction.

    Attributes:
        seen: Number of predictions, usable or not.
        totals: Sums of every attribute, `[a][3]`.
        starts: Sums at the beginning of blocks, the newest last, `[a, 21, 3]`; the first is zero.
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
        """Number of the newest windows that are tested, at most 20; fewer after a merge."""
        return self._tested

    @tested.setter
    def tested(self, windows: int) -> None:
        self._tested = windows
        self._bars = np.full(1 + BLOCKS, math.inf)
        self._bars[0] = self._all_time_bar
        self._bars[1 + BLOCKS - windows :] = self._window_bar
        self._least = float(self._bars.min())

    def update(self, flips: Sequence[list[float]]) -> Iterator[tuple[int, int, float]]:
        """Add the flips of every attribute, `[a][n]`.

        Yields:
            Alarms: number of the prediction, index of the attribute, log of the evidence.
        """
        start, n = 0, len(flips[0]) if flips else 0
        while start < n:
            stop = min(n, start + self._every - self.seen % self._every)
            for values, sums, share in zip(flips, self.totals, self._shares, strict=False):
                count, total = sums[0] + _PRIOR, sums[1] + _PRIOR * share
                for index, added in enumerate(sums_of(values[start:stop], count, total)):
                    sums[index] += added
            self.seen += stop - start
            start = stop
            if self.seen % self._every == 0:
                yield from self.separated()
            if self.seen % self._block == 0:
                self.starts[:, 1:-1] = self.starts[:, 2:]
                self.starts[:, -1] = self.totals
                if self.tested < BLOCKS:
                    self.tested += 1

    def all_time(self, index: int) -> ShareSums:
        """Sums of an attribute since the start or the last restart."""
        return _sums(self.totals[index])

    def rolling(self, index: int) -> ShareSums:
        """Sums of an attribute over the last blocks."""
        return _sums((self.totals[index] - self.starts[index, 1]).tolist())

    def restart(self, index: int) -> None:
        """Reset the sums of an attribute; the baseline stays."""
        self.totals[index] = [0.0] * 3
        self.starts[index] = 0.0

    def merge(self, other: Separation) -> None:
        """Add the sums of another replica; only windows that begin from now on are tested."""
        self.tested = 0
        self.seen += other.seen
        self.totals = (np.array(self.totals) + other.totals).tolist()
        self.starts = self.starts + other.starts

    def separated(self) -> Iterator[tuple[int, int, float]]:
        """Current alarms, as `update` yields them."""
        windows = np.array(self.totals)[:, None] - self.starts
        evidence = log_evidence(windows, self._against, self._least)
        if evidence is None:
            return
        above = evidence >= self._bars
        for index in np.flatnonzero(above.any(1)).tolist():
            yield self.seen, index, float(evidence[index][above[index]].max())


def _sums(row: Sequence[float]) -> ShareSums:
    count, total, variation = row
    return ShareSums(count=count, total=total, variation=variation)
