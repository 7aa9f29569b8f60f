"""What the data say of one comparison, before names and words are put to it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Self

from offline_audit.permutation.intervals import Interval
from offline_audit.permutation.outcome import Side
from offline_audit.permutation.ratio_test import Judged

__all__ = ["DETECTABLE", "LEAST_UNITS", "Measured", "refused"]

# Units of either group, for a mean, a correlation or a function.
LEAST_UNITS = 30
# z at 97.5% plus z at 80%: a difference of so many standard errors is found in 80% of samples.
DETECTABLE = 1.959964 + 0.841621


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the data say of one comparison, apart from names and words.

    Attributes:
        sides: Counted rows, hits, units and estimate of both groups; `rows` and `name` are open.
        interval: Of the difference.
        method: How the interval was made.
        error: Standard error of the difference if the groups were alike.
        cell: The smallest expected count; None where it has no meaning.
        least: What it must be at least.
        reason: Why there is no p-value; None if there is.
        judged: What the test says; None if it was not run.
    """

    sides: tuple[Side, Side]
    interval: Interval | None
    method: str
    error: float | None
    cell: float | None
    least: float
    reason: str | None
    judged: Judged | None

    def untold(self, reason: str) -> Self:
        """The same without any figure, where the data do not tell it."""
        one, two = (dataclasses.replace(side, estimate=None) for side in self.sides)
        return dataclasses.replace(
            self, sides=(one, two), interval=None, error=None, reason=reason, judged=None
        )


def refused(sides: tuple[Side, Side], least: float, reason: str) -> Measured:
    """No comparison, and why."""
    return Measured(
        sides=sides,
        interval=None,
        method="none",
        error=None,
        cell=0.0,
        least=least,
        reason=reason,
        judged=None,
    )
