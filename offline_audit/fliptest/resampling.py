"""How large flipsets are by chance, and how far an estimate may be off: refits of the map.

Null: group labels are permuted and the maps fitted again. It says how many decisions would flip if
both groups had the same features: what finite samples make of nothing. It does not say that the
model is fair to those whose features differ.

Intervals: people of both groups are drawn again with replacement and the maps fitted again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.fliptest.flipset import (
    DecidedRows,
    Decides,
    Flipset,
    counterparts_of,
    gross_share,
)
from offline_audit.maps.columns import Columns
from offline_audit.maps.transport_map import MapMethod, SparseMethod, TransportMap

__all__ = [
    "NullSizes",
    "Resampled",
    "ShareEstimate",
    "bootstrap",
    "net_estimate",
    "null_sizes",
    "share_estimate",
    "share_interval",
]

Float = NDArray[np.float64]
# Called after each refit.
Tick = Callable[[], None]

# People of the larger group in a bootstrap sample; the error shrinks with the root of their number.
_MOST = 5_000
# Of a smaller group not fewer than this, or all.
_FEWEST = 1_000
# Counterparts of each person in a refit.
_DRAWS = 2
# Sizes that differ by less are equal: sums in another order.
_NEAR = 1e-12
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEstimate:
    """A share of a group, or a difference of two, with its interval.

    Attributes:
        value: The estimate.
        interval: That covers it with 95% confidence.
    """

    value: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class NullSizes:
    """Flipsets of two groups whose labels were permuted.

    Attributes:
        mean: Mean share of a group that flips.
        bound: Nineteen of twenty stay at or below this.
        n_resamples: How many.
        p_value: Share of permutations with as many flips as found, itself counted.
    """

    mean: float
    bound: float
    n_resamples: int
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampled:
    """Standard errors of one direction's shares, as the maps and the people vary."""

    advantaged: float
    disadvantaged: float
    gross: float
    net: float


def null_sizes(
    first: DecidedRows,
    second: DecidedRows,
    method: MapMethod,
    columns: Columns,
    model: Decides,
    found: tuple[float, float],
    *,
    n_resamples: int,
    seed: int,
    tick: Tick,
) -> tuple[NullSizes, NullSizes]:
    """Permute the labels of two groups; both directions from the same permutations.

    Args:
        first: People of the one group.
        second: People of the other.
        method: Fitted anew each time.
        columns: What the columns are.
        model: DecidedRows about counterparts of those that move.
        found: Gross shares from first to second, and from second to first.
        n_resamples: How many.
        seed: Of the permutations.
        tick: Called after each.
    """
    people = DecidedRows.of(
        np.concatenate([first.features, second.features]),
        np.concatenate([first.decisions, second.decisions]),
    )
    rng = np.random.default_rng(seed)
    labels = np.arange(len(people)) < len(first)
    still = (
        method.identity_check(people.features, columns)
        if isinstance(method, SparseMethod)
        else None
    )
    # The same rule for the groups as they are.
    if still is not None and still(labels):
        found = 0.0, 0.0
    sizes = np.zeros((n_resamples, 2))
    for number in range(n_resamples):
        mask = rng.permutation(labels)
        if still is None or not still(mask):
            parts = people.take(np.flatnonzero(mask)), people.take(np.flatnonzero(~mask))
            for direction, (here, there) in enumerate((parts, parts[::-1])):
                fitted = method.fit(here.features, there.features, columns, seed=seed + number)
                sizes[number, direction] = gross_share(here, fitted, model, _DRAWS)
        tick()
    one, other = (_null(sizes[:, d], found[d]) for d in range(2))
    return one, other


def _null(sizes: Float, found: float) -> NullSizes:
    as_large = int(np.count_nonzero(sizes >= found - _NEAR))
    return NullSizes(
        mean=float(sizes.mean()),
        bound=float(np.quantile(sizes, 0.95, method="inverted_cdf")),
        n_resamples=len(sizes),
        p_value=(1 + as_large) / (1 + len(sizes)),
    )


