"""Permutation tests by going through every rearrangement, one row at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

Statistic = Callable[[list[int], list[int]], float]


def rearranged(n: int, size: int) -> Iterator[tuple[list[int], list[int]]]:
    """Every choice of `size` among n rows, and the rest."""
    for chosen in itertools.combinations(range(n), size):
        inside = set(chosen)
        yield list(chosen), [row for row in range(n) if row not in inside]


def p_value(statistic: Statistic, group: Sequence[int], other: Sequence[int]) -> float:
    """Share of rearrangements with |T| beyond the one seen; those with the same count half."""
    seen = abs(statistic(list(group), list(other)))
    pool = [*group, *other]
    above = tied = total = 0
    for one, two in rearranged(len(pool), len(group)):
        found = abs(statistic([pool[i] for i in one], [pool[i] for i in two]))
        total += 1
        if math.isclose(found, seen, rel_tol=1e-9, abs_tol=1e-9):
            tied += 1
        elif found > seen:
            above += 1
    return (above + tied / 2) / total


def agresti_caffo(hits: Sequence[bool]) -> Statistic:
    """T of rates, one success and one failure added to each group as rows of their own."""

    def statistic(group: list[int], other: list[int]) -> float:
        means, spreads = [], []
        for rows in (group, other):
            values = np.array([*(float(hits[row]) for row in rows), 0.0, 1.0])
            means.append(values.mean())
            spreads.append(values.var() / len(values))
        return float((means[0] - means[1]) / math.sqrt(sum(spreads)))

    return statistic


def bent_welch(values: Sequence[float]) -> Statistic:
    """Welch's t, bent by half of its skewness."""

    def statistic(group: list[int], other: list[int]) -> float:
        means, spreads, thirds = [], [], []
        for rows in (group, other):
            here = np.array([values[row] for row in rows])
            means.append(here.mean())
            spreads.append(here.var(ddof=1) / len(here))
            thirds.append(((here - here.mean()) ** 3).sum() / len(here) ** 3)
        return _bent(means, spreads, thirds)

    return statistic


def auc_with_delong(
    scores: Sequence[float], labels: Sequence[int], rows: list[int]
) -> tuple[float, float, float]:
    """AUC, DeLong's variance and third cumulant, pair by pair."""
    positives = [scores[row] for row in rows if labels[row] == 1]
    negatives = [scores[row] for row in rows if labels[row] == 0]
    wins = np.array([[(p > n) + (p == n) / 2 for n in negatives] for p in positives])
    by_positive, by_negative = wins.mean(axis=1), wins.mean(axis=0)
    variance = third = 0.0
    for placed in (by_positive, by_negative):
        variance += placed.var(ddof=1) / len(placed)
        third += ((placed - placed.mean()) ** 3).sum() / len(placed) ** 3
    return float(wins.mean()), float(variance), float(third)


def bent_delong(scores: Sequence[float], labels: Sequence[int]) -> Statistic:
    """The difference of AUCs over DeLong's error, bent by half of its skewness."""

    def statistic(group: list[int], other: list[int]) -> float:
        parts = [auc_with_delong(scores, labels, rows) for rows in (group, other)]
        aucs, spreads, thirds = zip(*parts, strict=True)
        return _bent(aucs, spreads, thirds)

    return statistic


def _bent(means: Sequence[float], spreads: Sequence[float], thirds: Sequence[float]) -> float:
    spread = sum(spreads)
    t = (means[0] - means[1]) / math.sqrt(spread)
    g = 0.5 * (thirds[0] - thirds[1]) / spread**1.5
    return float(t + g / 3 * t**2 + g**2 / 27 * t**3 + g / 6)
