"""Gaps between pairs of groups with intervals, and the smallest gap that a sample could show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from offline_audit.projection.cells import Stratum
from offline_audit.projection.gaps import Gaps, square_root
from offline_audit.projection.sample import Sample

__all__ = ["Effect", "pair_effects", "smallest_detectable"]

_POWER = 0.8
_DRAWS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """How much more often one group has decision 1 than another.

    Attributes:
        attribute: The protected attribute.
        groups: The two groups; the gap is the first's rate less the second's.
        label: The outcome within which they are compared; None for all rows.
        gap: The difference of the rates.
        interval: Confidence interval of the gap.
        detectable: The gap that a test of this pair alone would find with 80% power.
    """

    attribute: str
    groups: tuple[str, str]
    label: int | None
    gap: float
    interval: tuple[float, float]
    detectable: float


def pair_effects(
    sample: Sample, strata: Sequence[Stratum], gaps: Gaps, *, level: float
) -> tuple[Effect, ...]:
    """Every pair of groups of every attribute in every stratum.

    The interval is Newcombe's (hybrid of Wilson's intervals). Where rows share people, a group's
    rows are counted as the number of independent ones that would scatter as much.
    """
    z = float(ndtri((1 + level) / 2))
    found = []
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
                found.append(
                    Effect(
                        attribute=sample.attributes[attribute].name,
                        groups=(
                            names[stratum.constraints[i].group],
                            names[stratum.constraints[j].group],
                        ),
                        label=stratum.label,
                        gap=float(rates[i] - rates[j]),
                        interval=_newcombe((rates[i], rates[j]), effective, z),
                        detectable=(z + float(ndtri(_POWER))) * math.sqrt(variance),
                    )
                )
        first += len(stratum.constraints)
    return tuple(found)


def smallest_detectable(gaps: Gaps, inverse: NDArray[np.float64], *, alpha: float) -> float:
    """The gap between one group and all others that the whole test finds with 80% power.

    That of the group for which it is largest, so that a departure of any group this large is seen.
    One gap has the closed form; several by simulation with a fixed seed.
    """
    if len(gaps.values) == 1:
        reach = float(ndtri(1 - alpha / 2) + ndtri(_POWER))
        return reach * math.sqrt(gaps.covariance[0, 0])
    noise = np.random.default_rng(0).standard_normal((_DRAWS, len(gaps.values)))
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
    """How far along a direction the gaps must lie so that 80% of the draws are above critical."""
    half, square = noise @ inverse @ direction, float(direction @ inverse @ direction)
    if square <= 0:
        return 0.0
    # Beyond the larger root of costs + 2 half t + square t² = critical a draw is always above.
    discriminant = half**2 - square * (costs - critical)
    roots = (-half + np.sqrt(np.maximum(discriminant, 0.0))) / square
    return float(np.quantile(np.where(discriminant > 0, np.maximum(roots, 0.0), 0.0), _POWER))


def _pooled(stratum: Stratum, attribute: int) -> float:
    places = list(stratum.of(attribute))
    sizes = stratum.group_sizes[places]
    return float(stratum.rates[places] @ sizes / sizes.sum())


def _newcombe(rates: tuple[float, float], sizes: Sequence[float], z: float) -> tuple[float, float]:
    (low_1, high_1), (low_2, high_2) = (_wilson(r, n, z) for r, n in zip(rates, sizes, strict=True))
    gap = rates[0] - rates[1]
    below = math.hypot(rates[0] - low_1, high_2 - rates[1])
    above = math.hypot(high_1 - rates[0], rates[1] - low_2)
    return float(gap - below), float(gap + above)


def _wilson(rate: float, size: float, z: float) -> tuple[float, float]:
    centre = (rate + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * math.sqrt(rate * (1 - rate) / size + z**2 / (4 * size**2))
    return max(centre - half, 0.0), min(centre + half, 1.0)
