"""What it costs to turn decisions in one cell: the nearest to the boundary turn first."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["CostCurve"]


@dataclass(frozen=True, kw_only=True)
class CostCurve:
    """Cost as a function of how many rows turn: convex, with the sorted distances as slopes.

    Attributes:
        nearest: Distances of the nearest rows, ascending, none infinite.
        rows: Rows that there are, near and far.
        movable: Rows with a finite distance.
        on_boundary: Rows with distance 0.
    """

    nearest: NDArray[np.float64]
    rows: int
    movable: int
    on_boundary: int

    @classmethod
    def of(cls, distances: NDArray[np.float64], reach: float | None = None) -> CostCurve:
        """Sort the nearest rows.

        Args:
            distances: Of all rows of a cell with one decision, `[n]`.
            reach: How many may have to turn; all if None. Only so many are sorted.
        """
        finite = distances[np.isfinite(distances)]
        movable = len(finite)
        wanted = movable if reach is None else min(math.ceil(reach) + 1, movable)
        if 2 * wanted < movable:
            finite = np.partition(finite, wanted)[:wanted]
        return cls(
            nearest=np.sort(finite),
            rows=len(distances),
            movable=movable,
            on_boundary=int(np.count_nonzero(distances == 0)),
        )

    def told_in(self, unit: float) -> CostCurve:
        """The same curve with distances in another unit."""
        return dataclasses.replace(self, nearest=self.nearest / unit)

    @cached_property
    def cumulated(self) -> NDArray[np.float64]:
        """Cost of turning the 0, 1, 2, … nearest rows."""
        return np.concatenate(([0.0], np.cumsum(self.nearest)))

    def cost(self, turned: float) -> float:
        """Cost of turning so many rows, the last one in part; infinite if there are not so many."""
        if turned <= 0:
            return 0.0
        places = np.arange(len(self.cumulated), dtype=np.float64)
        return float(np.interp(turned, places, self.cumulated, right=math.inf))

    def threshold(self, turned: float) -> float:
        """The largest distance that is travelled when so many rows turn; below 0 for none."""
        whole = math.ceil(turned - 1e-9 * max(turned, 1.0))
        return float(self.nearest[min(whole, len(self.nearest)) - 1]) if whole > 0 else -1.0

    def below(self, threshold: float) -> tuple[int, float]:
        """How many rows are nearer than a threshold, and their summed distances."""
        count = int(np.searchsorted(self.nearest, threshold))
        return count, float(self.cumulated[count])
