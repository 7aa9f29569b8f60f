"""The p-value of the gaps, or the reason why there is none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.optimize import nnls
from scipy.special import ndtr

from offline_audit.errors import AuditInputError
from offline_audit.projection.cells import Stratum
from offline_audit.projection.gaps import Gaps, restricted_rates, square_root
from offline_audit.projection.limiting_law import (
    curve_density,
    kernel_density,
    limiting_p_value,
    s_matrix,
)
from offline_audit.projection.sample import Options, Sample

__all__ = ["PValue", "p_value_of"]

# Rates that differ by rounding errors only are equal.
_EQUAL = 1e-9
# Simulations per corner of the fair set: a few for every corner, then all for the best few corners.
_FIRST_SIMULATIONS = 200
_SIMULATIONS = 4_000
_BEST_CORNERS = 3
_MAX_CORNERS = 256
_USE_STANDARDIZED = 'law="standardized" tests the gaps independently of their cost.'
_NO_COST = (
    "Closing the gaps costs nothing, because too many rows lie on the boundary. "
    f"{_USE_STANDARDIZED}"
)
_NO_DENSITY = (
    "No row is near enough to the boundary to estimate the cost of the gaps. " + _USE_STANDARDIZED
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PValue:
    """A p-value, or the reason why there is none.

    Attributes:
        s: S of Theorem 1, `[m, m]`.
        value: The p-value; None if it is not defined.
        error: Standard error of the p-value if it is simulated, else 0.
        reason: Reason for a missing p-value; None if there is one.
    """

    s: NDArray[np.float64]
    value: float | None = None
    error: float = 0.0
    reason: str | None = None


def p_value_of(
    sample: Sample, strata: Sequence[Stratum], gaps: Gaps, statistic: float, options: Options
) -> PValue:
    """The p-value by the requested law.

    Args:
        sample: The rows.
        strata: Cells of the rows.
        gaps: The gaps.
        statistic: Cost of closing the gaps; finite.
        options: Options of the test.
    """
    s = s_matrix(gaps, _density(sample, strata, gaps, options))
    if statistic == 0 and _has_free_gaps(gaps, strata, options):
        return PValue(s=s, reason=_NO_COST)
    if not (np.diag(s) > 0).all():
        return PValue(s=s, reason=_NO_DENSITY)
    p, error = _by_law(gaps, s, strata, statistic, options)
    return PValue(s=s, value=p, error=error)


def _has_free_gaps(gaps: Gaps, strata: Sequence[Stratum], options: Options) -> bool:
    """Whether rates are unfair although the law weights their gaps by a cost of 0."""
    if _cost_cancels(gaps, options):
        return False
    fair = [
        restricted_rates(s, tolerance=options.tolerance, favoured=options.favoured) for s in strata
    ]
    largest = (np.abs(s.rates - rates).max() for s, rates in zip(strata, fair, strict=True))
    return any(gap > _EQUAL for gap in largest)


def _cost_cancels(gaps: Gaps, options: Options) -> bool:
    """Whether p does not depend on distances: with a single gap S cancels, except in `kernel`."""
    return options.law == "standardized" or (options.law == "curve" and len(gaps.values) == 1)


def _density(
    sample: Sample, strata: Sequence[Stratum], gaps: Gaps, options: Options
) -> NDArray[np.float64] | None:
    """Boundary density of each cell by the requested law, `[cells]`; None if p does not need it."""
    if _cost_cancels(gaps, options):
        return None
    if options.law == "curve":
        return curve_density(strata)
    return kernel_density(sample, strata, bandwidth=options.bandwidth)


def _by_law(
    gaps: Gaps,
    s: NDArray[np.float64],
    strata: Sequence[Stratum],
    statistic: float,
    options: Options,
) -> tuple[float, float]:
    """The p-value and its simulation error, by the requested law."""
    tolerated = options.tolerance > 0 or options.one_sided
    if options.law == "kernel" and statistic == 0:
        return 1.0, 0.0
    if options.law == "kernel" and tolerated:
        # One-sided: half of the two-sided tail (section 4).
        return 0.5 * limiting_p_value(gaps, s, law="kernel", statistic=statistic), 0.0
    if tolerated:
        return _tolerated_p_value(
            gaps,
            s,
            strata,
            tolerance=options.tolerance,
            favoured=options.favoured,
            seed=options.seed,
        )
    return limiting_p_value(gaps, s, law=options.law, statistic=statistic), 0.0


def _tolerated_p_value(
    gaps: Gaps,
    s: NDArray[np.float64],
    strata: Sequence[Stratum],
    *,
    tolerance: float,
    favoured: Sequence[int | None],
    seed: int = 0,
) -> tuple[float, float]:
    """The p-value with a tolerance ε, and its simulation error (section 4).

    F(V) = min ½ (V - θ)ᵀ S⁻¹ (V - θ) over fair θ is the cost of bringing gaps V within the
    tolerance. p is the largest P(F(θ + V*) ≥ F(V)), V* ~ N(0, Σ), over fair θ. It is attained at a
    corner of the set of fair gaps, because 1 - P is log-concave in θ. One gap has a closed form:
    with a favoured group the paper's one-sided V²/2S on V ≥ ε, without one P(|ε + V*| ≥ |V|).
    """
    if len(gaps.values) == 1:
        return _one_gap(gaps, strata[0], tolerance, favoured), 0.0
    bounds, corners = _fair_set(strata, tolerance, favoured)
    root = square_root(s)
    observed = _cost(gaps.values, bounds, tolerance, root)
    if observed <= 0:
        return 1.0, 0.0
    noise = np.random.default_rng(seed).standard_normal((_SIMULATIONS, len(gaps.values)))
    noise = noise @ square_root(gaps.covariance).T
    # A simulated cost that equals the observed one up to rounding counts as at least as large.
    observed *= 1 - 1e-12

    def p_value(corner: NDArray[np.float64], n: int) -> float:
        exceeding = sum(_cost(corner + v, bounds, tolerance, root) >= observed for v in noise[:n])
        return (exceeding + 1) / (n + 1)

    ranked = sorted(corners, key=lambda corner: -p_value(corner, _FIRST_SIMULATIONS))
    p = max(p_value(corner, _SIMULATIONS) for corner in ranked[:_BEST_CORNERS])
    return p, math.sqrt(p * (1 - p) / _SIMULATIONS)


def _one_gap(
    gaps: Gaps, stratum: Stratum, tolerance: float, favoured: Sequence[int | None]
) -> float:
    """The p-value of a single gap, in closed form."""
    gap, error = float(gaps.values[0]), math.sqrt(gaps.covariance[0, 0])
    favoured_group = favoured[stratum.constraints[0].attribute]
    if favoured_group is not None:
        # The gap is the second group's rate minus the first group's.
        excess = -gap if stratum.constraints[0].group == favoured_group else gap
        return 1.0 if excess <= tolerance else float(ndtr(-(excess - tolerance) / error))
    if abs(gap) <= tolerance:
        return 1.0
    same_sign = ndtr(-(abs(gap) - tolerance) / error)
    return float(same_sign + ndtr(-(abs(gap) + tolerance) / error))


def _fair_set(
    strata: Sequence[Stratum], tolerance: float, favoured: Sequence[int | None]
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """The set of fair gaps V: rows b of the bounds b · V ≤ tolerance, `[bounds, m]`, and corners.

    Raises:
        AuditInputError: There are too many corners.
    """
    blocks, corners = [], []
    for stratum in strata:
        for attribute in stratum.attributes:
            groups = [stratum.constraints[i].group for i in stratum.of(attribute)]
            group = favoured[attribute]
            index = groups.index(group) if group in groups else None
            blocks.append(_bounds(len(groups), index))
            corners.append(_corners(len(groups), index, tolerance))
    if math.prod(len(part) for part in corners) > _MAX_CORNERS:
        raise AuditInputError(
            "tolerance: too many groups for a two-sided tolerance (the set of fair rates has more "
            f"than {_MAX_CORNERS} corners); pass `favoured`, or test fewer groups"
        )
    return block_diag(*blocks), [np.concatenate(part) for part in itertools.product(*corners)]


def _bounds(groups: int, favoured: int | None) -> NDArray[np.float64]:
    """Bounded differences of rates, in terms of the gaps to group 0, `[bounds, groups - 1]`."""
    gap_of = np.eye(groups)[:, 1:]
    pairs = itertools.permutations(range(groups), 2)
    return np.array([gap_of[i] - gap_of[j] for i, j in pairs if favoured in {None, i}])


def _corners(groups: int, favoured: int | None, tolerance: float) -> list[NDArray[np.float64]]:
    """Gaps to group 0 if every rate is at the low (0) or at the high end (1) of the tolerance."""
    ends = [
        np.array(end, dtype=np.float64)
        for end in itertools.product((0, 1), repeat=groups)
        if 0 < sum(end) < groups
    ]
    if favoured is not None:
        ends = [np.eye(groups)[favoured]]
    return [tolerance * (end[1:] - end[0]) for end in ends]


def _cost(
    gaps: NDArray[np.float64],
    bounds: NDArray[np.float64],
    tolerance: float,
    root: NDArray[np.float64],
) -> float:
    """The smallest ½‖z‖² with bounds · (gaps + root z) ≤ tolerance; infinite if there is no such z.

    This is least distance programming, solved by non-negative least squares (Lawson and Hanson,
    Solving Least Squares Problems, chapter 23).
    """
    excess = bounds @ gaps - tolerance
    if excess.max() <= 0:
        return 0.0
    stacked = np.vstack([-(bounds @ root).T, excess])
    target = np.zeros(len(stacked))
    target[-1] = 1.0
    residual = stacked @ nnls(stacked, target)[0] - target
    # A zero residual means that no z satisfies the bounds.
    if residual[-1] >= -1e-14:
        return math.inf
    return float(0.5 * np.sum((residual[:-1] / residual[-1]) ** 2))
