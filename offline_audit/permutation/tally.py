"""Units of each type in each group: all that a test of a ratio needs to know of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Exchange", "Tally"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]

# Which units may change groups.
Exchange = Literal["counted", "within outcome", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Units by type and group. A unit is a row, or all rows of a person.

    Every metric here is Σa/Σb over units; units with the same a, the same b and the same stratum
    are of one type.

    Attributes:
        values: a and b of each type, `[k, 2]`.
        strata: Units of a type change groups only with units of the same stratum, `[k]`.
        type_of: Type of each entry, `[m]`; an entry is a unit, or many that are alike.
        group_of: Number of the group of each entry, `[m]`.
        weight: Units of each entry, `[m]`.
    """

    values: Float
    strata: Int
    type_of: Int
    group_of: Int
    weight: Int

    @classmethod
    def of_entries(
        cls, a: Float, b: Float, strata: Int, group_of: Int, weight: Int, exchange: Exchange
    ) -> Self:
        """Find the types of entries, `[m]` each; entries without a group are left out."""
        kept = (group_of >= 0) & (weight > 0)
        if exchange == "counted":
            kept &= b > 0
            strata = np.zeros_like(strata)
        elif exchange == "all":
            strata = np.zeros_like(strata)
        a, b, strata = a[kept], b[kept], strata[kept]
        # What is the same everywhere need not be sorted by.
        parts = [part for part in (strata, b, a) if len(part) and part.min() < part.max()]
        order = np.lexsort(parts[::-1]) if parts else np.arange(len(a))
        sorted_parts = [part[order] for part in parts]
        new = np.zeros(len(order), dtype=bool)
        new[:1] = True
        for part in sorted_parts:
            new[1:] |= part[1:] != part[:-1]
        type_of = np.empty(len(order), dtype=np.int64)
        type_of[order] = np.cumsum(new) - 1
        first = order[new]
        return cls(
            values=np.stack([a[first], b[first]], axis=1),
            strata=strata[first],
            type_of=type_of,
            group_of=group_of[kept],
            weight=weight[kept],
        )

    def between(self, groups: Int, others: Int) -> tuple[Int, Int]:
        """Units of each type in some groups and in some others, `[k]` each."""
        return self._within(groups), self._within(others)

    def _within(self, groups: Int) -> Int:
        here = np.isin(self.group_of, groups)
        found = np.bincount(
            self.type_of[here], weights=self.weight[here], minlength=len(self.values)
        )
        return found.astype(np.int64)
