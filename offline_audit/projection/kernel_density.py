"""The paper's estimate of how crowded the decision boundary is (section 5.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.cells import Stratum
from offline_audit.projection.sample import Sample

__all__ = ["kernel_crowding"]


def kernel_crowding(
    sample: Sample, strata: Sequence[Stratum], *, bandwidth: float | None = None
) -> NDArray[np.float64]:
    """Rows per unit of signed distance at 0 by a Gaussian kernel, `[cells]`.

    Args:
        sample: The rows.
        strata: Their cells.
        bandwidth: The same for all cells; by Silverman's rule on a stratum's rows if None.
    """
    found = []
    for stratum in strata:
        signed = [
            np.concatenate([sample.distances[c.positive_rows], -sample.distances[c.negative_rows]])
            for c in stratum.cells
        ]
        h = bandwidth or _silverman(np.concatenate(signed))
        density = [np.exp(-0.5 * (part / h) ** 2).sum() for part in signed]
        found += [float(total / (h * math.sqrt(2 * math.pi))) for total in density]
    return np.array(found)


def _silverman(signed: NDArray[np.float64]) -> float:
    """0.9 min(sd, IQR/1.34) n^(-1/5) of the finite distances."""
    finite = signed[np.isfinite(signed)]
    if len(finite) < 2:
        return 1.0
    low, high = np.quantile(finite, [0.25, 0.75])
    spread = min(float(finite.std(ddof=1)), float(high - low) / 1.34)
    return float(0.9 * (spread or 1.0) * len(finite) ** -0.2)
