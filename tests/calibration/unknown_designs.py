"""Designs of `benchmarks.calibration` in which labels or groups are unknown, not all at random.

Both groups have the same rate. A sample is rejected if an audit reports a difference; the rival is
the test of the rows whose label and group are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit import TableCounts, permutation_test, projection_test
from tests.calibration.designs import ALPHA, Design, Tries

__all__ = ["KNOWN_ROWS", "Sides", "designs"]

Float = NDArray[np.float64]
# Name of the rival.
KNOWN_ROWS = "known rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Two groups, and what is known of them.

    Attributes:
        rows: Rows of each group.
        tpr: TPR of each group; base rates are .5 and FPRs .3.
        labels: Share of known labels by group, label and decision, broadcast to `[2, 2, 2]`.
        groups: Share of known groups, likewise.
        metric: Metric of the permutation test.
    """

    rows: tuple[int, int]
    tpr: tuple[float, float] = (0.7, 0.7)
    labels: object = 1.0
    groups: object = 1.0
    metric: str = "tpr"

    def table(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """A sample by group, label and decision, `[3, 3, 3]`; the last index is unknown."""
        counts = np.zeros((3, 3, 3), dtype=np.int64)
        of_labels, of_groups = (
            np.broadcast_to(np.asarray(share, dtype=float), (2, 2, 2))
            for share in (self.labels, self.groups)
        )
        for group, (rows, tpr) in enumerate(zip(self.rows, self.tpr, strict=True)):
            cells = rng.multinomial(rows, [0.35, 0.15, (1 - tpr) / 2, tpr / 2]).reshape(2, 2)
            known = rng.binomial(cells, of_groups[group])
            for index, part in ((group, known), (2, cells - known)):
                labelled = rng.binomial(part, of_labels[group])
                counts[index, :2, :2] += labelled
                counts[index, 2, :2] += (part - labelled).sum(axis=0)
        return counts

    def counts(self, rng: np.random.Generator) -> TableCounts:
        """A sample as counts."""
        return TableCounts.from_mapping(_cells(self.table(rng)))


def designs() -> list[Design]:
    """All designs."""
    by_outcome = [1.0, [[1, 1], [0.7, 1]]]
    some_by_outcome = [0.7, [[0.7, 0.7], [0.4, 0.7]]]
    by_decision = [1.0, [[0.8, 1], [0.8, 1]]]
    by_label = [1.0, [[1, 1], [0.6, 0.6]]]
    hiding = [1.0, [[0.7, 1], [0.7, 1]]]
    some_hiding = [0.6, [[0.4, 0.6], [0.4, 0.6]]]
    large, small = (2_000, 2_000), (300, 1_700)
    result = [
        _design("labels at random", Sides(rows=large, labels=0.7), known_bad=False, tpr=0.62),
        _design("labels by decision, in one group", Sides(rows=large, labels=_each(by_decision))),
        _design("labels by outcome, in one group", Sides(rows=large, labels=_each(by_outcome))),
        _design(
            "labels by outcome, in one group of few labels",
            Sides(rows=large, labels=_each(some_by_outcome)),
        ),
        _design("labels by outcome, PPV", Sides(rows=large, labels=_each(by_label), metric="ppv")),
        _design(
            "labels of one decision and a few rows, in one group",
            Sides(rows=large, labels=_each([1.0, [[0.002, 1], [0.002, 1]]])),
        ),
    ]
    rate = "selection_rate"
    result += [
        _design(
            "groups at random", Sides(rows=small, groups=0.6, metric=rate), known_bad=False, tpr=0.5
        ),
        _design(
            "groups by group",
            Sides(rows=small, groups=_each([0.9, 0.5]), metric=rate),
            known_bad=False,
        ),
        _design(
            "groups by decision", Sides(rows=large, groups=[0.6, 0.9], metric=rate), known_bad=False
        ),
        _design(
            "groups by decision, in one group", Sides(rows=large, groups=_each(hiding), metric=rate)
        ),
        _design(
            "groups by decision, in one group, many unknown",
            Sides(rows=large, groups=_each(some_hiding), metric=rate),
        ),
    ]
    return result


def _each(shares: list[object]) -> Float:
    """Shares of both groups by label and decision, `[2, 2, 2]`."""
    return np.stack([np.broadcast_to(np.asarray(share, dtype=float), (2, 2)) for share in shares])


def _design(name: str, sides: Sides, *, known_bad: bool = True, tpr: float | None = None) -> Design:
    planted = {}
    if tpr is not None:
        worse = Sides(
            rows=sides.rows,
            tpr=(tpr, 0.7),
            labels=sides.labels,
            groups=sides.groups,
            metric=sides.metric,
        )
        planted = {"less": _simulator(worse, rivals=False)}
    # A count below `ENOUGH` of the benchmark: the tests are conservative by design.
    return Design(
        name=name,
        cell=0.0,
        fair=_simulator(sides, rivals=True),
        planted=planted,
        known_bad=KNOWN_ROWS if known_bad else None,
    )


def _simulator(sides: Sides, *, rivals: bool) -> Callable[[int, int], Tries]:
    def simulate(simulations: int, seed: int) -> Tries:
        rng = np.random.default_rng(seed)
        tables = [sides.table(rng) for _ in range(simulations)]
        results = [_ours(table, sides.metric) for table in tables]
        rejected = np.array([[p is not None and p <= ALPHA for p in r] for r in results])
        shares = rejected.mean(axis=0)
        return Tries(
            simulations=simulations,
            refused=sum(p is None for p, *_ in results),
            # The larger of the permutation test's and the projection test's share.
            rejected=float(max(shares[0], shares[2])),
            rivals={KNOWN_ROWS: float(shares[1])} if rivals else {},
        )

    return simulate


def _ours(table: NDArray[np.int64], metric: str) -> tuple[float | None, float | None, float | None]:
    """p-values of the permutation test, of its known rows, and of the projection test."""
    cells = _cells(table)
    comparison = permutation_test(counts=TableCounts.from_mapping(cells), metrics=metric)[0]
    known = {group: {k: n for k, n in cells[group].items() if k[0] is not None} for group in "ab"}
    if metric == "selection_rate":
        known = {group: cells[group] for group in "ab"}
    alone = comparison.missing.known_p_value
    if alone is None:
        # Not identified: the test that ignores the unlabelled rows has a p-value all the same.
        alone = permutation_test(counts=TableCounts.from_mapping(known), metrics=metric)[0].p_value
    return comparison.p_value, alone, _projection_p_value(table, metric)


def _cells(table: NDArray[np.int64]) -> dict[str | None, dict[tuple[int | None, int | None], int]]:
    """Rows by group, label and decision; None is unknown."""
    values: tuple[int | None, ...] = (0, 1, None)
    return {
        group: {(values[y], values[d]): int(part[y, d]) for y in range(3) for d in range(3)}
        for group, part in zip(("a", "b", None), table, strict=True)
    }


def _projection_p_value(table: NDArray[np.int64], metric: str) -> float | None:
    criteria = {"tpr": "equal_opportunity", "selection_rate": "statistical_parity"}
    if metric not in criteria:
        return None
    group, label, decision = (
        np.repeat(index.ravel(), table.ravel()) for index in np.indices(table.shape)
    )
    return projection_test(
        groups=np.array(["a", "b", None], object)[group],
        decisions=decision,
        distances=np.ones(len(decision)),
        labels=np.where(label == 2, np.nan, label) if metric == "tpr" else None,
        criterion=criteria[metric],  # type: ignore[arg-type]
    ).p_value
