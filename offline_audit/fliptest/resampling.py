"""Null distribution, p-value and standard errors of flip shares, by refitting the maps.

Null distribution: group labels are permuted and the maps are fitted again. It gives the share of
decisions that flip through sampling noise if features have the same distribution in both groups.
It does not show whether the model treats people with different features fairly. The p-value of
FlipTest compares the observed share with it: (b + 1) / (B + 1), where b of B permutations flip at
least as many decisions.

Standard errors: rows of both groups are drawn with replacement and the maps are fitted again.

If rows belong to units, such as people with several rows, units are permuted and drawn as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.fliptest.flipset import (
    DecidedRows,
    DecisionModel,
    Flipset,
    Side,
    counterparts_of,
    gross_share,
)
from offline_audit.intervals import Interval, wilson
from offline_audit.maps.columns import Columns
from offline_audit.maps.quantile import FAMILY_LEVEL
from offline_audit.maps.transport_map import MapMethod, SparseMethod, TransportMap
from offline_audit.maps.validated_map import halves
from offline_audit.power import Detectable, possible
from offline_audit.rendering import percent
from offline_audit.units import UnitRows, effective_rows

__all__ = [
    "NullSizes",
    "ShareEstimate",
    "StandardErrors",
    "bootstrap",
    "detectable_shares",
    "net_estimate",
    "null_and_p_value",
    "rate_mismatch",
    "share_estimate",
    "share_interval",
    "unseen_share",
]

Float = NDArray[np.float64]
# Called after each refit.
Tick = Callable[[], None]

# Largest number of rows of the larger group in a bootstrap sample.
_MAX_ROWS = 5_000
# The smaller group keeps at least this many rows, or all.
_MIN_ROWS = 1_000
# Counterparts of each row in a refit.
_COUNTERPARTS = 2
# Shares that differ by less are equal: sums may be taken in another order.
_TOLERANCE = 1e-12
_CONFIDENCE_LEVEL = 0.95
# Largest difference of the transported rows' rate from the target's, beyond noise.
_MAX_RATE_DIFFERENCE = 0.05
# Sides whose share of the group's decisions of one kind is estimated: favourable, unfavourable.
_OF_DECISIONS: tuple[Side, Side] = ("advantaged", "disadvantaged")
# Normal quantile of a power of 80%.
_POWER_QUANTILE = 0.842


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEstimate:
    """A share of a group, or a difference of two shares, with its confidence interval.

    Attributes:
        value: Estimate.
        interval: 95% confidence interval.
    """

    value: float
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class NullSizes:
    """Null distribution of the gross share, from permuted group labels.

    Attributes:
        mean: Mean gross share over permutations.
        bound: 95% quantile of the gross share.
        n_resamples: Number of permutations.
        p_value: Share of permutations with a gross share at least as large as observed; the
            observed labels count as one of them.
    """

    mean: float
    bound: float
    n_resamples: int
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardErrors:
    """Standard errors of one direction's shares, from refits on bootstrap samples.

    The last two are of the shares of favourable and of unfavourable decisions that change.
    """

    advantaged: float
    disadvantaged: float
    gross: float
    net: float
    of_favourable: float
    of_unfavourable: float


def null_and_p_value(
    first: DecidedRows,
    second: DecidedRows,
    method: MapMethod,
    columns: Columns,
    model: DecisionModel,
    observed: tuple[float, float],
    *,
    n_resamples: int,
    seed: int,
    tick: Tick,
) -> tuple[NullSizes, NullSizes]:
    """Permute the labels of two groups; both directions use the same permutations.

    Args:
        first: Rows of the first group.
        second: Rows of the second group.
        method: Map method; fitted again for each permutation.
        columns: Description of the columns.
        model: Model that decides on counterparts.
        observed: Gross shares from first to second, and from second to first.
        n_resamples: Number of permutations.
        seed: Seed of the random generator.
        tick: Called after each permutation.
    """
    rows = DecidedRows.of(
        np.concatenate([first.features, second.features]),
        np.concatenate([first.decisions, second.decisions]),
        grid=first.grid,
    )
    rng = np.random.default_rng(seed)
    labels, unit_of = _labels_by_unit(first, second)
    # Sparse methods know without a fit when the map is the identity, so that nothing flips.
    is_identity = (
        method.identity_check(rows.map_features, columns)
        if isinstance(method, SparseMethod)
        else None
    )
    # The observed labels are treated as every permutation is.
    if is_identity is not None and is_identity(labels[unit_of]):
        observed = 0.0, 0.0
    shares = np.zeros((n_resamples, 2))
    for number in range(n_resamples):
        permuted = rng.permutation(labels)[unit_of]
        if is_identity is None or not is_identity(permuted):
            groups = rows.take(np.flatnonzero(permuted)), rows.take(np.flatnonzero(~permuted))
            for direction, (source, target) in enumerate((groups, groups[::-1])):
                fitted = _fit(method, source, target, columns, seed + number)
                shares[number, direction] = gross_share(source, fitted, model, _COUNTERPARTS)
        tick()
    return _with_p_value(shares[:, 0], observed[0]), _with_p_value(shares[:, 1], observed[1])


def _labels_by_unit(
    first: DecidedRows, second: DecidedRows
) -> tuple[NDArray[np.bool_], NDArray[np.intp] | slice]:
    """Whether each unit is in the first group, `[u]`, and the unit of each row, `[n]`."""
    in_first = np.arange(len(first) + len(second)) < len(first)
    if first.units is None or second.units is None:
        return in_first, slice(None)
    both = np.concatenate([first.units, second.units])
    _, row, unit_of = np.unique(both, return_index=True, return_inverse=True)
    return in_first[row], unit_of


def _with_p_value(shares: Float, observed: float) -> NullSizes:
    as_large = int(np.count_nonzero(shares >= observed - _TOLERANCE))
    return NullSizes(
        mean=float(shares.mean()),
        bound=float(np.quantile(shares, 0.95, method="inverted_cdf")),
        n_resamples=len(shares),
        p_value=(1 + as_large) / (1 + len(shares)),
    )


def bootstrap(
    first: DecidedRows,
    second: DecidedRows,
    fitted: tuple[TransportMap, TransportMap],
    method: MapMethod,
    columns: Columns,
    model: DecisionModel,
    *,
    n_bootstrap: int,
    seed: int,
    tick: Tick,
) -> tuple[StandardErrors, StandardErrors]:
    """Standard errors of both directions' shares.

    Large groups are drawn in smaller samples, of whole units, and the standard deviation is scaled
    by the root of the ratio of sizes. A sparse method keeps the selection of columns of the fitted
    map.

    Args:
        first: Rows of the first group.
        second: Rows of the second group.
        fitted: Maps from first to second, and from second to first.
        method: Map method; fitted again for each resample.
        columns: Description of the columns.
        model: Model that decides on counterparts.
        n_bootstrap: Number of resamples, at least 2.
        seed: Seed of the random generator.
        tick: Called after each resample.
    """
    rng = np.random.default_rng(seed)
    groups = first, second
    fraction = min(1.0, _MAX_ROWS / max(map(len, groups)))
    sizes = [max(math.ceil(fraction * len(group)), min(len(group), _MIN_ROWS)) for group in groups]
    shares = np.zeros((2, n_bootstrap, len(fields(StandardErrors))))
    units = [None if group.units is None else UnitRows.of(group.units) for group in groups]
    for number in range(n_bootstrap):
        resample = [
            group.take(_drawn(group, unit_rows, size, rng))
            for group, unit_rows, size in zip(groups, units, sizes, strict=True)
        ]
        for direction, (source, target) in enumerate((resample, resample[::-1])):
            refitted = _refit(method, fitted[direction], source, target, columns, seed + number)
            flipset, _ = counterparts_of(source, refitted, model, _COUNTERPARTS)
            if len(flipset):
                sides = flipset.share("advantaged"), flipset.share("disadvantaged")
                parts = [flipset.share_of_decisions(side) for side in _OF_DECISIONS]
                shares[direction, number] = (*sides, sum(sides), sides[0] - sides[1], *parts)
        tick()
    # Both groups contribute variance. A group that was drawn in full must not be scaled down, so
    # the larger of the two ratios applies to both.
    scale = math.sqrt(max(size / len(group) for size, group in zip(sizes, groups, strict=True)))
    # Student's t instead of the normal: few resamples estimate the standard deviation poorly.
    t_ratio = float(stats.t.ppf(0.975, n_bootstrap - 1) / stats.norm.ppf(0.975))
    errors = shares.std(1, ddof=1) * scale * t_ratio
    names = [field.name for field in fields(StandardErrors)]
    forward, backward = (
        StandardErrors(**dict(zip(names, values, strict=True))) for values in errors.tolist()
    )
    return forward, backward


def _drawn(
    group: DecidedRows, units: UnitRows | None, size: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Indices of about `size` rows, drawn with replacement by unit."""
    if units is None:
        return rng.integers(len(group), size=size)
    return units.rows(rng.integers(len(units), size=math.ceil(size / len(group) * len(units))))


