"""Repair of dependence: ranks in the other group, given the other features of the row.

Maps of single features give transported rows the margins of the target group, but leave the
dependence between features as in the source. For a variable whose dependence on others differs, the
rank of a row is changed before it is looked up in the target's quantiles:

    z  = logit(rank)              score of the row in the source group
    e  = (z − μ_s(c)) / σ_s(c)    residual, given the predictors c of the variable
    e' = F_t⁻¹(F_s(e))            residual of the same rank in the target group, among rows of
                                  about the same μ
    z' = μ_t(c') + σ_t(c') · e'   score in the target group, given the transported predictors c'

μ and log σ are piecewise linear in the predictors, with products of two where effects do not add.
This is a conditional quantile map, with conditional distributions that differ in location, scale,
and with the location in shape. It is arithmetic on whole tensors with constant tables, so that it
compiles into a few loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["LIMIT", "Repair", "scores_of_ranks"]

# Largest score, that of a rank half a grid interval from the end of a grid of 512.
LIMIT = 6.9
_NAMES = (
    "free", "repaired", "columns", "start", "slope", "products", "weight", "bias", "edges",
    "residuals",
)  # fmt: skip


def scores_of_ranks(ranks: Tensor) -> Tensor:
    """Logit of ranks in [0, 1]; finite at both ends."""
    inside = ranks.clamp(1e-6, 1 - 1e-6)
    return (inside.log() - (1 - inside).log()).clamp(-LIMIT, LIMIT)


def _of_group(tables: Tensor, groups: Tensor) -> Tensor:
    """The table of each row's group, `[k, …]` to `[e, n, …]`, for groups `[e, n, …]`.

    By comparisons: compiled code reads tables one number at a time if their index is computed.
    """
    chosen = tables[0]
    for number in range(1, len(tables)):
        chosen = torch.where(groups == number, tables[number], chosen)
    return chosen


def _of_bin(tables: Tensor, groups: Tensor, bins: Tensor) -> Tensor:
    """The table of each row's group and bin, `[k, m, z, …]` to `[e, n, m, …]`."""
    chosen = _of_group(tables[:, :, 0], groups)
    for number in range(1, tables.shape[2]):
        chosen = torch.where(bins == number, _of_group(tables[:, :, number], groups), chosen)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Tables of the variables of one attribute with k groups that are repaired at once.

    Variables that depend on others that are repaired themselves follow in a later repair.

    Attributes:
        free: Columns of the m variables that may move further, int64 `[m]`.
        repaired: Whether a variable is repaired from group s to group t, bool `[k, k, m]`.
        columns: Column that each of b ramps reads, int64 `[b]`.
        start: Start of each ramp, `[b]`.
        slope: Reciprocal of its width, `[b]`.
        products: Indices of the two ramps of each product, int64 `[2, p]`.
        weight: Weights of the ramps, then of the products, in μ (first m) and log σ (last m),
            `[k, b + p, 2m]`.
        bias: Constant part of μ and log σ, `[k, 2m]`.
        edges: Values of μ between the bins of the residuals in each group, `[k, m, z − 1]`.
        residuals: Quantiles of the residuals in each group and bin of μ, `[k, m, z, q]`.
    """

    free: Tensor
    repaired: Tensor
    columns: Tensor
    start: Tensor
    slope: Tensor
    products: Tensor
    weight: Tensor
    bias: Tensor
    edges: Tensor
    residuals: Tensor
    _weight: Tensor = field(init=False, repr=False, compare=False)
    _slope: Tensor = field(init=False, repr=False, compare=False)
    _width: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        width = self.residuals.diff(dim=3)
        # Sums over ramps and intervals run along the last dimension, which is vectorized.
        object.__setattr__(self, "_weight", self.weight.transpose(1, 2).contiguous())
        object.__setattr__(self, "_width", width)
        object.__setattr__(self, "_slope", 1 / width.clamp_min(1e-6))

    @property
    def size(self) -> int:
        """Number of variables that may move further, m."""
        return len(self.free)

    def ranks(
        self, ranks: Tensor, before: Tensor, after: Tensor | None, sources: Tensor, targets: Tensor
    ) -> Tensor:
        """Ranks in the target group given other features, `[e, n, m]` to `[e, n, m]`.

        Args:
            ranks: Ranks of the free variables in the source group, in [0, 1].
            before: Values that the ramps read, `[n, b]`.
            after: The same with each predictor transported by itself, `[e, n, b]`; None if no
                predictor moves.
            sources: Index of the group to which each row is assumed to belong, int64 `[e, n]`.
            targets: Index of the group to which it is transported, int64 `[e, n]`.
        """
        own, scale = self._moments(before[None], sources)
        residual = (scores_of_ranks(ranks) - own) / scale
        mean, scale = self._moments(before[None] if after is None else after, targets)
        bins = self._bins(own, sources), self._bins(mean, targets)
        residual = self._residuals(residual, sources, targets, *bins)
        moved = (mean + scale * residual).sigmoid()
        return torch.where(self.repaired[sources, targets], moved, ranks)

    def _moments(self, values: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
        """μ and σ of the scores in one group per row, `[e, n, m]` each.

        Args:
            values: Values that the ramps read, `[e, n, b]`, or `[1, n, b]` if draws share them.
            groups: Index of the group, int64 `[e, n]`.
        """
        ramps = ((values - self.start) * self.slope).clamp(0, 1)
        if self.products.shape[1]:
            left, right = self.products
            ramps = torch.cat([ramps, ramps[..., left] * ramps[..., right]], -1)
        ramps = ramps[:, :, None]
        if len(values) == 1:
            # Every group once, instead of once per draw.
            sums = (ramps * self._weight[:, None]).sum(3) + self.bias[:, None]
            both = _of_group(sums, groups[:, :, None])
        else:
            weight = _of_group(self._weight, groups[:, :, None, None])
            both = (ramps * weight).sum(3) + _of_group(self.bias, groups[:, :, None])
        return both[..., : self.size], both[..., self.size :].exp()

    def _bins(self, mean: Tensor, groups: Tensor) -> Tensor:
        """Bin of the residuals of rows with these μ, int64 `[e, n, m]`."""
        if self.edges.shape[2] == 0:
            return torch.zeros_like(mean, dtype=torch.long)
        return (mean[..., None] > _of_group(self.edges, groups[:, :, None, None])).sum(3)

    def _residuals(
        self,
        residual: Tensor,
        sources: Tensor,
        targets: Tensor,
        source_bins: Tensor,
        target_bins: Tensor,
    ) -> Tensor:
        """Residuals of the same rank in the target group, `[e, n, m]`.

        Both quantile functions have the same levels, so that each interval of the source becomes
        that interval of the target: a sum over intervals without any look-up.
        """
        source, target = sources[:, :, None], targets[:, :, None]
        start = _of_bin(self.residuals[..., :-1], source[..., None], source_bins[..., None])
        slope = _of_bin(self._slope, source[..., None], source_bins[..., None])
        width = _of_bin(self._width, target[..., None], target_bins[..., None])
        rise = (((residual[..., None] - start) * slope).clamp(0, 1) * width).sum(3)
        # Beyond the observed residuals, their distance from the ends stays.
        lowest = _of_bin(self.residuals[..., 0], source, source_bins)
        highest = _of_bin(self.residuals[..., -1], source, source_bins)
        inside = torch.minimum(torch.maximum(residual, lowest), highest)
        first = _of_bin(self.residuals[..., 0], target, target_bins)
        return first + rise + (residual - inside)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Named arrays for storage."""
        return {name: getattr(self, name).numpy() for name in _NAMES}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], groups: int, ordered: NDArray[Any], width: int
    ) -> Self:
        """The repair stored by `to_arrays`.

        Args:
            arrays: Arrays by name.
            groups: Number of groups, k.
            ordered: Columns of the ordered features.
            width: Number of columns, d.

        Raises:
            ValueError: The arrays are not consistent.
        """
        if "products" not in arrays:
            arrays = _without_products(arrays)
        _check(arrays, groups, ordered, width)
        return cls(**{name: torch.from_numpy(arrays[name]) for name in _NAMES})


