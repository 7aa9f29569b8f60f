"""Simple, slow drift statistics: one score at a time, in Python floats."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import numpy as np

POWERS = (0.1, 0.3, 0.5, 0.7, 0.9)


def bin_of(edges: Sequence[float], score: float) -> int:
    """Number of edges that do not exceed the score."""
    return bisect.bisect_right(edges, score)


def p_values(
    earlier: Sequence[int], bins: Sequence[int | None], uniforms: Sequence[float]
) -> list[float | None]:
    """Randomised ranks of bins among all earlier bins; None is skipped."""
    known, ranks = list(earlier), list[float | None]()
    for new, u in zip(bins, uniforms, strict=True):
        if new is None:
            ranks.append(None)
            continue
        higher = sum(old > new for old in known)
        same = sum(old == new for old in known)
        ranks.append((higher + u * (same + 1)) / (len(known) + 1))
        known.append(new)
    return ranks


def log_shiryaev_roberts(p_values: Sequence[float | None], power: float) -> list[float]:
    """Log R after each p-value; in logs because R may be too large for a float."""
    log_r, logs = -math.inf, []
    for p in p_values:
        if p is not None:
            log_r = float(np.logaddexp(log_r, 0)) + math.log(power) + (power - 1) * math.log(p)
        logs.append(log_r)
    return logs


def log_product(p_values: Sequence[float | None], power: float) -> float:
    """Log of the test martingale after all p-values."""
    return sum(math.log(power * p ** (power - 1)) for p in p_values if p is not None)


def log_mean(logs: Sequence[float]) -> float:
    """Log of the mean of exp(logs)."""
    return float(np.logaddexp.reduce(np.array(logs))) - math.log(len(logs))


def share_band(values: Sequence[float], alpha: float, grid: int = 20_001) -> tuple[float, float]:
    """The means of a grid at which neither mixture reaches 2/α."""
    guesses = [(0.5 + sum(values[:i])) / (1 + i) for i in range(len(values))]
    variation = sum((x - g) ** 2 for x, g in zip(values, guesses, strict=True))
    means, n = np.linspace(0, 1, grid), len(values)
    weights = [0.8**k for k in range(14)]
    up, down = np.zeros(grid), np.zeros(grid)
    for k, weight in enumerate(weights):
        rate = 0.5 ** (k + 1)
        excess = rate * (sum(values) - n * means)
        cost = (-math.log(1 - rate) - rate) * variation
        up += weight / sum(weights) * np.exp(excess - cost)
        down += weight / sum(weights) * np.exp(-excess - cost)
    inside = means[(up < 2 / alpha) & (down < 2 / alpha)]
    return float(inside.min()), float(inside.max())


def share_bound(posterior: Sequence[Sequence[float]], positive: Sequence[bool]) -> float:
    """Σ_s P(s) · max_t |rate(s) − rate(t)|, from posteriors of every prediction and group."""
    groups, n = range(len(posterior[0])), len(posterior)
    weight = [sum(row[s] for row in posterior) for s in groups]
    rate = [
        sum(row[s] for row, d in zip(posterior, positive, strict=True) if d) / weight[s]
        for s in groups
    ]
    return sum(weight[s] / n * max(abs(rate[s] - rate[t]) for t in groups) for s in groups)


def least_share_bound(
    low: Sequence[Sequence[float]], high: Sequence[Sequence[float]], rng: np.random.Generator
) -> float:
    """Least bound over random corners of the box of P(s, d), `[k][2]` each: positive, negative."""
    least, ends = math.inf, (np.array(low), np.array(high))
    for _ in range(2_000):
        p, n = np.where(rng.random(ends[0].shape) < 0.5, *ends).T
        gaps = np.abs(np.subtract.outer(p / (p + n), p / (p + n))).max(1)
        least = min(least, float((p + n) @ gaps))
    return least
