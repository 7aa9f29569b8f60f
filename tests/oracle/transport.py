"""Transport maps one person and one number at a time, by search instead of lookup tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def discrete(
    value: float, source: NDArray[np.float32], target: NDArray[np.float32], uniform: float
) -> float:
    """The value of the same rank, from quantile grids `[513]` of both distributions."""
    low = int((source < value).sum())
    high = int((source <= value).sum())
    rank = low + uniform * (high - low)
    return float(np.sort(target)[min(int(rank), len(target) - 1)])


def continuous(value: float, source: NDArray[np.float32], target: NDArray[np.float32]) -> float:
    """The value of the same rank by interpolation; outside the range, the excess is kept."""
    grid = np.linspace(0, 1, len(source))
    inside = float(np.clip(value, source[0], source[-1]))
    rank = np.interp(inside, source.astype(float), grid)
    return float(np.interp(rank, grid, target.astype(float))) + value - inside


def coupling(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(target category | source category) with maximal probability of no change, `[c, c]`."""
    gains = np.maximum(target - source, 0)
    table = np.eye(len(source))
    for category in range(len(source)):
        if source[category] > target[category]:
            leaving = (source[category] - target[category]) / source[category]
            table[category] = leaving * gains / gains.sum()
            table[category, category] += 1 - leaving
    return table
