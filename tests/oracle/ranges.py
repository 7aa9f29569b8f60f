"""Ranges of rates by trying every label and every group of the unknown rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

Counts = tuple[int, int]
Pair = tuple[float, float]


def splits(counts: Counts, groups: int) -> Iterator[tuple[Counts, ...]]:
    """Every way in which hits and misses belong to the groups."""

    def shares(n: int) -> list[tuple[int, ...]]:
        every = itertools.product(range(n + 1), repeat=groups)
        return [parts for parts in every if sum(parts) == n]

    for hits, misses in itertools.product(shares(counts[0]), shares(counts[1])):
        yield tuple(zip(hits, misses, strict=True))


def with_groups(counts: list[Counts], unknown: Counts) -> Iterator[list[float]]:
    """Rates of the groups for every way in which the unknown rows belong to them."""
    for added in splits(unknown, len(counts)):
        totals = [(h + a, m + b) for (h, m), (a, b) in zip(counts, added, strict=True)]
        if all(sum(total) for total in totals):
            yield [h / (h + m) for h, m in totals]


def with_labels(
    rate: Callable[[np.ndarray], float | None], one: np.ndarray, other: np.ndarray
) -> Iterator[Pair]:
    """Rates of two groups for every value of their unknown labels, `[3, 3]` each."""
    rates = [[rate(t) for t in _labelled(table)] for table in (one, other)]
    for first, second in itertools.product(*rates):
        if first is not None and second is not None:
            yield first, second


def _labelled(table: np.ndarray) -> Iterator[np.ndarray]:
    for positives in itertools.product(*(range(n + 1) for n in table[2, :2].tolist())):
        result = table.copy()
        for decision, n in enumerate(positives):
            result[:, decision] += (table[2, decision] - n, n, -table[2, decision])
        yield result
