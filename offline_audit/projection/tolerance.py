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

_DRAWS = 4_000
_FIRST_DRAWS = 200
_MOST_CORNERS = 256
_TAKEN_ON = 3


def tolerated_p_value(
    gaps: Gaps,
    softness: NDArray[np.float64],
    strata: Sequence[Stratum],
    *,
    tolerance: float,
    favoured: Sequence[int | None],
) -> tuple[float, float]:
    """The largest chance of gaps that cost as much over all fair classifiers; its simulation error.

    F(V) = min ½ (V - θ)ᵀ S⁻¹ (V - θ) over fair θ is the cost of bringing gaps V within the
    tolerance. P(F(θ + V*) ≥ F(V)) with V* ~ N(0, Σ) is largest at a corner of the fair set, since
    1 - P is log-concave in θ. One gap is in closed form: with a favoured group the paper's
    one-sided V²/2S on V ≥ ε; without one both sides count, P(|ε + V*| ≥ |V|).
    """
    if len(gaps.values) == 1:
        return _one_gap(gaps, strata[0], tolerance, favoured), 0.0
    bounds, corners = _fair_set(strata, tolerance, favoured)
    root = square_root(softness)
    observed = _cost(gaps.values, bounds, tolerance, root)
    if observed <= 0:
        return 1.0, 0.0
    noise = np.random.default_rng(0).standard_normal((_DRAWS, len(gaps.values)))
    noise = noise @ square_root(gaps.covariance).T
    observed *= 1 - 1e-12

    def chance(corner: NDArray[np.float64], draws: int) -> float:
        above = sum(_cost(corner + v, bounds, tolerance, root) >= observed for v in noise[:draws])
        return (above + 1) / (draws + 1)

    first = sorted(corners, key=lambda corner: -chance(corner, _FIRST_DRAWS))
    p = max(chance(corner, _DRAWS) for corner in first[:_TAKEN_ON])
    return p, math.sqrt(p * (1 - p) / _DRAWS)


def _one_gap(
    gaps: Gaps, stratum: Stratum, tolerance: float, favoured: Sequence[int | None]
) -> float:
    gap, spread = float(gaps.values[0]), math.sqrt(gaps.covariance[0, 0])
    first = favoured[stratum.constraints[0].attribute]
    if first is not None:
        # The gap is the second group's rate less the first's.
        ahead = -gap if stratum.constraints[0].group == first else gap
        return 1.0 if ahead <= tolerance else float(ndtr(-(ahead - tolerance) / spread))
    if abs(gap) <= tolerance:
        return 1.0
    near = ndtr(-(abs(gap) - tolerance) / spread)
    return float(near + ndtr(-(abs(gap) + tolerance) / spread))


def _fair_set(
    strata: Sequence[Stratum], tolerance: float, favoured: Sequence[int | None]
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Rows b of b · V ≤ tolerance, and the corners of the set that they bound."""
    blocks, corners = [], []
    for stratum in strata:
        for attribute in stratum.attributes:
            places = stratum.of(attribute)
            first = [
                i
                for i, p in enumerate(places)
                if stratum.constraints[p].group == favoured[attribute]
            ]
            blocks.append(_bounds(len(places), first))
            corners.append(_corners(len(places), first, tolerance))
    if math.prod(len(part) for part in corners) > _MOST_CORNERS:
        raise AuditInputError(
            f"tolerance: too many groups for a two-sided tolerance (more than {_MOST_CORNERS} ways "
            "to be barely fair); name the favoured group"
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
    """Which rates less which are bounded, as combinations of the gaps to the first group."""
    gap_of = np.eye(groups)[:, 1:]
    pairs = [
        (i, j) for i in range(groups) for j in range(groups) if i != j and (not first or i in first)
    ]
    return np.array([gap_of[i] - gap_of[j] for i, j in pairs])


def _corners(groups: int, first: list[int], tolerance: float) -> list[NDArray[np.float64]]:
    """Gaps to the first group when each rate is at the window's low or high end."""
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
