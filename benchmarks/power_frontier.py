"""How near any test of two rates can come to the best power in both directions.

`python -m benchmarks.power_frontier [--quick]`. No simulation. Among orderings of the permutations,
the pooled one has the highest power if the small group gets more, the printed one if it gets less;
both are valid. A linear program finds, among all tests (any set of tables, randomized or not) whose
size is at most a bar for every common rate, the one whose largest loss against these two is
smallest. The basis of `docs/decisions/0019`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy import stats
from scipy.optimize import linprog

from benchmarks.calibration_rows import MOST_SIZE
from benchmarks.claims import Claim, Say, Scale, print_wide, report
from benchmarks.small_samples import CHOSEN, decisions
from tests.calibration.designs import ALPHA

__all__ = ["Frontier", "Planted"]

Float = NDArray[np.float64]

# Orderings of the permutations that are compared; ties count half.
_ORDERINGS = (CHOSEN, "as printed", "+½ and +½", "likelihood ratio", "pooled")
_MORE, _LESS = "pooled", "as printed"
# Common rates at which the size is limited, and other rates at which the power is compared, within
# so many standard errors of the pooled rate.
_NULLS, _NULL_RANGE, _OTHERS, _OTHER_RANGE = 81, 8.0, 7, 3.0
# Tables with a smaller probability under every alternative are left out.
_NEGLIGIBLE = 1e-6
_LOSS = 0.02


@dataclass(frozen=True, slots=True)
class Planted:
    """Sizes of both groups, the common rate, and the first group's rate if higher and if lower."""

    n: int
    m: int
    rate: float
    more: float
    less: float

    @property
    def spread(self) -> float:
        """Standard error of the pooled rate."""
        return math.sqrt(self.rate * (1 - self.rate) / (self.n + self.m))


_DESIGNS = (
    Planted(50, 450, 0.1, 0.25, 0.01),
    Planted(100, 900, 0.1, 0.2, 0.03),
    Planted(100, 1_900, 0.1, 0.18, 0.03),
    Planted(100, 900, 0.2, 0.33, 0.09),
    Planted(100, 1_900, 0.3, 0.43, 0.17),
    Planted(400, 1_600, 0.1, 0.145, 0.062),
    Planted(200, 200, 0.1, 0.2, 0.03),
)


