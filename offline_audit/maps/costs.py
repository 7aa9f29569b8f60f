"""What it costs to turn one person into another, on scaled features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from offline_audit.errors import AuditInputError

__all__ = ["COSTS", "SQUARED_L2", "Cost", "cost_of"]

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A cost between people, given by their scaled features.

    Attributes:
        name: `squared_l2`, `l2`, `squared_l1`, or the name of the caller's own function.
        pairwise: Of every pair, `[n, d]` and `[m, d]` to `[n, m]`.
        strictly_convex: Whether it has one optimal map where the data have no ties, so that the
            flipset is identified.
    """

    name: str
    pairwise: Callable[[Float, Float], Float]
    strictly_convex: bool

    def matched(self, one: Float, other: Float) -> Float:
        """Of the i-th with the i-th, `[n, d]` and `[n, d]` to `[n]`."""
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
    """A cost by its name, or the caller's own.

    Args:
        cost: `squared_l2`, `l2`, `squared_l1`; or a function from scaled features `[n, d]` and
            `[m, d]` to costs `[n, m]`, finite and not negative.

    Raises:
        AuditInputError: There is no such cost, or the function does not give one.
    """
    if isinstance(cost, Cost):
        return cost
    if isinstance(cost, str):
        if cost not in COSTS:
            raise AuditInputError(f"cost: {cost!r} is none of {', '.join(COSTS)}")
        return COSTS[cost]
    if not callable(cost):
        raise AuditInputError(f"cost: a name or a function is needed, not {type(cost).__name__}")

    def checked(one: Float, other: Float) -> Float:
        answer = cost(one, other)
        try:
            found = np.asarray(answer, np.float64)
        except (TypeError, ValueError):
            raise AuditInputError("cost: the function does not give numbers") from None
        if found.shape != (len(one), len(other)):
            raise AuditInputError(
                f"cost: rows {one.shape} and {other.shape} must give costs of shape "
                f"{(len(one), len(other))}, not {found.shape}"
            )
        if not np.isfinite(found).all() or (found < 0).any():
            raise AuditInputError("cost: costs must be finite and not negative")
        return found

    name = getattr(cost, "__name__", "own")
    return Cost(
        name=name if name.isidentifier() else "own", pairwise=checked, strictly_convex=False
    )
