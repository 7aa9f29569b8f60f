"""Units, such as people, each with one or several rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.rendering import count
from offline_audit.validation import UNKNOWN

__all__ = ["UnitRows", "effective_rows", "require_one_group", "split_units", "unit_count"]


def require_one_group(units: NDArray[np.integer], codes: NDArray[np.integer], name: str) -> None:
    """Require that no unit has rows in several groups of an attribute.

    Args:
        units: Unit of each row, from 0, `[n]`.
        codes: Group of each row; `UNKNOWN` if it is unknown, `[n]`.
        name: Name of the attribute.

    Raises:
        AuditInputError: A unit has rows in several groups.
    """
    if several := len(split_units(units, codes)):
        raise AuditInputError(
            f"units: {count(several, 'unit')} with rows in more than one group of {name}; all rows "
            "of a unit must be in the same group: correct the groups or exclude those rows"
        )


def split_units(units: NDArray[np.integer], codes: NDArray[np.integer]) -> NDArray[np.intp]:
    """Units with rows in several known groups; arguments as of `require_one_group`."""
    known = codes != UNKNOWN
    if not known.any():
        return np.empty(0, np.intp)
    lowest = np.full(int(units.max()) + 1, int(codes.max()) + 1, dtype=np.int64)
    highest = np.full(len(lowest), UNKNOWN, dtype=np.int64)
    np.minimum.at(lowest, units[known], codes[known])
    np.maximum.at(highest, units[known], codes[known])
    return np.flatnonzero(lowest < highest)


def unit_count(units: NDArray[np.integer] | None, rows: int) -> int:
    """Number of units that occur; the number of rows if each is its own unit."""
    return rows if units is None else len(np.unique(units))


def effective_rows(units: NDArray[np.integer] | None, rows: int) -> float:
    """Number of independent rows with the same variance, if all rows of a unit are copies.

    (Σ rows)² / Σ rows² over the units (Kish 1965); the number of rows if each is its own unit.

    Args:
        units: Unit of each row, `[n]`; None if each row is its own unit.
        rows: Number of rows.
    """
    if units is None or rows == 0:
        return float(rows)
    sizes = np.unique(units, return_counts=True)[1].astype(np.float64)
    return float(rows**2 / (sizes**2).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRows:
    """The rows of each unit.

    Attributes:
        order: Indices of the rows, sorted by unit, `[n]`.
        starts: Position of each unit's first row in `order`, `[u]`.
        sizes: Number of rows of each unit, `[u]`.
    """

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    sizes: NDArray[np.intp]

    @classmethod
    def of(cls, units: NDArray[np.integer]) -> UnitRows:
        """Rows of the units that occur, from the unit of each row, `[n]`."""
        sizes = np.unique(units, return_counts=True)[1]
        return cls(
            order=np.argsort(units, kind="stable"), starts=np.cumsum(sizes) - sizes, sizes=sizes
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def rows(self, chosen: NDArray[np.intp]) -> NDArray[np.intp]:
        """Indices of all rows of these units, with repetitions."""
        sizes = self.sizes[chosen]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.asarray(self.order[np.repeat(self.starts[chosen], sizes) + within])

    def one_each(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """Index of one row of each unit, drawn at random, `[u]`."""
        return np.asarray(self.order[self.starts + rng.integers(self.sizes)])
