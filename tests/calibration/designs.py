"""What a calibration design is: how samples are simulated, and what is counted in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["ALPHA", "Design", "Tries"]

ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """What many simulated samples of one truth gave.

    Attributes:
        simulations: How many.
        refused: Without a p-value.
        rejected: Share with p ≤ 5%, of all simulations.
        rivals: The same of other tests, by name.
        covered: Share of intervals that hold the truth, of those made; None if none was.
    """

    simulations: int
    refused: int
    rejected: float
    rivals: dict[str, float] = field(default_factory=dict)
    covered: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A way to make data.

    Attributes:
        name: What is in it.
        cell: The smallest expected count, as the test itself counts it.
        fair: Simulate so many samples in which the metric is equal, from a seed.
        planted: The same with a planted effect, by the name of the effect.
        known_bad: Name of the rival that must fail, if this design shows it.
    """

    name: str
    cell: float
    fair: Callable[[int, int], Tries]
    planted: dict[str, Callable[[int, int], Tries]] = field(default_factory=dict)
    known_bad: str | None = None
