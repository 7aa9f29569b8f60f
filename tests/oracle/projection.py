"""The projection distance as the paper's linear program over all rows, and by brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Array = NDArray[np.float64]


def contrasts(groups: Sequence[Array], tolerance: float, favoured: int | None = None) -> Array:
    """φ of Definition 1 times N: one row per bounded difference of rates, `[constraints, n]`."""
    rows = []
    for codes in groups:
        present = np.unique(codes)
        for i, j in itertools.permutations(present, 2):
            bounded = i == favoured if favoured is not None else tolerance > 0 or j == present[0]
            if bounded:
                n = len(codes)
                rows.append(
                    n * ((codes == i) / np.sum(codes == i) - (codes == j) / np.sum(codes == j))
                )
    return np.array(rows)


def full_program(
    decisions: Array,
    distances: Array,
    groups: Sequence[Array],
    *,
    tolerance: float = 0.0,
    favoured: int | None = None,
) -> float:
    """N times problem (7), or (9) with a tolerance, by HiGHS; infinite if it is infeasible."""
    phi = contrasts(groups, tolerance, favoured)
    movable = np.isfinite(distances)
    left = (phi * (1 - 2 * decisions))[:, movable]
    right = len(decisions) * tolerance - phi @ decisions
    exact = tolerance == 0 and favoured is None
    sides = {"A_eq": left, "b_eq": right} if exact else {"A_ub": left, "b_ub": right}
    solution = linprog(distances[movable], bounds=(0, 1), **sides)
    return float(solution.fun) if solution.status == 0 else math.inf


def brute_force(decisions: Array, distances: Array, codes: Array) -> float:
    """Two groups, few rows: every set of changed rows, and at most one row changed in part."""
    phi = contrasts([codes], 0.0)[0]
    gain, missing = (1 - 2 * decisions) * phi, -float(phi @ decisions)
    best = math.inf
    for changed in itertools.product((0, 1), repeat=len(decisions)):
        changes = np.array(changed)
        cost, remaining = float(changes @ distances), missing - float(changes @ gain)
        if abs(remaining) < 1e-9:
            best = min(best, cost)
        for row in np.flatnonzero(changes == 0):
            fraction = remaining / gain[row]
            if 0 <= fraction <= 1:
                best = min(best, cost + fraction * distances[row])
    return best
