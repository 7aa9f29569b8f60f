"""FlipTest of one feature, one row at a time: equal ranks correspond, ties are split."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def counterparts(
    person: float, source: Sequence[float], target: Sequence[float]
) -> dict[float, float]:
    """Values of the target with a person's ranks, and the part of her that has each."""
    n, m = len(source), len(target)
    low = sum(other < person for other in source) / n
    high = sum(other <= person for other in source) / n
    parts: dict[float, float] = {}
    for place, value in enumerate(sorted(target)):
        shared = min(high, (place + 1) / m) - max(low, place / m)
        if shared > 0:
            parts[value] = parts.get(value, 0.0) + shared / (high - low)
    return parts


def flips(
    source: Sequence[float], target: Sequence[float], decide: Callable[[float], bool]
) -> tuple[list[float], list[float]]:
    """The part of each person that is advantaged, and the part that is disadvantaged."""
    advantaged, disadvantaged = [], []
    for person in source:
        parts = counterparts(person, source, target)
        otherwise = sum(part for value, part in parts.items() if decide(value) != decide(person))
        advantaged.append(otherwise if decide(person) else 0.0)
        disadvantaged.append(0.0 if decide(person) else otherwise)
    return advantaged, disadvantaged
