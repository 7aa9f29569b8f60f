"""Transport maps between all groups of one attribute, and the uniform numbers of their draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from monitor.scoring.counterfactual.lookup import GRID, CategoryLookup, OrderedLookup
from monitor.scoring.counterfactual.repair import Repair

__all__ = ["LayerWeight", "TransportMaps", "Transported", "row_uniforms", "shifted_uniforms"]

_TENSORS = ("ordered", "continuous", "quantiles", "ordered_moves", "category_moves")
_LOW_32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportMaps:
    """The maps between all groups of one attribute.

    Attributes:
        ordered: Columns of the ordered features, int64 `[o]`.
        continuous: Which of them may take any value between two observed ones, bool `[o]`.
        quantiles: Quantile function of each group and feature on an even grid, `[k, o, 513]`.
        ordered_moves: Whether a feature moves from group s to group t, bool `[k, k, o]`.
        categories: Columns of each one-hot group, int64 `[c]`.
        shares: Shares of the categories of each one-hot group in each group, `[k, 1 + c]`; first
            that of the category without a column, zero if there is none.
        category_moves: Whether a one-hot group moves from group s to group t, bool `[k, k, g]`.
        repairs: Repairs of the dependence between features, applied one after the other, for each
            causal order that scores average over; empty if none is needed.
    """

    ordered: Tensor
    continuous: Tensor
    quantiles: Tensor
    ordered_moves: Tensor
    categories: tuple[Tensor, ...]
    shares: tuple[Tensor, ...]
    category_moves: Tensor
    repairs: tuple[tuple[Repair, ...], ...] = ()
    _ordered: OrderedLookup = field(init=False, repr=False, compare=False)
    _category: CategoryLookup = field(init=False, repr=False, compare=False)
    _predictors_move: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordered_moves = self._moves_or_is_repaired()
        moves = ordered_moves.any(0).any(0)
        lookup = OrderedLookup.of(
            self.ordered[moves],
            self.continuous[moves],
            self.quantiles[:, moves],
            self.ordered_moves[:, :, moves],
            self.width,
        )
        object.__setattr__(self, "_ordered", lookup)
        categories = CategoryLookup.of(
            self.categories, self.shares, self.category_moves, self.width
        )
        object.__setattr__(self, "_category", categories)
        object.__setattr__(self, "_predictors_move", self._predictors_that_move(ordered_moves))

    def _moves_or_is_repaired(self) -> Tensor:
        """Whether an ordered feature moves from s to t, by itself or in a repair, `[k, k, o]`."""
        moves = self.ordered_moves.clone()
        for repair in chain.from_iterable(self.repairs):
            for column, repaired in zip(repair.free, repair.repaired.unbind(2), strict=True):
                moves[:, :, self.ordered == column] |= repaired[:, :, None]
        return moves

    def _predictors_that_move(self, ordered_moves: Tensor) -> bool:
        """Whether any predictor of a repair moves itself."""
        moved = [self.ordered[ordered_moves.any(0).any(0)]]
        for columns, moves in zip(self.categories, self.category_moves.unbind(2), strict=True):
            moved += [columns] if moves.any() else []
        read = [repair.columns for repair in chain.from_iterable(self.repairs)]
        return bool(read) and bool(torch.isin(torch.cat(read), torch.cat(moved)).any())

    @property
    def orders(self) -> int:
        """Number of causal orders that scores average over, at least 1."""
        return max(len(self.repairs), 1)

    @property
    def groups(self) -> int:
        """Number of groups of the attribute, k."""
        return int(self.quantiles.shape[0])

    @property
    def width(self) -> int:
        """Number of columns, d."""
        return len(self.ordered) + sum(map(len, self.categories))

    @property
    def n_uniforms(self) -> int:
        """Number of uniform numbers per row and draw, u."""
        return self._ordered.size + self._category.size

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Named arrays for storage."""
        arrays = {name: getattr(self, name).numpy() for name in _TENSORS}
        for index, (columns, shares) in enumerate(zip(self.categories, self.shares, strict=True)):
            arrays[f"categories_{index}"] = columns.numpy()
            arrays[f"shares_{index}"] = shares.numpy()
        for order, repairs in enumerate(self.repairs):
            for level, repair in enumerate(repairs):
                named = repair.to_arrays().items()
                arrays |= {f"repair_{order}_{level}_{name}": array for name, array in named}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> TransportMaps:
        """The maps stored by `to_arrays`.

        Raises:
            ValueError: The arrays are not consistent.
        """
        count = sum(name.startswith("categories_") for name in arrays)
        categories = [arrays[f"categories_{i}"] for i in range(count)]
        shares = [arrays[f"shares_{i}"] for i in range(count)]
        _check({name: arrays[name] for name in _TENSORS}, categories, shares)
        return cls(
            **{name: torch.from_numpy(arrays[name]) for name in _TENSORS},
            categories=tuple(map(torch.from_numpy, categories)),
            shares=tuple(map(torch.from_numpy, shares)),
            repairs=_repairs(arrays, len(arrays["ordered"]) + sum(map(len, categories))),
        )

    def apply(
        self, features: Tensor, source: int, target: int, uniforms: Tensor, order: int = 0
    ) -> Tensor:
        """Features of members of `source` as members of `target`, `[n, d]` to `[n, d]`.

        Args:
            features: Rows, float32 `[n, d]`; not modified.
            source: Index of the group to which the rows are assumed to belong.
            target: Index of the group to which they are transported.
            uniforms: Ranks of the rows within shared values, `[n, u]`; see `row_uniforms`.
            order: Index of the causal order, below `orders`.
        """
        sources, targets = (torch.full((1, len(features)), group) for group in (source, target))
        return self.transport(features, sources, targets, uniforms[None], order).features[0]

    def transport(
        self,
        features: Tensor,
        sources: Tensor,
        targets: Tensor,
        uniforms: Tensor,
        order: int = 0,
    ) -> Transported:
        """Transport each of n rows by e maps.

        Args:
            features: Rows, float32 `[n, d]`; not modified.
            sources: Index of the group to which each row is assumed to belong, int64 `[e, n]`.
            targets: Index of the group to which it is transported, int64 `[e, n]`.
            uniforms: Ranks of the rows within shared values, `[e, n, u]`.
            order: Index of the causal order, below `orders`.
        """
        split = self._ordered.size
        values = features[:, self._ordered.columns]
        current = self._category.read(features)
        ranks = self._ordered.ranks(values, sources, uniforms[:, :, :split])
        transported = Transported(
            rows=features,
            values=values,
            current=current,
            transported=self._ordered.at_ranks(ranks, values, sources, targets),
            drawn=self._category.transport(current, sources, targets, uniforms[:, :, split:]),
            ordered=self._ordered,
            category=self._category,
        )
        if not self.repairs:
            return transported
        repaired = torch.zeros_like(ranks, dtype=torch.bool)
        for repair in self.repairs[order]:
            after = transported.features if self._predictors_move else None
            position = self._ordered.position[repair.free]
            given = repair.ranks(
                ranks[:, :, position] / (GRID - 1), features, after, sources, targets
            )
            # Index of each ordered feature among those of the repair, −1 if it is not there.
            index = torch.full((self._ordered.size,), -1)
            index[position] = torch.arange(repair.size)
            own, pick = index >= 0, index.clamp_min(0)
            ranks = torch.where(own, given[:, :, pick] * (GRID - 1), ranks)
            repaired = repaired | (own & repair.repaired[sources, targets][:, :, pick])
            moved = self._ordered.at_ranks(ranks, values, sources, targets, repaired)
            transported = replace(transported, transported=moved)
        return transported

    def layer_weight(self, weight: Tensor) -> LayerWeight:
        """Weights `[d, h]` of a linear layer, arranged for `Transported.layer_change`."""
        return LayerWeight(
            ordered=weight[self._ordered.columns].contiguous(), codes=self._category.rows(weight)
        )


