"""Cells of rows in the same groups, and what it costs to change their decisions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cell", "Constraint", "CostCurve", "Stratum"]


@dataclass(frozen=True, kw_only=True)
class CostCurve:
    """Cost as a function of how many rows of a cell change their decision, nearest rows first.

    The curve is convex and piecewise linear, with the sorted distances as slopes.

    Attributes:
        nearest: Finite distances of the nearest rows, ascending.
        rows: Number of rows.
        movable: Number of rows with a finite distance.
        on_boundary: Number of rows with distance 0.
    """

    nearest: NDArray[np.float64]
    rows: int
    movable: int
    on_boundary: int

    @classmethod
    def of(cls, distances: NDArray[np.float64], reach: float | None = None) -> CostCurve:
        """Sort the nearest rows.

        Args:
            distances: Distances of all rows of a cell with one decision, `[n]`.
            reach: Number of rows that may have to change; all if None. Only these are sorted.
        """
        finite = distances[np.isfinite(distances)]
        movable = len(finite)
        needed = movable if reach is None else min(math.ceil(reach) + 1, movable)
        if 2 * needed < movable:
            finite = np.partition(finite, needed)[:needed]
        return cls(
            nearest=np.sort(finite),
            rows=len(distances),
            movable=movable,
            on_boundary=int(np.count_nonzero(distances == 0)),
        )

    def in_unit(self, unit: float) -> CostCurve:
        """The same curve with distances in another unit."""
        return dataclasses.replace(self, nearest=self.nearest / unit)

    @cached_property
    def cumulated(self) -> NDArray[np.float64]:
        """Cost of changing the 0, 1, 2, … nearest rows."""
        return np.concatenate(([0.0], np.cumsum(self.nearest)))

    def cost(self, changed: float) -> float:
        """Cost of changing so many rows, the last one in part; infinite if there are too few."""
        if changed <= 0:
            return 0.0
        counts = np.arange(len(self.cumulated), dtype=np.float64)
        return float(np.interp(changed, counts, self.cumulated, right=math.inf))

    def threshold(self, changed: float) -> float:
        """The largest distance among so many nearest rows; negative if none change."""
        # A count that exceeds a whole number by rounding only is that whole number.
        whole = math.ceil(changed - 1e-9 * max(changed, 1.0))
        return float(self.nearest[min(whole, len(self.nearest)) - 1]) if whole > 0 else -1.0

    def below(self, threshold: float) -> tuple[int, float]:
        """Number of rows nearer than a threshold, and the sum of their distances."""
        count = int(np.searchsorted(self.nearest, threshold))
        return count, float(self.cumulated[count])


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A group of one attribute, whose rate must agree with the attribute's other groups.

    Attributes:
        attribute: Index of the attribute.
        group: Index of the group within the attribute.
    """

    attribute: int
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Rows that are in the same groups.

    Attributes:
        groups: Index of the group for each attribute; -1 if the group is not tested.
        positive_rows: Indices of the rows with decision 1.
        negative_rows: Indices of the rows with decision 0.
        fall: Cost of changing decisions from 1 to 0.
        rise: Cost of changing decisions from 0 to 1.
    """

    groups: tuple[int, ...]
    positive_rows: NDArray[np.intp]
    negative_rows: NDArray[np.intp]
    fall: CostCurve
    rise: CostCurve

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.positive_rows) + len(self.negative_rows)

    @property
    def positives(self) -> int:
        """Number of rows with decision 1."""
        return len(self.positive_rows)


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """The rows within which a criterion compares rates: all rows, or those with one label.

    Attributes:
        label: The label; None for all rows.
        cells: Cells, none of them empty.
        constraints: Tested groups, attribute by attribute, at least two of each.
    """

    label: int | None
    cells: tuple[Cell, ...]
    constraints: tuple[Constraint, ...]

    @cached_property
    def membership(self) -> NDArray[np.float64]:
        """1 where a cell is part of a constraint's group, `[constraints, cells]`."""
        return np.array(
            [[c.groups[k.attribute] == k.group for c in self.cells] for k in self.constraints],
            dtype=np.float64,
        ).reshape(len(self.constraints), len(self.cells))

    @cached_property
    def sizes(self) -> NDArray[np.float64]:
        """Rows of each cell, `[cells]`."""
        return np.array([cell.size for cell in self.cells], dtype=np.float64)

    @cached_property
    def positives(self) -> NDArray[np.float64]:
        """Rows with decision 1 of each cell, `[cells]`."""
        return np.array([cell.positives for cell in self.cells], dtype=np.float64)

    @cached_property
    def group_sizes(self) -> NDArray[np.float64]:
        """Rows of each constraint's group, `[constraints]`."""
        return self.membership @ self.sizes

    @cached_property
    def rates(self) -> NDArray[np.float64]:
        """Share of decision 1 in each constraint's group, `[constraints]`."""
        return (self.membership @ self.positives) / self.group_sizes

    @cached_property
    def attributes(self) -> tuple[int, ...]:
        """Indices of the attributes with tested groups."""
        return tuple(sorted({constraint.attribute for constraint in self.constraints}))

    def of(self, attribute: int) -> Sequence[int]:
        """Indices of an attribute's constraints."""
        return [i for i, k in enumerate(self.constraints) if k.attribute == attribute]
