"""Draws of stochastic transport maps: their source groups, weights and uniform numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "MOST_DRAWS",
    "Draws",
    "fewest_draws",
    "row_uniforms",
    "shifted_uniforms",
    "spread_draws",
]

MOST_DRAWS = 64
_LOW_32 = 0xFFFFFFFF


def fewest_draws(orders: int) -> int:
    """Number of draws of a stochastic map by default; fewer if scores average over orders."""
    return 3 if orders <= 1 else 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """e draws of each of n rows.

    Attributes:
        sources: Group to which the row is assumed to belong, int64 `[e, n]`.
        uniforms: Uniform numbers of the draw, `[e, n, u]`.
        weights: Weight of the draw, `[e, n]`; they sum to 1.
    """

    sources: Tensor
    uniforms: Tensor
    weights: Tensor


def spread_draws(features: Tensor, posterior: Tensor, uniforms: int, draws: int) -> Draws:
    """One draw from every group, and `draws` − 1 more in proportion to the posterior.

    The variance of Σ_s P(s) · mean over the draws from s is least if the number of draws from s is
    proportional to P(s). Draw i of the others belongs to the group in which the cumulative
    posterior reaches (i + ½) / (`draws` − 1).

    Args:
        features: Rows, `[n, d]`, whose hash gives the uniform numbers.
        posterior: Probability of each group, `[n, k]`.
        uniforms: Number of uniform numbers per draw, u.
        draws: Number of draws of a row that is certain to be in one group.
    """
    groups, others = posterior.shape[1], draws - 1
    # Groups in which the cumulative posterior has not reached a draw; the last reaches all.
    cumulative = posterior.T.cumsum(0)[:-1]
    number = torch.arange(groups + others)[:, None]
    point = (number - groups + 0.5) / max(others, 1)
    sources = torch.where(number < groups, number, (cumulative[None] <= point[:, None]).sum(1))
    # Arithmetic instead of stacking, which would be compiled part by part.
    same = sources[:, None] == sources
    count = same.sum(1)
    index = (same & (number > number.T)[:, :, None]).sum(1)
    return Draws(
        sources=sources,
        uniforms=shifted_uniforms(row_uniforms(features, uniforms), (index / count)[:, :, None]),
        weights=posterior.T.gather(0, sources) / count,
    )


def row_uniforms(features: Tensor, count: int) -> Tensor:
    """Uniform numbers in [0, 1) from a hash of each row's bits, `[n, d]` to `[n, count]`.

    Integer arithmetic only, so that they are the same on every machine and in every batch.
    """
    # Adding zero turns -0.0 into 0.0, which is equal but has different bits.
    bits = (features.float() + 0.0).view(torch.int32).long() & _LOW_32
    # Each product stays below 2^63; its middle bits are used.
    multipliers = torch.from_numpy(_multipliers(bits.shape[1]))
    row = _mix(_mix(((bits * multipliers) >> 15 & _LOW_32).sum(1)))
    number = torch.arange(1, count + 1)
    mixed = _mix(row[:, None] + 0x85EBCA6B * number)
    # 24 bits, which a float32 represents exactly.
    return (mixed >> 8).float() * 2**-24


def shifted_uniforms(uniforms: Tensor, shift: float | Tensor) -> Tensor:
    """The numbers plus `shift`, modulo 1; evenly spaced shifts give evenly spaced draws."""
    moved = uniforms + shift
    return torch.where(moved >= 1.0, moved - 1.0, moved)


@cache
def _multipliers(width: int) -> NDArray[np.int64]:
    """One odd number below 2^31 per column."""
    generator = np.random.Generator(np.random.PCG64(20260101))
    return generator.integers(2**30, 2**31, width) | 1


def _mix(value: Tensor) -> Tensor:
    """A bijective hash of 32-bit integers."""
    value = value & _LOW_32
    value = ((value ^ (value >> 16)) * 0x45D9F3B) & _LOW_32
    value = ((value ^ (value >> 16)) * 0x45D9F3B) & _LOW_32
    return value ^ (value >> 16)
