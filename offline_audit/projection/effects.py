"""Gaps between pairs of groups with intervals, and the smallest detectable gap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from offline_audit.intervals import combined, wilson
from offline_audit.projection.cells import Stratum
from offline_audit.projection.gaps import Gaps, square_root
from offline_audit.projection.sample import Sample

__all__ = ["Effect", "pair_effects", "smallest_detectable_effect"]

_POWER = 0.8
_SIMULATIONS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """How much more often one group has decision 1 than another.

    Attributes:
        attribute: Protected attribute.
        groups: The two groups; the gap is the first's rate minus the second's.
        label: Label within which they are compared; None for all rows.
        gap: Difference of the rates.
        interval: Confidence interval of the gap.
        smallest_detectable_effect: Gap that a test of this pair alone detects with 80% power.
    """

    attribute: str
    groups: tuple[str, str]
    label: int | None
    gap: float
    interval: tuple[float, float]
    smallest_detectable_effect: float


def pair_effects(
    sample: Sample, strata: Sequence[Stratum], gaps: Gaps, *, confidence_level: float
) -> tuple[Effect, ...]:
    """Every pair of groups of every attribute in every stratum.

    The interval is Newcombe's (hybrid of Wilson's intervals). If people have several rows, a
    group's size is the number of independent rows with the same variance.
    """
    z = float(ndtri((1 + confidence_level) / 2))
    effects = []
    first = 0
    for stratum in strata:
        spread = gaps.rate_covariance[first:, first:]
        rates, sizes = stratum.rates, stratum.group_sizes
        for attribute in stratum.attributes:
            names = sample.attributes[attribute].groups
            pooled = _pooled(stratum, attribute)
            for i, j in combinations(stratum.of(attribute), 2):
                variance = spread[i, i] + spread[j, j] - 2 * spread[i, j]
                effective = [
                    sizes[g]
                    if sample.units is None
                    else min(pooled * (1 - pooled) / spread[g, g], sizes[g])
                    for g in (i, j)
                ]
                effects.append(
                    Effect(
                        attribute=sample.attributes[attribute].name,
                        groups=(
                            names[stratum.constraints[i].group],
                            names[stratum.constraints[j].group],
                        ),
                        label=stratum.label,
                        gap=float(rates[i] - rates[j]),
                        interval=_newcombe(rates[[i, j]].tolist(), effective, confidence_level),
                        smallest_detectable_effect=(z + float(ndtri(_POWER))) * math.sqrt(variance),
                    )
                )
        first += len(stratum.constraints)
    return tuple(effects)


def smallest_detectable_effect(
    gaps: Gaps, inverse: NDArray[np.float64], *, alpha: float, seed: int = 0
) -> float:
    """The gap between one group and all others that the whole test detects with 80% power.

    The largest over the groups, so that a gap of this size is detected for any of them. A single
    gap has a closed form; several are simulated.

    Args:
        gaps: V and Σ.
        inverse: S⁻¹, `[m, m]`.
        alpha: Significance level.
        seed: Seed of the random generator.
    """
    if len(gaps.values) == 1:
        reach = float(ndtri(1 - alpha / 2) + ndtri(_POWER))
        return reach * math.sqrt(gaps.covariance[0, 0])
    noise = np.random.default_rng(seed).standard_normal((_SIMULATIONS, len(gaps.values)))
    noise = noise @ square_root(gaps.covariance).T
    costs = np.einsum("ni,ij,nj->n", noise, inverse, noise)
    critical = float(np.quantile(costs, 1 - alpha))
    return max(
        _reached(gaps.contrasts[:, group], noise, costs, inverse, critical)
        for group in range(gaps.contrasts.shape[1])
    )


def _reached(
    direction: NDArray[np.float64],
    noise: NDArray[np.float64],
    costs: NDArray[np.float64],
    inverse: NDArray[np.float64],
    critical: float,
) -> float:
    """The shift along a direction at which 80% of the simulated costs exceed the critical one."""
    half, square = noise @ inverse @ direction, float(direction @ inverse @ direction)
    if square <= 0:
        return 0.0
    # Beyond the larger root of costs + 2 half t + square t² = critical the cost stays above it.
    discriminant = half**2 - square * (costs - critical)
    roots = (-half + np.sqrt(np.maximum(discriminant, 0.0))) / square
    return float(np.quantile(np.where(discriminant > 0, np.maximum(roots, 0.0), 0.0), _POWER))


def _pooled(stratum: Stratum, attribute: int) -> float:
    """The rate of all groups of an attribute together."""
    indices = list(stratum.of(attribute))
    sizes = stratum.group_sizes[indices]
    return float(stratum.rates[indices] @ sizes / sizes.sum())


def _newcombe(
    rates: Sequence[float], sizes: Sequence[float], confidence_level: float
) -> tuple[float, float]:
    one, two = (wilson(r, n, confidence_level) for r, n in zip(rates, sizes, strict=True))
    low, high = combined(rates[0], one, rates[1], two)
    return float(low), float(high)
