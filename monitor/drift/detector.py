"""Change detectors: do the newest scores still rank among the earlier ones as by chance?

H0: the scores of the reference and of the stream are exchangeable.

The p-value of a score is its rank among all before it, by bin, ties broken by a uniform u:

    p = (#{earlier in higher bins} + u · (#{earlier in the same bin} + 1)) / (#{earlier} + 1)

These are independent and uniform under H0 (Vovk, Gammerman and Shafer 2005, Theorem 8.2), whatever
the bins, if they were fixed before. Against one fixed set of rows they would not be independent,
and the guarantee below would be lost.

The Shiryaev–Roberts e-detector R ← (R + 1) · ε p^(ε−1) is averaged over ε, and over both directions
and all columns that a detector reads. E[R] grows by at most 1 a prediction, so an alarm at R ≥ c
comes after c predictions on average and by the T-th with probability at most T/c (Shin, Ramdas and
Rinaldo 2024, Theorem 2.4). The product of ε p^(ε−1), averaged alike, is a test martingale: its
value is an e-value against H0.

A score that is not a number is counted in bin 0 and otherwise passed over.
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

# Scores that are ranked at once: each is compared with those before it in the chunk pair by pair.
CHUNK = 32
_POWERS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
# No p-value counts as smaller, which costs no validity, and no product overflows within a chunk.
_LEAST_P = 1e-10
# Logs of nothing, and of the most that is told of a step.
NOTHING, _MOST = -700.0, 700.0
# What a score adds to the log of a product lies between log .1 and log(.1 · 10⁹), where p is 1 and
# least; what it adds to the log of a statistic exceeds that by log 2 at most. Rounded outwards.
LEAST_STEP, MOST_STEP = -2.4, 20.0
# From here on a chunk could overflow.
_MUCH = math.exp(80.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a change detector holds against the stream being as before.

    Attributes:
        log_sr: Log of the Shiryaev–Roberts statistic; an alarm at the log of the run length.
        log_e_value: Log of the test martingale since the start or the last acknowledgement.
        unusable: Predictions since then with a score that was not a number.
    """

    log_sr: float
    log_e_value: float
    unusable: int


