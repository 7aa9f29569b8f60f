"""The smallest gap between one group and all others that the projection test detects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.power import POWER, Detectable
from offline_audit.projection.cells import Stratum
from offline_audit.projection.gaps import Gaps, effective_rows, pooled_rate, square_root
from offline_audit.projection.pair_power import detectable_gap
from offline_audit.projection.sample import Options, Sample

__all__ = ["smallest_detectable_effect"]

# Simulations of several gaps, and steps in which their smallest detectable effect converges.
_SIMULATIONS = 4_000
_ITERATIONS = 4


def smallest_detectable_effect(
    sample: Sample,
    strata: Sequence[Stratum],
    gaps: Gaps,
    inverse: NDArray[np.float64],
    options: Options,
) -> Detectable:
    """The gaps between one group and all others that the joint test detects with 80% power.

    The largest over the groups, so that a gap of this size is detected for any of them; None for a
    direction in which some group cannot be detected. A single gap is computed from the counts of
    both groups, several gaps are simulated.

    Args:
        sample: The rows.
        strata: Cells of the rows.
        gaps: V and Σ.
        inverse: S⁻¹, `[m, m]`.
        options: Significance level, tolerance, favoured groups, seed.
    """
    if len(gaps.values) == 1:
        (stratum,) = strata
        (attribute,) = stratum.attributes
        pooled, spread = pooled_rate(stratum, attribute), gaps.rate_covariance
        n, m = (
            effective_rows(sample, float(stratum.group_sizes[g]), pooled, float(spread[g, g]))
            for g in (0, 1)
        )
        favoured = options.favoured[attribute]
        first = favoured is None or stratum.constraints[0].group == favoured
        second = favoured is None or not first
        return detectable_gap(
            (n, m),
            pooled,
            alpha=options.alpha,
            tolerance=options.tolerance,
            sides=(second, first),
            smallest=options.smallest_expected,
        )
    noise = np.random.default_rng(options.seed).standard_normal((_SIMULATIONS, len(gaps.values)))
    simulation = _Simulation(gaps, inverse, noise, options.alpha)
    index = 0
    downwards: list[float | None] = []
    upwards: list[float | None] = []
    for stratum in strata:
        for attribute in stratum.attributes:
            constraints = [index + i for i in stratum.of(attribute)]
            share = stratum.group_sizes[list(stratum.of(attribute))]
            share = share / share.sum()
            for group, part in zip(constraints, share, strict=True):
                rate = pooled_rate(stratum, attribute)
                for effects, sign in ((downwards, -1), (upwards, 1)):
                    shift = simulation.detected(group, constraints, rate, float(part), sign)
                    effects.append(None if shift is None else sign * (shift + options.tolerance))
        index += len(stratum.constraints)
    down, up = (
        None if None in effects else max((e for e in effects if e is not None), key=abs)
        for effects in (downwards, upwards)
    )
    return down, up


@dataclass(frozen=True, slots=True)
class _Simulation:
    """Costs of simulated gaps: V and Σ, S⁻¹, standard normal noise `[d, m]`, level."""

    gaps: Gaps
    inverse: NDArray[np.float64]
    noise: NDArray[np.float64]
    alpha: float

    def detected(
        self, group: int, constraints: Sequence[int], rate: float, share: float, sign: int
    ) -> float | None:
        """Shift of a group's rate that is detected with 80% power; None if no rate has it.

        The variance of the group's rate, and the pooled rate that scales S, depend on the shift.

        Args:
            group: Index of the group among all constraints.
            constraints: Indices of the groups of its attribute and stratum.
            rate: Pooled rate.
            share: Share of the group's rows among these groups.
            sign: 1 for a higher rate, -1 for a lower one.
        """
        gaps = self.gaps
        null = self.noise @ square_root(gaps.covariance).T
        critical = np.quantile(np.einsum("ni,ij,nj->n", null, self.inverse, null), 1 - self.alpha)
        direction = gaps.contrasts[:, group] * sign
        own = np.any(gaps.contrasts[:, list(constraints)] != 0, axis=1)
        shift = 0.0
        for _ in range(_ITERATIONS):
            p, pooled = rate + sign * shift, rate + sign * shift * share
            if not 0 <= p <= 1:
                return None
            spread = np.ones(gaps.contrasts.shape[1])
            spread[group] = math.sqrt(p * (1 - p) / (rate * (1 - rate)))
            covariance = gaps.rate_covariance * np.outer(spread, spread)
            noise = self.noise @ square_root(gaps.contrasts @ covariance @ gaps.contrasts.T).T
            scale = np.where(own, math.sqrt(rate * (1 - rate) / (pooled * (1 - pooled))), 1.0)
            inverse = self.inverse * np.outer(scale, scale)
            costs = np.einsum("ni,ij,nj->n", noise, inverse, noise)
            shift = _detected_shift(direction, noise, costs, inverse, float(critical))
        return shift if 0 <= rate + sign * shift <= 1 else None


def _detected_shift(
    direction: NDArray[np.float64],
    noise: NDArray[np.float64],
    costs: NDArray[np.float64],
    inverse: NDArray[np.float64],
    critical: float,
) -> float:
    """The shift in a direction at which 80% of the simulated costs exceed the critical cost."""
    half, square = noise @ inverse @ direction, float(direction @ inverse @ direction)
    if square <= 0:
        return 0.0
    # Beyond the larger root of costs + 2 half t + square t² = critical the cost stays above it.
    discriminant = half**2 - square * (costs - critical)
    roots = (-half + np.sqrt(np.maximum(discriminant, 0.0))) / square
    return float(np.quantile(np.where(discriminant > 0, np.maximum(roots, 0.0), 0.0), POWER))