def _without_products(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays of a repair that was stored without products and bins of the residuals."""
    residuals = arrays["residuals"][:, :, None]
    return {
        **arrays,
        "products": np.zeros((2, 0), np.int64),
        "edges": np.zeros((*residuals.shape[:2], 0), np.float32),
        "residuals": residuals,
    }


def _check(arrays: Mapping[str, NDArray[Any]], k: int, ordered: NDArray[Any], d: int) -> None:
    """Raise ValueError if the arrays are not consistent."""
    m, b = len(arrays["free"]), len(arrays["columns"])
    p, q = arrays["products"].shape[-1], arrays["residuals"].shape[-1]
    z = arrays["edges"].shape[-1] + 1
    shapes: dict[str, tuple[type, tuple[int, ...]]] = {
        "free": (np.int64, (m,)),
        "repaired": (np.bool_, (k, k, m)),
        "columns": (np.int64, (b,)),
        "start": (np.float32, (b,)),
        "slope": (np.float32, (b,)),
        "products": (np.int64, (2, p)),
        "weight": (np.float32, (k, b + p, 2 * m)),
        "bias": (np.float32, (k, 2 * m)),
        "edges": (np.float32, (k, m, z - 1)),
        "residuals": (np.float32, (k, m, z, q)),
    }
    for name, (kind, shape) in shapes.items():
        array = arrays[name]
        if array.dtype != kind or array.shape != shape:
            raise ValueError(
                f"{name}: expected {np.dtype(kind)} {shape}, got {array.dtype} {array.shape}"
            )
        if kind is np.float32 and not np.isfinite(array).all():
            raise ValueError(f"{name} of the repair must be finite")
    if q < 2 or m == 0:
        raise ValueError("tables of the repair are empty")
    if not np.isin(arrays["free"], ordered).all() or len(np.unique(arrays["free"])) != m:
        raise ValueError("repaired columns must be distinct ordered features")
    if b and not ((arrays["columns"] >= 0) & (arrays["columns"] < d)).all():
        raise ValueError("ramps read columns that do not exist")
    if p and not ((arrays["products"] >= 0) & (arrays["products"] < b)).all():
        raise ValueError("products of ramps that do not exist")
    if (np.diff(arrays["residuals"]) < 0).any():
        raise ValueError("quantiles of the residuals must be increasing")
