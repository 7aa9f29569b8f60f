"""Draws of counterparts: uniform numbers per row, and the number of draws for duplicate rows.

A map gives identical rows the same counterparts. In data with few distinct rows, such as a few
categories, one draw would move all copies of a row or none of them. A distinct row therefore gets
more draws the more copies it has.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.scoring.counterfactual.draws import row_uniforms, shifted_uniforms
from offline_audit.maps.columns import Features
from offline_audit.maps.transport_map import TransportMap

__all__ = [
    "draw_shifts",
    "draw_uniforms",
    "draws_per_row",
    "duplicate_codes",
    "one_counterpart",
]

Float = NDArray[np.float64]
# Largest number of draws per row, and of all rows together before each gets fewer.
_MOST_DRAWS, _MOST_ROWS = 256, 1 << 16


def draw_uniforms(features: Features, count: int, draw: int, draws: int) -> Float:
    """Numbers in [0, 1) from a hash of each row, evenly spaced over the draws, `[n, count]`."""
    uniforms = row_uniforms(torch.from_numpy(np.ascontiguousarray(features, np.float32)), count)
    shift = torch.from_numpy(draw_shifts(count, draws)[draw])
    return shifted_uniforms(uniforms, shift).numpy().astype(np.float64)


@lru_cache(maxsize=64)
def draw_shifts(count: int, draws: int) -> NDArray[np.float32]:
    """Shift of each draw in each of its uniform numbers, `[draws, count]`.

    The shifts are evenly spaced, in a different order for each number. In the same order the
    numbers of one row's draws would be dependent, and so would the features of its counterparts.
    """
    orders = [np.random.default_rng([draws, number]).permutation(draws) for number in range(count)]
    return np.array(orders, np.float32).reshape(count, draws).T / np.float32(draws)


def duplicate_codes(features: Features) -> NDArray[np.intp] | None:
    """Index of each row's distinct row, `[n]`; None if there are too few duplicates to matter."""
    _, codes = np.unique(features, axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    return codes if _mean_copies(np.bincount(codes)) > 1.5 else None


def draws_per_row(counts: NDArray[np.intp], n_counterparts: int) -> int:
    """Number of draws per distinct row: n_counterparts · Σ counts² / Σ counts, within limits.

    Weighted by copies, that is as many draws in all as if each copy had its own.

    Args:
        counts: Number of copies of each distinct row, `[k]`.
        n_counterparts: Number of draws per row if all rows were distinct.
    """
    draws = math.ceil(n_counterparts * _mean_copies(counts))
    return max(n_counterparts, min(draws, _MOST_DRAWS, _MOST_ROWS // len(counts)))


def one_counterpart(fitted: TransportMap, features: Features) -> Features:
    """One counterpart per row, `[n, d]`; duplicates get different draws."""
    codes = duplicate_codes(features)
    if codes is None:
        counterparts: Features = fitted.transport(features)[0]
        return counterparts
    _, first, distinct, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    drawn = fitted.transport(features[first], draws_per_row(counts, 1))
    # Number of each row among its own copies: 0, 1, 2, …
    order = np.argsort(distinct, kind="stable")
    number = np.empty(len(distinct), np.intp)
    number[order] = np.arange(len(distinct)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen: Features = drawn[number % len(drawn), distinct]
    return chosen


def _mean_copies(counts: NDArray[np.intp]) -> float:
    """Number of copies of a row, itself included, averaged over rows."""
    return float((counts.astype(float) ** 2).sum() / max(counts.sum(), 1))
