"""FlipTest of one feature, one row at a time: equal ranks correspond, ties are split."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def counterparts(
    person: float, source: Sequence[float], target: Sequence[float]
) -> dict[float, float]:
    """Values of the target at a person's ranks, and the share of each."""
    n, m = len(source), len(target)
    low = sum(other < person for other in source) / n
    high = sum(other <= person for other in source) / n
    parts: dict[float, float] = {}
    for index, value in enumerate(sorted(target)):
        shared = min(high, (index + 1) / m) - max(low, index / m)
        if shared > 0:
            parts[value] = parts.get(value, 0.0) + shared / (high - low)
    return parts


def flips(
    source: Sequence[float], target: Sequence[float], decide: Callable[[float], bool]
) -> tuple[list[float], list[float]]:
    """The advantaged share of each person, and the disadvantaged share."""
    advantaged, disadvantaged = [], []
    for person in source:
        parts = counterparts(person, source, target)
        changed = sum(part for value, part in parts.items() if decide(value) != decide(person))
        advantaged.append(changed if decide(person) else 0.0)
        disadvantaged.append(0.0 if decide(person) else changed)
    return advantaged, disadvantaged
