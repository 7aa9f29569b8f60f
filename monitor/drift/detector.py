"""Change detectors: are the ranks of new scores among the earlier ones still uniform?

H0: the scores of the reference and of the stream are exchangeable.

The p-value of a score is its rank among all before it, by bin, ties broken by a uniform u:

    p = (#{earlier in higher bins} + u · (#{earlier in the same bin} + 1)) / (#{earlier} + 1)

These are independent and uniform under H0 (Vovk, Gammerman and Shafer 2005, Theorem 8.2), for any
bins that were fixed in advance. Ranks among one fixed set of rows would not be independent, and the
guarantee below would not hold.

The Shiryaev–Roberts e-detector R ← (R + 1) · ε p^(ε−1) is averaged over ε, and over both directions
and all columns that a detector reads. E[R] grows by at most 1 per prediction, so an alarm at R ≥ c
comes after c predictions on average and by the T-th with probability at most T/c (Shin, Ramdas and
Rinaldo 2024, Theorem 2.4). The product of ε p^(ε−1), averaged in the same way, is a test
martingale: its value is an e-value against H0.

A score that is NaN is counted in bin 0 and otherwise ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from monitor.drift.reference import DriftReference

__all__ = ["CHUNK", "LEAST_STEP", "MOST_STEP", "NOTHING", "Detectors", "Evidence"]

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

# Number of scores per step; within a chunk scores are ranked by pairwise comparison.
CHUNK = 32
_POWERS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
# Lower bound on p-values: keeps the test valid, and products within a chunk cannot overflow.
_LEAST_P = 1e-10
# Logs that stand for 0, and for values too large to report.
NOTHING, _MOST = -700.0, 700.0
# A score changes the log of a product by log .1 (p = 1) to log(.1 · 10⁹) (smallest p), and the log
# of a statistic by at most log 2 more. Rounded outwards.
LEAST_STEP, MOST_STEP = -2.4, 20.0
# Statistics above this are kept as logs, since a chunk could overflow.
_MUCH = math.exp(80.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence of a change detector against H0, since the start or the last acknowledged alarm.

    Attributes:
        log_sr: Log of the Shiryaev–Roberts statistic; an alarm at the log of the run length.
        log_e_value: Log of the test martingale.
        unusable: Number of predictions with a score that is NaN.
    """

    log_sr: float
    log_e_value: float
    unusable: int


@dataclass(frozen=True, slots=True)
class _Workspace:
    """Preallocated arrays for a chunk of n scores, since allocation takes time.

    Small integers compare faster. `later` raises a score above all later ones in the chunk, so that
    these never count as higher or equal. Products with `up_to` and `before` are running sums, which
    at this size are faster than cumsum.
    """

    zeros: Float
    steps: Float
    up_to: Float
    before: Float
    here: NDArray[np.signedinteger[Any]]
    there: NDArray[np.signedinteger[Any]]
    later: NDArray[np.signedinteger[Any]]
    pairs: Bool
    floats: NDArray[np.float32]
    ones: NDArray[np.float32]

    @classmethod
    def of(cls, n: int, columns: int, bins: int) -> _Workspace:
        past = 1 << 14 if bins < 1 << 14 else 1 << 60
        later = np.empty((n, columns, n), np.int16 if past == 1 << 14 else np.int64)
        later[:] = np.triu(np.full((n, n), past), k=1)[:, None]
        return cls(
            zeros=np.zeros((columns, n)),
            steps=np.arange(1.0, n + 1),
            up_to=np.triu(np.ones((n, n))),
            before=np.triu(np.ones((n, n)), k=1),
            here=np.empty_like(later),
            there=np.empty_like(later),
            later=later,
            pairs=np.empty((2, *later.shape), bool),
            floats=np.empty((2, *later.shape), np.float32),
            ones=np.ones(n, np.float32),
        )


