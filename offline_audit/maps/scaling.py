"""Features on one scale, so that a step in any of them costs alike, and back on the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.scoring.counterfactual import row_uniforms, shifted_uniforms
from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.transport_map import Features

__all__ = ["Scaling", "draw_shifts", "draw_uniforms"]

Float = NDArray[np.float64]


def draw_uniforms(features: Features, count: int, draw: int, draws: int) -> Float:
    """Numbers in [0, 1) by a hash of each row, evenly spaced over the draws, `[n, count]`."""
    drawn = row_uniforms(torch.from_numpy(np.ascontiguousarray(features, np.float32)), count)
    shift = torch.from_numpy(draw_shifts(count, draws)[draw])
    return shifted_uniforms(drawn, shift).numpy().astype(np.float64)


@lru_cache(maxsize=64)
def draw_shifts(count: int, draws: int) -> NDArray[np.float32]:
    """How far each draw is shifted in each of its numbers, `[draws, count]`.

    Even steps, in another order for each number: else a row's draws would hang together, and where
    few rows differ so would the features of its counterparts.
    """
    orders = [np.random.default_rng([draws, number]).permutation(draws) for number in range(count)]
    return np.array(orders, np.float32).reshape(count, draws).T / np.float32(draws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Zero mean and unit variance, over both groups alike.

    A category's columns share one scale, by which together they have unit variance.

    Attributes:
        columns: What the columns are.
        mean: Of each column, `[d]`.
        scale: Standard deviation of each column, 1 where it is constant, `[d]`.
        low: Lowest value seen in the target, `[d]`.
        high: Highest value seen in the target, `[d]`.
    """

    columns: Columns
    mean: Float
    scale: Float
    low: Float
    high: Float

    @classmethod
    def of(cls, source: Features, target: Features, columns: Columns) -> Scaling:
        """From both groups, each with the same say however many people it has."""
        means = [group.mean(0, dtype=np.float64) for group in (source, target)]
        squares = [(group.astype(np.float64) ** 2).mean(0) for group in (source, target)]
        mean = (means[0] + means[1]) / 2
        variance = np.maximum((squares[0] + squares[1]) / 2 - mean**2, 0.0)
        for variable in columns.variables:
            if variable.kind == "category":
                variance[list(variable.columns)] = variance[list(variable.columns)].sum()
        scale = np.sqrt(variance)
        return cls(
            columns=columns,
            mean=mean,
            scale=np.where(scale > 1e-9 * (1 + np.abs(mean)), scale, 1.0),
            low=target.min(0).astype(np.float64),
            high=target.max(0).astype(np.float64),
        )

    def scaled(self, features: Features) -> Float:
        """On one scale, `[n, d]`."""
        return (features - self.mean) / self.scale

    def settled(self, scaled: Float, uniforms: Float) -> Features:
        """Scaled features of any value as people could have them, `[n, d]` to `[n, d]`.

        Integers and binaries are rounded up with the chance that keeps their mean, within what the
        target has; a category is drawn in proportion to what its columns hold above zero.

        Args:
            scaled: As a map without regard to kinds made them.
            uniforms: A number for each variable, `[n, v]`.
        """
        found = scaled * self.scale + self.mean
        for place, variable in enumerate(self.columns.variables):
            uniform, at = uniforms[:, place], list(variable.columns)
            if variable.kind == "category":
                found[:, at] = _drawn_category(found[:, at], uniform, variable)
            elif variable.kind != "numeric":
                inside = np.clip(found[:, at[0]], self.low[at[0]], self.high[at[0]])
                found[:, at[0]] = np.floor(inside + uniform)
        return found.astype(np.float32)


def _drawn_category(values: Float, uniform: Float, variable: Variable) -> Float:
    shares = np.maximum(values, 0.0)
    if variable.dropped:
        shares = np.column_stack([shares, np.maximum(1 - shares.sum(1), 0.0)])
    total = shares.sum(1, keepdims=True)
    shares = np.where(total > 0, shares / np.maximum(total, 1e-12), 1 / shares.shape[1])
    chosen = (uniform[:, None] >= np.cumsum(shares, 1)).sum(1)
    chosen = np.minimum(chosen, shares.shape[1] - 1)
    one_hot = chosen[:, None] == np.arange(values.shape[1])
    return np.asarray(one_hot, np.float64)
