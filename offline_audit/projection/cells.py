"""Cells of rows in the same groups, and what it costs to change their decisions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from offline_audit.formatting import are, count
from offline_audit.projection.sample import Sample

__all__ = ["Cell", "Constraint", "CostCurve", "Stratum", "cells_of", "distance_warnings"]

# Smallest reach of the cost curves, in standard deviations of a cell's count: the shift at which
# `limiting_law` evaluates the curves is within it.
_NOISE_REACH = 2.0


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


def cells_of(
    sample: Sample, chosen: NDArray[np.bool_], kept: list[list[int]], *, all_distances: bool
) -> tuple[Cell, ...]:
    """Rows by crossing of groups, without those in no tested group."""
    rows = np.flatnonzero(chosen)
    crossings = math.prod(len(groups) + 1 for groups in kept)
    # The smallest integer type: a stable sort of small integers is linear in the rows.
    small = np.min_scalar_type(2 * crossings)
    joint = np.zeros(len(rows), dtype=small)
    for attribute, groups in zip(sample.attributes, kept, strict=True):
        index = np.zeros(len(attribute.groups) + 1, dtype=small)
        index[groups] = np.arange(1, len(groups) + 1)
        joint *= small.type(len(groups) + 1)
        joint += index[attribute.codes[rows]]
    code = small.type(2) * joint + sample.decisions[rows].astype(small)
    order = rows[np.argsort(code, kind="stable")]
    starts = np.concatenate(([0], np.cumsum(np.bincount(code, minlength=2 * crossings))))
    parts = []
    rates: list[float] = []
    for joined in range(1, crossings):
        negative = order[starts[2 * joined] : starts[2 * joined + 1]]
        positive = order[starts[2 * joined + 1] : starts[2 * joined + 2]]
        if len(negative) + len(positive):
            parts.append((_groups_of(joined, kept), negative, positive))
            rates.append(len(positive) / (len(negative) + len(positive)))
    return tuple(
        _cell(
            sample.distances,
            groups,
            negative,
            positive,
            span=None if all_distances else (min(rates), max(rates)),
        )
        for groups, negative, positive in parts
    )


def _groups_of(joined: int, kept: list[list[int]]) -> tuple[int, ...]:
    """Groups of a cell, from its number."""
    indices = []
    for groups in reversed(kept):
        joined, index = divmod(joined, len(groups) + 1)
        indices.append(groups[index - 1] if index else -1)
    return tuple(reversed(indices))


def _cell(
    distances: NDArray[np.float64],
    groups: tuple[int, ...],
    negative: NDArray[np.intp],
    positive: NDArray[np.intp],
    *,
    span: tuple[float, float] | None,
) -> Cell:
    up: float | None = None
    down: float | None = None
    size = len(negative) + len(positive)
    if span is not None:
        noise = _NOISE_REACH * math.sqrt(size) / 2
        up = max(size * span[1] - len(positive), noise)
        down = max(len(positive) - size * span[0], noise)
    return Cell(
        groups=groups,
        positive_rows=positive,
        negative_rows=negative,
        fall=CostCurve.of(distances[positive], down),
        rise=CostCurve.of(distances[negative], up),
    )


def distance_warnings(strata: Sequence[Stratum]) -> list[str]:
    """Warnings about rows that change at no cost, and about rows that never change."""
    curves = [curve for s in strata for cell in s.cells for curve in (cell.rise, cell.fall)]
    on_boundary = sum(curve.on_boundary for curve in curves)
    infinite = sum(curve.rows - curve.movable for curve in curves)
    warnings = []
    if on_boundary:
        warnings.append(
            f"{count(on_boundary, 'row')} {are(on_boundary)} on the boundary (distance 0): their "
            "decisions change at no cost."
        )
    if infinite:
        warnings.append(
            f"{count(infinite, 'row')} {are(infinite)} at an infinite distance: their decisions "
            "never change."
        )
    return warnings
