"""Estimate of the flip share whose interval covers the data and the fit of the transport maps.

    point      2 × 5-fold cross-fitting: maps fitted on four fifths of the rows, flips of the rest
    spread     maps refitted on random halves of the rows (delete-half jackknife)
    map error  rate of decisions after transport, compared with the rate of the target group
    orders     shares in the causal orders that the data do not tell apart

Groups are known at fit time, so each row is transported from its own group and the status model,
which only replaces unknown groups, is not involved. The shares of ordered pairs of groups come
from the same fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from monitor.bundle.manifest import ProtectedAttribute
from monitor.fitting.pairs import (
    PairShare,
    ShareInterval,
    group_means,
    pair_shares,
    row_changes,
)
from monitor.scoring.counterfactual.draws import row_uniforms

if TYPE_CHECKING:
    from monitor.scoring.sensitivity import Sensitivity

__all__ = ["LOW", "MODERATE", "FlipShareInterval", "flip_share_interval"]

# Flip shares up to which a level is called low and moderate.
LOW, MODERATE = 0.01, 0.05

# Fits the transport maps of one attribute to some rows, given by their indices `[m]`.
Refit = Callable[[NDArray[np.int64]], "Sensitivity"]
# Called with the completed and the total number of refits.
Progress = Callable[[int, int], None]

_FOLDS, _REPEATS = 5, 2
# More rows would make the interval narrower than errors that it does not cover.
_MOST_ROWS = 40_000
# Rows of a rare group that are kept if rows are left out.
_LEAST_MEMBERS = 50
# Rounding error of a logit between batches, relative to the standard deviation of the logits.
_ROUNDING = 1e-4

_Floats = NDArray[np.float64]
_Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipShareInterval:
    """Estimated share of decisions that would flip, with its 95% interval over data and fit.

    Attributes:
        share: Estimate.
        low: Lower end of the interval.
        high: Upper end.
        standard_error: Standard error of the estimate, over data and fit.
        map_error: Share of flips that the maps seem to miss, by the rates of decisions after
            transport; negative if the maps seem to cause too many. It extends one end.
        rows: Number of rows with a known group that were used.
        refits: Number of refits on random halves.
        lowest_order: Smallest share in any causal order that the data do not tell apart. The low
            end is as far below it as it would be below the estimate if that were the only order.
        highest_order: Largest such share, and likewise for the high end.
        pairs: Shares for every ordered pair of groups.
    """

    share: float
    low: float
    high: float
    standard_error: float
    map_error: float
    rows: int
    refits: int
    lowest_order: float
    highest_order: float
    pairs: tuple[PairShare, ...]

    @property
    def identified(self) -> bool:
        """Whether all causal orders that the data do not tell apart have the same level."""
        levels = [(share > LOW) + (share > MODERATE) for share in self._by_order]
        return levels[0] == levels[1]

    @property
    def enough_rows(self) -> bool:
        """Whether the interval, without the orders, distinguishes a low level from a high one."""
        low, high = self._by_order
        return self.low + self.share - low > LOW or self.high + self.share - high <= MODERATE

    @property
    def _by_order(self) -> tuple[float, float]:
        return self.lowest_order, self.highest_order

    @property
    def rows_needed(self) -> int:
        """Number of rows with which it would, rounded up; widths shrink with √rows."""
        if self.enough_rows:
            return self.rows
        down, up = self.lowest_order - self.low, self.high - self.highest_order
        factors = []
        if self.share > LOW:
            factors.append(down / (self.share - LOW))
        if self.share < MODERATE:
            factors.append(up / (MODERATE - self.share))
        needed = self.rows * min(factors) ** 2
        unit: int = 10 ** max(int(math.log10(needed)) - 1, 0)
        return math.ceil(needed / unit) * unit


def flip_share_interval(
    refit: Refit,
    features: NDArray[np.float32],
    groups: NDArray[np.int8],
    attribute: ProtectedAttribute,
    *,
    n_refits: int,
    seed: int,
    progress: Progress | None = None,
) -> FlipShareInterval:
    """Estimate the flip share of one attribute, with an interval that includes the fit.

    With ψ_e and ψ_f the influence of a row on the evaluation and on the maps, the cross-fitted
    share is θ + mean(ψ_e + ψ_f). For a random half A of the rows, the mean over A of the
    cross-fitted flips, plus the change of the share by maps fitted on A, deviates from it by
    mean_A(ψ_e + ψ_f) − mean(ψ_e + ψ_f). The variance of that over halves is the variance of the
    share (Shao and Wu 1989, delete-d jackknife with d = n/2, factor 1). Sampling without
    replacement keeps the tests of which features move valid; a bootstrap sample has ties.

    If transported rows of a group do not get the decisions of the target group at its rate, that
    share of their decisions is wrong. The interval is extended by it, on the side of the error.
    It is also extended to the shares in all causal orders that the data do not tell apart.

    Args:
        refit: Fits the maps to rows, given by their indices.
        features: Rows, `[n, d]`.
        groups: Group of each row, `[n]`; rows with a negative one are ignored.
        attribute: Protected attribute.
        n_refits: Number of refits on random halves, at least 2.
        seed: Seed of the random generator.
        progress: Called after every refit.
    """
    if n_refits < 2:
        raise ValueError(f"n_refits is {n_refits}; at least 2 are required")
    rng = np.random.default_rng([seed, len(features)])
    rows = _sample(groups, rng)
    x, own = torch.from_numpy(features[rows]), groups[rows].astype(np.int64)
    total, done = _REPEATS * _FOLDS + n_refits, 0

    def evaluate(learn: _Rows, held_out: _Rows) -> tuple[_Floats, _Floats, _Floats]:
        nonlocal done
        sensitivity = refit(rows[np.sort(learn)])
        result = _flips(sensitivity, attribute.name, x[held_out], own[held_out])
        done += 1
        if progress is not None:
            progress(done, total)
        return result

    flips = np.zeros(len(rows))
    count = len(attribute.groups)
    decisions = np.zeros((len(rows), count))
    # Refits may differ in their orders, so that only the extremes of each can be averaged.
    extremes = np.zeros(2)
    for learn, held_out in _folds(own, rng):
        own_flips, own_decisions, by_order = evaluate(learn, held_out)
        gaps = np.array([by_order.min(), by_order.max()]) - own_flips.mean()
        extremes += gaps * len(held_out) / len(rows) / _REPEATS
        flips[held_out] += own_flips / _REPEATS
        decisions[held_out] += own_decisions / _REPEATS
    changes = row_changes(decisions, own)
    deviations, halves = [], []
    for _ in range(n_refits):
        half = _parts(own, rng, 2) == 0
        learn, held_out = np.flatnonzero(half), np.flatnonzero(~half)
        other_flips, other_decisions, _ = evaluate(learn, held_out)
        deviations.append(flips[learn].mean() + (other_flips - flips[held_out]).mean())
        other = row_changes(other_decisions, own[held_out]) - changes[held_out]
        halves.append(
            group_means(changes[learn], own[learn], count)
            + group_means(other, own[held_out], count)
        )
    error = math.sqrt(np.var(deviations, ddof=1) + _between_groups(flips, own))
    map_error = _map_error(decisions, own)
    quantile = float(stats.t.ppf(0.975, n_refits - 1))
    whole = ShareInterval.of(float(flips.mean()), error, len(rows), quantile, map_error)
    return FlipShareInterval(
        share=whole.share,
        low=max(whole.low + extremes[0], 0.0),
        high=min(whole.high + extremes[1], 1.0),
        standard_error=error,
        map_error=map_error,
        rows=len(rows),
        refits=n_refits,
        lowest_order=max(whole.share + float(extremes[0]), 0.0),
        highest_order=min(whole.share + float(extremes[1]), 1.0),
        pairs=pair_shares(
            attribute.groups,
            np.bincount(own, minlength=count),
            group_means(changes, own, count),
            np.stack(halves),
        ),
    )


def _sample(groups: NDArray[np.int8], rng: np.random.Generator) -> _Rows:
    """Rows with a known group, at most `_MOST_ROWS` and a few of rare groups, in random order."""
    known = rng.permutation(np.flatnonzero(groups >= 0))
    if len(known) <= _MOST_ROWS:
        return known
    rest = known[_MOST_ROWS:]
    kept = [known[:_MOST_ROWS]]
    for group, count in enumerate(np.bincount(groups[kept[0]], minlength=groups.max() + 1)):
        kept.append(rest[groups[rest] == group][: max(_LEAST_MEMBERS - count, 0)])
    return np.concatenate(kept)


def _parts(own: _Rows, rng: np.random.Generator, parts: int) -> _Rows:
    """A random part of each row, 0 to parts − 1, of equal sizes within each group, `[n]`."""
    part = np.empty(len(own), np.int64)
    for group in np.unique(own):
        members = rng.permutation(np.flatnonzero(own == group))
        part[members] = (np.arange(len(members)) + rng.integers(parts)) % parts
    return part


def _folds(own: _Rows, rng: np.random.Generator) -> Iterator[tuple[_Rows, _Rows]]:
    """Training and held-out rows of every fold of every repetition."""
    for _ in range(_REPEATS):
        fold = _parts(own, rng, _FOLDS)
        for number in range(_FOLDS):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def _flips(
    sensitivity: Sensitivity, attribute: str, features: torch.Tensor, own: _Rows
) -> tuple[_Floats, _Floats, _Floats]:
    """Flips of decisions `[n]`, favourable ones by group `[n, k]`, flip share by order `[o]`.

    The first two are shares of causal orders.
    """
    maps, favourable = sensitivity.maps[attribute], sensitivity.spec.decision.favourable
    flips, favoured = np.zeros(len(own)), np.zeros((len(own), maps.groups))
    with torch.no_grad():
        before = sensitivity.shifted(sensitivity.logit(features.clone()))
    decided = (before >= 0).numpy()
    by_order = np.zeros(maps.orders)
    for order in range(maps.orders):
        decisions = np.repeat(decided[:, None], maps.groups, axis=1)
        for source in np.unique(own):
            members = np.flatnonzero(own == source)
            rows = features[members]
            uniforms = row_uniforms(rows, maps.n_uniforms)
            for target in range(maps.groups):
                if target == source:
                    continue
                moved = maps.apply(rows, int(source), target, uniforms, order)
                with torch.no_grad():
                    after = sensitivity.shifted(sensitivity.logit(moved))
                change = (after - before[members]).abs()
                real = (change > _ROUNDING * sensitivity.logit_spread).numpy()
                decisions[members, target] ^= ((after >= 0).numpy() != decided[members]) & real
        changed = (decisions != decided[:, None]).any(1)
        by_order[order] = changed.mean()
        flips += changed / maps.orders
        favoured += (decisions == bool(favourable)) / maps.orders
    return flips, favoured, by_order


def _between_groups(flips: _Floats, own: _Rows) -> float:
    """Variance of the share by random sizes of the groups, which halves of every group lack."""
    means = np.bincount(own, flips) / np.maximum(np.bincount(own), 1)
    return float(means[own].var() / len(own))


def _map_error(decisions: _Floats, own: _Rows) -> float:
    """Mean over rows and other groups of the missing change of the rate of decisions.

    For source s and target t it is (rate_t − rate_{s→t}) · sign(rate_t − rate_s).
    """
    present = np.unique(own)
    rates = {group: decisions[own == group, group].mean() for group in present}
    total = 0.0
    for source in present:
        after = decisions[own == source].mean(0)
        missing = [
            (rates[target] - after[target]) * np.sign(rates[target] - rates[source])
            for target in present
            if target != source
        ]
        total += (own == source).mean() * float(np.mean(missing))
    return total
