"""Transport maps: what a person's features would be in another group.

For each ordered pair of groups a map carries one group's distribution onto the other's, feature by
feature, so that a person keeps her rank: ordered features (numeric, integer, binary) by their
quantiles, one-hot groups by the coupling of categories that moves the least mass. A feature whose
distribution does not differ between the two groups stays as it is.

Where a value holds more than a point's mass (integers, categories, a peak at zero) the map is a
kernel, not a function. It is sampled at `DRAWS` evenly spaced ranks, shifted by a hash of the row,
so the same row always gets the same answer, alone or in any batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from monitor.bundle.manifest import Feature, OneHotGroup
from monitor.errors import FitError

__all__ = ["DRAWS", "TransportMaps", "draws", "fit_transport_maps", "row_uniforms"]

DRAWS = 8
_TENSORS = ("ordered", "continuous", "quantiles", "ordered_moves")
# Points at which a quantile function is kept; a binary feature is resolved to 1/512.
_GRID = 513
# A feature moves only if its two distributions differ at this level.
_LEVEL = 0.01
# Rows of a group that this is judged on; more change nothing.
_SAMPLE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportMaps:
    """The maps between all groups of one attribute.

    Attributes:
        ordered: Columns of the ordered features, int64 `[o]`.
        continuous: Which of them may take any value between two seen ones, bool `[o]`.
        quantiles: Quantile function of each group and feature on an even grid, `[k, o, 513]`.
        ordered_moves: Whether a feature moves from group s to group t, bool `[k, k, o]`.
        categories: For each one-hot group its columns, int64 `[c]`; with a dropped category, which
            has no column, last.
        couplings: For each one-hot group the cumulative coupling from group s to group t,
            `[k, k, c, c]`, where c counts a dropped category too.
    """

    ordered: Tensor
    continuous: Tensor
    quantiles: Tensor
    ordered_moves: Tensor
    categories: tuple[Tensor, ...]
    couplings: tuple[Tensor, ...]

    @property
    def groups(self) -> int:
        """How many groups the attribute has, k."""
        return int(self.quantiles.shape[0])

    @property
    def uniforms(self) -> int:
        """How many uniform numbers one draw of one row takes, u."""
        return len(self.ordered) + len(self.categories)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As named arrays, to be stored."""
        arrays = {name: getattr(self, name).numpy() for name in _TENSORS}
        for index, (columns, coupling) in enumerate(
            zip(self.categories, self.couplings, strict=True)
        ):
            arrays[f"categories_{index}"] = columns.numpy()
            arrays[f"couplings_{index}"] = coupling.numpy()
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> TransportMaps:
        """From what `to_arrays` gave."""
        count = sum(name.startswith("categories_") for name in arrays)
        return cls(
            **{name: torch.from_numpy(arrays[name]) for name in _TENSORS},
            categories=tuple(torch.from_numpy(arrays[f"categories_{i}"]) for i in range(count)),
            couplings=tuple(torch.from_numpy(arrays[f"couplings_{i}"]) for i in range(count)),
        )

    def apply(self, features: Tensor, source: int, target: int, uniforms: Tensor) -> Tensor:
        """Features of members of `source` as members of `target`, `[n, d]` to `[n, d]`.

        Args:
            features: The people, float32 `[n, d]`; left as they are.
            source: Index of the group they are taken to belong to.
            target: Index of the group they are carried to.
            uniforms: Where in a point's mass each person stands, `[n, u]`; see `draws`.
        """
        moved = features.clone()
        split = len(self.ordered)
        if split:
            moved[:, self.ordered] = self._ordered(
                features[:, self.ordered], source, target, uniforms[:, :split]
            )
        for index, columns in enumerate(self.categories):
            coupling = self.couplings[index][source, target]
            moved[:, columns] = _recategorise(
                features[:, columns], coupling, uniforms[:, split + index]
            )
        return moved

    def _ordered(self, values: Tensor, source: int, target: int, uniforms: Tensor) -> Tensor:
        """Same rank in the other group, `[n, o]`."""
        here, there = self.quantiles[source], self.quantiles[target]
        columns = values.T.contiguous()
        inside = columns.clamp(here[:, :1], here[:, -1:])
        rank = _rank(inside, here, uniforms.T)
        step = rank * (_GRID - 1)
        low = step.floor().clamp(0, _GRID - 2)
        below, above = (there.gather(1, (low + shift).long()) for shift in (0, 1))
        between = below + (step - low) * (above - below) + (columns - inside)
        nearest = torch.where(step - low < 0.5, below, above)
        carried = torch.where(self.continuous[:, None], between, nearest)
        return torch.where(self.ordered_moves[source, target][:, None], carried, columns).T


