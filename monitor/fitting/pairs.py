"""Shares of decisions about members of one group that would change as members of another.

    gained   unfavourable in the own group s, favourable in group t: being in s costs the decision
    lost     favourable in s, unfavourable in t
    miss     rate of the favourable decision in t, minus that of members of s transported to t

A correct map has no miss. The shares come from the refits of `intervals`; so do their intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["PairShare", "ShareInterval", "group_means", "pair_shares", "row_changes"]

_Floats = NDArray[np.float64]

# Fewest rows of either group of a pair, and fewest decisions of one kind for a share of them.
_LEAST_ROWS, _LEAST_DECISIONS = 50, 20
# Largest miss of the rate of decisions that leaves a share established: in absolute terms, and
# relative to the share.
_SMALL_MISS, _RELATIVE_MISS = 0.01, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareInterval:
    """A share of decisions with its 95% interval.

    Attributes:
        share: Estimate.
        low: Lower end.
        high: Upper end.
    """

    share: float
    low: float
    high: float

    @classmethod
    def of(cls, share: float, error: float, rows: int, quantile: float, missing: float) -> Self:
        """Wilson's interval with the number of rows that would have this standard error.

        That is at most the number of rows, so that a share of zero has a positive upper end. One
        end is extended by the share that the maps seem to miss, or to have too much if negative.
        """
        binary, q2 = share * (1 - share), quantile**2
        n = min(binary / error**2, rows) if error > 0 and binary > 0 else float(rows)
        centre = (share + q2 / (2 * n)) / (1 + q2 / n)
        half = math.sqrt(q2 * binary / n + q2**2 / (4 * n**2)) / (1 + q2 / n)
        # Rounding may exclude a share of exactly 0 or 1.
        low, high = min(centre - half, share), max(centre + half, share)
        return cls(
            share=share,
            low=max(low + min(missing, 0.0), 0.0),
            high=min(high + max(missing, 0.0), 1.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairShare:
    """How decisions about members of one group would change as members of another.

    Attributes:
        source: Group of the rows.
        target: Group to which they are transported.
        rows: Number of rows of the source.
        target_rows: Number of rows of the target.
        changed: Share of decisions that would change.
        gained: Share that would change from unfavourable to favourable.
        lost: Share that would change from favourable to unfavourable.
        of_unfavourable: Share of the unfavourable decisions that would change; None if there are
            few of them.
        of_favourable: Share of the favourable decisions that would change; None if there are few.
        rate: Rate of the favourable decision in the source.
        target_rate: Rate of the favourable decision in the target.
        net_margin: Half of the width of the 95% interval of gained − lost, without the miss.
        miss_margin: Half of the width of the interval of the miss, at 95% for all pairs together.
    """

    source: str
    target: str
    rows: int
    target_rows: int
    changed: ShareInterval
    gained: ShareInterval
    lost: ShareInterval
    of_unfavourable: ShareInterval | None
    of_favourable: ShareInterval | None
    rate: float
    target_rate: float
    net_margin: float
    miss_margin: float

    @property
    def enough_rows(self) -> bool:
        """Whether both groups have enough rows for a statement about the pair."""
        return min(self.rows, self.target_rows) >= _LEAST_ROWS

    @property
    def net(self) -> float:
        """Share that would change to favourable minus share that would change from it."""
        return self.gained.share - self.lost.share

    @property
    def transported_rate(self) -> float:
        """Rate of the favourable decision of transported rows."""
        return self.rate + self.gained.share - self.lost.share

    @property
    def miss(self) -> float:
        """Rate of the favourable decision in the target minus that of transported rows."""
        return self.target_rate - self.transported_rate

    @property
    def rate_gap(self) -> tuple[float, float, float]:
        """Rate in the target minus rate in the source, and the ends of its interval over rows.

        One success and one failure more in each group (Agresti and Caffo 2000).
        """
        shrunk = _shrunk(self.target_rate, self.target_rows) - _shrunk(self.rate, self.rows)
        half = stats.norm.isf(0.025) * math.hypot(
            _rate_error(self.target_rate, self.target_rows), _rate_error(self.rate, self.rows)
        )
        low, high = max(float(shrunk - half), -1.0), min(float(shrunk + half), 1.0)
        return self.target_rate - self.rate, low, high

    @property
    def misses(self) -> bool:
        """Whether the miss is larger than noise."""
        return self.enough_rows and abs(self.miss) > self.miss_margin

    @property
    def established(self) -> bool:
        """Whether there are enough rows, and no miss that is both significant and large."""
        large = abs(self.miss) > max(_SMALL_MISS, _RELATIVE_MISS * self.changed.share)
        return self.enough_rows and not (self.misses and large)

    @property
    def unexplained(self) -> bool:
        """Whether the maps do not explain the difference between the two groups."""
        return self.enough_rows and not self.established

    @property
    def balance(self) -> Literal["loses", "gains", "unclear"]:
        """What belonging to the source instead of the target does to its members on balance."""
        if not self.established:
            return "unclear"
        # A right map changes the rate to that of the target.
        low = self.net - self.net_margin + min(self.miss, 0.0)
        high = self.net + self.net_margin + max(self.miss, 0.0)
        return "loses" if low > 0 else "gains" if high < 0 else "unclear"


def row_changes(favoured: _Floats, own: NDArray[np.int64]) -> _Floats:
    """For each row and target group: gained, lost, and the decision in the own group, `[n, k, 3]`.

    Args:
        favoured: Whether the decision is favourable in each group, or how often, `[n, k]`.
        own: Group of each row, `[n]`.
    """
    now = np.broadcast_to(favoured[np.arange(len(own)), own, None], favoured.shape)
    return np.stack([(1 - now) * favoured, now * (1 - favoured), now], axis=2)


def group_means(values: _Floats, own: NDArray[np.int64], groups: int) -> _Floats:
    """Mean of the rows `[n, ...]` of each group, `[k, ...]`; zero for a group without rows."""
    means = np.zeros((groups, *values.shape[1:]))
    for group in np.unique(own):
        means[group] = values[own == group].mean(0)
    return means


def pair_shares(
    names: Sequence[str], sizes: NDArray[np.int64], means: _Floats, halves: _Floats
) -> tuple[PairShare, ...]:
    """Shares of all ordered pairs of groups that have rows.

    Args:
        names: Names of the k groups.
        sizes: Number of rows of each group, `[k]`.
        means: Means of `row_changes` by group, `[k, k, 3]`.
        halves: The same on random halves of the rows, with the maps refitted, `[r, k, k, 3]`.
    """
    pairs = max(len(names) * (len(names) - 1), 1)
    at_95, at_all = stats.t.isf([0.025, 0.025 / pairs], len(halves) - 1).tolist()
    rates = means[..., 2]

    def error(of: _Floats) -> float:
        return float(np.std(of, ddof=1))

    def part(
        flips: float, half_flips: _Floats, base: float, half_base: _Floats, rows: int, miss: float
    ) -> ShareInterval | None:
        """Share of the decisions of one kind that would change."""
        decisions = round(base * rows)
        if decisions < _LEAST_DECISIONS or (half_base == 0).any():
            return None
        share = min(flips / base, 1.0)
        return ShareInterval.of(share, error(half_flips / half_base), decisions, at_95, miss / base)

    def pair(s: int, t: int) -> PairShare:
        gained, lost, rate = means[s, t].tolist()
        target_rate = float(rates[t, s])
        miss = target_rate - (rate + gained - lost)
        half_gained, half_lost, half_rate = halves[:, s, t].T
        half_miss = halves[:, t, s, 2] - half_rate - half_gained + half_lost
        sampling = math.hypot(
            _rate_error(rate + gained - lost, sizes[s]), _rate_error(target_rate, sizes[t])
        )
        size = int(sizes[s])
        return PairShare(
            source=names[s],
            target=names[t],
            rows=size,
            target_rows=int(sizes[t]),
            changed=ShareInterval.of(
                gained + lost,
                error(half_gained + half_lost),
                size,
                at_95,
                miss * float(np.sign(target_rate - rate)),
            ),
            gained=ShareInterval.of(gained, error(half_gained), size, at_95, miss),
            lost=ShareInterval.of(lost, error(half_lost), size, at_95, -miss),
            of_unfavourable=part(gained, half_gained, 1 - rate, 1 - half_rate, size, miss),
            of_favourable=part(lost, half_lost, rate, half_rate, size, -miss),
            rate=rate,
            target_rate=target_rate,
            net_margin=at_95 * error(half_gained - half_lost),
            # A few refits may have a small spread by chance.
            miss_margin=at_all * max(error(half_miss), sampling),
        )

    present = np.flatnonzero(sizes).tolist()
    return tuple(pair(s, t) for s in present for t in present if s != t)


def _rate_error(rate: float, rows: int) -> float:
    """Standard error of a rate with one success and one failure more (Agresti and Caffo 2000)."""
    adjusted = _shrunk(rate, rows)
    return math.sqrt(adjusted * (1 - adjusted) / (rows + 2))


def _shrunk(rate: float, rows: int) -> float:
    """A rate with one success and one failure more."""
    return (rate * rows + 1) / (rows + 2)
