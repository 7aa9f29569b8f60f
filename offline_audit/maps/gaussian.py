"""The Gaussian map: the affine map that matches means and covariances (Bures)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.columns import Columns, Scaling
from offline_audit.maps.transport_map import (
    SQUARED_L2,
    Cost,
    Features,
    Progress,
    TransportMap,
    draw_uniforms,
)

__all__ = ["Affine", "GaussianMap", "GaussianMethod", "bures"]

Float = NDArray[np.float64]
# Share of the largest eigenvalue below which a direction counts as constant.
_SMALLEST = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """The affine map x ↦ target + matrix (x − source) of scaled features.

    Attributes:
        source: Mean of the source, `[d]`.
        target: Mean of the target, `[d]`.
        matrix: Symmetric, `[d, d]`.
    """

    source: Float
    target: Float
    matrix: Float

    def transport(self, scaled: Float) -> Float:
        """Transported rows, `[n, d]` to `[n, d]`."""
        return self.target + (scaled - self.source) @ self.matrix


def bures(source: Float, target: Float) -> Affine:
    """The optimal map for squared L2 between Gaussians with the moments of two samples.

    Its matrix is S^(−1/2) (S^(1/2) T S^(1/2))^(1/2) S^(−1/2), with S and T the covariances (Peyré
    and Cuturi 2019, remark 2.31). Directions in which the source is constant are not stretched.
    """
    source_cov, target_cov = (np.atleast_2d(np.cov(x, rowvar=False)) for x in (source, target))
    root, inverse = _roots(source_cov)
    middle, _ = _roots(root @ target_cov @ root)
    return Affine(source=source.mean(0), target=target.mean(0), matrix=inverse @ middle @ inverse)


def _roots(covariance: Float) -> tuple[Float, Float]:
    """Square root of a covariance matrix, and the pseudo-inverse of that root."""
    # Symmetrized, because products of matrices are symmetric only up to rounding.
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    roots = np.sqrt(np.maximum(values, 0.0))
    varies = values > _SMALLEST * values[-1]
    inverse = np.where(varies, 1 / np.where(varies, roots, 1.0), 0.0)
    return (vectors * roots) @ vectors.T, (vectors * inverse) @ vectors.T


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianMap:
    """An affine map of scaled features, rounded to valid values.

    Attributes:
        scaling: Scaling of the features.
        affine: The map of scaled features.
    """

    scaling: Scaling
    affine: Affine

    @property
    def splits(self) -> bool:
        """True if any variable is not numeric, because those are rounded at random."""
        return any(v.kind != "numeric" for v in self.scaling.columns.variables)

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        moved = self.affine.transport(self.scaling.scaled(features))
        count = len(self.scaling.columns.variables)
        n_counterparts = n_counterparts if self.splits else 1
        return np.stack(
            [
                self.scaling.unscaled(moved, draw_uniforms(features, count, draw, n_counterparts))
                for draw in range(n_counterparts)
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianMethod:
    """Matches means and covariances only."""

    name: str = "gaussian"
    cost: Cost = SQUARED_L2
    quick: bool = True

    def fit(
        self,
        source: Features,
        target: Features,
        columns: Columns,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> TransportMap:
        """See `MapMethod`."""
        scaling = Scaling.of(source, target, columns)
        return GaussianMap(
            scaling=scaling, affine=bures(scaling.scaled(source), scaling.scaled(target))
        )
