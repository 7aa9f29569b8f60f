"""The cheapest change of decisions that brings the groups of one attribute to a common rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.cells import Cell

__all__ = ["FairChange", "common_rate"]

# Costs that differ by this share only are equal.
_TIE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class FairChange:
    """The smallest fair change: how many decisions change in each cell.

    Attributes:
        cost: Sum of the distances; infinite if no change is fair, or none was found.
        rise: Rows that change from 0 to 1 in each cell, the last one in part, `[cells]`.
        fall: Rows that change from 1 to 0 in each cell, the last one in part, `[cells]`.
        unique: Whether no other change has the same cost; None if this was not examined.
        certified_gap: Bound on the relative distance of the cost from the optimum; infinite if the
            solver failed before it found a fair change.
    """

    cost: float
    rise: NDArray[np.float64]
    fall: NDArray[np.float64]
    unique: bool | None
    certified_gap: float = 0.0


def common_rate(
    cells: Sequence[Cell], *, tolerance: float = 0.0, favoured: int | None = None
) -> FairChange:
    """Minimise Σ_g F_g over an interval of rates [l, l + tolerance], exactly (Proposition 1).

    F_g(r), the cost of bringing group g to rate r, is convex and linear between the rates that
    whole rows reach, so the minimum of the sum is at one of those points. Groups below the interval
    rise to l, groups above it fall to l + tolerance. With two groups this is the fractional
    knapsack of Algorithm 1. Only decisions change: groups and labels, and so the sizes n_g, stay
    (the cost c of section 2.2).

    Args:
        cells: One cell a group, with curves that reach the rates of all others.
        tolerance: ε of section 4.
        favoured: Index of the group that may be ahead by at most the tolerance; the others may be
            ahead of it by any amount. None: no two groups may differ by more than the tolerance.
    """
    rows, positive = sum(c.size for c in cells), sum(c.positives for c in cells)
    falling = range(len(cells)) if favoured is None else [favoured]
    rising = [g for g in range(len(cells)) if g != favoured]
    # Rates are relative to the pooled rate, in whole numbers until the last division, so that
    # equal rates compare as equal.
    up = {g: _reached(cells[g], rows, positive, rise=True) for g in rising}
    down = {g: _reached(cells[g], rows, positive, rise=False) for g in falling}
    levels = np.unique(np.concatenate([*up.values(), *(r - tolerance for r in down.values())]))
    total = np.zeros(len(levels))
    for g, rates in up.items():
        total += np.interp(levels, rates, cells[g].rise.cumulated, right=math.inf)
    for g, rates in down.items():
        costs = cells[g].fall.cumulated[::-1]
        total += np.interp(levels + tolerance, rates[::-1], costs, left=math.inf)
    # Interpolation can fall below 0 by a rounding error.
    total = np.maximum(total, 0.0)
    least = float(total.min())
    if math.isinf(least):
        none = np.zeros(len(cells))
        return FairChange(cost=math.inf, rise=none, fall=none, unique=False)
    tied = levels[total <= least * (1 + _TIE)]
    level = (float(tied[0]) + float(tied[-1])) / 2
    rise, fall = np.zeros(len(cells)), np.zeros(len(cells))
    for g, rates in up.items():
        rise[g] = max(level - rates[0], 0.0) * cells[g].size
    for g, rates in down.items():
        fall[g] = max(rates[0] - (level + tolerance), 0.0) * cells[g].size
    return FairChange(cost=least, rise=rise, fall=fall, unique=least == 0 or len(tied) == 1)


def _reached(cell: Cell, rows: int, positive: int, *, rise: bool) -> NDArray[np.float64]:
    """Rates minus the pooled rate after the 0, 1, 2, … nearest rows of a cell have changed."""
    curve = cell.rise if rise else cell.fall
    changed = np.arange(len(curve.cumulated), dtype=np.int64)
    counts = cell.positives + changed if rise else cell.positives - changed
    return (counts * rows - positive * cell.size) / (cell.size * rows)
