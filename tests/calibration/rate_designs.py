"""Designs of `benchmarks.calibration` whose metric is a rate of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit import TableCounts, permutation_test
from offline_audit.permutation.permutations import draw_counts
from tests.calibration.designs import ALPHA, Design, Tries

__all__ = ["Group", "rate_design"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]

_DRAWS = 199


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A population.

    Attributes:
        rows: Number of rows in a sample.
        base: Share with label 1.
        tpr: Share of those selected.
        fpr: Share of the others selected.
    """

    rows: int
    base: float
    tpr: float
    fpr: float

    @property
    def cells(self) -> Float:
        """Shares of label and decision, `[2, 2]`."""
        return np.array(
            [
                [(1 - self.base) * (1 - self.fpr), (1 - self.base) * self.fpr],
                [self.base * (1 - self.tpr), self.base * self.tpr],
            ]
        )


# Cells of a table `[label, decision]` that are in the denominator and in the numerator.
_COUNTED = {
    "selection_rate": ((0, 0), (0, 1), (1, 0), (1, 1)),
    "fnr": ((1, 0), (1, 1)),
    "tpr": ((1, 0), (1, 1)),
    "fpr": ((0, 0), (0, 1)),
    "ppv": ((0, 1), (1, 1)),
    "accuracy": ((0, 0), (0, 1), (1, 0), (1, 1)),
}
_HITS = {
    "selection_rate": ((0, 1), (1, 1)),
    "fnr": ((1, 0),),
    "tpr": ((1, 1),),
    "fpr": ((0, 1),),
    "ppv": ((1, 1),),
    "accuracy": ((0, 0), (1, 1)),
}


def rate_design(
    name: str,
    metric: str,
    fair: tuple[Group, Group],
    planted: dict[str, tuple[Group, Group]] | None = None,
    *,
    known_bad: bool = False,
) -> Design:
    """A design of two populations whose metric is equal, and others whose metric is not."""
    return Design(
        name=f"{metric}: {name}",
        cell=_cell(metric, fair),
        fair=_simulator(metric, fair),
        planted={effect: _simulator(metric, pair) for effect, pair in (planted or {}).items()},
        known_bad="un-studentized" if known_bad else None,
    )


def _parts(metric: str, table: Float | Int) -> tuple[Float, Float]:
    """Numerators and denominators of the rates of tables `[..., 2, 2]`."""
    hits, counted = (
        np.sum([table[..., y, d] for y, d in cells[metric]], axis=0) for cells in (_HITS, _COUNTED)
    )
    return hits, counted


def _cell(metric: str, pair: tuple[Group, Group]) -> float:
    parts = [_parts(metric, group.cells * group.rows) for group in pair]
    pooled = sum(hits for hits, _ in parts) / sum(counted for _, counted in parts)
    return float(min(counted for _, counted in parts) * min(pooled, 1 - pooled))


def _truth(metric: str, pair: tuple[Group, Group]) -> float:
    first, second = (float(np.divide(*_parts(metric, group.cells))) for group in pair)
    return first - second


def _simulator(metric: str, pair: tuple[Group, Group]) -> Callable[[int, int], Tries]:
    def simulate(simulations: int, seed: int) -> Tries:
        rng = np.random.default_rng(seed)
        tables = [
            rng.multinomial(group.rows, group.cells.ravel(), simulations).reshape(-1, 2, 2)
            for group in pair
        ]
        return _tries(metric, tables, _truth(metric, pair), rng)

    return simulate


