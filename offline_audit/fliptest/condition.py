"""Conditions that make up a rule, as a person reads them and as they are asked of people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.columns import Columns
from offline_audit.maps.dependence import category_places
from offline_audit.maps.transport_map import Features

__all__ = ["Condition", "all_hold"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One variable within limits, or in some of its categories.

    Attributes:
        variable: Its name.
        low: It is at least this; None without a limit.
        high: It is below this; None without a limit.
        among: Categories that it may have, "0" or "1" of a binary; empty for a number.
        without: The other categories.
    """

    variable: str
    low: float | None = None
    high: float | None = None
    among: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def holds(self, features: Features, columns: Columns) -> Bools:
        """For whom it is true, `[n, d]` to bool `[n]`."""
        variable = next(each for each in columns.variables if each.name == self.variable)
        values = features[:, variable.columns[0]]
        if variable.kind == "category":
            allowed = np.array([name in self.among for name in variable.categories])
            return allowed[category_places(features, variable)]
        if variable.kind == "binary":
            return np.asarray((values == 1) == ("1" in self.among))
        found = np.ones(len(features), bool)
        if self.low is not None:
            found &= values >= self.low
        if self.high is not None:
            found &= values < self.high
        return found

    def __str__(self) -> str:
        if {*self.among, *self.without} == {"0", "1"}:
            return f"{self.variable} = {self.among[0]}"
        if self.among and len(self.among) <= len(self.without):
            return f"{self.variable} is {' or '.join(self.among)}"
        if self.among:
            return f"{self.variable} is not {' or '.join(self.without)}"
        if self.low is not None and self.high is not None:
            return f"{self.low:,.12g} ≤ {self.variable} < {self.high:,.12g}"
        limit = f"< {self.high:,.12g}" if self.low is None else f"≥ {self.low:,.12g}"
        return f"{self.variable} {limit}"


def all_hold(conditions: Sequence[Condition], features: Features, columns: Columns) -> Bools:
    """For whom all are true, `[n, d]` to bool `[n]`; for everyone if there are none."""
    found = np.ones(len(features), bool)
    for condition in conditions:
        found &= condition.holds(features, columns)
    return found
