"""Smallest detectable effects of the permutation tests."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from offline_audit.permutation.permutations import PermutationOptions
from offline_audit.power import (
    POWER,
    Detectable,
    detectable_rates,
    normal_detectable_rates,
    possible,
)

__all__ = [
    "POWER_QUANTILE",
    "detectable_auc",
    "detectable_rate",
    "detectable_shift",
    "detectable_shifts",
    "tested_directions",
]

Float = NDArray[np.float64]

# Smallest expected count above which the normal approximation replaces the enumeration.
_NORMAL_COUNT = 1_000
# Standard deviations of the hypergeometric count that are enumerated.
_DEVIATIONS = 6
_TIE_TOLERANCE = 1e-9
# Step of a numerical derivative, and steps in which an effect converges.
_STEP, _ITERATIONS = 1e-4, 12
# Normal quantile of a power of 80%.
POWER_QUANTILE = float(ndtri(POWER))


def detectable_rate(
    n: int, m: int, rate: float, smallest: float, options: PermutationOptions
) -> Detectable:
    """The smallest detectable effects of the enumerated test of rates.

    Args:
        n: Counted rows of the first group, whose rate differs.
        m: Counted rows of the other group, which has `rate`.
        rate: Pooled rate.
        smallest: Smallest expected count with which the test runs.
        options: Significance level, alternative, and whether the difference is studentized.
    """
    if not 0 < rate < 1:
        return None, None
    if min(n, m) * min(rate, 1 - rate) > _NORMAL_COUNT:
        shift = detectable_shift(0.0, options)
        effects = normal_detectable_rates(n, m, rate, (shift, shift))
    else:
        effects = detectable_rates(
            n, m, rate, lambda totals: _critical_counts(totals, n, m, options), smallest=smallest
        )
    return tested_directions(effects, options)


def detectable_shifts(
    error: float, skewness: float, options: PermutationOptions, freedom: float = math.inf
) -> Detectable:
    """The smallest detectable shifts of an estimate with a skewed standard error; approximate.

    Args:
        error: Standard error of the difference.
        skewness: Skewness of the difference, which is half corrected by the test; see
            `studentized_statistic`.
        options: Significance level and alternative.
        freedom: Degrees of freedom of the standard error.
    """
    down, up = (sign * detectable_shift(sign * skewness, options, freedom) for sign in (-1, 1))
    return tested_directions((error * down, error * up), options)


def tested_directions(effects: Detectable, options: PermutationOptions) -> Detectable:
    """The effects in the directions that the alternative tests."""
    down, up = effects
    return (
        None if options.alternative == "greater" else down,
        None if options.alternative == "less" else up,
    )


def detectable_shift(
    skewness: float, options: PermutationOptions, freedom: float = math.inf
) -> float:
    """Smallest detectable shift upwards, in standard errors.

    Let D be the difference in standard errors, with mean δ and skewness γ, and S its estimated
    standard error. T = D/S, and γ is also the covariance of D and S², so S ≈ 1 + γ (D − δ) / 2.
    Half of Hall's correction adds a = γ (2T² + 1) / 12 to T and leaves −a of its skewness, which
    also moves the quantiles of the permuted statistics: T must reach c = t (1 + a²/2) − a, or
    c = t − 2a in a one-sided test. D − δ exceeds −z − γ (1 − z²) / 6 in 80% of samples (Cornish and
    Fisher), so that T ≥ c in 80% of samples if δ = c + (1 − cγ/2) (z + γ (1 − z²) / 6).
    """
    two_sided = options.alternative == "two-sided"
    tail = options.alpha / 2 if two_sided else options.alpha
    t = -float(ndtri(tail) if math.isinf(freedom) else stdtrit(freedom, tail))
    z, a = POWER_QUANTILE, skewness * (2 * t**2 + 1) / 12
    c = t * (1 + a**2 / 2) - a if two_sided else t - 2 * a
    return c + max(1 - c * skewness / 2, 0.0) * (z + skewness * (1 - z**2) / 6)


def detectable_auc(
    auc: float,
    variances: tuple[float, float],
    third: float,
    freedom: float,
    options: PermutationOptions,
) -> Detectable:
    """The smallest detectable differences from an AUC; approximate.

    With an AUC A of the first group, its variance V is taken as proportional to that of
    exponential scores, A/(2 − A) + 2A²/(1 + A) − 2A² (Hanley and McNeil, Radiology 143, 1982), and
    its third cumulant changes as V V', as that of a rate does.

    Args:
        auc: AUC of the other group.
        variances: Variances of both groups' AUCs.
        third: Third cumulant of the difference.
        freedom: Degrees of freedom of its standard error.
        options: Significance level and alternative.
    """
    scale = variances[0] / _auc_variance(auc)

    def cumulant(a: float) -> float:
        slope = (_auc_variance(a + _STEP) - _auc_variance(a - _STEP)) / (2 * _STEP)
        return scale**2 * _auc_variance(a) * slope

    effects: list[float] = []
    for sign in (-1, 1):
        effect = 0.0
        for _ in range(_ITERATIONS):
            moved = min(max(auc + effect, _STEP), 1 - _STEP)
            variance = scale * _auc_variance(moved) + variances[1]
            skewness = (third + cumulant(moved) - cumulant(auc)) / variance**1.5
            shift = detectable_shift(sign * skewness, options, freedom)
            effect = sign * math.sqrt(variance) * shift
        effects.append(effect)
    return tested_directions(possible((effects[0], effects[1]), auc, 0.0, 1.0), options)


def _auc_variance(auc: float) -> float:
    return auc / (2 - auc) + 2 * auc**2 / (1 + auc) - 2 * auc**2


def _critical_counts(
    totals: Float, n: int, m: int, options: PermutationOptions
) -> tuple[Float, Float]:
    """Counts of the first group at which the p-value is alpha, `[k]` each; see `Critical`."""
    x, chance = _hypergeometric(totals, n, m)
    y = totals[:, None] - x
    if options.studentized:
        p, q = (x + 1) / (n + 2), (y + 1) / (m + 2)
        t = (p - q) / np.sqrt(p * (1 - p) / (n + 2) + q * (1 - q) / (m + 2))
    else:
        t = x / n - y / m
    below = np.cumsum(chance, axis=1) - chance / 2
    if options.alternative == "two-sided":
        p_values = _two_sided(t, chance)
        falls, rises = np.where(t < 0, p_values, 1.0), np.where(t > 0, p_values, 1.0)
    else:
        falls, rises = below, 1 - below
    width = (chance > 0).sum(axis=1)
    last = x[:, 0] + width - 1
    rises = np.take_along_axis(rises, np.maximum(width[:, None] - 1 - np.arange(x.shape[1]), 0), 1)
    return (
        x[:, 0] + _critical_index(falls, options.alpha),
        last - _critical_index(rises, options.alpha),
    )


def _critical_index(p_values: Float, alpha: float) -> Float:
    """Where rows of p-values, which first increase, reach alpha, `[k]`.

    Interpolated on the logarithmic scale, and extrapolated below 0 if the first value is above.
    """
    index = np.maximum(np.argmax(p_values > alpha, axis=1) - 1, 0)[:, None]
    at, after = (
        np.log(np.maximum(np.take_along_axis(p_values, index + step, 1)[:, 0], 1e-300) / alpha)
        for step in (0, 1)
    )
    return np.asarray(index[:, 0] - at / np.maximum(after - at, 1e-9), dtype=np.float64)


def _two_sided(t: Float, chance: Float) -> Float:
    """Probability of a larger |T| in the same row plus half that of its ties, `[k, width]`."""
    size = np.where(chance > 0, np.abs(t), -1.0)
    order = np.argsort(-size, axis=1, kind="stable")
    size, chance = (np.take_along_axis(values, order, 1) for values in (size, chance))
    p_values = np.cumsum(chance, axis=1) - chance / 2
    # At most two counts, one on each side, have the same |T|.
    tied = np.abs(np.diff(size, axis=1)) <= _TIE_TOLERANCE * (1 + size[:, 1:])
    p_values[:, :-1] += np.where(tied, chance[:, 1:] / 2, 0.0)
    p_values[:, 1:] -= np.where(tied, chance[:, :-1] / 2, 0.0)
    unsorted = np.empty_like(p_values)
    np.put_along_axis(unsorted, order, p_values, 1)
    return unsorted


def _hypergeometric(totals: Float, n: int, m: int) -> tuple[Float, Float]:
    """Counts of the first group given the totals, and their probabilities, `[k, width]` each.

    A row with fewer relevant counts than the widest ends with probabilities of 0.
    """
    share = n / (n + m)
    spread = np.sqrt(totals * share * (1 - share) * (n + m - totals) / (n + m - 1)) + 1
    low = np.maximum(np.maximum(0, totals - m), np.floor(totals * share - _DEVIATIONS * spread))
    high = np.minimum(np.minimum(n, totals), np.ceil(totals * share + _DEVIATIONS * spread))
    x = low[:, None] + np.arange(max(int((high - low).max()) + 1, 2))
    total, high, inside = totals[:, None], high[:, None], x < high[:, None]
    # Ratios of neighbouring probabilities, as in `hypergeometric_probabilities`.
    ratio = np.where(inside, (total - x) * (n - x) / ((x + 1) * (m - total + x + 1)), 1.0)
    logs = np.zeros_like(x)
    np.cumsum(np.log(ratio[:, :-1]), axis=1, out=logs[:, 1:])
    logs[x > high] = -np.inf
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.minimum(x, high), weights / weights.sum(axis=1, keepdims=True)
