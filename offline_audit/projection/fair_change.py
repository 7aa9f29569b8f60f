"""The smallest fair change: the cheapest change of decisions that makes the rates of groups agree.

`common_rate` solves one attribute exactly by sorting, `overlapping_rates` several attributes by a
small linear program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from offline_audit.projection.cells import Cell, CostCurve, Stratum

__all__ = ["FairChange", "certificate_warnings", "common_rate", "overlapping_rates"]

# Costs whose relative difference is at most this are equal.
_TIE = 1e-12
# Pieces of a refined curve, rounds of refinement, and the relative gap at which refinement stops.
_PIECES = 24
_ROUNDS = 40
_OPTIMAL = 1e-9
# Relative gap between the cost and its lower bound above which there is a warning.
_UNCERTIFIED = 1e-6
# Status codes of `linprog`.
_SOLVED = 0
_INFEASIBLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FairChange:
    """The numbers of decisions in each cell that the smallest fair change alters.

    Attributes:
        cost: Sum of the distances; infinite if no change is fair, or if the solver failed.
        rise: Number of rows that change from 0 to 1 in each cell, the last one in part, `[cells]`.
        fall: Number of rows that change from 1 to 0 in each cell, the last one in part, `[cells]`.
        unique: Whether no other change has the same cost; None if this was not examined.
        certified_gap: Bound on the relative difference between the cost and the optimum; infinite
            if the solver failed before it found a fair change.
    """

    cost: float
    rise: NDArray[np.float64]
    fall: NDArray[np.float64]
    unique: bool | None
    certified_gap: float = 0.0


def common_rate(
    cells: Sequence[Cell], *, tolerance: float = 0.0, favoured: int | None = None
) -> FairChange:
    """Minimise Σ_g F_g over an interval of rates [l, l + tolerance], exactly (Proposition 1).

    F_g(r), the cost of bringing group g to rate r, is convex, and linear between the rates that a
    whole number of changed rows reaches, so the sum has its minimum at one of those rates. Groups
    below the interval rise to l, groups above it fall to l + tolerance. With two groups this is the
    fractional knapsack of Algorithm 1. Groups and labels, and so the sizes n_g, do not change (the
    cost c of section 2.2).

    Args:
        cells: One cell per group, with curves that reach the rates of all others.
        tolerance: ε of section 4.
        favoured: Index of the group that may be ahead by at most the tolerance; the others may be
            ahead of it by any amount. None: no two groups may differ by more than the tolerance.
    """
    rows, positive = sum(c.size for c in cells), sum(c.positives for c in cells)
    falling = range(len(cells)) if favoured is None else [favoured]
    rising = [g for g in range(len(cells)) if g != favoured]
    # Rates are relative to the pooled rate and computed in integers until the last division, so
    # that equal rates compare as equal.
    up = {g: _reachable_rates(cells[g], rows, positive, rise=True) for g in rising}
    down = {g: _reachable_rates(cells[g], rows, positive, rise=False) for g in falling}
    levels = np.unique(np.concatenate([*up.values(), *(r - tolerance for r in down.values())]))
    total = np.zeros(len(levels))
    for g, rates in up.items():
        total += np.interp(levels, rates, cells[g].rise.cumulated, right=math.inf)
    for g, rates in down.items():
        costs = cells[g].fall.cumulated[::-1]
        total += np.interp(levels + tolerance, rates[::-1], costs, left=math.inf)
    # Interpolation can fall below 0 by a rounding error.
    total = np.maximum(total, 0.0)
    least = float(total.min())
    if math.isinf(least):
        zeros = np.zeros(len(cells))
        return FairChange(cost=math.inf, rise=zeros, fall=zeros, unique=False)
    # If levels have the same cost, the middle one is chosen, which treats groups symmetrically.
    tied = levels[total <= least * (1 + _TIE)]
    level = (float(tied[0]) + float(tied[-1])) / 2
    rise, fall = np.zeros(len(cells)), np.zeros(len(cells))
    for g, rates in up.items():
        rise[g] = max(level - rates[0], 0.0) * cells[g].size
    for g, rates in down.items():
        fall[g] = max(rates[0] - (level + tolerance), 0.0) * cells[g].size
    return FairChange(cost=least, rise=rise, fall=fall, unique=least == 0 or len(tied) == 1)


def _reachable_rates(cell: Cell, rows: int, positive: int, *, rise: bool) -> NDArray[np.float64]:
    """Rates minus the pooled rate after the 0, 1, 2, … nearest rows of a cell have changed."""
    curve = cell.rise if rise else cell.fall
    changed = np.arange(len(curve.cumulated), dtype=np.int64)
    counts = cell.positives + changed if rise else cell.positives - changed
    return (counts * rows - positive * cell.size) / (cell.size * rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The cost curve of one decision of a cell, cut into linear pieces.

    Attributes:
        cell: Index of the cell.
        sign: 1 if rows change from 0 to 1, -1 if they change from 1 to 0.
        curve: Cost curve.
        cuts: Numbers of changed rows between which the curve is taken as linear, ascending.
    """

    cell: int
    sign: float
    curve: CostCurve
    cuts: NDArray[np.intp]

    def refined(self, changed: float, threshold: float) -> _Side:
        """The same curve with more cuts near the last solution and near its dual threshold."""
        cuts = [self.cuts]
        last = len(self.curve.nearest)
        for point in (changed, float(np.searchsorted(self.curve.nearest, threshold))):
            at = int(np.searchsorted(self.cuts, point))
            low = int(self.cuts[max(at - 2, 0)])
            high = int(self.cuts[min(at + 1, len(self.cuts) - 1)])
            cuts.append(np.linspace(low, high, _PIECES).astype(np.intp))
            near = int(point) + np.arange(-2, 4)
            cuts.append(near[(near >= 0) & (near <= last)].astype(np.intp))
        return _Side(
            cell=self.cell,
            sign=self.sign,
            curve=self.curve,
            cuts=np.unique(np.concatenate(cuts)),
        )