class Detectors:
    """All change detectors of a stream.

    A track is a column tested in one direction: all columns upwards, then the two-sided ones
    downwards. A bettor is a track with one ε; b = tracks × 5, ordered by track.

    Attributes:
        counts: Number of scores per bin and column, `[c, bins + 1]`.
        based: Whether the counts of a column include the reference's, `[c]`.
        log_product: Log of the test martingale per bettor, `[b]`.
    """

    def __init__(self, reference: DriftReference) -> None:
        layout, columns = reference.layout, len(reference.edges)
        self.counts, self._reference = reference.counts.copy(), reference.counts
        self.based = np.ones(columns, bool)
        self._edges, self._owners = reference.edges, layout.owners
        self._offsets = np.arange(columns) * self.counts.shape[1]
        self._mirrored = slice(layout.one_sided, columns)
        tracks = np.concatenate([layout.owners, layout.owners[self._mirrored]])
        owned = np.repeat(tracks, len(_POWERS)) == np.arange(len(layout.detectors))[:, None]
        self._weights = owned / owned.sum(1, keepdims=True)
        # −log(ε p^(ε−1)) = (1 − ε) log p − log ε: slopes of log p, and the constant per step.
        self._slopes = np.kron(np.eye(len(tracks)), 1 - _POWERS[:, None])
        self._stakes = np.tile(np.log(_POWERS), len(tracks))[:, None]
        self._staked = self._stakes * np.arange(1, CHUNK + 1)
        self._above = np.tri(self.counts.shape[1], k=-1)
        self._sr = np.zeros((len(self._slopes), 1))
        self.log_sr = np.full(len(self._slopes), NOTHING)
        self.log_product = np.zeros(len(self._slopes))
        self._workspaces: dict[int, _Workspace] = {}

    @property
    def log_sr(self) -> Float:
        """Log of the Shiryaev–Roberts statistic per bettor, `[b]`."""
        return self._log_sr if self._in_logs else np.log(self._sr[:, 0])

    @log_sr.setter
    def log_sr(self, logs: Float) -> None:
        # Kept as logs until a chunk shows that the statistics are small.
        self._log_sr, self._in_logs = logs, True

    def update(self, columns: Float, uniforms: Float, level: float) -> Float | None:
        """Add at most 32 scores per column, `[c, n]`, with uniforms in [0, 1), `[n, c]`.

        Returns:
            Log of the detectors' statistics after every score, `[d, n]`; None if none has reached
            `level`.
        """
        c, n = columns.shape
        work = self._workspaces.get(n) or self._workspaces.setdefault(
            n, _Workspace.of(n, c, self.counts.size)
        )
        # NaN if any score is NaN, or infinite, for which the slower path is correct too.
        usable = None if np.vdot(columns, work.zeros) == 0 else ~np.isnan(columns)
        logs = np.empty((2 * c - self._mirrored.start, n))
        self._rank(columns, uniforms, usable, work, out=logs[:c])
        np.subtract(1, logs[self._mirrored], out=logs[c:])
        np.log(np.maximum(logs, _LEAST_P, out=logs), out=logs)
        if usable is not None:
            return self._bet_on(logs, np.concatenate([usable, usable[self._mirrored]]))
        fall = self._slopes.dot(logs.dot(work.up_to))
        fall -= self._staked[:, :n]
        return self._bet(fall, work.before, level)

    def evidence(self) -> tuple[Float, Float]:
        """Logs of the Shiryaev–Roberts statistic and of the e-value per detector, `[d]` each."""
        return self._average(self.log_sr), self._average(self.log_product)

    def restart(self, detector: int) -> None:
        """Reset the evidence and counts of a detector, without the reference."""
        bettors = self._weights[detector] > 0
        self.log_sr = np.where(bettors, NOTHING, self.log_sr)
        self.log_product[bettors] = 0.0
        self.counts[self._owners == detector] = 0.0
        self.based[self._owners == detector] = False

    def merge(self, other: Detectors) -> None:
        """Add the counts and evidence of another replica."""
        self.log_sr = np.logaddexp(self.log_sr, other.log_sr)
        self.log_product = np.logaddexp(self.log_product, other.log_product) - math.log(2)
        # Count the reference once, or not at all if either detector was restarted.
        twice = (self.based | other.based)[:, None]
        self.counts += other.counts - twice * self._reference
        self.based &= other.based

    def _rank(
        self, columns: Float, uniforms: Float, usable: Bool | None, work: _Workspace, out: Float
    ) -> None:
        """Write the p-values of scores `[c, n]` to `out`, then add the scores to the counts."""
        bin_indices = np.empty(uniforms.shape, np.intp)
        for column, edges in enumerate(self._edges):
            bin_indices[:, column] = edges.searchsorted(columns[column], "right")
        steps = work.steps[:, None]
        if usable is not None:
            bin_indices *= usable.T
            steps = (usable.cumsum(1) + ~usable).T
        bin_indices += self._offsets
        above = self.counts.dot(self._above)
        higher, same = _within_chunk(bin_indices, work)
        ranks: Float = self.counts.take(bin_indices)
        ranks += same
        ranks *= uniforms
        ranks += above.take(bin_indices)
        ranks += higher
        np.divide(ranks, above[:, 0] + steps, out=out.T)
        tally = np.bincount(bin_indices.ravel(), minlength=self.counts.size)
        self.counts += tally.reshape(self.counts.shape)

    def _bet(self, fall: Float, before: Float, level: float) -> Float | None:
        """Update the statistics by a chunk; `fall` is −log of the running products, `[b, n]`.

        With B the product since the chunk began, R_t = B_t (R_0 + Σ_{j≤t} 1/B_{j−1}).
        """
        if self._in_logs:
            return self._bet_in_logs(fall, np.ones_like(fall))
        inverse = np.exp(fall)
        sr: Float = inverse.dot(before)
        sr += self._sr + 1
        sr /= inverse
        self._sr = sr[:, -1:]
        self.log_product -= fall[:, -1]
        top = sr.max()
        if top > _MUCH:
            self.log_sr = np.log(sr[:, -1])
        return None if top < level else np.log(self._weights @ sr)

    def _bet_on(self, logs: Float, usable: Bool) -> Float:
        """`_bet` for chunks with NaN scores, `[t, n]`, which change nothing."""
        fall = self._slopes @ (logs * usable).cumsum(1)
        usable = np.repeat(usable, len(_POWERS), 0)
        return self._bet_in_logs(fall - self._stakes * usable.cumsum(1), usable)

    def _bet_in_logs(self, fall: Float, usable: NDArray[np.bool_ | np.float64]) -> Float:
        """`_bet` in logs, which cannot overflow."""
        first = np.zeros((len(fall), 1))
        with np.errstate(divide="ignore"):
            steps = np.concatenate([first, fall[:, :-1]], 1) + np.log(usable)
        terms = np.concatenate([self.log_sr[:, None], steps], 1)
        log_sr: Float = np.logaddexp.accumulate(terms, 1)[:, 1:] - fall
        self.log_sr = log_sr[:, -1].copy()
        self.log_product -= fall[:, -1]
        if self.log_sr.max() < math.log(_MUCH):
            self._sr, self._in_logs = np.exp(self.log_sr)[:, None], False
        averages: Float = np.log(self._weights @ np.exp(np.minimum(log_sr, _MOST)))
        return averages

    def _average(self, logs: Float) -> Float:
        """Logs of the averages over the bettors of every detector, `[b]` to `[d]`."""
        owned = self._weights > 0
        return np.array([np.logaddexp.reduce(logs[row]) - math.log(row.sum()) for row in owned])


def _within_chunk(bin_indices: NDArray[np.intp], work: _Workspace) -> NDArray[np.float32]:
    """Number of earlier scores in a higher bin, and of scores up to it in its own bin, `[n, c]`.

    Pairs are stored in full, `[n, c, n]`, since broadcasting over short rows is slow.
    """
    n, c = bin_indices.shape
    small = bin_indices.astype(work.here.dtype)
    np.add(small[:, :, None], work.later, out=work.here)
    np.copyto(work.there, small.T)
    np.greater(work.there, work.here, out=work.pairs[0])
    np.equal(work.there, work.here, out=work.pairs[1])
    np.copyto(work.floats, work.pairs)
    counted: NDArray[np.float32] = work.floats.reshape(-1, n).dot(work.ones)
    return counted.reshape(2, n, c)
