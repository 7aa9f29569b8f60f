"""Categories of one-hot groups without search: drawn from an alias table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["CategoryLookup"]


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
