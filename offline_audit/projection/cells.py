"""Rows by cell: the crossing of all groups, within the outcomes that a criterion looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.cost_curve import CostCurve

__all__ = ["Cell", "Constraint", "Stratum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A group of one attribute, whose rate must agree with the attribute's other groups.

    Attributes:
        attribute: Place of the attribute.
        group: Place of the group among the attribute's.
    """

    attribute: int
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Rows that are in the same groups.

    Attributes:
        groups: Place of the group for each attribute; -1 for none that is tested.
        positive_rows: Places of the rows with decision 1.
        negative_rows: Places of the rows with decision 0.
        fall: What it costs to turn decisions from 1 to 0.
        rise: What it costs to turn decisions from 0 to 1.
    """

    groups: tuple[int, ...]
    positive_rows: NDArray[np.intp]
    negative_rows: NDArray[np.intp]
    fall: CostCurve
    rise: CostCurve

    @property
    def size(self) -> int:
        """Rows."""
        return len(self.positive_rows) + len(self.negative_rows)

    @property
    def positives(self) -> int:
        """Rows with decision 1."""
        return len(self.positive_rows)


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """The rows that one part of a criterion looks at: all, or those of one outcome.

    Attributes:
        label: The outcome; None for all rows.
        cells: None is empty.
        constraints: The groups that are tested, attribute by attribute; two or more of each.
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
        """Rows of each cell."""
        return np.array([cell.size for cell in self.cells], dtype=np.float64)

    @cached_property
    def positives(self) -> NDArray[np.float64]:
        """Rows with decision 1 of each cell."""
        return np.array([cell.positives for cell in self.cells], dtype=np.float64)

    @cached_property
    def group_sizes(self) -> NDArray[np.float64]:
        """Rows of each constraint's group."""
        return self.membership @ self.sizes

    @cached_property
    def rates(self) -> NDArray[np.float64]:
        """Share of decisions 1 in each constraint's group."""
        return (self.membership @ self.positives) / self.group_sizes

    @cached_property
    def attributes(self) -> tuple[int, ...]:
        """Attributes with groups that are tested."""
        return tuple(sorted({constraint.attribute for constraint in self.constraints}))

    def of(self, attribute: int) -> Sequence[int]:
        """Places of an attribute's constraints."""
        return [i for i, k in enumerate(self.constraints) if k.attribute == attribute]