class Frontier:
    """All tables of one design, with the power of the orderings and the least possible loss.

    The other group's rate varies around the common one, and the first group's rate with it: a test
    that guessed the other group's rate would gain nothing.
    """

    def __init__(self, design: Planted) -> None:
        self.design = design
        n, m, rate = design.n, design.m, design.rate
        others = rate + np.linspace(-_OTHER_RANGE, _OTHER_RANGE, _OTHERS) * design.spread
        others = others[others + design.less - rate > 0]
        self.alternatives = [
            [(other + moved - rate, other) for other in others]
            for moved in (design.more, design.less)
        ]
        rates = [(rate, rate), *self.alternatives[0], *self.alternatives[1]]
        self.x = _support(n, [one for one, _ in rates])
        self.y = _support(m, [two for _, two in rates])
        rejected = self._rejected()
        self.powers = {
            name: [self._probabilities(side) @ rejects for side in self.alternatives]
            for name, rejects in rejected.items()
        }
        nulls = rate + np.linspace(-_NULL_RANGE, _NULL_RANGE, _NULLS) * design.spread
        nulls = np.unique(np.clip(nulls, 1.5 / n, 1.0))
        self.null_chances = self._probabilities([(null, null) for null in nulls])
        self.sizes = {name: float((self.null_chances @ r).max()) for name, r in rejected.items()}

    @property
    def best(self) -> list[Float]:
        """Power of the best ordering upwards and downwards, `[rates]` each."""
        return [self.powers[_MORE][0], self.powers[_LESS][1]]

    def losses(self, name: str) -> tuple[float, float]:
        """Largest loss of an ordering against the best one, upwards and downwards."""
        more, less = (
            float((best - own).max())
            for best, own in zip(self.best, self.powers[name], strict=True)
        )
        return more, less

    def least_loss(self, size: float) -> float:
        """Smallest possible value of the largest loss, over all tests with at most this size."""
        chances = np.concatenate([self._probabilities(side) for side in self.alternatives])
        kept = chances.max(axis=0) > _NEGLIGIBLE
        # The probability of the tables that are left out counts as rejected.
        best = np.concatenate(self.best) - chances[:, ~kept].sum(axis=1)
        nulls, chances = self.null_chances[:, kept], chances[:, kept]
        solved = linprog(
            np.append(np.zeros(int(kept.sum())), 1.0),
            A_ub=np.vstack(
                [
                    np.column_stack([np.where(nulls < 1e-13, 0.0, nulls), np.zeros(len(nulls))]),
                    np.column_stack([-chances, -np.ones(len(chances))]),
                ]
            ),
            b_ub=np.concatenate([np.full(len(nulls), size), -best]),
            bounds=[(0, 1)] * int(kept.sum()) + [(-1, 1)],
            method="highs",
        )
        assert solved.success, solved.message
        return float(solved.fun)

    def _probabilities(self, rates: list[tuple[float, float]]) -> Float:
        """Probability of every table, `[rates, tables]`."""
        n, m = self.design.n, self.design.m
        return np.array(
            [
                np.outer(stats.binom.pmf(self.x, n, one), stats.binom.pmf(self.y, m, two)).ravel()
                for one, two in rates
            ]
        )

    def _rejected(self) -> dict[str, Float]:
        """By ordering, which tables are rejected, `[tables]`."""
        n, m = self.design.n, self.design.m
        rejected = {name: np.zeros((len(self.x), len(self.y))) for name in _ORDERINGS}
        for total in range(self.x[0] + self.y[0], self.x[-1] + self.y[-1] + 1):
            x = np.arange(max(0, total - m), min(n, total) + 1)
            decided = decisions(x.astype(np.float64), n, (total - x).astype(np.float64), m)
            i, j = x - self.x[0], total - x - self.y[0]
            inside = (i >= 0) & (i < len(self.x)) & (j >= 0) & (j < len(self.y))
            for name, rejects in rejected.items():
                rejects[i[inside], j[inside]] = decided[f"{name}, ties half"][inside]
        return {name: rejects.ravel() for name, rejects in rejected.items()}


def _support(n: int, rates: list[float]) -> NDArray[np.int64]:
    ends = [stats.binom(n, rate).ppf([1e-9, 1 - 1e-9]) for rate in rates]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return np.arange(int(low), int(high) + 1)


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Solve every design."""
    columns = ("design", *_ORDERINGS, f"any test, size ≤ {ALPHA:.0%}", f"size ≤ {MOST_SIZE:.0%}")
    table = Table(*columns, title="Largest loss of power in points: group gets more / gets less")
    least, excess, sizes = [], [], []
    planted = scale.pick(full=_DESIGNS, quick=_DESIGNS[:3], smoke=_DESIGNS[:1])
    for design in planted:
        name = f"{design.n:,} against {design.m:,}, {design.rate}"
        say(name)
        frontier = Frontier(design)
        losses = [frontier.losses(ordering) for ordering in _ORDERINGS]
        bounds = [frontier.least_loss(size) for size in (ALPHA, MOST_SIZE)]
        cells = (f"{100 * more:.1f} / {100 * less:.1f}" for more, less in losses)
        table.add_row(name, *cells, *(f"{100 * bound:.1f}" for bound in bounds))
        least.append((bounds[0], name))
        excess.append([max(loss) - bounds[0] for loss in losses])
        sizes.append(max(frontier.sizes.values()))
    print_wide(table)
    worst = np.max(excess, axis=0)
    return [
        Claim(
            claim=f"no test of size {ALPHA:.0%} has the best power both ways: least possible loss",
            figure=max(least)[0],
            unit="of samples",
            side="at least",
            bar=_LOSS,
            rounds=len(planted),
            details={"worst": max(least)[1]},
        ),
        Claim(
            claim=f"{CHOSEN}: loss beyond the least possible, against other orderings",
            figure=float(worst[0]),
            unit="of samples",
            side="at most",
            bar=float(worst[1:].min()),
            rounds=len(planted),
        ),
        Claim(
            claim="largest size of an ordering, at any common rate",
            figure=max(sizes),
            unit="of fair samples rejected",
            side="at most",
            bar=MOST_SIZE,
            rounds=len(planted),
        ),
    ]


if __name__ == "__main__":
    report("Power of rates in both directions, by linear programming", measure)