def draws(features: Tensor, count: int) -> list[Tensor]:
    """`DRAWS` sets of uniforms for each row, evenly spaced, `[n, count]` each."""
    start = row_uniforms(features, count)
    return [torch.remainder(start + number / DRAWS, 1.0) for number in range(DRAWS)]


def row_uniforms(features: Tensor, count: int) -> Tensor:
    """Numbers in [0, 1) that depend on a row's bits and on nothing else, `[n, d]` to `[n, count]`.

    Integer arithmetic only, so the same on every machine and in every batch.
    """
    # Adding zero turns -0.0 into 0.0, which is the same value with other bits.
    bits = (features.float() + 0.0).contiguous().view(torch.int32).long() & 0xFFFFFFFF
    place = torch.arange(1, bits.shape[1] + 1, device=features.device)
    row = _mix(_mix(bits + 0x9E3779B9 * place).sum(1) & 0xFFFFFFFF)
    number = torch.arange(1, count + 1, device=features.device)
    return (
        _mix(row[:, None] + 0x85EBCA6B * number).double().div(2**32).float().clamp_max(1 - 2**-24)
    )


def _mix(value: Tensor) -> Tensor:
    """A bijection of 32-bit numbers that leaves no pattern standing."""
    value = value & 0xFFFFFFFF
    value = ((value ^ (value >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    value = ((value ^ (value >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return value ^ (value >> 16)


def _rank(values: Tensor, quantiles: Tensor, uniforms: Tensor) -> Tensor:
    """Rank of values `[o, n]` in quantile functions `[o, g]`, drawn evenly within a point mass."""
    last = quantiles.shape[1] - 1
    right = torch.searchsorted(quantiles, values, right=True).clamp(1, last)
    left = torch.searchsorted(quantiles, values, right=False).clamp(0, last)
    below, above = quantiles.gather(1, right - 1), quantiles.gather(1, right)
    # Between two grid points the rank is interpolated; on a run of equal ones it is drawn.
    slope = (values - below) / (above - below).clamp_min(1e-30)
    interpolated = (right - 1 + slope.clamp(0, 1)) / last
    start, stop = left / last, (right - 1 + (values >= above)) / last
    drawn = start + uniforms * (stop - start)
    return torch.where(stop > start, drawn, interpolated)


def _recategorise(columns: Tensor, coupling: Tensor, uniform: Tensor) -> Tensor:
    """One-hot columns of the category that the coupling draws, `[n, c]`."""
    width, categories = columns.shape[1], coupling.shape[0]
    current = columns.argmax(1)
    if categories > width:
        # No column is 1: the dropped category, which comes last.
        current = torch.where(columns.amax(1) < 0.5, width, current)
    drawn = (uniform[:, None] >= coupling[current]).sum(1).clamp_max(categories - 1)
    return (drawn[:, None] == torch.arange(width, device=columns.device)).to(columns.dtype)


def fit_transport_maps(
    features: NDArray[np.float32],
    groups: NDArray[np.int8],
    kinds: Sequence[Feature],
    one_hot_groups: Sequence[OneHotGroup],
    count: int,
) -> TransportMaps:
    """Fit the maps between the groups of one attribute.

    Args:
        features: The people, `[n, d]`.
        groups: Each person's group, 0 to count − 1; negative where it is not known, `[n]`.
        kinds: The features, in the order of the columns.
        one_hot_groups: Which columns belong together.
        count: How many groups there are.
    """
    members = [features[groups == group] for group in range(count)]
    if min(map(len, members)) < 2:
        raise FitError("a group without members cannot be mapped")
    position = {feature.name: column for column, feature in enumerate(kinds)}
    ordered = [position[feature.name] for feature in kinds if feature.kind != "onehot"]
    continuous = np.array([kinds[column].kind == "numeric" for column in ordered], bool)
    categories = [[position[name] for name in group.features] for group in one_hot_groups]
    return TransportMaps(
        ordered=torch.tensor(ordered, dtype=torch.long),
        continuous=torch.from_numpy(continuous),
        quantiles=torch.from_numpy(_quantiles(members, ordered, continuous)),
        ordered_moves=torch.from_numpy(_moves(members, ordered, continuous)),
        categories=tuple(torch.tensor(columns) for columns in categories),
        couplings=tuple(
            torch.from_numpy(_couplings(members, columns, dropped=group.dropped is not None))
            for group, columns in zip(one_hot_groups, categories, strict=True)
        ),
    )


def _quantiles(
    members: list[NDArray[np.float32]], ordered: list[int], continuous: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Quantile functions `[k, o, 513]`; of a discrete feature only values that someone has."""
    grid = np.linspace(0, 1, _GRID)
    found = np.empty((len(members), len(ordered), _GRID), np.float32)
    for group, rows in enumerate(members):
        for index, column in enumerate(ordered):
            method: Literal["linear", "inverted_cdf"] = (
                "linear" if continuous[index] else "inverted_cdf"
            )
            found[group, index] = np.quantile(rows[:, column], grid, method=method)
    return found


def _moves(
    members: list[NDArray[np.float32]], ordered: list[int], continuous: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which ordered features differ in distribution between two groups, `[k, k, o]`."""
    moves = np.zeros((len(members), len(members), len(ordered)), bool)
    for first, second in combinations(range(len(members)), 2):
        for index, column in enumerate(ordered):
            here, there = members[first][:_SAMPLE, column], members[second][:_SAMPLE, column]
            differ = _shifted(here, there, _LEVEL if continuous[index] else _LEVEL / 2)
            # Kolmogorov–Smirnov is blind to rare values of a discrete feature.
            if not continuous[index]:
                differ = differ or _categories_differ(*_counts(here, there), _LEVEL / 2)
            moves[first, second, index] = moves[second, first, index] = differ
    return moves


def _shifted(here: NDArray[np.float32], there: NDArray[np.float32], level: float) -> bool:
    return bool(stats.ks_2samp(here, there, method="asymp").pvalue < level)


def _counts(
    here: NDArray[np.float32], there: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How often each value occurs in both, values of fewer than ten people together."""
    _, index = np.unique(np.concatenate([here, there]), return_inverse=True)
    size = index.max() + 1
    table = np.stack(
        [np.bincount(i, minlength=size) for i in (index[: len(here)], index[len(here) :])]
    )
    rare = table.sum(0) < 10
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(1)]).astype(float)
    return table[0], table[1]


def _couplings(
    members: list[NDArray[np.float32]], columns: list[int], *, dropped: bool
) -> NDArray[np.float32]:
    """Cumulative couplings of categories between all pairs of groups, `[k, k, c, c]`.

    As much mass as possible stays where it is; what has to move spreads over the categories that
    gain, in proportion to their gains.
    """
    counts = np.stack([rows[:, columns].sum(0) for rows in members]).astype(float)
    if dropped:
        rest = np.array([len(rows) for rows in members]) - counts.sum(1)
        counts = np.column_stack([counts, np.maximum(rest, 0)])
    size = counts.shape[1]
    couplings = np.empty((len(members), len(members), size, size))
    couplings[:] = np.eye(size)
    for source, target in permutations(range(len(members)), 2):
        if _categories_differ(counts[source], counts[target], _LEVEL):
            here, there = (
                counts[source] / counts[source].sum(),
                counts[target] / counts[target].sum(),
            )
            gains = np.maximum(there - here, 0)
            leave = np.maximum(here - there, 0) / np.maximum(here, 1e-300)
            spread = gains / gains.sum()
            couplings[source, target] = np.diag(1 - leave) + leave[:, None] * spread
    return np.cumsum(couplings, axis=-1).astype(np.float32)


def _categories_differ(here: NDArray[np.float64], there: NDArray[np.float64], level: float) -> bool:
    table = np.stack([here, there])
    table = table[:, table.sum(0) > 0]
    return table.shape[1] > 1 and bool(stats.chi2_contingency(table).pvalue < level)