@dataclass(frozen=True, slots=True)
class _Room:
    """What the work on a chunk of n scores needs, kept because making it takes time.

    Small integers compare faster; `later` lifts a score past all that come after it in the chunk,
    so that these never count as above it or beside it. Products with `up_to` and `before` are
    running sums, which at this size are faster than sums.
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
    def of(cls, n: int, columns: int, places: int) -> _Room:
        past = 1 << 14 if places < 1 << 14 else 1 << 60
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
    """All change detectors of a stream, side by side.

    A track is a column read in one direction: all columns upwards, then those of both ways
    downwards. A bettor is a track with one ε; b = tracks × 5, those of a track side by side.

    Attributes:
        counts: Scores in each bin of each column, `[c, bins + 1]`.
        based: Whether the reference's are among them, `[c]`.
        log_product: Test martingale of each bettor, `[b]`.
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
        # Minus the log of ε p^(ε−1): from log p of the tracks, and the part of each step.
        self._slopes = np.kron(np.eye(len(tracks)), 1 - _POWERS[:, None])
        self._stakes = np.tile(np.log(_POWERS), len(tracks))[:, None]
        self._staked = self._stakes * np.arange(1, CHUNK + 1)
        self._above = np.tri(self.counts.shape[1], k=-1)
        self._sr = np.zeros((len(self._slopes), 1))
        self.log_sr = np.full(len(self._slopes), NOTHING)
        self.log_product = np.zeros(len(self._slopes))
        self._room: dict[int, _Room] = {}

    @property
    def log_sr(self) -> Float:
        """Log of the Shiryaev–Roberts statistic of each bettor, `[b]`."""
        return self._log_sr if self._in_logs else np.log(self._sr[:, 0])

    @log_sr.setter
    def log_sr(self, logs: Float) -> None:
        # In logs until a chunk has shown that the statistics are small.
        self._log_sr, self._in_logs = logs, True

    def update(self, columns: Float, uniforms: Float, level: float) -> Float | None:
        """Rank at most 32 scores of each column, `[c, n]`, with uniforms in [0, 1), `[n, c]`.

        Returns:
            The log of each detector's statistic after each score, `[d, n]`; None where none has
            reached `level`.
        """
        c, n = columns.shape
        room = self._room.get(n) or self._room.setdefault(n, _Room.of(n, c, self.counts.size))
        # The product is NaN where a score is, and where one is infinite, which does no harm.
        usable = None if np.vdot(columns, room.zeros) == 0 else ~np.isnan(columns)
        logs = np.empty((2 * c - self._mirrored.start, n))
        self._rank(columns, uniforms, usable, room, out=logs[:c])
        np.subtract(1, logs[self._mirrored], out=logs[c:])
        np.log(np.maximum(logs, _LEAST_P, out=logs), out=logs)
        if usable is not None:
            return self._bet_on(logs, np.concatenate([usable, usable[self._mirrored]]))
        fall = self._slopes.dot(logs.dot(room.up_to))
        fall -= self._staked[:, :n]
        return self._bet(fall, room.before, level)

    def evidence(self) -> tuple[Float, Float]:
        """Logs of each detector's Shiryaev–Roberts statistic and of its e-value, `[d]` each."""
        return self._average(self.log_sr), self._average(self.log_product)

    def restart(self, detector: int) -> None:
        """Forget a detector's evidence and counts: what comes from now on is its normal."""
        bettors = self._weights[detector] > 0
        self.log_sr = np.where(bettors, NOTHING, self.log_sr)
        self.log_product[bettors] = 0.0
        self.counts[self._owners == detector] = 0.0
        self.based[self._owners == detector] = False

    def absorb(self, other: Detectors) -> None:
        """Take in what another replica has seen beside this one."""
        self.log_sr = np.logaddexp(self.log_sr, other.log_sr)
        self.log_product = np.logaddexp(self.log_product, other.log_product) - math.log(2)
        # Both count the reference, and together only once; where one was restarted, not at all.
        twice = (self.based | other.based)[:, None]
        self.counts += other.counts - twice * self._reference
        self.based &= other.based

    def _rank(
        self, columns: Float, uniforms: Float, usable: Bool | None, room: _Room, out: Float
    ) -> None:
        """Write the p-values of scores `[c, n]`, and then count the scores."""
        places = np.empty(uniforms.shape, np.intp)
        for column, edges in enumerate(self._edges):
            places[:, column] = edges.searchsorted(columns[column], "right")
        steps = room.steps[:, None]
        if usable is not None:
            places *= usable.T
            steps = (usable.cumsum(1) + ~usable).T
        places += self._offsets
        above = self.counts.dot(self._above)
        higher, same = _within_chunk(places, room)
        ranks: Float = self.counts.take(places)
        ranks += same
        ranks *= uniforms
        ranks += above.take(places)
        ranks += higher
        np.divide(ranks, above[:, 0] + steps, out=out.T)
        tally = np.bincount(places.ravel(), minlength=self.counts.size)
        self.counts += tally.reshape(self.counts.shape)

    def _bet(self, fall: Float, before: Float, level: float) -> Float | None:
        """Carry the statistics on by a chunk, given minus the log of the products in it, `[b, n]`.

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
        """The same where some scores, `[t, n]`, are not numbers: they count as no step at all."""
        fall = self._slopes @ (logs * usable).cumsum(1)
        usable = np.repeat(usable, len(_POWERS), 0)
        return self._bet_in_logs(fall - self._stakes * usable.cumsum(1), usable)

    def _bet_in_logs(self, fall: Float, usable: NDArray[np.bool_ | np.float64]) -> Float:
        """The same in logs, which never overflow."""
        first = np.zeros((len(fall), 1))
        with np.errstate(divide="ignore"):
            steps = np.concatenate([first, fall[:, :-1]], 1) + np.log(usable)
        terms = np.concatenate([self.log_sr[:, None], steps], 1)
        log_sr: Float = np.logaddexp.accumulate(terms, 1)[:, 1:] - fall
        self.log_sr = log_sr[:, -1].copy()
        self.log_product -= fall[:, -1]
        if self.log_sr.max() < math.log(_MUCH):
            self._sr, self._in_logs = np.exp(self.log_sr)[:, None], False
        found: Float = np.log(self._weights @ np.exp(np.minimum(log_sr, _MOST)))
        return found

    def _average(self, logs: Float) -> Float:
        """Logs of the averages over each detector's bettors, `[b]` to `[d]`."""
        owned = self._weights > 0
        found = [np.logaddexp.reduce(logs[row]) - math.log(row.sum()) for row in owned]
        return np.array(found)


def _within_chunk(places: NDArray[np.intp], room: _Room) -> NDArray[np.float32]:
    """How many scores stand before each in a higher bin, and up to each in its own, `[n, c]`.

    Pairs are laid out in full, `[n, c, n]`: broadcast, their short rows would be slow.
    """
    n, c = places.shape
    small = places.astype(room.here.dtype)
    np.add(small[:, :, None], room.later, out=room.here)
    np.copyto(room.there, small.T)
    np.greater(room.there, room.here, out=room.pairs[0])
    np.equal(room.there, room.here, out=room.pairs[1])
    np.copyto(room.floats, room.pairs)
    counted: NDArray[np.float32] = room.floats.reshape(-1, n).dot(room.ones)
    return counted.reshape(2, n, c)
