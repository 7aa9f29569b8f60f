"""Ranks of ordered features without search: sums of ramps.

Arithmetic on whole tensors with constant tables, so that it compiles into a few loops and costs
little beside the classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["GRID", "OrderedLookup"]

# Points at which a quantile function is kept; a binary feature is resolved to 1/512.
GRID = 513
# Where a continuous feature's ranks are interpolated between, denser in the tails.
_STOPS = [0, 1, 2, 4, 8, *range(16, 497, 16), 504, 508, 510, 511, 512]
# Columns with about as many ramps are summed together.
_BLOCKS = (4, 16, 48, GRID)
_STEEP = 1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ramps:
    """Rank of a value: Σ weight · clamp((value − start) · slope + mass · u, 0, 1), in steps.

    The steps are those of the grid of quantiles. A stretch of the distribution is a ramp, a point's
    mass a step, within which u decides. Weights are whole numbers, so that sums over steps are the
    same in whatever order they are taken.

    Attributes:
        start: Where each ramp begins, `[k, r, b]`.
        slope: One over its width, or very steep for a step, `[k, r, b]`.
        mass: 1 for a step, else 0, `[k, r, b]`; None where there are no steps.
        weight: Steps of the grid that it spans, `[k, r, b]`.
    """

    start: Tensor
    slope: Tensor
    mass: Tensor | None
    weight: Tensor

    def between(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest rank of values `[n, b]` in every group, `[k, n, b]` each."""
        rise = (values[:, None] - self.start[:, None]) * self.slope[:, None]
        low = (rise.clamp(0, 1) * self.weight[:, None]).sum(2)
        if self.mass is None:
            return low, low
        return low, ((rise + self.mass[:, None]).clamp(0, 1) * self.weight[:, None]).sum(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedLookup:
    """Ordered features that move between some groups.

    Attributes:
        columns: Their columns, int64 `[o]`.
        place: For each of d columns its place among these, −1 if it is none of them, int64 `[d]`.
        smooth: Whether a feature may take any value between two seen ones, bool `[o]`.
        quantiles: Quantile function of each group, `[k, o, 513]`.
        ends: Its lowest and highest values, `[2, k, o]`.
        moves: Whether a feature moves from group s to group t, bool `[k, k, o]`.
        blocks: Their ramps, features with about as many together.
    """

    columns: Tensor
    place: Tensor
    smooth: Tensor
    quantiles: Tensor
    ends: Tensor
    moves: Tensor
    blocks: tuple[_Ramps, ...]

    @classmethod
    def of(
        cls, columns: Tensor, smooth: Tensor, quantiles: Tensor, moves: Tensor, width: int
    ) -> OrderedLookup:
        """Tables for quantile functions `[k, o, 513]` of some of d columns."""
        found = [
            [_ramps(group.numpy(), smooth=bool(smooth[feature])) for group in quantiles[:, feature]]
            for feature in range(len(columns))
        ]
        sizes = [max(len(ramps) for ramps in groups) for groups in found]
        steps = [any(width == 0 for groups in f for _, width, _ in groups) for f in found]
        block = 2 * np.searchsorted(_BLOCKS, sizes) + np.array(steps, int)
        # Features of one block side by side, so that its ranks need not be put in order again.
        order = np.argsort(block, kind="stable")
        blocks = [_block([found[i] for i in order if block[i] == b]) for b in np.unique(block)]
        index = torch.from_numpy(order)
        columns, smooth, quantiles = columns[index], smooth[index], quantiles[:, index].contiguous()
        place = torch.full((width,), -1)
        place[columns] = torch.arange(len(columns))
        return cls(
            columns=columns,
            place=place,
            smooth=smooth,
            quantiles=quantiles,
            ends=quantiles[:, :, [0, -1]].permute(2, 0, 1).contiguous(),
            moves=moves[:, :, index].contiguous(),
            blocks=tuple(blocks),
        )

    @property
    def size(self) -> int:
        """How many features, o."""
        return len(self.columns)

    def carry(self, values: Tensor, sources: Tensor, targets: Tensor, uniforms: Tensor) -> Tensor:
        """Values of the same rank in the other group, `[n, o]` to `[e, n, o]`."""
        if self.size == 0:
            return values.expand(len(sources), *values.shape)
        low, high = self._ranks(values)
        pick = sources[:, :, None].expand(-1, -1, self.size)
        low, high = low.gather(0, pick), high.gather(0, pick)
        # Between two points of the grid, or at the one whose mass the rank falls into.
        step = low + uniforms * (high - low)
        # Bounded as whole numbers: a rank that is not a number must not point outside the table.
        below = step.long().clamp(0, GRID - 1)
        above = (below + 1).clamp_max(GRID - 1)
        row = (targets[:, :, None] * self.size + torch.arange(self.size)) * GRID
        table = self.quantiles.reshape(-1)
        lower, upper = table[row + below], table[row + above]
        # Whoever stands outside what was seen stays as far outside.
        lowest, highest = self.ends[0][sources], self.ends[1][sources]
        inside = torch.minimum(torch.maximum(values, lowest), highest)
        between = lower + (step - below) * (upper - lower) + (values - inside)
        carried = torch.where(self.smooth, between, lower)
        return torch.where(self.moves[sources, targets], carried, values)

    def _ranks(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest rank of values `[n, o]` in every group, `[k, n, o]` each."""
        parts = values.split([block.start.shape[2] for block in self.blocks], 1)
        found = [block.between(part) for block, part in zip(self.blocks, parts, strict=True)]
        low, high = (torch.cat(ranks, 2) for ranks in zip(*found, strict=True))
        return low, high

    def write(self, carried: Tensor, values: Tensor) -> Tensor:
        """Features `[e, n, d]` with these columns replaced by values `[e, n, o]`."""
        return torch.where(self.place >= 0, values[:, :, self.place.clamp_min(0)], carried)


def _ramps(quantiles: NDArray[np.float32], *, smooth: bool) -> list[tuple[float, float, float]]:
    """Start, width and weight of each ramp of one quantile function `[513]`."""
    values = quantiles.astype(np.float64)
    if not smooth:
        found, counts = np.unique(values, return_counts=True)
        return [(float(v), 0.0, float(c)) for v, c in zip(found, counts, strict=True)]
    # Ends of every stretch of equal values, so that a point's mass is a step of its own.
    change = np.flatnonzero(np.diff(values) > 0)
    first, last = np.r_[0, change + 1], np.r_[change, GRID - 1]
    inner = np.concatenate([np.arange(a + 1, b) for a, b in zip(first, last, strict=True)])
    mass = np.concatenate([first[last > first], last[last > first]])
    stops = np.union1d(np.setdiff1d(_STOPS, inner), mass)
    return [
        (float(values[a]), float(values[b] - values[a]), float(b - a)) for a, b in pairwise(stops)
    ]


def _block(features: Sequence[list[list[tuple[float, float, float]]]]) -> _Ramps:
    """Ramps of several features `[b][k][r]` as tensors; the missing ones weigh nothing."""
    most = max(len(ramps) for groups in features for ramps in groups)
    padded = [[[*r, *[(0.0, 1.0, 0.0)] * (most - len(r))] for r in groups] for groups in features]
    start, width, weight = torch.tensor(padded, dtype=torch.float64).permute(3, 1, 2, 0)
    step = width == 0
    return _Ramps(
        start=start.float().contiguous(),
        slope=torch.where(step, _STEEP, 1 / width.clamp_min(1 / _STEEP)).float().contiguous(),
        mass=step.float().contiguous() if step.any() else None,
        weight=weight.float().contiguous(),
    )