def bootstrap(
    first: DecidedRows,
    second: DecidedRows,
    fitted: tuple[TransportMap, TransportMap],
    method: MapMethod,
    columns: Columns,
    model: Decides,
    *,
    n_bootstrap: int,
    seed: int,
    tick: Tick,
) -> tuple[Resampled, Resampled]:
    """Standard errors of both directions' shares.

    Of large groups smaller samples are drawn, and their scatter is scaled by the root of the
    ratio of sizes. What moves is held as fitted, where the method chooses it.
    """
    rng = np.random.default_rng(seed)
    groups = first, second
    part = min(1.0, _MOST / max(map(len, groups)))
    sizes = [max(math.ceil(part * len(group)), min(len(group), _FEWEST)) for group in groups]
    shares = np.zeros((2, n_bootstrap, 4))
    for number in range(n_bootstrap):
        drawn = [
            group.take(rng.integers(len(group), size=size))
            for group, size in zip(groups, sizes, strict=True)
        ]
        for direction, (here, there) in enumerate((drawn, drawn[::-1])):
            refitted = _refit(method, fitted[direction], here, there, columns, seed + number)
            flipset, _ = counterparts_of(here, refitted, model, _DRAWS)
            if len(flipset):
                sides = flipset.share("advantaged"), flipset.share("disadvantaged")
                shares[direction, number] = (*sides, sum(sides), sides[0] - sides[1])
        tick()
    # Both groups add to the scatter; a small one is drawn whole, and its part must not shrink.
    scale = math.sqrt(max(size / len(group) for size, group in zip(sizes, groups, strict=True)))
    # Few resamples know the scatter badly.
    sure = float(stats.t.ppf(0.975, n_bootstrap - 1) / stats.norm.ppf(0.975))
    errors = shares.std(1, ddof=1) * scale * sure
    one, other = (
        Resampled(advantaged=e[0], disadvantaged=e[1], gross=e[2], net=e[3])
        for e in errors.tolist()
    )
    return one, other


def _refit(
    method: MapMethod,
    fitted: TransportMap,
    here: DecidedRows,
    there: DecidedRows,
    columns: Columns,
    seed: int,
) -> TransportMap:
    if isinstance(method, SparseMethod):
        return method.refit(fitted, here.features, there.features, columns, seed=seed)
    return method.fit(here.features, there.features, columns, seed=seed)


def share_interval(
    share: float, error: float | None, rows: int, confidence_level: float
) -> tuple[float, float]:
    """Wilson's interval for a share, with as many people as would have this error.

    Args:
        share: The estimate.
        error: Its standard error; None for that of as many independent people as there are.
        rows: People.
        confidence_level: Confidence.
    """
    z = float(stats.norm.ppf((1 + confidence_level) / 2))
    plain = share * (1 - share)
    n = float(rows)
    if error is not None and error > 0 and plain > 0:
        n = min(plain / error**2, 100.0 * rows)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(plain / n + z**2 / (4 * n**2))
    return max(min(middle - half, share), 0.0), min(max(middle + half, share), 1.0)


def share_estimate(value: float, error: float | None, rows: int) -> ShareEstimate:
    """A share of so many people, by its standard error."""
    return ShareEstimate(value=value, interval=share_interval(value, error, rows, _CONFIDENCE))


def net_estimate(flipset: Flipset, errors: Resampled | None) -> ShareEstimate:
    """Advantaged less disadvantaged, by its standard error."""
    gross, net = flipset.gross, flipset.net
    plain = math.sqrt(max(gross - net**2, 0.0) / len(flipset))
    reach = float(stats.norm.ppf((1 + _CONFIDENCE) / 2)) * (plain if errors is None else errors.net)
    return ShareEstimate(value=net, interval=(max(net - reach, -1.0), min(net + reach, 1.0)))
