"""The cheapest way to make several attributes fair at once, by a linear program on few columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from offline_audit.projection.cells import Stratum
from offline_audit.projection.common_rate import Turns
from offline_audit.projection.cost_curve import CostCurve

__all__ = ["overlapping_rates"]

_PIECES = 24
_ROUNDS = 40
_PROVEN = 1e-9
# Of `linprog`.
_SOLVED = 0
_NOTHING_FAIR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One curve with the points where it is cut into straight pieces."""

    cell: int
    sign: float
    curve: CostCurve
    cuts: NDArray[np.intp]

    def refined(self, turned: float, threshold: float) -> _Side:
        """With more cuts where the last program, or its duals, say that the answer is."""
        cuts = [self.cuts]
        last = len(self.curve.nearest)
        for place in (turned, float(np.searchsorted(self.curve.nearest, threshold))):
            at = int(np.searchsorted(self.cuts, place))
            low = int(self.cuts[max(at - 2, 0)])
            high = int(self.cuts[min(at + 1, len(self.cuts) - 1)])
            cuts.append(np.linspace(low, high, _PIECES).astype(np.intp))
            near = int(place) + np.arange(-2, 4)
            cuts.append(near[(near >= 0) & (near <= last)].astype(np.intp))
        return _Side(
            cell=self.cell,
            sign=self.sign,
            curve=self.curve,
            cuts=np.unique(np.concatenate(cuts)),
        )


