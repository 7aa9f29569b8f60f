"""Permutation tests by enumeration of every permutation, one row at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

Statistic = Callable[[list[int], list[int]], float]


def splits(n: int, size: int) -> Iterator[tuple[list[int], list[int]]]:
    """Every choice of `size` among n rows, and the remaining rows."""
    for chosen in itertools.combinations(range(n), size):
        inside = set(chosen)
        yield list(chosen), [row for row in range(n) if row not in inside]


def p_value(statistic: Statistic, group: Sequence[int], other: Sequence[int]) -> float:
    """Share of permutations with a larger |T| than observed; ties count half."""
    observed = abs(statistic(list(group), list(other)))
    pool = [*group, *other]
    above = tied = total = 0
    for first, second in splits(len(pool), len(group)):
        permuted = abs(statistic([pool[i] for i in first], [pool[i] for i in second]))
        total += 1
        if math.isclose(permuted, observed, rel_tol=1e-9, abs_tol=1e-9):
            tied += 1
        elif permuted > observed:
            above += 1
    return (above + tied / 2) / total


def agresti_caffo(hits: Sequence[bool]) -> Statistic:
    """T of rates, with one success and one failure added to each group as rows."""

    def statistic(group: list[int], other: list[int]) -> float:
        means, variances = [], []
        for rows in (group, other):
            values = np.array([*(float(hits[row]) for row in rows), 0.0, 1.0])
            means.append(values.mean())
            variances.append(values.var() / len(values))
        return float((means[0] - means[1]) / math.sqrt(sum(variances)))

    return statistic


def skew_corrected_welch(values: Sequence[float]) -> Statistic:
    """Welch's t with half of Hall's skewness correction."""

    def statistic(group: list[int], other: list[int]) -> float:
        means, variances, thirds = [], [], []
        for rows in (group, other):
            group_values = np.array([values[row] for row in rows])
            means.append(group_values.mean())
            variances.append(group_values.var(ddof=1) / len(group_values))
            thirds.append(
                ((group_values - group_values.mean()) ** 3).sum() / len(group_values) ** 3
            )
        return _skew_corrected(means, variances, thirds)

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
    for placements in (by_positive, by_negative):
        variance += placements.var(ddof=1) / len(placements)
        third += ((placements - placements.mean()) ** 3).sum() / len(placements) ** 3
    return float(wins.mean()), float(variance), float(third)


def skew_corrected_delong(scores: Sequence[float], labels: Sequence[int]) -> Statistic:
    """The difference of AUCs over DeLong's error, with half of Hall's skewness correction."""

    def statistic(group: list[int], other: list[int]) -> float:
        parts = [auc_with_delong(scores, labels, rows) for rows in (group, other)]
        aucs, variances, thirds = zip(*parts, strict=True)
        return _skew_corrected(aucs, variances, thirds)

    return statistic


def _skew_corrected(
    means: Sequence[float], variances: Sequence[float], thirds: Sequence[float]
) -> float:
    variance = sum(variances)
    t = (means[0] - means[1]) / math.sqrt(variance)
    g = 0.5 * (thirds[0] - thirds[1]) / variance**1.5
    return float(t + g / 3 * t**2 + g**2 / 27 * t**3 + g / 6)
