"""The law of the projection distance under a fair classifier, and the p-value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.cells import Cell, Stratum
from offline_audit.projection.gaps import Gaps, square_root
from offline_audit.projection.weighted_chi_square import upper_tail

__all__ = ["Law", "curve_crowding", "cushion", "p_value", "stiffness"]

Law = Literal["standardized", "curve", "kernel"]

# The shift of a rate, in its standard deviations, at which the curves are read.
_SHIFT = 1.5


def p_value(gaps: Gaps, softness: NDArray[np.float64], *, law: Law, statistic: float) -> float:
    """P(½ V*ᵀ S⁻¹ V* ≥ observed), V* ~ N(0, Σ): a weighted sum of chi-squares (Theorem 1).

    ½ VᵀS⁻¹V is what closing gaps V costs near the boundary. By the laws `standardized` and `curve`
    the observed gaps are priced by the same S, so p is right for any S that does not depend on V,
    well estimated or not; with one gap S cancels. By the law `kernel`, the paper's, the observed
    cost is the projection distance itself, and p is only as good as S.

    Args:
        gaps: V and Σ.
        softness: S, `[m, m]`.
        law: Which of the three.
        statistic: The projection distance times the rows.
    """
    inverse = stiffness(gaps, softness)
    root = square_root(gaps.covariance)
    weights = np.linalg.eigvalsh(0.5 * root.T @ inverse @ root)
    observed = statistic
    if law != "kernel":
        observed = float(0.5 * gaps.values @ inverse @ gaps.values)
    return upper_tail(observed, np.asarray(weights, dtype=np.float64))


def cushion(gaps: Gaps, crowding: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """S, how far gaps give way for a unit of cost, `[m, m]`.

    Args:
        gaps: V and Σ.
        crowding: Rows per unit of distance at the boundary in each cell; None for the law
            `standardized`: each cell's distances in units that hold as many rows as its count
            scatters, a cost that depends on the attribute as section 2.2 allows. S is then Σ, and
            N times the projection distance tends to half a chi-square whatever the distances are.
    """
    if crowding is None:
        return gaps.covariance
    return np.asarray((gaps.effects * crowding) @ gaps.effects.T, dtype=np.float64)


def stiffness(gaps: Gaps, softness: NDArray[np.float64]) -> NDArray[np.float64]:
    """S⁻¹, `[m, m]`; constraints that say the same twice count once."""
    # Scaled by the gaps' spread, so that the rank does not hang on the size of a group.
    scale = 1 / np.sqrt(np.diag(gaps.covariance))
    both = np.outer(scale, scale)
    return np.asarray(np.linalg.pinv(softness * both, rcond=1e-10, hermitian=True) * both)


def curve_crowding(strata: Sequence[Stratum]) -> NDArray[np.float64]:
    """Crowding from the exact cost curves, at the shift that noise makes: no bandwidth.

    Turning the x nearest of the rows with one decision costs about x (x + 1)/(2a) where a of them
    lie within a unit of distance; x is 1.5 standard deviations of a cell's count. a is then scaled
    to the rows that would have that decision at the common rate, so that it does not go with the
    gap, and averaged over the two decisions.
    """
    found = []
    for stratum in strata:
        rate = float(stratum.positives.sum() / stratum.sizes.sum())
        found += [_read(cell, rate) for cell in stratum.cells]
    crowding = np.array(found)
    known = crowding[np.isfinite(crowding)]
    # A cell where turning costs nothing is as crowded as can be; one without rows to turn, empty.
    most = 1e6 * float(known.max(initial=0.0)) or 1.0
    return np.where(np.isfinite(crowding), crowding, most)


def _read(cell: Cell, rate: float) -> float:
    shift = _SHIFT * math.sqrt(cell.size * rate * (1 - rate))
    found = []
    for curve, share in ((cell.fall, rate), (cell.rise, 1 - rate)):
        if len(curve.nearest):
            scale = cell.size * share / curve.rows
            turned = min(max(shift / scale, 1.0), float(len(curve.nearest)))
            cost = curve.cost(turned)
            found.append(turned * (turned + 1) / (2 * cost) * scale if cost > 0 else math.inf)
    return sum(found) / len(found) if found else 0.0