def overlapping_rates(
    stratum: Stratum, *, tolerance: float = 0.0, favoured: dict[int, int] | None = None
) -> Turns:
    """Minimise the summed distance so that every attribute's groups agree within the tolerance.

    Rows of a cell with the same decision have the same column, so each such side is a convex curve.
    It is cut into straight pieces, the program is solved by HiGHS, and the pieces are cut finer
    where its solution and its duals meet the curve, until the dual function of Proposition 2,
    evaluated on all rows, equals the cost: that is the check of all reduced costs at once.

    Args:
        stratum: Cells whose curves hold all rows.
        tolerance: ε of section 4.
        favoured: Place of the constraint of the favoured group for each attribute; empty: none.
    """
    program = _Program(stratum=stratum, tolerance=tolerance, favoured=favoured or {})
    unit = _typical(stratum)
    sides = [
        _Side(cell=c, sign=sign, curve=curve.told_in(unit), cuts=_first_cuts(len(curve.nearest)))
        for c, cell in enumerate(stratum.cells)
        for sign, curve in ((1.0, cell.rise), (-1.0, cell.fall))
        if len(curve.nearest)
    ]
    best, proven = Turns(cost=math.inf, rise=_none(stratum), fall=_none(stratum), unique=None), 0.0
    for _ in range(_ROUNDS):
        solved = program.solve(sides)
        if solved.status == _NOTHING_FAIR and math.isinf(best.cost):
            return best
        if solved.status != _SOLVED:
            break
        turned, duals = solved.turned, solved.duals
        cost = sum(side.curve.cost(t) for side, t in zip(sides, turned, strict=True))
        thresholds = [side.sign * float(program.prices(duals)[side.cell]) for side in sides]
        proven = max(proven, program.bound(sides, thresholds, duals))
        if cost < best.cost:
            best = _turns(stratum, sides, turned, cost)
        assert proven <= best.cost + 1e-6 * max(best.cost, 1.0), "a bound above the cost is none"
        if best.cost - proven <= _PROVEN * best.cost:
            break
        sides = [s.refined(t, p) for s, t, p in zip(sides, turned, thresholds, strict=True)]
    gap = 0.0 if best.cost == 0 else math.inf
    if 0 < best.cost < math.inf:
        gap = max((best.cost - proven) / best.cost, 0.0)
    return Turns(
        cost=unit * best.cost, rise=best.rise, fall=best.fall, unique=None, certified_gap=gap
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    """What the solver says of one program.

    Attributes:
        status: As `linprog` numbers it.
        turned: Rows turned on each side.
        duals: Of each constraint: the price of a group's lower bound less that of its upper one.
    """

    status: int
    turned: list[float]
    duals: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """n_g (l_a) ≤ positives_g + turned_g ≤ n_g (l_a + ε) for each group g of each attribute a."""

    stratum: Stratum
    tolerance: float
    favoured: dict[int, int]

    def solve(self, sides: list[_Side]) -> _Solved:
        """Rows turned on each side and the dual of each constraint."""
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
        for place, attribute in enumerate(s.attributes):
            level[list(s.of(attribute)), place] = -sizes[list(s.of(attribute))]
        matrix = np.hstack([column, level])
        positives = member @ s.positives
        low, high = self._bounded()
        bounds = [(0.0, float(w)) for part in widths for w in part] + [(None, None)] * level.shape[
            1
        ]
        costs = np.concatenate([*slopes, np.zeros(level.shape[1])])
        same = {"c": costs, "bounds": bounds, "method": "highs-ds"}
        if self.tolerance == 0 and not self.favoured:
            found = linprog(A_eq=csr_array(matrix), b_eq=-positives, **same)
        else:
            rows = csr_array(np.vstack([-matrix[low], matrix[high]]))
            ends = np.concatenate([positives[low], self.tolerance * sizes[high] - positives[high]])
            found = linprog(A_ub=rows, b_ub=ends, **same)
        if found.status != _SOLVED:
            return _Solved(status=found.status, turned=[], duals=np.empty(0))
        turned = np.bincount(pieces, found.x[: len(pieces)], minlength=len(sides))
        # HiGHS keeps bounds to about 1e-9.
        turned = np.clip(turned, 0.0, [float(side.cuts[-1]) for side in sides])
        return _Solved(status=_SOLVED, turned=turned.tolist(), duals=self._duals(found, low, high))

    def _bounded(self) -> tuple[list[int], list[int]]:
        """Constraints with a lower and with an upper bound."""
        low, high = [], []
        for i, constraint in enumerate(self.stratum.constraints):
            favoured = self.favoured.get(constraint.attribute)
            if favoured != i:
                low.append(i)
            if favoured in {None, i}:
                high.append(i)
        return low, high

    def _duals(self, found: Any, low: list[int], high: list[int]) -> NDArray[np.float64]:
        duals = np.zeros(len(self.stratum.constraints))
        if self.tolerance == 0 and not self.favoured:
            duals[:] = found.eqlin.marginals
        else:
            prices = -found.ineqlin.marginals
            duals[low] += prices[: len(low)]
            duals[high] -= prices[len(low) :]
        # The levels are free, so n_g times the duals of an attribute add up to 0.
        sizes = self.stratum.group_sizes
        for attribute in self.stratum.attributes:
            places = list(self.stratum.of(attribute))
            duals[places] -= (duals[places] @ sizes[places]) / sizes[places].sum()
        return duals

    def prices(self, duals: NDArray[np.float64]) -> NDArray[np.float64]:
        """What one more positive decision in each cell is worth."""
        return self.stratum.membership.T @ duals

    def bound(
        self, sides: list[_Side], thresholds: list[float], duals: NDArray[np.float64]
    ) -> float:
        """The dual function: no fair change costs less."""
        s = self.stratum
        value = -float(duals @ (s.membership @ s.positives))
        value -= self.tolerance * float(np.maximum(-duals, 0.0) @ s.group_sizes)
        for side, threshold in zip(sides, thresholds, strict=True):
            count, near = side.curve.below(threshold)
            value += near - threshold * count
        return value


def _typical(stratum: Stratum) -> float:
    """A distance of usual size: the solver's precision is that of numbers near 1."""
    curves = [curve for cell in stratum.cells for curve in (cell.rise, cell.fall)]
    near = np.concatenate([curve.nearest for curve in curves])
    return float(np.median(near[near > 0])) if (near > 0).any() else 1.0


def _first_cuts(last: int) -> NDArray[np.intp]:
    """Fine near the boundary, coarse far from it."""
    grown = np.geomspace(1, last, _PIECES).astype(np.intp)
    return np.unique(np.concatenate([np.arange(min(last, 8) + 1), grown]))


def _turns(stratum: Stratum, sides: list[_Side], turned: list[float], cost: float) -> Turns:
    rise, fall = _none(stratum), _none(stratum)
    for side, count in zip(sides, turned, strict=True):
        (rise if side.sign > 0 else fall)[side.cell] = count
    return Turns(cost=cost, rise=rise, fall=fall, unique=None)


def _none(stratum: Stratum) -> NDArray[np.float64]:
    return np.zeros(len(stratum.cells))
