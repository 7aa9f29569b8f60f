"""Strata and cells of a sample, and the cost of changing decisions within a cell."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.sample import Sample
from offline_audit.rendering import are, count

__all__ = ["Cell", "Constraint", "CostCurve", "Stratum", "cells_of", "distance_warnings"]

# Smallest reach of the cost curves, in standard deviations of a cell's count: the shift at which
# `limiting_law` evaluates the curves is within it.
_NOISE_REACH = 2.0


@dataclass(frozen=True, kw_only=True)
class CostCurve:
    """Cost as a function of the number of rows of a cell that change, nearest rows first.

    The curve is convex and piecewise linear; its slopes are the sorted distances.

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
        """Build the curve from unsorted distances.

        Args:
            distances: Distances of all rows of a cell with one decision, `[n]`.
            reach: Largest number of rows that may have to change; all if None. Only so many of the
                nearest rows are sorted and stored.
        """
        finite = distances[np.isfinite(distances)]
        movable = len(finite)
        needed = movable if reach is None else min(math.ceil(reach) + 1, movable)
        # A selection is linear in the rows; it pays only if it leaves much less to sort.
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
        """Cost of changing the 0, 1, 2, … nearest rows, `[len(nearest) + 1]`."""
        return np.concatenate(([0.0], np.cumsum(self.nearest)))

    def cost(self, changed: float) -> float:
        """Cost of changing this number of rows, the last one in part; infinite beyond `nearest`."""
        if changed <= 0:
            return 0.0
        counts = np.arange(len(self.cumulated), dtype=np.float64)
        return float(np.interp(changed, counts, self.cumulated, right=math.inf))

    def threshold(self, changed: float) -> float:
        """The largest distance among this number of nearest rows; -1 if no row changes."""
        # A count that exceeds a whole number by rounding only is that whole number.
        whole = math.ceil(changed - 1e-9 * max(changed, 1.0))
        return float(self.nearest[min(whole, len(self.nearest)) - 1]) if whole > 0 else -1.0

    def below(self, threshold: float) -> tuple[int, float]:
        """Number of rows nearer than a threshold, and the sum of their distances."""
        count = int(np.searchsorted(self.nearest, threshold))
        return count, float(self.cumulated[count])


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A group whose rate must agree with the rates of the other groups of its attribute.

    Attributes:
        attribute: Index of the attribute.
        group: Index of the group within the attribute.
    """

    attribute: int
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Rows that belong to the same group of every attribute.

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
        constraints: Tested groups, attribute by attribute, at least two per attribute.
    """

    label: int | None
    cells: tuple[Cell, ...]
    constraints: tuple[Constraint, ...]

    @cached_property
    def membership(self) -> NDArray[np.float64]:
        """1 where the cell belongs to the constraint's group, else 0, `[constraints, cells]`."""
        return np.array(
            [[c.groups[k.attribute] == k.group for c in self.cells] for k in self.constraints],
            dtype=np.float64,
        ).reshape(len(self.constraints), len(self.cells))

    @cached_property
    def sizes(self) -> NDArray[np.float64]:
        """Number of rows of each cell, `[cells]`."""
        return np.array([cell.size for cell in self.cells], dtype=np.float64)

    @cached_property
    def positives(self) -> NDArray[np.float64]:
        """Number of rows with decision 1 of each cell, `[cells]`."""
        return np.array([cell.positives for cell in self.cells], dtype=np.float64)

    @cached_property
    def group_sizes(self) -> NDArray[np.float64]:
        """Number of rows of each constraint's group, `[constraints]`."""
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
    sample: Sample, rows: NDArray[np.bool_], tested: list[list[int]], *, all_distances: bool
) -> tuple[Cell, ...]:
    """Cells of a stratum: its rows by combination of tested groups.

    Args:
        sample: The rows.
        rows: Whether a row belongs to the stratum, `[n]`. Rows in no tested group are left out.
        tested: Indices of the tested groups of each attribute.
        all_distances: Whether the cost curves contain all rows. Otherwise they contain the rows
            that a change to any rate between the lowest and the highest one of the cells needs.
    """
    members = np.flatnonzero(rows)
    # Mixed radix: each attribute has its tested groups and 0 for "not tested".
    combinations = math.prod(len(groups) + 1 for groups in tested)
    # The smallest integer type: a stable sort of small integers is linear in the rows.
    small = np.min_scalar_type(2 * combinations)
    combination = np.zeros(len(members), dtype=small)
    for attribute, groups in zip(sample.attributes, tested, strict=True):
        # Code -1, an unknown group, reads the last entry, which stays 0.
        index = np.zeros(len(attribute.groups) + 1, dtype=small)
        index[groups] = np.arange(1, len(groups) + 1)
        combination *= small.type(len(groups) + 1)
        combination += index[attribute.codes[members]]
    code = small.type(2) * combination + sample.decisions[members].astype(small)
    order = members[np.argsort(code, kind="stable")]
    starts = np.concatenate(([0], np.cumsum(np.bincount(code, minlength=2 * combinations))))
    parts = []
    rates: list[float] = []
    # Combination 0 has no tested group.
    for number in range(1, combinations):
        negative = order[starts[2 * number] : starts[2 * number + 1]]
        positive = order[starts[2 * number + 1] : starts[2 * number + 2]]
        if len(negative) + len(positive):
            parts.append((_groups_of(number, tested), negative, positive))
            rates.append(len(positive) / (len(negative) + len(positive)))
    return tuple(
        _cell(
            sample.distances,
            groups,
            negative,
            positive,
            rate_range=None if all_distances else (min(rates), max(rates)),
        )
        for groups, negative, positive in parts
    )


def _groups_of(combination: int, tested: list[list[int]]) -> tuple[int, ...]:
    """Index of the group of each attribute, from the number of a combination."""
    indices = []
    for groups in reversed(tested):
        combination, index = divmod(combination, len(groups) + 1)
        indices.append(groups[index - 1] if index else -1)
    return tuple(reversed(indices))


def _cell(
    distances: NDArray[np.float64],
    groups: tuple[int, ...],
    negative: NDArray[np.intp],
    positive: NDArray[np.intp],
    *,
    rate_range: tuple[float, float] | None,
) -> Cell:
    """A cell whose curves reach every rate of the range; all rows if it is None."""
    up: float | None = None
    down: float | None = None
    size = len(negative) + len(positive)
    if rate_range is not None:
        noise = _NOISE_REACH * math.sqrt(size) / 2
        up = max(size * rate_range[1] - len(positive), noise)
        down = max(len(positive) - size * rate_range[0], noise)
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
