"""The cheapest change that makes several attributes fair at once, by a small linear program."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from offline_audit.projection.cells import CostCurve, Stratum
from offline_audit.projection.common_rate import FairChange

__all__ = ["overlapping_rates"]

# Pieces of a refined curve, rounds of refinement, and the relative gap at which they stop.
_PIECES = 24
_ROUNDS = 40
_PROVEN = 1e-9
# Status codes of `linprog`.
_SOLVED = 0
_INFEASIBLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One cost curve with the points where it is cut into linear pieces."""

    cell: int
    sign: float
    curve: CostCurve
    cuts: NDArray[np.intp]

    def refined(self, changed: float, threshold: float) -> _Side:
        """With more cuts near the solution of the last program and near its duals."""
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

    Rows of a cell with the same decision have the same column, so each such side is a convex curve.
    The curve is cut into linear pieces, the program is solved by HiGHS, and the pieces are refined
    where the solution and the duals meet the curve, until the dual function of Proposition 2,
    evaluated on all rows, equals the cost: this checks all reduced costs at once.

    Args:
        stratum: Cells whose curves hold all rows.
        tolerance: ε of section 4.
        favoured: Index of the favoured group's constraint by attribute; None if there is none.
    """
    program = _Program(stratum=stratum, tolerance=tolerance, favoured=favoured or {})
    unit = _typical(stratum)
    sides = [
        _Side(cell=c, sign=sign, curve=curve.in_unit(unit), cuts=_first_cuts(len(curve.nearest)))
        for c, cell in enumerate(stratum.cells)
        for sign, curve in ((1.0, cell.rise), (-1.0, cell.fall))
        if len(curve.nearest)
    ]
    best = FairChange(cost=math.inf, rise=_none(stratum), fall=_none(stratum), unique=None)
    proven = 0.0
    for _ in range(_ROUNDS):
        solved = program.solve(sides)
        if solved.status == _INFEASIBLE and math.isinf(best.cost):
            return best
        if solved.status != _SOLVED:
            break
        changed, duals = solved.changed, solved.duals
        cost = sum(side.curve.cost(x) for side, x in zip(sides, changed, strict=True))
        thresholds = [side.sign * float(program.prices(duals)[side.cell]) for side in sides]
        proven = max(proven, program.bound(sides, thresholds, duals))
        if cost < best.cost:
            best = _fair_change(stratum, sides, changed, cost)
        assert proven <= best.cost + 1e-6 * max(best.cost, 1.0), "the lower bound exceeds the cost"
        if best.cost - proven <= _PROVEN * best.cost:
            break
        sides = [s.refined(x, p) for s, x, p in zip(sides, changed, thresholds, strict=True)]
    gap = 0.0 if best.cost == 0 else math.inf
    if 0 < best.cost < math.inf:
        gap = max((best.cost - proven) / best.cost, 0.0)
    return FairChange(
        cost=unit * best.cost, rise=best.rise, fall=best.fall, unique=None, certified_gap=gap
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    """The solution of one program.

    Attributes:
        status: Status code of `linprog`.
        changed: Number of rows changed on each side.
        duals: For each constraint, the dual of the lower bound minus that of the upper bound.
    """

    status: int
    changed: list[float]
    duals: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """n_g l_a ≤ positives_g + changed_g ≤ n_g (l_a + ε) for each group g of each attribute a."""

    stratum: Stratum
    tolerance: float
    favoured: dict[int, int]

    def solve(self, sides: list[_Side]) -> _Solved:
        """Rows changed on each side and the dual of each constraint."""
        s = self.stratum
        member, sizes = s.membership, s.group_sizes
        widths = [np.diff(side.cuts) for side in sides]
        slopes = [
            np.diff(s.curve.cumulated[s.cuts]) / w for s, w in zip(sides, widths, strict=True)
        ]
        none = np.empty(0, dtype=np.intp)
        pieces = np.concatenate([none, *(np.full(len(w), i) for i, w in enumerate(widths))])
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
        duals = np.zeros(len(self.stratum.constraints))
        if self.tolerance == 0 and not self.favoured:
            duals[:] = solution.eqlin.marginals
        else:
            prices = -solution.ineqlin.marginals
            duals[low] += prices[: len(low)]
            duals[high] -= prices[len(low) :]
        # The levels l_a are free, so Σ n_g dual_g is 0 for each attribute; rounding is removed.
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
            count, near = side.curve.below(threshold)
            value += near - threshold * count
        return value


def _typical(stratum: Stratum) -> float:
    """The median distance, as the unit: the solver is precise for numbers near 1."""
    curves = [curve for cell in stratum.cells for curve in (cell.rise, cell.fall)]
    near = np.concatenate([curve.nearest for curve in curves])
    return float(np.median(near[near > 0])) if (near > 0).any() else 1.0


def _first_cuts(last: int) -> NDArray[np.intp]:
    """Fine near the boundary, coarse far from it."""
    grown = np.geomspace(1, last, _PIECES).astype(np.intp)
    return np.unique(np.concatenate([np.arange(min(last, 8) + 1), grown]))


def _fair_change(
    stratum: Stratum, sides: list[_Side], changed: list[float], cost: float
) -> FairChange:
    rise, fall = _none(stratum), _none(stratum)
    for side, count in zip(sides, changed, strict=True):
        (rise if side.sign > 0 else fall)[side.cell] = count
    return FairChange(cost=cost, rise=rise, fall=fall, unique=None)


def _none(stratum: Stratum) -> NDArray[np.float64]:
    return np.zeros(len(stratum.cells))
