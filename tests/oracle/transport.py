"""Transport maps one person and one number at a time: search instead of tables, plain Python."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def discrete(
    value: float, here: NDArray[np.float32], there: NDArray[np.float32], uniform: float
) -> float:
    """The value of the same rank, where grids `[513]` of values stand for both distributions."""
    low = int((here < value).sum())
    high = int((here <= value).sum())
    rank = low + uniform * (high - low)
    return float(np.sort(there)[min(int(rank), len(there) - 1)])


def continuous(value: float, here: NDArray[np.float32], there: NDArray[np.float32]) -> float:
    """The value of the same rank by interpolation; outside, as far outside as before."""
    grid = np.linspace(0, 1, len(here))
    inside = float(np.clip(value, here[0], here[-1]))
    rank = np.interp(inside, here.astype(float), grid)
    return float(np.interp(rank, grid, there.astype(float))) + value - inside


def coupling(here: NDArray[np.float64], there: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(category there | category here) that leaves as much as possible where it is, `[c, c]`."""
    gains = np.maximum(there - here, 0)
    table = np.eye(len(here))
    for category in range(len(here)):
        if here[category] > there[category]:
            leave = (here[category] - there[category]) / here[category]
            table[category] = leave * gains / gains.sum()
            table[category, category] += 1 - leave
    return table
