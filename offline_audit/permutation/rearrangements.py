"""Random rearrangements of units between two groups, drawn by type instead of unit by unit."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["chances", "drawn_counts", "drawn_subsets"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]

# numpy's generator takes fewer than this of either kind.
_MOST = 1_000_000_000
# Standard deviations around the mean beyond which a hypergeometric count has no chance worth
# a number: 10⁻¹⁸.
_REACH = 9
# Units beyond which a shuffle's jumps through memory cost more than drawing twice.
_LONG = 20_000


def drawn_counts(rng: np.random.Generator, types: Int, size: int, draws: int) -> Int:
    """Units of each type among `size` units drawn without replacement; multivariate hypergeometric.

    A chain of hypergeometric draws, one a type, so that cost does not depend on how many units
    there are. The largest type comes last, as what is left.

    Args:
        rng: Where chance comes from.
        types: How many units there are of each type, `[k]`.
        size: How many are drawn.
        draws: How often.

    Returns:
        Counts `[draws, k]`.
    """
    found = np.zeros((draws, len(types)), dtype=np.int64)
    order = np.argsort(types, kind="stable")
    wanted = np.full(draws, size, dtype=np.int64)
    left = int(types.sum())
    for place in order[:-1]:
        here = int(types[place])
        left -= here
        if here == 0:
            continue
        found[:, place] = _hypergeometric(rng, here, left, wanted)
        wanted -= found[:, place]
    if len(order):
        found[:, order[-1]] = wanted
    return found


def _hypergeometric(rng: np.random.Generator, here: int, left: int, wanted: Int) -> Int:
    if here < _MOST and left < _MOST:
        return rng.hypergeometric(here, left, wanted)
    # Beyond a thousand million: normal, where a unit is nothing beside the spread; else binomial,
    # since what is rare among so many is drawn as if with replacement.
    total = here + left
    share = wanted / total
    spread = np.sqrt(here * share * (1 - share) * (left / max(total - 1, 1)))
    normal = np.rint(here * share + spread * rng.standard_normal(len(wanted)))
    low, high = np.maximum(wanted - left, 0), np.minimum(wanted, here)
    if here < 1_000_000:
        return np.clip(rng.binomial(here, share), low, high)
    return np.clip(normal, low, high).astype(np.int64)


def drawn_subsets(rng: np.random.Generator, n: int, size: int, draws: int) -> NDArray[np.bool_]:
    """Which of n units are among `size` drawn without replacement, `[draws, n]`."""
    if n > _LONG:
        return np.stack([_drawn_subset(rng, n, size) for _ in range(draws)])
    rows = np.zeros((draws, n), dtype=np.int8)
    rows[:, :size] = 1
    return rng.permuted(rows, axis=1, out=rows).astype(bool)


def _drawn_subset(rng: np.random.Generator, n: int, size: int) -> NDArray[np.bool_]:
    """One subset of many units.

    Each unit is taken with the same chance; then as many as there are too few or too many, drawn at
    random, change sides. Given its size, either step favours no subset, and both read memory in
    order, which a shuffle does not.
    """
    taken = rng.random(n, dtype=np.float32) < size / n
    excess = int(np.count_nonzero(taken)) - size
    while excess:
        tried = rng.integers(n, size=2 * abs(excess) + 16)
        fit = tried[taken[tried] == (excess > 0)]
        # In the order in which they were drawn, each once.
        first = np.sort(np.unique(fit, return_index=True)[1])[: abs(excess)]
        taken[fit[first]] = excess < 0
        excess -= len(first) if excess > 0 else -len(first)
    return taken


def chances(hits: int, misses: int, size: int) -> tuple[int, Float]:
    """The least count of hits among `size` units that may occur, and chances from there on.

    From ratios of neighbours, so that no factorial of a large number is needed.
    """
    total = hits + misses
    share = size / total
    centre = hits * share
    spread = math.sqrt(hits * share * (1 - share) * misses / max(total - 1, 1))
    low = max(0, size - misses, math.floor(centre - _REACH * (spread + 1)))
    high = min(hits, size, math.ceil(centre + _REACH * (spread + 1)))
    before = np.arange(low, high, dtype=np.float64)
    up = np.log((hits - before) * (size - before))
    down = np.log((before + 1) * (misses - size + before + 1))
    logs = np.concatenate([[0.0], np.cumsum(up - down)])
    found = np.exp(logs - logs.max())
    return low, found / found.sum()
