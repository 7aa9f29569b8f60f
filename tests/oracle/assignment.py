"""Optimal transport by search: the cheapest assignment, and a small linear program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, linprog

Float = NDArray[np.float64]


def cheapest_assignment(costs: Float) -> float:
    """Mean cost of the best assignment, from costs `[n, n]`."""
    return float(costs[linear_sum_assignment(costs)].mean())


def cheapest_plan(costs: Float, source_shares: Float, target_shares: Float) -> float:
    """Cost of the best plan between shares `[k]` and `[l]`, as a linear program."""
    k, l = costs.shape  # noqa: E741 - as in the docstrings of the maps
    row_sums = np.kron(np.eye(k), np.ones(l))
    column_sums = np.kron(np.ones(k), np.eye(l))
    solution = linprog(
        costs.ravel(),
        A_eq=np.vstack([row_sums, column_sums])[:-1],
        b_eq=np.concatenate([source_shares, target_shares])[:-1],
        method="highs",
    )
    assert solution.success
    return float(solution.fun)
