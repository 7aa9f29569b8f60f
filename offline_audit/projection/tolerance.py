"""The p-value when gaps up to a tolerance count as fair (section 4)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import ndtr

from offline_audit.errors import AuditInputError
from offline_audit.projection.cells import Stratum
from offline_audit.projection.gaps import Gaps, square_root

__all__ = ["tolerated_p_value"]

# Simulations of each corner, and of the first look that selects the corners worth them.
_SIMULATIONS = 4_000
_FIRST_SIMULATIONS = 200
_KEPT_CORNERS = 3
_MOST_CORNERS = 256


def tolerated_p_value(
    gaps: Gaps,
    s: NDArray[np.float64],
    strata: Sequence[Stratum],
    *,
    tolerance: float,
    favoured: Sequence[int | None],
    seed: int = 0,
) -> tuple[float, float]:
    """The largest p-value over all fair classifiers, and its simulation error (section 4).

    F(V) = min ½ (V - θ)ᵀ S⁻¹ (V - θ) over fair θ is the cost of bringing gaps V within the
    tolerance. P(F(θ + V*) ≥ F(V)) with V* ~ N(0, Σ) is largest at a corner of the fair set, since
    1 - P is log-concave in θ. One gap is in closed form: with a favoured group the paper's
    one-sided V²/2S on V ≥ ε; without one both sides count, P(|ε + V*| ≥ |V|).
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
    # Simulated costs that equal the observed one up to rounding count as large.
    observed *= 1 - 1e-12

    def p_value(corner: NDArray[np.float64], n: int) -> float:
        above = sum(_cost(corner + v, bounds, tolerance, root) >= observed for v in noise[:n])
        return (above + 1) / (n + 1)

    ranked = sorted(corners, key=lambda corner: -p_value(corner, _FIRST_SIMULATIONS))
    p = max(p_value(corner, _SIMULATIONS) for corner in ranked[:_KEPT_CORNERS])
    return p, math.sqrt(p * (1 - p) / _SIMULATIONS)


def _one_gap(
    gaps: Gaps, stratum: Stratum, tolerance: float, favoured: Sequence[int | None]
) -> float:
    gap, spread = float(gaps.values[0]), math.sqrt(gaps.covariance[0, 0])
    first = favoured[stratum.constraints[0].attribute]
    if first is not None:
        # The gap is the second group's rate minus the first's.
        ahead = -gap if stratum.constraints[0].group == first else gap
        return 1.0 if ahead <= tolerance else float(ndtr(-(ahead - tolerance) / spread))
    if abs(gap) <= tolerance:
        return 1.0
    near = ndtr(-(abs(gap) - tolerance) / spread)
    return float(near + ndtr(-(abs(gap) + tolerance) / spread))


def _fair_set(
    strata: Sequence[Stratum], tolerance: float, favoured: Sequence[int | None]
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Rows b of b · V ≤ tolerance, and the corners of the set of fair gaps that they bound."""
    blocks, corners = [], []
    for stratum in strata:
        for attribute in stratum.attributes:
            indices = stratum.of(attribute)
            first = [
                i
                for i, index in enumerate(indices)
                if stratum.constraints[index].group == favoured[attribute]
            ]
            blocks.append(_bounds(len(indices), first))
            corners.append(_corners(len(indices), first, tolerance))
    if math.prod(len(part) for part in corners) > _MOST_CORNERS:
        raise AuditInputError(
            "tolerance: too many groups for a two-sided tolerance (more than "
            f"{_MOST_CORNERS} corners of the fair set); pass `favoured`, or test fewer groups"
        )
    width = sum(block.shape[1] for block in blocks)
    rows, start = [], 0
    for block in blocks:
        padded = np.zeros((len(block), width))
        padded[:, start : start + block.shape[1]] = block
        rows.append(padded)
        start += block.shape[1]
    return np.vstack(rows), [np.concatenate(part) for part in itertools.product(*corners)]


def _bounds(groups: int, first: list[int]) -> NDArray[np.float64]:
    """Bounded differences of rates, as combinations of the gaps to the first group."""
    gap_of = np.eye(groups)[:, 1:]
    pairs = [
        (i, j) for i in range(groups) for j in range(groups) if i != j and (not first or i in first)
    ]
    return np.array([gap_of[i] - gap_of[j] for i, j in pairs])


def _corners(groups: int, first: list[int], tolerance: float) -> list[NDArray[np.float64]]:
    """Gaps to the first group with each rate at the low or high end of the tolerance."""
    ends = [
        np.array(high, dtype=np.float64)
        for high in itertools.product((0, 1), repeat=groups)
        if 0 < sum(high) < groups
    ]
    if first:
        ends = [np.eye(groups)[first[0]]]
    return [tolerance * (end[1:] - end[0]) for end in ends]


def _cost(
    gaps: NDArray[np.float64],
    bounds: NDArray[np.float64],
    tolerance: float,
    root: NDArray[np.float64],
) -> float:
    """Least ½‖z‖² with bounds · (gaps + root z) ≤ tolerance, by non-negative least squares.

    Lawson and Hanson, Solving Least Squares Problems, chapter 23: least distance programming.
    """
    excess = bounds @ gaps - tolerance
    if excess.max() <= 0:
        return 0.0
    stacked = np.vstack([-(bounds @ root).T, excess])
    target = np.zeros(len(stacked))
    target[-1] = 1.0
    residual = stacked @ nnls(stacked, target)[0] - target
    if residual[-1] >= -1e-14:
        return math.inf
    return float(0.5 * np.sum((residual[:-1] / residual[-1]) ** 2))
