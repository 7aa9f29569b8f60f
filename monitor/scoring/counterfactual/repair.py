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
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["LIMIT", "Repair", "scores_of_ranks"]

# Largest score, that of a rank half a grid interval from the end of a grid of 512.
LIMIT = 6.9
_NAMES = (
    "free", "repaired", "columns", "start", "slope", "products", "weight", "bias", "centres",
    "residuals",
)  # fmt: skip


def scores_of_ranks(ranks: Tensor) -> Tensor:
    """Logit of ranks in [0, 1]; finite at both ends."""
    inside = ranks.clamp(1e-6, 1 - 1e-6)
    return (inside.log() - (1 - inside).log()).clamp(-LIMIT, LIMIT)


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
        centres: Increasing values of μ, for which residuals have a table, `[k, m, z]`.
        residuals: Quantiles of the residuals in each group about each of them, `[k, m, z, q]`.
    """

    free: Tensor
    repaired: Tensor
    columns: Tensor
    start: Tensor
    slope: Tensor
    products: Tensor
    weight: Tensor
    bias: Tensor
    centres: Tensor
    residuals: Tensor

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
            before: The rows, `[n, d]`.
            after: The rows with each predictor transported by itself, `[e, n, d]`; None if no
                predictor moves.
            sources: Index of the group to which each row is assumed to belong, int64 `[e, n]`.
            targets: Index of the group to which it is transported, int64 `[e, n]`.
        """
        scores = scores_of_ranks(ranks)
        mean, scale = self._moments(before)
        row = torch.arange(before.shape[0])
        own = mean[sources, row]
        residual = (scores - own) / scale[sources, row]
        if after is None:
            mean, scale = mean[targets, row], scale[targets, row]
        else:
            mean, scale = self._moments(after)
            at = torch.arange(after.shape[0])[:, None]
            mean, scale = mean[targets, at, row], scale[targets, at, row]
        tables = self._tables(own, sources), self._tables(mean, targets)
        residual = _placed(residual, *tables)
        moved = (mean + scale * residual).sigmoid()
        return torch.where(self.repaired[sources, targets], moved, ranks)

    def _moments(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """μ and σ of the scores in every group, `[…, d]` to `[k, …, m]` each."""
        ramps = ((features[..., self.columns] - self.start) * self.slope).clamp(0, 1)
        if self.products.shape[1]:
            left, right = self.products
            ramps = torch.cat([ramps, ramps[..., left] * ramps[..., right]], -1)
        shape = (len(self.weight), *(1,) * (features.dim() - 1), -1)
        flat = ramps.flatten(0, -2) @ self.weight
        both = flat.reshape(len(self.weight), *features.shape[:-1], -1) + self.bias.reshape(shape)
        return both[..., : self.size], both[..., self.size :].exp()

    def _tables(self, mean: Tensor, groups: Tensor) -> Tensor:
        """Quantiles of the residuals of rows with these μ `[e, n, m]`, `[e, n, m, q]`."""
        if self.centres.shape[2] == 1:
            return self.residuals[groups, :, 0]
        centres = self.centres[groups]
        # Linear between the tables of two centres, so that no row is near a jump.
        number = (mean[..., None] > centres[..., 1:-1]).sum(-1)
        low, high = (
            centres.gather(-1, index[..., None]).squeeze(-1) for index in (number, number + 1)
        )
        share = ((mean - low) / (high - low)).clamp(0, 1)[..., None]
        at = groups[..., None], torch.arange(self.size)
        below, above = self.residuals[*at, number], self.residuals[*at, number + 1]
        return below + share * (above - below)

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


def _placed(residual: Tensor, quantiles: Tensor, target: Tensor) -> Tensor:
    """Residuals of the same rank in the target group, `[e, n, m]`."""
    start, width = quantiles[..., :-1], (quantiles[..., 1:] - quantiles[..., :-1])
    steps = width.shape[-1]
    rise = (residual[..., None] - start) / width.clamp_min(1e-6)
    ranks = rise.clamp(0, 1).sum(-1) / steps
    position = ranks * steps
    below = position.long().clamp(0, steps - 1)
    lower, upper = (target.gather(-1, index[..., None]).squeeze(-1) for index in (below, below + 1))
    # Beyond the observed residuals, their distance from the ends stays.
    inside = torch.minimum(torch.maximum(residual, quantiles[..., 0]), quantiles[..., -1])
    return lower + (position - below) * (upper - lower) + (residual - inside)


def _without_products(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays of a repair that was stored without products and with one table of residuals."""
    residuals = arrays["residuals"][:, :, None]
    return {
        **arrays,
        "products": np.zeros((2, 0), np.int64),
        "centres": np.zeros(residuals.shape[:3], np.float32),
        "residuals": residuals,
    }


def _check(arrays: Mapping[str, NDArray[Any]], k: int, ordered: NDArray[Any], d: int) -> None:
    """Raise ValueError if the arrays are not consistent."""
    m, b = len(arrays["free"]), len(arrays["columns"])
    p, q = arrays["products"].shape[-1], arrays["residuals"].shape[-1]
    z = arrays["centres"].shape[-1]
    shapes: dict[str, tuple[type, tuple[int, ...]]] = {
        "free": (np.int64, (m,)),
        "repaired": (np.bool_, (k, k, m)),
        "columns": (np.int64, (b,)),
        "start": (np.float32, (b,)),
        "slope": (np.float32, (b,)),
        "products": (np.int64, (2, p)),
        "weight": (np.float32, (k, b + p, 2 * m)),
        "bias": (np.float32, (k, 2 * m)),
        "centres": (np.float32, (k, m, z)),
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
    if (np.diff(arrays["centres"]) <= 0).any():
        raise ValueError("centres of the residuals must be strictly increasing")
    if q < 2 or m == 0 or z == 0:
        raise ValueError("tables of the repair are empty")
    if not np.isin(arrays["free"], ordered).all() or len(np.unique(arrays["free"])) != m:
        raise ValueError("repaired columns must be distinct ordered features")
    if b and not ((arrays["columns"] >= 0) & (arrays["columns"] < d)).all():
        raise ValueError("ramps read columns that do not exist")
    if p and not ((arrays["products"] >= 0) & (arrays["products"] < b)).all():
        raise ValueError("products of ramps that do not exist")
    if (np.diff(arrays["residuals"]) < 0).any():
        raise ValueError("quantiles of the residuals must be increasing")
