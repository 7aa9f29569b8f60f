"""A lower bound on the share of flips that holds for every map.

A map that carries the people of group s onto group t turns their decisions into those of t. At
least |rate(s) − rate(t)| of their decisions must change, whatever the map, and in all at least

    Σ_s P(s) · max_t |rate(s) − rate(t)|.

An estimate below it proves that the maps do not explain the difference between the groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["FlipShareBound", "flip_share_bound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipShareBound:
    """Lower bound on the share of flips, with its 95% interval over rows.

    Attributes:
        share: Estimate.
        low: Lower end of the interval.
        high: Upper end.
    """

    share: float
    low: float
    high: float


def flip_share_bound(
    positive: NDArray[np.bool_], groups: NDArray[np.int8]
) -> FlipShareBound | None:
    """The bound from decisions `[n]` and groups `[n]`; None with fewer than two groups.

    The ends follow from simultaneous intervals of all differences of two rates (Agresti and Caffo
    2000, Bonferroni), because a largest difference is biased upwards. They are conservative.

    Args:
        positive: Whether a decision is positive.
        groups: Group of each row; rows with a negative one are ignored.
    """
    known = groups >= 0
    present, own = np.unique(groups[known], return_inverse=True)
    count = len(present)
    if count < 2:
        return None
    sizes = np.bincount(own)
    hits = np.bincount(own, positive[known])
    # One success and one failure more per group.
    adjusted = (hits + 1) / (sizes + 2)
    variance = adjusted * (1 - adjusted) / (sizes + 2)
    half = np.sqrt(variance[:, None] + variance) * stats.norm.isf(0.0125 / math.comb(count, 2))
    gaps = np.abs(np.subtract.outer(hits / sizes, hits / sizes))
    near = np.abs(np.subtract.outer(adjusted, adjusted))
    # A group does not differ from itself.
    others = ~np.eye(count, dtype=bool)
    share, low, high = (
        float((sizes * np.where(others, of, 0.0).max(1)).sum() / sizes.sum())
        for of in (gaps, np.clip(near - half, 0, 1), np.clip(near + half, 0, 1))
    )
    return FlipShareBound(share=share, low=min(low, share), high=max(high, share))
