"""The distribution of the projection distance under a fair classifier (Theorem 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import chdtrc

from offline_audit.projection.cells import Cell, Stratum
from offline_audit.projection.gaps import Gaps, square_root
from offline_audit.projection.sample import Law, Sample

__all__ = [
    "curve_density",
    "kernel_density",
    "limiting_p_value",
    "s_inverse",
    "s_matrix",
    "upper_tail",
]

# Shift of a rate, in its standard deviations, at which the cost curves are evaluated.
_SHIFT = 1.5
# Quadrature points of the contour integral on each side of the saddle point.
_POINTS = 250
# Weights below this share of the largest one are dropped.
_NEGLIGIBLE = 1e-12


def limiting_p_value(gaps: Gaps, s: NDArray[np.float64], *, law: Law, statistic: float) -> float:
    """P(½ V*ᵀ S⁻¹ V* ≥ observed), V* ~ N(0, Σ): a weighted sum of chi-squares (Theorem 1).

    ½ VᵀS⁻¹V is the cost of closing gaps V near the boundary. With the laws `standardized` and
    `curve` the observed gaps are weighted by the same S, so p is valid for any S that does not
    depend on V, even a poor estimate; with a single gap S cancels. With the law `kernel`, the
    paper's, the observed cost is the projection distance itself, and p is only as good as S.

    Args:
        gaps: V and Σ.
        s: S, `[m, m]`.
        law: Law of the p-value.
        statistic: Projection distance times the number of rows.
    """
    inverse = s_inverse(gaps, s)
    root = square_root(gaps.covariance)
    # Eigenvalues of ½ Σ^½ S⁻¹ Σ^½ are the weights of the chi-squares.
    weights = np.linalg.eigvalsh(0.5 * root.T @ inverse @ root)
    observed = statistic
    if law != "kernel":
        observed = float(0.5 * gaps.values @ inverse @ gaps.values)
    return upper_tail(observed, np.asarray(weights, dtype=np.float64))


def s_matrix(gaps: Gaps, density: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """S of Theorem 1: the change of the gaps for a unit of cost, `[m, m]`.

    Args:
        gaps: V and Σ.
        density: Boundary density of each cell, in rows per unit of distance, `[cells]`. None for
            the law `standardized`: the unit of distance of each cell is then the width of a band
            at the boundary that contains as many rows as the standard deviation of the cell's
            count. Section 2.2 allows such a cost, which depends on the attribute. S is then Σ, and
            N times the projection distance tends to half a chi-square for any distances.
    """
    if density is None:
        return gaps.covariance
    return np.asarray((gaps.effects * density) @ gaps.effects.T, dtype=np.float64)


def s_inverse(gaps: Gaps, s: NDArray[np.float64]) -> NDArray[np.float64]:
    """S⁻¹, `[m, m]`; a pseudo-inverse, so that redundant constraints count once."""
    # Scaled by the standard errors, so that the rank does not depend on the sizes of the groups.
    scale = 1 / np.sqrt(np.diag(gaps.covariance))
    both = np.outer(scale, scale)
    return np.asarray(np.linalg.pinv(s * both, rcond=1e-10, hermitian=True) * both)


def curve_density(strata: Sequence[Stratum]) -> NDArray[np.float64]:
    """Boundary density from the exact cost curves, without a bandwidth, `[cells]`.

    If the density is a, changing the x nearest rows of one decision costs about x (x + 1)/(2a).
    This is solved for a, with x = 1.5 standard deviations of the cell's count. The density is then
    scaled to the number of rows that would have that decision at the common rate, so that it does
    not depend on the gap, and averaged over the two decisions.
    """
    densities = []
    for stratum in strata:
        rate = float(stratum.positives.sum() / stratum.sizes.sum())
        densities += [_cell_density(cell, rate) for cell in stratum.cells]
    density = np.array(densities)
    finite = density[np.isfinite(density)]
    # If changes cost nothing the density is infinite; a very large number keeps S finite.
    largest = 1e6 * float(finite.max(initial=0.0)) or 1.0
    return np.where(np.isfinite(density), density, largest)


def _cell_density(cell: Cell, rate: float) -> float:
    """Boundary density of one cell; infinite if changes cost nothing, 0 if no row can change."""
    shift = _SHIFT * math.sqrt(cell.size * rate * (1 - rate))
    densities = []
    for curve, share in ((cell.fall, rate), (cell.rise, 1 - rate)):
        if len(curve.nearest):
            scale = cell.size * share / curve.rows
            changed = min(max(shift / scale, 1.0), float(len(curve.nearest)))
            cost = curve.cost(changed)
            densities.append(changed * (changed + 1) / (2 * cost) * scale if cost > 0 else math.inf)
    return sum(densities) / len(densities) if densities else 0.0


def kernel_density(
    sample: Sample, strata: Sequence[Stratum], *, bandwidth: float | None = None
) -> NDArray[np.float64]:
    """The paper's kernel estimate of the boundary density (section 5.2), `[cells]`.

    Args:
        sample: The rows.
        strata: Cells of the rows.
        bandwidth: Bandwidth of all cells; Silverman's rule for each stratum if None.
    """
    densities = []
    for stratum in strata:
        signed = [
            np.concatenate([sample.distances[c.positive_rows], -sample.distances[c.negative_rows]])
            for c in stratum.cells
        ]
        h = bandwidth or _silverman(np.concatenate(signed))
        sums = [np.exp(-0.5 * (part / h) ** 2).sum() for part in signed]
        densities += [float(total / (h * math.sqrt(2 * math.pi))) for total in sums]
    return np.array(densities)


def _silverman(signed: NDArray[np.float64]) -> float:
    """0.9 min(sd, IQR/1.34) n^(-1/5) of the finite distances."""
    finite = signed[np.isfinite(signed)]
    if len(finite) < 2:
        return 1.0
    low, high = np.quantile(finite, [0.25, 0.75])
    spread = min(float(finite.std(ddof=1)), float(high - low) / 1.34)
    return float(0.9 * (spread or 1.0) * len(finite) ** -0.2)


def upper_tail(statistic: float, weights: NDArray[np.float64]) -> float:
    """P(Σ_j weights_j χ²_1 ≥ statistic), to ten digits if it is below .9, even in the far tail.

    Equal weights give a chi-square. Otherwise the moment generating function is inverted along a
    parabola through the saddle point: P = 1/(2πi) ∫ exp(K(s) - s q) ds/s, with
    K(s) = -½ Σ log(1 - 2 w_j s). The integrand is analytic except on the cut [1/(2 max w), ∞),
    which the parabola encloses, and decays exponentially along it, so the trapezoid rule converges
    fast.
    """
    positive = weights[weights > _NEGLIGIBLE * weights.max(initial=0.0)]
    if statistic <= 0 or len(positive) == 0:
        return 1.0
    if math.isinf(statistic):
        return 0.0
    largest = float(positive.max())
    if np.ptp(positive) <= _NEGLIGIBLE * largest:
        return float(chdtrc(len(positive), statistic / largest))
    # Scaled so that the cut begins at 1.
    shares, q = positive / largest, statistic / (2 * largest)

    def slope(s: float) -> float:
        return float(0.5 * np.sum(shares / (1 - shares * s))) - q - 1 / s

    saddle = brentq(slope, 1e-12, 1 - 1e-15)
    curvature = 0.5 * float(np.sum((shares / (1 - shares * saddle)) ** 2)) + saddle**-2
    # The parabola s = saddle + i y + bend y² opens so that exp(-q s) decays; the points are densest
    # at the saddle, within its width.
    bend = 1 / (4 * (1 - saddle + 1e-9) + 4 / max(q, 0.5))
    width = 1 / math.sqrt(curvature)
    reach = max(12 * width, math.sqrt(45 / (q * bend)))
    u = np.linspace(-1.0, 1.0, 2 * _POINTS + 1) * math.asinh(reach / width)
    y = width * np.sinh(u)
    s = saddle + 1j * y + bend * y**2
    exponent = -0.5 * np.log(1 - np.outer(s, shares)).sum(axis=1) - q * s
    # The largest exponent is factored out against underflow.
    peak = float(exponent[_POINTS].real)
    steps = (1 + 2 * bend * y / 1j) * width * np.cosh(u)
    integrand = np.exp(exponent - peak) / s * steps
    integral = float(np.sum(integrand.real)) * (u[1] - u[0]) / (2 * math.pi)
    return float(np.clip(integral * math.exp(peak), 0.0, 1.0))
