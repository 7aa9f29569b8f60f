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

# Points of a quantile function; the share of a binary feature is resolved to 1/512.
GRID = 513
# Grid points between which ranks of a continuous feature are interpolated, denser in the tails.
_STOPS = [0, 1, 2, 4, 8, *range(16, 497, 16), 504, 508, 510, 511, 512]
# Features with at most this many ramps share a block, so that little padding is needed.
_BLOCKS = (4, 16, 48, GRID)
# Slope of a step; finite, because infinity times zero is not a number.
_STEEP = 1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ramps:
    """Rank of a value: Σ weight · clamp((value − start) · slope + mass · u, 0, 1).

    Ranks are in units of the grid of quantiles.
    An interval of the distribution is a ramp. A value with positive mass is a step, within which u
    chooses the rank. Weights are whole numbers, so that sums over steps are exact in any order.

    Attributes:
        start: Start of each ramp, `[k, r, b]`.
        slope: Reciprocal of its width; very steep for a step, `[k, r, b]`.
        mass: 1 for a step, 0 for a ramp, `[k, r, b]`; None if there are no steps.
        weight: Number of grid intervals that it covers, `[k, r, b]`.
    """

    start: Tensor
    slope: Tensor
    mass: Tensor | None
    weight: Tensor

    def between(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest rank (u = 0, u = 1) of values `[n, b]` by group, `[k, n, b]`."""
        rise = (values[:, None] - self.start[:, None]) * self.slope[:, None]
        low = (rise.clamp(0, 1) * self.weight[:, None]).sum(2)
        if self.mass is None:
            return low, low
        return low, ((rise + self.mass[:, None]).clamp(0, 1) * self.weight[:, None]).sum(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedLookup:
    """Tables of the ordered features that move between some groups.

    Attributes:
        columns: Columns of the features, int64 `[o]`.
        position: Index of each of d columns in `columns`, −1 if it is not there, int64 `[d]`.
        smooth: Whether a feature may take any value between two observed ones, bool `[o]`.
        quantiles: Quantile function of each group, `[k, o, 513]`.
        ends: Lowest and highest values, `[2, k, o]`.
        moves: Whether a feature moves from group s to group t, bool `[k, k, o]`.
        blocks: Ramps of the features, in blocks of similar size.
    """

    columns: Tensor
    position: Tensor
    smooth: Tensor
    quantiles: Tensor
    ends: Tensor
    moves: Tensor
    blocks: tuple[_Ramps, ...]

    @classmethod
    def of(
        cls, columns: Tensor, smooth: Tensor, quantiles: Tensor, moves: Tensor, width: int
    ) -> OrderedLookup:
        """Tables of quantile functions `[k, o, 513]` of some of d columns."""
        ramps = [
            [_ramps(group.numpy(), smooth=bool(smooth[feature])) for group in quantiles[:, feature]]
            for feature in range(len(columns))
        ]
        sizes = [max(map(len, by_group)) for by_group in ramps]
        steps = [any(run == 0 for group in by_group for _, run, _ in group) for by_group in ramps]
        block = 2 * np.searchsorted(_BLOCKS, sizes) + np.array(steps, int)
        # Features of one block are adjacent, so that ranks need no reordering after the blocks.
        order = np.argsort(block, kind="stable")
        blocks = [_block([ramps[i] for i in order if block[i] == b]) for b in np.unique(block)]
        index = torch.from_numpy(order)
        columns, smooth, quantiles = columns[index], smooth[index], quantiles[:, index].contiguous()
        position = torch.full((width,), -1)
        position[columns] = torch.arange(len(columns))
        return cls(
            columns=columns,
            position=position,
            smooth=smooth,
            quantiles=quantiles,
            ends=quantiles[:, :, [0, -1]].permute(2, 0, 1).contiguous(),
            moves=moves[:, :, index].contiguous(),
            blocks=tuple(blocks),
        )

    @property
    def size(self) -> int:
        """Number of ordered features."""
        return len(self.columns)

    def ranks(self, values: Tensor, sources: Tensor, uniforms: Tensor) -> Tensor:
        """Ranks of values `[n, o]` in the source group, in units of the grid, `[e, n, o]`.

        Uniforms choose within the mass of a shared value.
        """
        if self.size == 0:
            return values.expand(len(sources), *values.shape)
        low, high = self._ranks(values)
        pick = sources[:, :, None].expand(-1, -1, self.size)
        low, high = low.gather(0, pick), high.gather(0, pick)
        return low + uniforms * (high - low)

    @property
    def shares_values(self) -> bool:
        """Whether several ranks share a value, so that draws differ."""
        return any(block.mass is not None for block in self.blocks)

    def at_ranks(self, ranks: Tensor, values: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        """Values of rank `[e, n, o]` in the target group, for rows with `values` `[n, o]`.

        Features that do not move keep their value.
        """
        if self.size == 0:
            return ranks
        transported = self.values_at(ranks, values, sources, targets, torch.arange(self.size))
        return torch.where(self.moves[sources, targets], transported, values)

    def values_at(
        self, ranks: Tensor, values: Tensor, sources: Tensor, targets: Tensor, index: Tensor
    ) -> Tensor:
        """Values of rank `[e, n, m]` in the target group of m features that move or not.

        Args:
            ranks: Ranks in units of the grid.
            values: Values of the rows, `[n, m]`.
            sources: Index of the source group, int64 `[e, n]`.
            targets: Index of the target group, int64 `[e, n]`.
            index: Indices of the features, int64 `[m]`.
        """
        # Clamped as integers, because a rank that is NaN must not index outside the table.
        below = ranks.long().clamp(0, GRID - 1)
        above = (below + 1).clamp_max(GRID - 1)
        row = (targets[:, :, None] * self.size + index) * GRID
        table = self.quantiles.reshape(-1)
        lower, upper = table[row + below], table[row + above]
        # Values outside the observed range keep their distance from it.
        ends = self.ends.reshape(2, -1)
        own = sources[:, :, None] * self.size + index
        inside = torch.minimum(torch.maximum(values, ends[0][own]), ends[1][own])
        between = lower + (ranks - below) * (upper - lower) + (values - inside)
        return torch.where(self.smooth[index], between, lower)

    def _ranks(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest rank of values `[n, o]` in each group, `[k, n, o]` each."""
        parts = values.split([block.start.shape[2] for block in self.blocks], 1)
        ranks = [block.between(part) for block, part in zip(self.blocks, parts, strict=True)]
        low, high = (torch.cat(ends, 2) for ends in zip(*ranks, strict=True))
        return low, high

    def write(self, features: Tensor, values: Tensor) -> Tensor:
        """Features `[e, n, d]` with these columns replaced by values `[e, n, o]`."""
        return torch.where(self.position >= 0, values[:, :, self.position.clamp_min(0)], features)


def _ramps(quantiles: NDArray[np.float32], *, smooth: bool) -> list[tuple[float, float, float]]:
    """Start, width and weight of the ramps of one quantile function `[513]`."""
    values = quantiles.astype(np.float64)
    if not smooth:
        distinct, counts = np.unique(values, return_counts=True)
        return [(float(v), 0.0, float(c)) for v, c in zip(distinct, counts, strict=True)]
    # Both ends of every run of equal values, so that its mass becomes a separate step.
    change = np.flatnonzero(np.diff(values) > 0)
    first, last = np.r_[0, change + 1], np.r_[change, GRID - 1]
    inner = np.concatenate([np.arange(a + 1, b) for a, b in zip(first, last, strict=True)])
    mass = np.concatenate([first[last > first], last[last > first]])
    stops = np.union1d(np.setdiff1d(_STOPS, inner), mass)
    return [
        (float(values[a]), float(values[b] - values[a]), float(b - a)) for a, b in pairwise(stops)
    ]


def _block(features: Sequence[list[list[tuple[float, float, float]]]]) -> _Ramps:
    """Ramps of several features `[b][k][r]` as tensors, padded with ramps of weight 0."""
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
    """Tables of the one-hot groups that move between some groups of people.

    The coupling moves the least mass: as much of a category as possible stays. The mass that moves
    is distributed over the categories that gain, in proportion to their gains, whichever category
    it comes from. Categories of a one-hot group have codes from 1 on, in the order of its columns.
    Code 0 is the dropped category, or a row in which all columns are 0.

    Attributes:
        group: One-hot group of each of d columns, 0 if it has none, int64 `[d]`.
        code: Code of each column within its group, −1 if it has none, int64 `[d]`.
        encoder: Matrix from one-hot columns to codes, `[d, g]`.
        columns: Column of each code of each group, −1 for code 0, int64 `[f]`.
        sizes: Number of codes of each one-hot group, with code 0, int64 `[g]`.
        starts: Index of its first code in the tables below, int64 `[g]`.
        stays: Probability that a category stays from s to t, groups concatenated, `[k, k, f]`.
        keep: Alias table of the gains: probability of the cell's own code, `[k, k, f]`.
        alias: Alias table of the gains: the cell's other code, int64 `[k, k, f]`.
    """

    group: Tensor
    code: Tensor
    encoder: Tensor
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
        """Tables of the one-hot groups that move between any two groups."""
        chosen = [i for i in range(len(categories)) if moves[:, :, i].any()]
        tables = [_coupling(shares[i].numpy(), moves[:, :, i].numpy()) for i in chosen]
        sizes = torch.tensor([len(categories[i]) + 1 for i in chosen], dtype=torch.long)
        group, code = torch.zeros(width, dtype=torch.long), torch.full((width,), -1)
        encoder = torch.zeros(width, len(chosen))
        for number, i in enumerate(chosen):
            group[categories[i]] = number
            code[categories[i]] = torch.arange(1, len(categories[i]) + 1)
            encoder[categories[i], number] = code[categories[i]].float()
        empty = np.zeros((len(moves), len(moves), 0), np.float32)
        stays, keep, alias = (
            np.concatenate([empty, *(table[part] for table in tables)], 2) for part in range(3)
        )
        return cls(
            group=group,
            code=code,
            encoder=encoder,
            columns=_column_of_code([categories[i] for i in chosen]),
            sizes=sizes,
            starts=sizes.cumsum(0) - sizes,
            stays=torch.from_numpy(stays.astype(np.float32)),
            keep=torch.from_numpy(keep.astype(np.float32)),
            alias=torch.from_numpy(alias.astype(np.int64)),
        )

    @property
    def size(self) -> int:
        """Number of one-hot groups, g."""
        return len(self.sizes)

    def read(self, features: Tensor) -> Tensor:
        """Codes of each row's categories, `[n, d]` to int64 `[n, g]`."""
        last = self.sizes - 1
        codes = torch.minimum((features.float() @ self.encoder).round(), last).clamp_min(0)
        # Clamped again as integers, because NaN must not index outside the tables.
        return torch.minimum(codes.long().clamp_min(0), last)

    def transport(
        self, current: Tensor, sources: Tensor, targets: Tensor, uniforms: Tensor
    ) -> Tensor:
        """Codes drawn from the coupling, `[n, g]` to int64 `[e, n, g]`."""
        groups, _, cells = self.stays.shape
        row = (sources * groups + targets)[:, :, None] * cells + self.starts
        stays = self.stays.reshape(-1)[row + current]
        # Given that the category changes, the rescaled uniform number is uniform again.
        rescaled = (uniforms - stays) / (1 - stays).clamp_min(1e-6)
        cell = rescaled.clamp(0, 1) * self.sizes
        at = torch.minimum(cell.long().clamp_min(0), self.sizes - 1)
        own = cell - at < self.keep.reshape(-1)[row + at]
        drawn = torch.where(own, at, self.alias.reshape(-1)[row + at])
        return torch.where(uniforms < stays, current, drawn)

    def rows(self, weight: Tensor) -> Tensor:
        """Weights of each code, from a layer's weights `[d, h]`; zero for codes 0, `[f, h]`."""
        return torch.where(self.columns[:, None] >= 0, weight[self.columns.clamp_min(0)], 0.0)

    def write(self, features: Tensor, current: Tensor, drawn: Tensor) -> Tensor:
        """Features `[e, n, d]` with the one-hot groups changed from `current` to `drawn`."""
        new, old = drawn[:, :, self.group], current[:, self.group]
        # Added as a difference, so that a row that is not one-hot changes as in `layer_change`.
        change = (new == self.code).to(features.dtype) - (old == self.code).to(features.dtype)
        return features + torch.where(self.code >= 0, change, 0.0)


def _coupling(
    shares: NDArray[np.float32], moves: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Probability to stay and alias table of the gains, for every pair of groups, `[k, k, c]`."""
    groups, size = shares.shape
    stays = np.ones((groups, groups, size))
    keep = np.ones((groups, groups, size))
    alias = np.broadcast_to(np.arange(size), (groups, groups, size)).copy()
    for source, target in np.argwhere(moves):
        before, after = shares[source].astype(float), shares[target].astype(float)
        gains = np.maximum(after - before, 0)
        if gains.sum() > 0:
            # A category without members in the source stays, because its share is not known.
            ratio = after / np.maximum(before, 1e-300)
            stays[source, target] = np.where(before > 0, ratio, 1).clip(0, 1)
            keep[source, target], alias[source, target] = _alias_table(gains / gains.sum())
    return stays, keep, alias


def _alias_table(
    probabilities: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Walker's alias table: each cell i is equally likely and yields i with probability keep[i].

    Otherwise it yields alias[i].
    """
    size = len(probabilities)
    keep, alias = np.ones(size), np.arange(size)
    remaining = probabilities * size
    small, large = list(np.flatnonzero(remaining < 1)), list(np.flatnonzero(remaining >= 1))
    while small and large:
        low, high = small.pop(), large.pop()
        keep[low], alias[low] = remaining[low], high
        remaining[high] -= 1 - remaining[low]
        (small if remaining[high] < 1 else large).append(high)
    return keep, alias


def _column_of_code(columns: Sequence[Tensor]) -> Tensor:
    """Column of each code of each group, −1 for code 0, `[f]`."""
    gap = torch.tensor([-1])
    return torch.cat([torch.zeros(0, dtype=torch.long), *(torch.cat([gap, c]) for c in columns)])