def overlapping_rates(
    stratum: Stratum, *, tolerance: float = 0.0, favoured: dict[int, int] | None = None
) -> FairChange:
    """Minimise the summed distance so that every attribute's groups agree within the tolerance.

    Rows of a cell with the same decision have the same column, so together they are one convex cost
    curve. Each curve is cut into linear pieces and the program is solved by HiGHS. The pieces near
    the solution and near the dual thresholds are refined until the dual function of Proposition 2,
    evaluated on all rows, equals the cost, which proves that the solution is optimal.

    Args:
        stratum: Cells whose curves contain all rows.
        tolerance: ε of section 4.
        favoured: Index of the favoured group's constraint by attribute; None if there is none.
    """
    program = _Program(stratum=stratum, tolerance=tolerance, favoured=favoured or {})
    unit = _typical_distance(stratum)
    sides = [
        _Side(cell=c, sign=sign, curve=curve.in_unit(unit), cuts=_first_cuts(len(curve.nearest)))
        for c, cell in enumerate(stratum.cells)
        for sign, curve in ((1.0, cell.rise), (-1.0, cell.fall))
        if len(curve.nearest)
    ]
    best = FairChange(cost=math.inf, rise=_zeros(stratum), fall=_zeros(stratum), unique=None)
    lower_bound = 0.0
    for _ in range(_ROUNDS):
        solved = program.solve(sides)
        if solved.status == _INFEASIBLE and math.isinf(best.cost):
            return best
        if solved.status != _SOLVED:
            break
        changed, duals = solved.changed, solved.duals
        cost = sum(side.curve.cost(x) for side, x in zip(sides, changed, strict=True))
        thresholds = [side.sign * float(program.prices(duals)[side.cell]) for side in sides]
        lower_bound = max(lower_bound, program.bound(sides, thresholds, duals))
        if cost < best.cost:
            best = _fair_change(stratum, sides, changed, cost)
        assert lower_bound <= best.cost + 1e-6 * max(best.cost, 1.0), (
            "the lower bound exceeds the cost"
        )
        if best.cost - lower_bound <= _OPTIMAL * best.cost:
            break
        sides = [s.refined(x, p) for s, x, p in zip(sides, changed, thresholds, strict=True)]
    gap = 0.0 if best.cost == 0 else math.inf
    if 0 < best.cost < math.inf:
        gap = max((best.cost - lower_bound) / best.cost, 0.0)
    return FairChange(
        cost=unit * best.cost, rise=best.rise, fall=best.fall, unique=None, certified_gap=gap
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    """The solution of one program.

    Attributes:
        status: Status code of `linprog`.
        changed: Number of changed rows on each side.
        duals: For each constraint, the dual of the lower bound minus that of the upper bound.
    """

    status: int
    changed: list[float]
    duals: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """The linear program of the smallest fair change.

    Its constraints are n_g l_a ≤ positives_g + changed_g ≤ n_g (l_a + ε) for each group g of each
    attribute a, with a free level l_a per attribute.
    """

    stratum: Stratum
    tolerance: float
    favoured: dict[int, int]

    def solve(self, sides: list[_Side]) -> _Solved:
        """Numbers of changed rows on each side, and the duals of the constraints."""
        s = self.stratum
        member, sizes = s.membership, s.group_sizes
        widths = [np.diff(side.cuts) for side in sides]
        slopes = [
            np.diff(s.curve.cumulated[s.cuts]) / w for s, w in zip(sides, widths, strict=True)
        ]
        empty = np.empty(0, dtype=np.intp)
        pieces = np.concatenate([empty, *(np.full(len(w), i) for i, w in enumerate(widths))])
        signs = np.array([side.sign for side in sides])[pieces]
        column = member[:, np.array([side.cell for side in sides], dtype=np.intp)[pieces]] * signs
        level = np.zeros((len(sizes), len(s.attributes)))
        for index, attribute in enumerate(s.attributes):
            level[list(s.of(attribute)), index] = -sizes[list(s.of(attribute))]
        matrix = np.hstack([column, level])
        positives = member @ s.positives
        low, high = self._bounded()
        bounds = [(0.0, float(w)) for part in widths for w in part] + [(None, None)] * level.shape[
            1
        ]
        costs = np.concatenate([*slopes, np.zeros(level.shape[1])])
        common = {"c": costs, "bounds": bounds, "method": "highs-ds"}
        if self.tolerance == 0 and not self.favoured:
            solution = linprog(A_eq=csr_array(matrix), b_eq=-positives, **common)
        else:
            rows = csr_array(np.vstack([-matrix[low], matrix[high]]))
            ends = np.concatenate([positives[low], self.tolerance * sizes[high] - positives[high]])
            solution = linprog(A_ub=rows, b_ub=ends, **common)
        if solution.status != _SOLVED:
            return _Solved(status=solution.status, changed=[], duals=np.empty(0))
        changed = np.bincount(pieces, solution.x[: len(pieces)], minlength=len(sides))
        # HiGHS satisfies bounds to about 1e-9 only.
        changed = np.clip(changed, 0.0, [float(side.cuts[-1]) for side in sides])
        duals = self._duals(solution, low, high)
        return _Solved(status=_SOLVED, changed=changed.tolist(), duals=duals)

    def _bounded(self) -> tuple[list[int], list[int]]:
        """Indices of the constraints with a lower bound, and of those with an upper bound."""
        low, high = [], []
        for i, constraint in enumerate(self.stratum.constraints):
            favoured = self.favoured.get(constraint.attribute)
            if favoured != i:
                low.append(i)
            if favoured in {None, i}:
                high.append(i)
        return low, high

    def _duals(self, solution: Any, low: list[int], high: list[int]) -> NDArray[np.float64]:
        """Dual of the lower bound minus that of the upper bound, `[constraints]`."""
        duals = np.zeros(len(self.stratum.constraints))
        if self.tolerance == 0 and not self.favoured:
            duals[:] = solution.eqlin.marginals
        else:
            prices = -solution.ineqlin.marginals
            duals[low] += prices[: len(low)]
            duals[high] -= prices[len(low) :]
        # The levels l_a are free, so Σ n_g dual_g is 0 for each attribute. The lower bound is valid
        # only if this is exact, so rounding errors are removed.
        sizes = self.stratum.group_sizes
        for attribute in self.stratum.attributes:
            group = list(self.stratum.of(attribute))
            duals[group] -= (duals[group] @ sizes[group]) / sizes[group].sum()
        return duals

    def prices(self, duals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Dual value of one more positive decision in each cell, `[cells]`."""
        return self.stratum.membership.T @ duals

    def bound(
        self, sides: list[_Side], thresholds: list[float], duals: NDArray[np.float64]
    ) -> float:
        """The dual function of Proposition 2, a lower bound of the cost of every fair change."""
        s = self.stratum
        value = -float(duals @ (s.membership @ s.positives))
        value -= self.tolerance * float(np.maximum(-duals, 0.0) @ s.group_sizes)
        for side, threshold in zip(sides, thresholds, strict=True):
            count, cost = side.curve.below(threshold)
            value += cost - threshold * count
        return value


def _typical_distance(stratum: Stratum) -> float:
    """The median positive distance, as unit: the solver is precise for numbers near 1."""
    curves = [curve for cell in stratum.cells for curve in (cell.rise, cell.fall)]
    near = np.concatenate([curve.nearest for curve in curves])
    return float(np.median(near[near > 0])) if (near > 0).any() else 1.0


def _first_cuts(last: int) -> NDArray[np.intp]:
    """First cuts of a curve of `last` rows: dense near the boundary, sparse far from it."""
    geometric = np.geomspace(1, last, _PIECES).astype(np.intp)
    return np.unique(np.concatenate([np.arange(min(last, 8) + 1), geometric]))


def certificate_warnings(certified_gap: float) -> list[str]:
    """Warning about a fair change that may not be the smallest."""
    if certified_gap <= _UNCERTIFIED or math.isinf(certified_gap):
        return []
    excess = f"{100 * certified_gap:.2g}%"
    return [f"The smallest fair change is not certified: it may cost up to {excess} too much."]


def _fair_change(
    stratum: Stratum, sides: list[_Side], changed: list[float], cost: float
) -> FairChange:
    """The solution of a program, by cell."""
    rise, fall = _zeros(stratum), _zeros(stratum)
    for side, count in zip(sides, changed, strict=True):
        (rise if side.sign > 0 else fall)[side.cell] = count
    return FairChange(cost=cost, rise=rise, fall=fall, unique=None)


def _zeros(stratum: Stratum) -> NDArray[np.float64]:
    return np.zeros(len(stratum.cells))