def _tries(metric: str, tables: list[Int], truth: float, rng: np.random.Generator) -> Tries:
    """Our test by its public function, once per distinct table; rivals by their formulas."""
    cache: dict[tuple[float, ...], tuple[float | None, bool | None]] = {}
    results = []
    (hits, counted), (other_hits, other_counted) = (_parts(metric, table) for table in tables)
    keys = np.stack([hits, counted, other_hits, other_counted], axis=1)
    for number, key in enumerate(map(tuple, keys.tolist())):
        if key not in cache:
            pair = (tables[0][number], tables[1][number])
            cache[key] = _ours(metric, pair, truth)
        results.append(cache[key])
    p_values = np.array([1.0 if p is None else p for p, _ in results])
    coverage = [covered for _, covered in results if covered is not None]
    return Tries(
        simulations=len(results),
        refused=sum(p is None for p, _ in results),
        rejected=float((p_values <= ALPHA).mean()),
        rivals=_rivals(keys.T, [table.sum(axis=(1, 2)) for table in tables], rng),
        covered=float(np.mean(coverage)) if coverage else None,
    )


def _ours(metric: str, pair: tuple[Int, Int], truth: float) -> tuple[float | None, bool | None]:
    counts = TableCounts.from_mapping(
        {
            name: {(y, d): int(table[y, d]) for y in (0, 1) for d in (0, 1)}
            for name, table in zip("ab", pair, strict=True)
        }
    )
    result = permutation_test(metrics=metric, counts=counts)[0]
    if result.interval is None:
        return result.p_value, None
    return result.p_value, result.interval[0] <= truth <= result.interval[1]


def _rivals(keys: Float, rows: list[Int], rng: np.random.Generator) -> dict[str, float]:
    hits, n, other_hits, other_n = keys
    p, q = _ratio(hits, n), _ratio(other_hits, other_n)
    pooled = _ratio(hits + other_hits, n + other_n)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (p - q) / np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / other_n))
        spread = p * (1 - p) / n + q * (1 - q) / other_n
        wald = (p - q) / np.sqrt(spread)
        one, two = p * (1 - p) / (n - 1), q * (1 - q) / (other_n - 1)
        freedom = (one + two) ** 2 / (one**2 / (n - 1) + two**2 / (other_n - 1))
        welch = stats.t.sf(np.abs((p - q) / np.sqrt(one + two)), freedom) * 2
    limit = stats.norm.isf(ALPHA / 2)
    studentized, plain = _permuted(keys, rows, rng)
    return {
        "z": float((np.abs(z) > limit).mean()),
        "Wald": float((np.abs(wald) > limit).mean()),
        "Welch": float((welch <= ALPHA).mean()),
        "permuted, printed": studentized,
        "un-studentized": plain,
    }


def _permuted(keys: Float, rows: list[Int], rng: np.random.Generator) -> tuple[float, float]:
    """Rejection rates of the paper's test as printed: all rows are permuted, no correction.

    What scipy.stats.permutation_test does with that statistic, drawn by type.
    """
    rejected = np.zeros(2)
    for (hits, n, other_hits, other_n), one, two in zip(keys.T.tolist(), *rows, strict=True):
        types = np.array([hits + other_hits, n + other_n - hits - other_hits, 0], dtype=np.int64)
        types[2] = one + two - types.sum()
        counts = draw_counts(rng, types, int(one), _DRAWS)
        counts = np.vstack([[hits, n - hits, one - n], counts])
        x, m = counts[:, 0], counts[:, :2].sum(axis=1)
        y, k = types[0] - x, types[:2].sum() - m
        p, q = _ratio(x, m), _ratio(y, k)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs((p - q) / np.sqrt(p * (1 - p) / m + q * (1 - q) / k))
        for index, statistic in enumerate((t, np.abs(p - q))):
            # NaN counts as extreme.
            extreme = ~(statistic[1:] < statistic[0] - 1e-12)
            rejected[index] += (1 + extreme.sum()) / (_DRAWS + 1) <= ALPHA
    return float(rejected[0] / keys.shape[1]), float(rejected[1] / keys.shape[1])


def _ratio(numerator: Float | Int, denominator: Float | Int) -> Float:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Float = np.asarray(numerator, dtype=np.float64) / np.asarray(
            denominator, dtype=np.float64
        )
    return ratio