def _repairs(arrays: Mapping[str, NDArray[Any]], width: int) -> tuple[tuple[Repair, ...], ...]:
    """Stored repairs, by causal order.

    Raises:
        ValueError: The arrays are not consistent.
    """
    levels: dict[int, dict[int, dict[str, NDArray[Any]]]] = {}
    for key, array in arrays.items():
        if key.startswith("repair_"):
            order, level, name = key.removeprefix("repair_").split("_", 2)
            levels.setdefault(int(order), {}).setdefault(int(level), {})[name] = array
    groups, ordered = len(arrays["quantiles"]), arrays["ordered"]
    return tuple(
        tuple(
            Repair.from_arrays(levels[order][level], groups, ordered, width)
            for level in sorted(levels[order])
        )
        for order in sorted(levels)
    )


def _check(
    maps: Mapping[str, NDArray[Any]],
    categories: Sequence[NDArray[Any]],
    shares: Sequence[NDArray[Any]],
) -> None:
    """Raise ValueError if the arrays are not consistent."""
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
            raise ValueError(
                f"{name}: expected {np.dtype(kind)} {shape}, got {maps[name].dtype} "
                f"{maps[name].shape}"
            )
    columns = np.concatenate([maps["ordered"], *categories])
    if columns.dtype != np.int64 or not np.array_equal(np.sort(columns), np.arange(len(columns))):
        raise ValueError("each column must occur exactly once")
    if not np.isfinite(quantiles).all() or (np.diff(quantiles) < 0).any():
        raise ValueError("quantiles must be finite and increasing")
    for columns, share in zip(categories, shares, strict=True):
        if share.dtype != np.float32 or share.shape != (k, 1 + len(columns)):
            raise ValueError("shares do not match the categories")
        if not ((share >= 0) & (share <= 1)).all():
            raise ValueError("shares must be between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transported:
    """Rows as they would be in other groups, e counterfactuals for each of n rows.

    Attributes:
        rows: The original rows, `[n, d]`.
        values: Their ordered features that may move, `[n, o]`.
        current: Codes of their categories, int64 `[n, g]`.
        transported: Ordered features in the other group, `[e, n, o]`.
        drawn: Codes of the categories in the other group, int64 `[e, n, g]`.
        ordered: Tables of the ordered features.
        category: Tables of the categories.
    """

    rows: Tensor
    values: Tensor
    current: Tensor
    transported: Tensor
    drawn: Tensor
    ordered: OrderedLookup
    category: CategoryLookup

    @property
    def moved(self) -> Tensor:
        """Whether any feature changes, bool `[e, n]`."""
        return (self.transported != self.values).any(2) | (self.drawn != self.current).any(2)

    @property
    def features(self) -> Tensor:
        """All features in the other group, `[e, n, d]`."""
        features = self.rows.expand(len(self.transported), *self.rows.shape)
        if self.ordered.size:
            features = self.ordered.write(features, self.transported)
        if self.category.size:
            features = self.category.write(features, self.current, self.drawn)
        return features

    def layer_change(self, weight: LayerWeight) -> Tensor:
        """Change of the output of a linear layer, `[e, n, h]`."""
        change = (self.transported - self.values) @ weight.ordered
        if self.category.size:
            # Old and new categories in one look-up, which costs less than two.
            codes = torch.cat([self.current[None], self.drawn]) + self.category.starts
            sums = embedding_bag(
                codes.reshape(-1, self.category.size), weight.codes, mode="sum"
            ).reshape(len(codes), *change.shape[1:])
            change = change + (sums[1:] - sums[0])
        return change


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeight:
    """Weights of a linear layer on the features that may move.

    Attributes:
        ordered: Weights of the ordered features, `[o, h]`.
        codes: Weights of each code of each category, zero for codes 0, `[f, h]`.
    """

    ordered: Tensor
    codes: Tensor


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