def _refit(
    method: MapMethod,
    fitted: TransportMap,
    source: DecidedRows,
    target: DecidedRows,
    columns: Columns,
    seed: int,
) -> TransportMap:
    if isinstance(method, SparseMethod):
        return method.refit(fitted, source.map_features, target.map_features, columns, seed=seed)
    return _fit(method, source, target, columns, seed)


def _fit(
    method: MapMethod, source: DecidedRows, target: DecidedRows, columns: Columns, seed: int
) -> TransportMap:
    """A map fitted as the observed one is: to a half of each group, unless the method is quick."""
    if not method.quick:
        source, target = (r.take(halves(len(r), r.units, seed)[0]) for r in (source, target))
    return method.fit(source.map_features, target.map_features, columns, seed=seed)


def share_interval(
    share: float, error: float | None, rows: float, confidence_level: float
) -> Interval:
    """Wilson's interval of a share, with the effective number of rows that has this error.

    Args:
        share: Estimate.
        error: Its standard error; None for that of independent rows.
        rows: Number of rows, or the effective number if they belong to units.
        confidence_level: Confidence level.
    """
    variance = share * (1 - share)
    n = float(rows)
    if error is not None and error > 0 and variance > 0:
        # An error near zero must not make the interval a point.
        n = min(variance / error**2, 100.0 * rows)
    low, high = wilson(share, n, confidence_level)
    return min(low, share), max(high, share)


