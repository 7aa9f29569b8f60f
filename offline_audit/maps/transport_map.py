"""Transport maps and the methods that fit them: the interface, costs, and a method by its name.

Draws of counterparts: a map gives identical rows the same counterparts. In data with few distinct
rows, such as a few categories, one draw would move all copies of a row or none of them. A distinct
row therefore gets more draws the more copies it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from monitor.scoring.counterfactual.draws import row_uniforms, shifted_uniforms
from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Features

__all__ = [
    "COSTS",
    "MAPS",
    "SQUARED_L2",
    "Cost",
    "Features",
    "MapMethod",
    "Progress",
    "SparseMethod",
    "TransportMap",
    "cost_of",
    "draw_shifts",
    "draw_uniforms",
    "draws_per_row",
    "duplicate_codes",
    "map_method",
    "one_counterpart",
]

Float = NDArray[np.float64]
# Largest number of draws per row, and of all rows together before each gets fewer.
_MOST_DRAWS, _MOST_ROWS = 256, 1 << 16
# Called with the number of steps done and the total number of steps.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of transport between two rows of scaled features.

    Attributes:
        name: `squared_l2`, `l2`, `squared_l1`, or the name of the caller's function.
        pairwise: Costs of all pairs, `[n, d]` and `[m, d]` to `[n, m]`.
        strictly_convex: Whether the optimal map is unique for data without ties, so that the
            flipset is identified.
    """

    name: str
    pairwise: Callable[[Float, Float], Float]
    strictly_convex: bool

    def matched(self, one: Float, other: Float) -> Float:
        """Cost of row i of one array with row i of the other, `[n, d]` and `[n, d]` to `[n]`."""
        # In small parts, because only the diagonal of each matrix of costs is used.
        parts = np.array_split(np.arange(len(one)), max(1, len(one) // 256))
        return np.concatenate([np.diagonal(self.pairwise(one[p], other[p])) for p in parts])


def _squared_l1(one: Float, other: Float) -> Float:
    return np.asarray(cdist(one, other, "cityblock")) ** 2


COSTS = {
    "squared_l2": Cost(
        name="squared_l2",
        pairwise=lambda one, other: np.asarray(cdist(one, other, "sqeuclidean")),
        strictly_convex=True,
    ),
    "l2": Cost(
        name="l2",
        pairwise=lambda one, other: np.asarray(cdist(one, other, "euclidean")),
        strictly_convex=False,
    ),
    "squared_l1": Cost(name="squared_l1", pairwise=_squared_l1, strictly_convex=False),
}
SQUARED_L2 = COSTS["squared_l2"]


def cost_of(cost: str | Cost | Callable[[Float, Float], Float]) -> Cost:
    """A cost by its name, or the caller's own function.

    Args:
        cost: `squared_l2`, `l2`, `squared_l1`; or a function from scaled features `[n, d]` and
            `[m, d]` to costs `[n, m]`, finite and not negative.

    Raises:
        AuditInputError: The name is unknown, or the argument is not a function. Errors of the
            function's results are raised when it is called.
    """
    if isinstance(cost, Cost):
        return cost
    if isinstance(cost, str):
        if cost not in COSTS:
            raise AuditInputError(f"cost: must be one of {', '.join(COSTS)}; got {cost!r}")
        return COSTS[cost]
    if not callable(cost):
        raise AuditInputError(f"cost: must be a name or a function; got {type(cost).__name__}")

    def checked(one: Float, other: Float) -> Float:
        result = cost(one, other)
        try:
            costs = np.asarray(result, np.float64)
        except (TypeError, ValueError):
            raise AuditInputError("cost: the function must return numbers") from None
        if costs.shape != (len(one), len(other)):
            raise AuditInputError(
                f"cost: for arrays of shape {one.shape} and {other.shape} the function must return "
                f"shape {(len(one), len(other))}; got {costs.shape}"
            )
        if not np.isfinite(costs).all() or (costs < 0).any():
            raise AuditInputError("cost: costs must be finite and not negative")
        return costs

    name = getattr(cost, "__name__", "own")
    return Cost(
        name=name if name.isidentifier() else "own", pairwise=checked, strictly_convex=False
    )


class TransportMap(Protocol):
    """A fitted map from one group to another, which also transports rows it was not fitted to."""

    @property
    def splits(self) -> bool:
        """Whether a row may have several counterparts, which are drawn at random."""
        ...

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """Counterparts of members of the source group, `[n, d]` to `[e, n, d]`.

        Identical rows get identical counterparts, alone or in any batch. Every column keeps its
        kind: integers stay integers, binaries binary, one-hot columns one-hot.

        Args:
            features: Rows of the source group; not modified.
            n_counterparts: Counterparts per row; e is 1 if the map does not split.
        """
        ...


class MapMethod(Protocol):
    """A method that fits transport maps, with its options."""

    @property
    def name(self) -> str:
        """Name of the method, one of `MAPS` for those of this package."""
        ...

    @property
    def cost(self) -> Cost:
        """Transport cost that the map keeps small."""
        ...

    @property
    def quick(self) -> bool:
        """Whether fitting is fast enough to be repeated hundreds of times."""
        ...

    def fit(
        self,
        source: Features,
        target: Features,
        columns: Columns,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> TransportMap:
        """Fit the map that transports the source group onto the target group.

        Args:
            source: Rows of the source group, `[n, d]`.
            target: Rows of the target group, `[m, d]`.
            columns: Description of the columns.
            seed: Seed of the random generator.
            progress: Called during long fits.
        """
        ...


@runtime_checkable
class SparseMethod(Protocol):
    """A method whose maps change only features that differ between the groups."""

    def identity_check(
        self, features: Features, columns: Columns
    ) -> Callable[[NDArray[np.bool_]], bool]:
        """A function of splits of these rows, bool `[n]`: whether the map of a split is identity.

        Permutation tests call it for hundreds of splits, and fit only those that move a row.
        """
        ...

    def refit(
        self, fitted: Any, source: Features, target: Features, columns: Columns, *, seed: int = 0
    ) -> TransportMap:
        """Fit to other rows, with the same features moving as in a fitted map."""
        ...


# Methods that accept any cost; the others are maps for squared L2.
_BY_COST = ("entropic", "exact", "wgan")
MAPS = ("joint_quantile", "quantile", "gaussian", "sliced", *_BY_COST)


def map_method(
    method: str | MapMethod = "joint_quantile", cost: str | Cost | Callable[..., Any] = SQUARED_L2
) -> MapMethod:
    """A map method by its name.

    Args:
        method: One of `MAPS`, or a method object with its own options, which is returned unchanged.
        cost: For entropic, exact and wgan: `squared_l2`, `l2`, `squared_l1`, or a function of
            scaled features `[n, d]` and `[m, d]` to costs `[n, m]`.

    Raises:
        AuditInputError: The name is unknown, or the method does not accept the cost.
    """
    if not isinstance(method, str):
        if not hasattr(method, "fit"):
            raise AuditInputError(f"map: must be a name or a method; got {type(method).__name__}")
        if cost_of(cost) not in (SQUARED_L2, method.cost):
            raise AuditInputError(
                f"cost: set the cost on the map method itself, which now has {method.cost.name}"
            )
        return method
    if method not in MAPS:
        raise AuditInputError(f"map: must be one of {', '.join(MAPS)}; got {method!r}")
    chosen_cost = cost_of(cost)
    if method in _BY_COST:
        return _method(method)(cost=chosen_cost)
    if chosen_cost is not COSTS["squared_l2"]:
        raise AuditInputError(
            f"cost: {method} supports only squared_l2; for {chosen_cost.name} use one of "
            f"{', '.join(_BY_COST)}"
        )
    return _method(method)()


def _method(name: str) -> Callable[..., MapMethod]:
    """The class of a method, imported on demand because POT and torch are slow to import."""
    module = import_module(f"offline_audit.maps.{name.removeprefix('joint_')}")
    prefix = "".join(word.capitalize() for word in name.split("_"))
    method: Callable[..., MapMethod] = getattr(module, f"{prefix}Method")
    return method


def draw_uniforms(features: Features, count: int, draw: int, draws: int) -> Float:
    """Numbers in [0, 1) from a hash of each row, evenly spaced over the draws, `[n, count]`."""
    uniforms = row_uniforms(torch.from_numpy(np.ascontiguousarray(features, np.float32)), count)
    shift = torch.from_numpy(draw_shifts(count, draws)[draw])
    return shifted_uniforms(uniforms, shift).numpy().astype(np.float64)


@lru_cache(maxsize=64)
def draw_shifts(count: int, draws: int) -> NDArray[np.float32]:
    """Shift of each draw in each of its uniform numbers, `[draws, count]`.

    The shifts are evenly spaced, in a different order for each number. In the same order the
    numbers of one row's draws would be dependent, and so would the features of its counterparts.
    """
    orders = [np.random.default_rng([draws, number]).permutation(draws) for number in range(count)]
    return np.array(orders, np.float32).reshape(count, draws).T / np.float32(draws)


def duplicate_codes(features: Features) -> NDArray[np.intp] | None:
    """Index of each row's distinct row, `[n]`; None if there are too few duplicates to matter."""
    _, codes = np.unique(features, axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    return codes if _mean_copies(np.bincount(codes)) > 1.5 else None


def draws_per_row(counts: NDArray[np.intp], n_counterparts: int) -> int:
    """Number of draws per distinct row: n_counterparts · Σ counts² / Σ counts, within limits.

    Weighted by copies, that is as many draws in all as if each copy had its own.

    Args:
        counts: Number of copies of each distinct row, `[k]`.
        n_counterparts: Number of draws per row if all rows were distinct.
    """
    draws = math.ceil(n_counterparts * _mean_copies(counts))
    return max(n_counterparts, min(draws, _MOST_DRAWS, _MOST_ROWS // len(counts)))


def one_counterpart(fitted: TransportMap, features: Features) -> Features:
    """One counterpart per row, `[n, d]`; duplicates get different draws."""
    codes = duplicate_codes(features)
    if codes is None:
        counterparts: Features = fitted.transport(features)[0]
        return counterparts
    _, first, distinct, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    drawn = fitted.transport(features[first], draws_per_row(counts, 1))
    # Number of each row among its own copies: 0, 1, 2, …
    order = np.argsort(distinct, kind="stable")
    number = np.empty(len(distinct), np.intp)
    number[order] = np.arange(len(distinct)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen: Features = drawn[number % len(drawn), distinct]
    return chosen


def _mean_copies(counts: NDArray[np.intp]) -> float:
    """Number of copies of a row, itself included, averaged over rows."""
    return float((counts.astype(float) ** 2).sum() / max(counts.sum(), 1))
