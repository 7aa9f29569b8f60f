"""Values that the columns of a table may hold: their grids, on which counterparts lie.

Maps compute in float32, in which 2.6 becomes 2.5999999. A rule such as `gpa >= 2.6` would decide
differently on that number. Counterparts therefore have the row's own value, bit for bit, where the
map does not change it, and elsewhere a value that the column could hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.columns import Columns, Features
from offline_audit.maps.transport_map import TransportMap

__all__ = ["Grid", "GridMap"]

Float = NDArray[np.float64]

# Most decimals of a grid; finer values are continuous.
_MOST_DECIMALS = 12
# Values that are tested first, because most columns without a grid fail on a few of them.
_FIRST_VALUES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnGrid:
    """Values of one ordered column: (offset + step · i) / 10^decimals for whole numbers i.

    Attributes:
        kind: Type of the column's values; values on the grid are rounded to it.
        decimals: Number of decimals of the values; None if they have no common step.
        offset: Smallest value, in units of the last decimal.
        step: Greatest common divisor of all differences, in the same units.
        rounded: Distinct values in float32, sorted, `[m]`.
        observed: The first value of the column that has each float32, `[m]`.
        looked_up: Whether an observed value may be another one in float32 and on the grid.
        limits: Range of the values of a column of whole numbers; None for other columns.
    """

    kind: np.dtype[Any]
    decimals: int | None
    offset: float
    step: float
    rounded: NDArray[np.float32]
    observed: Float
    looked_up: bool
    limits: tuple[float, float] | None

    @classmethod
    def of(cls, values: Features, kind: np.dtype[Any], *, whole: bool) -> _ColumnGrid:
        """The grid of a column, `[n]`."""
        # Values outside of a type of whole numbers would wrap around.
        whole = whole or kind.kind in "biu"
        kind = kind if kind.kind == "f" else np.dtype(np.float64)
        distinct = np.unique(values.astype(np.float64))
        rounded, first = np.unique(distinct.astype(np.float32), return_index=True)
        largest = float(np.abs(distinct).max())
        decimals = _decimals(distinct, kind, largest)
        offset, step = 0.0, 1.0
        if decimals is not None:
            units = np.rint(distinct * 10.0**decimals)
            offset = float(units[0])
            # Zero for a constant column.
            step = float(np.gcd.reduce((units - offset).astype(np.int64)) or 1)
        # Rounding to float32 must move a value by less than a quarter of a step.
        error = largest * float(np.finfo(np.float32).eps) / 2
        return cls(
            kind=kind,
            decimals=decimals,
            offset=offset,
            step=step,
            rounded=rounded,
            observed=distinct[first],
            looked_up=decimals is None or 4 * error * 10.0**decimals >= step,
            limits=(float(distinct[0]), float(distinct[-1])) if whole else None,
        )

    def nearest(self, values: Features) -> Float:
        """Values of the column for values that a map computed, `[m]` to `[m]`."""
        placed = values.astype(np.float64)
        if self.decimals is not None:
            unit = 10.0**self.decimals
            index = np.rint((placed * unit - self.offset) / self.step)
            # A quotient of whole numbers is rounded as a parser rounds the decimal.
            placed = ((self.offset + self.step * index) / unit).astype(self.kind)
        if self.limits is not None:
            placed = np.clip(placed, *self.limits)
        if self.looked_up:
            at = np.minimum(np.searchsorted(self.rounded, values), len(self.rounded) - 1)
            placed = np.where(self.rounded[at] == values, self.observed[at], placed)
        return placed.astype(np.float64)


def _decimals(distinct: Float, kind: np.dtype[Any], largest: float) -> int | None:
    """Fewest decimals with which all values can be written; None if there are too many."""
    for decimals in range(_MOST_DECIMALS + 1):
        unit = 10.0**decimals
        # With steps as fine as the type itself, every number would be on the grid.
        if largest * unit * float(np.finfo(kind).eps) > 0.25:
            return None
        if all(
            ((np.rint(part * unit) / unit).astype(kind) == part).all()
            for part in (distinct[:_FIRST_VALUES], distinct)
        ):
            return decimals
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Values that each column of a table may hold.

    Attributes:
        columns: Grid of each ordered column that is not binary, by its index. Maps return valid
            values of the other columns.
    """

    columns: Mapping[int, _ColumnGrid] = field(default_factory=dict)

    @classmethod
    def of(cls, features: Features, columns: Columns, kinds: Sequence[np.dtype[Any]]) -> Grid:
        """The grids of a table.

        Args:
            features: Exact values of all rows, `[n, d]`.
            columns: Description of the columns.
            kinds: Type of the values of each column in the user's table, d.
        """
        grids = {
            variable.columns[0]: _ColumnGrid.of(
                features[:, variable.columns[0]],
                kinds[variable.columns[0]],
                whole=variable.kind == "integer",
            )
            for variable in columns.variables
            if variable.kind in ("numeric", "integer") and len(features)
        }
        return cls(columns=grids)

    def counterparts(self, transported: Features, own: Features) -> Features:
        """Rows for the model: the own value where the map keeps it, else one on the grid.

        Args:
            transported: Counterparts of each row, as the map computes them, float32 `[e, n, d]`.
            own: Exact values of the rows, `[n, d]`.
        """
        moved = transported != own.astype(np.float32)
        placed: Features = np.where(moved, transported, own)
        for column, grid in self.columns.items():
            cells = moved[:, :, column]
            if cells.any():
                placed[:, :, column][cells] = grid.nearest(transported[:, :, column][cells])
        return placed


@dataclass(frozen=True, slots=True, kw_only=True)
class GridMap:
    """A map of exact values: it computes in float32, and returns counterparts on a grid.

    Attributes:
        map: The map that computes.
        grid: Values that counterparts may have.
    """

    map: TransportMap
    grid: Grid

    @property
    def splits(self) -> bool:
        """See `TransportMap`."""
        return self.map.splits

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        rounded = features.astype(np.float32, copy=False)
        return self.grid.counterparts(self.map.transport(rounded, n_counterparts), features)
