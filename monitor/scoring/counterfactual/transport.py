"""The maps between all groups of one attribute, and how people are carried along them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from monitor.scoring.counterfactual.lookup import GRID, CategoryLookup, OrderedLookup

__all__ = ["Carried", "LayerWeight", "TransportMaps", "row_uniforms", "shifted_uniforms"]

_TENSORS = ("ordered", "continuous", "quantiles", "ordered_moves", "category_moves")
_LOW_32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportMaps:
    """The maps between all groups of one attribute.

    Attributes:
        ordered: Columns of the ordered features, int64 `[o]`.
        continuous: Which of them may take any value between two seen ones, bool `[o]`.
        quantiles: Quantile function of each group and feature on an even grid, `[k, o, 513]`.
        ordered_moves: Whether a feature moves from group s to group t, bool `[k, k, o]`.
        categories: For each one-hot group its columns, int64 `[c]`.
        shares: For each one-hot group the share of each category in each group, `[k, 1 + c]`; that
            of the category without a column comes first, zero where there is none.
        category_moves: Whether a one-hot group moves from group s to group t, bool `[k, k, g]`.
    """

    ordered: Tensor
    continuous: Tensor
    quantiles: Tensor
    ordered_moves: Tensor
    categories: tuple[Tensor, ...]
    shares: tuple[Tensor, ...]
    category_moves: Tensor
    _ordered: OrderedLookup = field(init=False, repr=False, compare=False)
    _category: CategoryLookup = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        moves = self.ordered_moves.any(0).any(0)
        found = OrderedLookup.of(
            self.ordered[moves],
            self.continuous[moves],
            self.quantiles[:, moves],
            self.ordered_moves[:, :, moves],
            self.width,
        )
        object.__setattr__(self, "_ordered", found)
        lookup = CategoryLookup.of(self.categories, self.shares, self.category_moves, self.width)
        object.__setattr__(self, "_category", lookup)

    @property
    def groups(self) -> int:
        """How many groups the attribute has, k."""
        return int(self.quantiles.shape[0])

    @property
    def width(self) -> int:
        """How many columns there are, d."""
        return len(self.ordered) + sum(map(len, self.categories))

    @property
    def uniforms(self) -> int:
        """How many uniform numbers one draw of one row takes, u."""
        return self._ordered.size + self._category.size

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As named arrays, to be stored."""
        arrays = {name: getattr(self, name).numpy() for name in _TENSORS}
        for index, (columns, shares) in enumerate(zip(self.categories, self.shares, strict=True)):
            arrays[f"categories_{index}"] = columns.numpy()
            arrays[f"shares_{index}"] = shares.numpy()
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> TransportMaps:
        """From what `to_arrays` gave.

        Raises:
            ValueError: The arrays do not fit each other.
        """
        count = sum(name.startswith("categories_") for name in arrays)
        categories = [arrays[f"categories_{i}"] for i in range(count)]
        shares = [arrays[f"shares_{i}"] for i in range(count)]
        _check({name: arrays[name] for name in _TENSORS}, categories, shares)
        return cls(
            **{name: torch.from_numpy(arrays[name]) for name in _TENSORS},
            categories=tuple(map(torch.from_numpy, categories)),
            shares=tuple(map(torch.from_numpy, shares)),
        )

    def apply(self, features: Tensor, source: int, target: int, uniforms: Tensor) -> Tensor:
        """Features of members of `source` as members of `target`, `[n, d]` to `[n, d]`.

        Args:
            features: The people, float32 `[n, d]`; left as they are.
            source: Index of the group they are taken to belong to.
            target: Index of the group they are carried to.
            uniforms: Where in a point's mass each person stands, `[n, u]`; see `row_uniforms`.
        """
        here, there = (torch.full((1, len(features)), group) for group in (source, target))
        return self.carry(features, here, there, uniforms[None]).features[0]

    def carry(
        self, features: Tensor, sources: Tensor, targets: Tensor, uniforms: Tensor
    ) -> Carried:
        """Each of n people along e maps.

        Args:
            features: The people, float32 `[n, d]`; left as they are.
            sources: Index of the group that each is taken to belong to, int64 `[e, n]`.
            targets: Index of the group that each is carried to, int64 `[e, n]`.
            uniforms: Where in a point's mass each person stands, `[e, n, u]`.
        """
        split = self._ordered.size
        values = features[:, self._ordered.columns]
        current = self._category.read(features)
        return Carried(
            people=features,
            values=values,
            current=current,
            carried=self._ordered.carry(values, sources, targets, uniforms[:, :, :split]),
            drawn=self._category.carry(current, sources, targets, uniforms[:, :, split:]),
            ordered=self._ordered,
            category=self._category,
        )

    def layer_weight(self, weight: Tensor) -> LayerWeight:
        """Weights `[d, h]` of a linear layer on these features, as `Carried.added` wants them."""
        return LayerWeight(
            ordered=weight[self._ordered.columns].contiguous(), places=self._category.rows(weight)
        )


