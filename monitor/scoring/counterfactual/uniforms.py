"""Uniform numbers by a hash of the row: the same for the same person, on every machine."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["row_uniforms", "shifted_uniforms"]

_LOW_32 = 0xFFFFFFFF


def row_uniforms(features: Tensor, count: int) -> Tensor:
    """Numbers in [0, 1) that depend on a row's bits and on nothing else, `[n, d]` to `[n, count]`.

    Integer arithmetic only, so the same on every machine and in every batch.
    """
    # Adding zero turns -0.0 into 0.0, which is the same value with other bits.
    bits = (features.float() + 0.0).view(torch.int32).long() & _LOW_32
    # Each product stays below 2^63; its middle bits are kept.
    multipliers = torch.from_numpy(_multipliers(bits.shape[1]))
    row = _mix(_mix(((bits * multipliers) >> 15 & _LOW_32).sum(1)))
    number = torch.arange(1, count + 1)
    mixed = _mix(row[:, None] + 0x85EBCA6B * number)
    # 24 bits, which a float32 holds exactly.
    return (mixed >> 8).float() * 2**-24


def shifted_uniforms(uniforms: Tensor, shift: float | Tensor) -> Tensor:
    """The same numbers further along by `shift`, round the circle: evenly spaced draws."""
    moved = uniforms + shift
    return torch.where(moved >= 1.0, moved - 1.0, moved)


@cache
def _multipliers(width: int) -> NDArray[np.int64]:
    """An odd number below 2^31 for each column."""
    generator = np.random.Generator(np.random.PCG64(20260101))
    return generator.integers(2**30, 2**31, width) | 1


def _mix(value: Tensor) -> Tensor:
    """A bijection of 32-bit numbers that leaves no pattern standing."""
    value = value & _LOW_32
    value = ((value ^ (value >> 16)) * 0x45D9F3B) & _LOW_32
    value = ((value ^ (value >> 16)) * 0x45D9F3B) & _LOW_32
    return value ^ (value >> 16)
