"""Transport maps between all groups of one attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from monitor.scoring.counterfactual.draws import fewest_draws
from monitor.scoring.counterfactual.lookup import GRID, CategoryLookup, OrderedLookup
from monitor.scoring.counterfactual.repair import Repair
from monitor.scoring.counterfactual.steps import RepairStep, Rows

__all__ = ["LayerWeight", "TransportMaps", "Transported"]

_TENSORS = ("ordered", "continuous", "quantiles", "ordered_moves", "category_moves")


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
        draws: Number of draws d of a row. In each causal order every group has one draw, and
            d − 1 more are spread over the groups; see `spread_draws`.
    """

    ordered: Tensor
    continuous: Tensor
    quantiles: Tensor
    ordered_moves: Tensor
    categories: tuple[Tensor, ...]
    shares: tuple[Tensor, ...]
    category_moves: Tensor
    repairs: tuple[tuple[Repair, ...], ...] = ()
    draws: int = 3
    _ordered: OrderedLookup = field(init=False, repr=False, compare=False)
    _category: CategoryLookup = field(init=False, repr=False, compare=False)
    _steps: tuple[tuple[RepairStep, ...], ...] = field(init=False, repr=False, compare=False)

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
        moving = torch.cat(
            [
                self.ordered[moves],
                *(
                    c
                    for c, m in zip(self.categories, self.category_moves.unbind(2), strict=True)
                    if m.any()
                ),
            ]
        )
        steps = tuple(
            tuple(RepairStep.of(repair, lookup, categories, moving) for repair in repairs)
            for repairs in self.repairs
        )
        object.__setattr__(self, "_steps", steps)

    def _moves_or_is_repaired(self) -> Tensor:
        """Whether an ordered feature moves from s to t, by itself or in a repair, `[k, k, o]`."""
        moves = self.ordered_moves.clone()
        for repair in chain.from_iterable(self.repairs):
            for column, repaired in zip(repair.free, repair.repaired.unbind(2), strict=True):
                moves[:, :, self.ordered == column] |= repaired[:, :, None]
        return moves

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
    def counterfactuals(self) -> int:
        """Number of counterfactuals per row, (k + d − 1)(k − 1) in each causal order."""
        return self.orders * (self.groups + self.draws - 1) * (self.groups - 1)

    @property
    def deterministic(self) -> bool:
        """Whether all draws are equal: no feature that moves has a shared value."""
        return self._category.size == 0 and not self._ordered.shares_values

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
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], draws: int | None = None
    ) -> TransportMaps:
        """The maps stored by `to_arrays`, with a number of draws; None for the fewest.

        Raises:
            ValueError: The arrays are not consistent.
        """
        count = sum(name.startswith("categories_") for name in arrays)
        categories = [arrays[f"categories_{i}"] for i in range(count)]
        shares = [arrays[f"shares_{i}"] for i in range(count)]
        _check({name: arrays[name] for name in _TENSORS}, categories, shares)
        repairs = _repairs(arrays, len(arrays["ordered"]) + sum(map(len, categories)))
        return cls(
            **{name: torch.from_numpy(arrays[name]) for name in _TENSORS},
            categories=tuple(map(torch.from_numpy, categories)),
            shares=tuple(map(torch.from_numpy, shares)),
            repairs=repairs,
            draws=fewest_draws(len(repairs)) if draws is None else draws,
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
        return self.transport(features, sources, targets, uniforms[None], (order,)).features[0]

    def transport(
        self,
        features: Tensor,
        sources: Tensor,
        targets: Tensor,
        uniforms: Tensor,
        orders: Sequence[int] | None = None,
    ) -> Transported:
        """Transport each of n rows by e maps, in each of r causal orders.

        The orders share everything but the repairs, and follow one another in the result.

        Args:
            features: Rows, float32 `[n, d]`; not modified.
            sources: Index of the group to which each row is assumed to belong, int64 `[e, n]`.
            targets: Index of the group to which it is transported, int64 `[e, n]`.
            uniforms: Ranks of the rows within shared values, `[e, n, u]`.
            orders: Indices of the causal orders; None for all.
        """
        split = self._ordered.size
        values = features[:, self._ordered.columns]
        current = self._category.read(features)
        ranks = self._ordered.ranks(values, sources, uniforms[:, :, :split])
        transported = self._ordered.at_ranks(ranks, values, sources, targets)
        drawn = self._category.transport(current, sources, targets, uniforms[:, :, split:])
        if self.repairs:
            rows = Rows(features, values, current, drawn)
            by_order = []
            for order in range(self.orders) if orders is None else orders:
                moved, own = transported, ranks
                for step in self._steps[order]:
                    moved, own = step.apply(rows, moved, own, self._ordered, sources, targets)
                by_order.append(moved)
            transported = by_order[0] if len(by_order) == 1 else torch.cat(by_order)
        return Transported(
            rows=features,
            values=values,
            current=current,
            transported=transported,
            drawn=drawn,
            ordered=self._ordered,
            category=self._category,
        )

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
    """Rows as they would be in other groups, e counterfactuals for each of n rows and r orders.

    Attributes:
        rows: The original rows, `[n, d]`.
        values: Their ordered features that may move, `[n, o]`.
        current: Codes of their categories, int64 `[n, g]`.
        transported: Ordered features in the other group, `[r · e, n, o]`.
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
        """Whether any feature changes, bool `[r · e, n]`."""
        drawn = self._in_all_orders((self.drawn != self.current).any(2))
        return (self.transported != self.values).any(2) | drawn

    @property
    def features(self) -> Tensor:
        """All features in the other group, `[r · e, n, d]`."""
        features = self.rows.expand(len(self.transported), *self.rows.shape)
        if self.ordered.size:
            features = self.ordered.write(features, self.transported)
        if self.category.size:
            drawn = self._in_all_orders(self.drawn)
            features = self.category.write(features, self.current, drawn)
        return features

    def layer_change(self, weight: LayerWeight) -> Tensor:
        """Change of the output of a linear layer, `[r · e, n, h]`."""
        change = (self.transported - self.values) @ weight.ordered
        if self.category.size:
            # Old and new categories in one look-up, which costs less than two.
            codes = torch.cat([self.current[None], self.drawn]) + self.category.starts
            sums = embedding_bag(
                codes.reshape(-1, self.category.size), weight.codes, mode="sum"
            ).reshape(len(codes), *change.shape[1:])
            change = change + self._in_all_orders(sums[1:] - sums[0])
        return change

    def _in_all_orders(self, values: Tensor) -> Tensor:
        """Values `[e, …]`, which all causal orders share, for each of them, `[r · e, …]`."""
        orders = len(self.transported) // len(values)
        return values if orders == 1 else values.repeat(orders, *(1,) * (values.dim() - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeight:
    """Weights of a linear layer on the features that may move.

    Attributes:
        ordered: Weights of the ordered features, `[o, h]`.
        codes: Weights of each code of each category, zero for codes 0, `[f, h]`.
    """

    ordered: Tensor
    codes: Tensor
