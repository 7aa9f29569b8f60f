"""A calibration design: how samples are simulated, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["ALPHA", "Design", "Tries"]

ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """Results of many simulated samples of one truth.

    Attributes:
        simulations: Number of simulations.
        refused: Number of simulations without a p-value.
        rejected: Share of simulations with p ≤ 5%.
        rivals: Share of simulations with p ≤ 5% by other tests, by name.
        covered: Share of intervals that contain the truth; None without intervals.
    """

    simulations: int
    refused: int
    rejected: float
    rivals: dict[str, float] = field(default_factory=dict)
    covered: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A simulation design.

    Attributes:
        name: Description of the data.
        cell: Smallest expected count, as defined by the test.
        fair: Simulates samples without an effect, from their number and a seed.
        planted: Simulates samples with an effect, by the name of the effect.
        known_bad: Name of a rival that must fail on this design, if any.
    """

    name: str
    cell: float
    fair: Callable[[int, int], Tries]
    planted: dict[str, Callable[[int, int], Tries]] = field(default_factory=dict)
    known_bad: str | None = None
