"""Lookup tables of transport maps: ranks of ordered features, categories of one-hot groups.

Both work by arithmetic on whole tensors with constant tables and without search, so that they
compile into a few loops and cost little compared with the classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["GRID", "CategoryLookup", "OrderedLookup"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryLookup:
    """One-hot groups that move between some groups of people.

    As much of a category as possible stays where it is; what has to move spreads over the
    categories that gain, in proportion to their gains, whichever category it comes from. Place 0 is
    that of no column: a dropped category, or a row that names none.

    Attributes:
        group: Which one-hot group each of d columns belongs to, 0 if to none, int64 `[d]`.
        place: Its place within that group, from 1 on, −1 if it is in none, int64 `[d]`.
        code: Matrix that turns one-hot columns into places, `[d, g]`.
        columns: Column of each place of each group, −1 for places 0, int64 `[f]`.
        sizes: How many places each one-hot group has, with place 0, int64 `[g]`.
        starts: Where its places begin in the tables below, int64 `[g]`.
        stays: Chance that a category stays from s to t, all groups side by side, `[k, k, f]`.
        keep: Of an alias table of the gains, the chance to keep the cell's own place, `[k, k, f]`.
        alias: The place that the cell yields otherwise, int64 `[k, k, f]`.
    """

    group: Tensor
    place: Tensor
    code: Tensor
    columns: Tensor
    sizes: Tensor
    starts: Tensor
    stays: Tensor
    keep: Tensor
    alias: Tensor

    @classmethod
    def of(
        cls, categories: Sequence[Tensor], shares: Sequence[Tensor], moves: Tensor, width: int
    ) -> CategoryLookup:
        """Tables for the one-hot groups of which any category moves."""
        chosen = [i for i in range(len(categories)) if moves[:, :, i].any()]
        tables = [_coupling(shares[i].numpy(), moves[:, :, i].numpy()) for i in chosen]
        sizes = torch.tensor([len(categories[i]) + 1 for i in chosen], dtype=torch.long)
        group, place = torch.zeros(width, dtype=torch.long), torch.full((width,), -1)
        code = torch.zeros(width, len(chosen))
        for number, i in enumerate(chosen):
            group[categories[i]] = number
            place[categories[i]] = torch.arange(1, len(categories[i]) + 1)
            code[categories[i], number] = place[categories[i]].float()
        empty = np.zeros((len(moves), len(moves), 0), np.float32)
        stays, keep, alias = (
            np.concatenate([empty, *(table[part] for table in tables)], 2) for part in range(3)
        )
        return cls(
            group=group,
            place=place,
            code=code,
            columns=_with_gaps([categories[i] for i in chosen]),
            sizes=sizes,
            starts=sizes.cumsum(0) - sizes,
            stays=torch.from_numpy(stays.astype(np.float32)),
            keep=torch.from_numpy(keep.astype(np.float32)),
            alias=torch.from_numpy(alias.astype(np.int64)),
        )

    @property
    def size(self) -> int:
        """How many one-hot groups, g."""
        return len(self.sizes)

    def read(self, features: Tensor) -> Tensor:
        """Place of each row's category, `[n, d]` to int64 `[n, g]`."""
        last = self.sizes - 1
        found = torch.minimum((features.float() @ self.code).round(), last).clamp_min(0)
        # Once more as whole numbers: what is not a number must not point outside the tables.
        return torch.minimum(found.long().clamp_min(0), last)

    def carry(self, current: Tensor, sources: Tensor, targets: Tensor, uniforms: Tensor) -> Tensor:
        """Places that the coupling draws, `[n, g]` to int64 `[e, n, g]`."""
        groups, _, cells = self.stays.shape
        row = (sources * groups + targets)[:, :, None] * cells + self.starts
        stays = self.stays.reshape(-1)[row + current]
        # What is left of the uniform number where the category is left.
        rest = (uniforms - stays) / (1 - stays).clamp_min(1e-6)
        cell = rest.clamp(0, 1) * self.sizes
        at = torch.minimum(cell.long().clamp_min(0), self.sizes - 1)
        kept = cell - at < self.keep.reshape(-1)[row + at]
        drawn = torch.where(kept, at, self.alias.reshape(-1)[row + at])
        return torch.where(uniforms < stays, current, drawn)

    def rows(self, weight: Tensor) -> Tensor:
        """Of a layer's weights `[d, h]` those of each place, zero for places 0, `[f, h]`."""
        return torch.where(self.columns[:, None] >= 0, weight[self.columns.clamp_min(0)], 0.0)

    def write(self, carried: Tensor, current: Tensor, drawn: Tensor) -> Tensor:
        """Features `[e, n, d]` with the one-hot groups that moved from `current` to `drawn`."""
        there, here = drawn[:, :, self.group], current[:, self.group]
        # By a difference, so that a row that is not one-hot moves as a linear layer sees it move.
        change = (there == self.place).to(carried.dtype) - (here == self.place).to(carried.dtype)
        return carried + torch.where(self.place >= 0, change, 0.0)


def _coupling(
    shares: NDArray[np.float32], moves: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Chance to stay, and the alias table of the gains, for every pair of groups, `[k, k, c]`."""
    groups, size = shares.shape
    stays = np.ones((groups, groups, size))
    keep = np.ones((groups, groups, size))
    alias = np.broadcast_to(np.arange(size), (groups, groups, size)).copy()
    for source, target in np.argwhere(moves):
        here, there = shares[source].astype(float), shares[target].astype(float)
        gains = np.maximum(there - here, 0)
        if gains.sum() > 0:
            # A category that nobody here has stays: whoever turns up in it is unheard of.
            stays[source, target] = np.where(here > 0, there / np.maximum(here, 1e-300), 1).clip(
                0, 1
            )
            keep[source, target], alias[source, target] = _alias_table(gains / gains.sum())
    return stays, keep, alias


def _alias_table(chances: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Walker's tables: cell i yields i with chance keep[i], else alias[i]; cells equally likely."""
    size = len(chances)
    keep, alias = np.ones(size), np.arange(size)
    left = chances * size
    small, large = list(np.flatnonzero(left < 1)), list(np.flatnonzero(left >= 1))
    while small and large:
        low, high = small.pop(), large.pop()
        keep[low], alias[low] = left[low], high
        left[high] -= 1 - left[low]
        (small if left[high] < 1 else large).append(high)
    return keep, alias


def _with_gaps(columns: Sequence[Tensor]) -> Tensor:
    gap = torch.tensor([-1])
    return torch.cat([torch.zeros(0, dtype=torch.long), *(torch.cat([gap, c]) for c in columns)])