def _check(
    maps: Mapping[str, NDArray[Any]],
    categories: Sequence[NDArray[Any]],
    shares: Sequence[NDArray[Any]],
) -> None:
    """Refuse arrays from which nothing sensible would be looked up."""
    quantiles, (k, o) = maps["quantiles"], maps["quantiles"].shape[:2]
    shapes: dict[str, tuple[type, tuple[int, ...]]] = {
        "ordered": (np.int64, (o,)),
        "continuous": (np.bool_, (o,)),
        "quantiles": (np.float32, (k, o, GRID)),
        "ordered_moves": (np.bool_, (k, k, o)),
        "category_moves": (np.bool_, (k, k, len(categories))),
    }
    for name, (kind, shape) in shapes.items():
        if maps[name].dtype != kind or maps[name].shape != shape:
            raise ValueError(f"{name} is {maps[name].dtype} {maps[name].shape}")
    columns = np.concatenate([maps["ordered"], *categories])
    if columns.dtype != np.int64 or not np.array_equal(np.sort(columns), np.arange(len(columns))):
        raise ValueError("its columns are not each there once")
    if not np.isfinite(quantiles).all() or (np.diff(quantiles) < 0).any():
        raise ValueError("its quantiles are not in order")
    for columns, share in zip(categories, shares, strict=True):
        if share.dtype != np.float32 or share.shape != (k, 1 + len(columns)):
            raise ValueError("its shares do not fit its categories")
        if not ((share >= 0) & (share <= 1)).all():
            raise ValueError("its shares are not shares")


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """People as they would be in other groups, e of them for each of n.

    Attributes:
        people: Their own features, `[n, d]`.
        values: Of those the ordered ones that may move, `[n, o]`.
        current: Places of their own categories, int64 `[n, g]`.
        carried: Ordered features in the other group, `[e, n, o]`.
        drawn: Places of the categories in the other group, int64 `[e, n, g]`.
        ordered: Which features the ordered ones are.
        category: Which features the categories are.
    """

    people: Tensor
    values: Tensor
    current: Tensor
    carried: Tensor
    drawn: Tensor
    ordered: OrderedLookup
    category: CategoryLookup

    @property
    def moved(self) -> Tensor:
        """Whether anything about them is different, bool `[e, n]`."""
        return (self.carried != self.values).any(2) | (self.drawn != self.current).any(2)

    @property
    def features(self) -> Tensor:
        """Their features in the other group, `[e, n, d]`."""
        written = self.people.expand(len(self.carried), *self.people.shape)
        if self.ordered.size:
            written = self.ordered.write(written, self.carried)
        if self.category.size:
            written = self.category.write(written, self.current, self.drawn)
        return written

    def added(self, weight: LayerWeight) -> Tensor:
        """What the difference adds to the output of a linear layer, `[e, n, h]`."""
        added = (self.carried - self.values) @ weight.ordered
        if self.category.size:
            # Here and there in one look-up, which costs less than two.
            places = torch.cat([self.current[None], self.drawn]) + self.category.starts
            bags = embedding_bag(
                places.reshape(-1, self.category.size), weight.places, mode="sum"
            ).reshape(len(places), *added.shape[1:])
            added = added + (bags[1:] - bags[0])
        return added


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeight:
    """Weights of a linear layer on the features that may move.

    Attributes:
        ordered: Of the ordered ones, `[o, h]`.
        places: Of each place of each category, zero for places 0, `[f, h]`.
    """

    ordered: Tensor
    places: Tensor


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