def share_estimate(value: float, error: float | None, rows: float) -> ShareEstimate:
    """Share with its interval; see `share_interval`."""
    interval = share_interval(value, error, rows, _CONFIDENCE_LEVEL)
    return ShareEstimate(value=value, interval=interval)


def net_estimate(flipset: Flipset, errors: StandardErrors | None) -> ShareEstimate:
    """Advantaged minus disadvantaged share with its normal interval."""
    gross, net = flipset.gross, flipset.net
    # Variance of a variable that is 1, 0 or -1: E[X²] - E[X]².
    variance = max(gross - net**2, 0.0) / effective_rows(flipset.units, len(flipset))
    error = math.sqrt(variance) if errors is None else errors.net
    half = float(stats.norm.ppf((1 + _CONFIDENCE_LEVEL) / 2)) * error
    return ShareEstimate(value=net, interval=(max(net - half, -1.0), min(net + half, 1.0)))


def rate_mismatch(flipset: Flipset, target: DecidedRows) -> str | None:
    """Reason to reject the map: transported rows do not have the target group's rate.

    A map onto the target's distribution gives transported rows the target's favourable rate. This
    check detects differences that add up over many features, each too small for the map to move.
    """
    transported = float(flipset.counterpart_decisions.mean())
    rate = float(target.decisions.mean())
    pooled = (transported + rate) / 2
    sizes = effective_rows(flipset.units, len(flipset)), target.effective
    noise = math.sqrt(pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[1]))
    if abs(transported - rate) <= _MAX_RATE_DIFFERENCE + 3 * noise:
        return None
    return (
        f"the map fails validation: {percent(transported)} of the transported rows get the "
        f"favourable decision, but {percent(rate)} of the target group."
    )


def detectable_shares(
    flipset: Flipset,
    sizes: tuple[float, ...],
    variables: int,
    method: MapMethod,
    errors: StandardErrors | None,
    null: NullSizes,
) -> Detectable | None:
    """The net shares downwards and upwards whose flips are detected with at least 80% power.

    A net share implies a gross share that is at least as large. For a sparse map this is the
    largest share that can flip through one undetected variable; for any other map the gross share
    that exceeds the bound of the null distribution in 80% of samples.

    Args:
        flipset: Flips of the source.
        sizes: Effective numbers of rows of both groups.
        variables: Number of variables.
        method: Map method.
        errors: Standard errors of the shares; None without refits.
        null: Null distribution.
    """
    if isinstance(method, SparseMethod):
        first, second = sizes
        share = unseen_share(first, second, variables)
    elif errors is None:
        return None
    else:
        share = null.bound + _POWER_QUANTILE * errors.gross
    # Only favourable decisions can be lost, and only unfavourable ones gained.
    unfavourable = 1 - float(flipset.decisions.mean())
    return possible((-share, share), unfavourable, 0.0, 1.0)


def unseen_share(first: float, second: float, variables: int) -> float:
    """Largest share that may flip through a variable whose difference the map does not detect.

    The largest Kolmogorov-Smirnov distance that a test at the level of one variable misses with
    a probability above 20%, for groups of these sizes.

    Args:
        first: Number of rows of the first group, or the effective number if they belong to units.
        second: The same of the second group.
        variables: Number of variables that share the family-wise level.
    """
    harmonic = round(first * second / (first + second))
    critical = float(stats.kstwo.isf(FAMILY_LEVEL / variables, harmonic))
    # 0.5 is the largest standard deviation of an indicator.
    noise = 0.5 * math.sqrt(1 / first + 1 / second)
    return min(critical + _POWER_QUANTILE * noise, 1.0)
