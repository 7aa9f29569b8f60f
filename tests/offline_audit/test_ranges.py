"""Ranges over unknown groups and labels equal those of every possible truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_audit import METRICS
from offline_audit.ranges import (
    RateCells,
    completed_groups,
    completed_labels,
    group_ranges,
    impact_ranges,
    label_ranges,
    reweighted_rate,
)
from tests.oracle.ranges import with_groups, with_labels

COUNTS = st.tuples(st.integers(0, 5), st.integers(0, 5))
RATES = [name for name, metric in METRICS.items() if metric.kind == "rate"]


def cells(metric: str) -> RateCells:
    return RateCells(METRICS[metric].counted, METRICS[metric].hit)


def ends(values: list[float]) -> Any:
    return pytest.approx((min(values), max(values)))


@given(one=COUNTS, other=COUNTS, unknown=COUNTS)
def test_ranges_over_groups_are_those_of_all_assignments(one, other, unknown):
    ranges = group_ranges(one, other, unknown)
    if not any(unknown):
        assert ranges is None
        return
    if not sum(one) or not sum(other):
        return
    assert ranges is not None
    rates = list(with_groups([one, other], unknown))
    assert ranges.first == ends([a for a, _ in rates])
    assert ranges.other == ends([b for _, b in rates])
    assert ranges.effect == ends([a - b for a, b in rates])
    if all(b for _, b in rates):
        assert ranges.ratio == ends([a / b for a, b in rates])


@given(counts=st.lists(COUNTS.filter(any), min_size=2, max_size=3), unknown=COUNTS)
def test_impact_ranges_are_those_of_all_assignments(counts, unknown):
    unknown = min(unknown[0], 3), min(unknown[1], 3)
    rates = [r for r in with_groups(counts, unknown) if max(r)]
    if not rates or not min(max(r) for r in with_groups(counts, unknown)):
        return
    for index, (of_rate, of_ratio) in enumerate(impact_ranges(counts, unknown, range(len(counts)))):
        assert of_rate == ends([r[index] for r in rates])
        assert of_ratio == ends([r[index] / max(r) for r in rates])


@pytest.mark.parametrize("metric", RATES)
@given(data=st.data())
def test_ranges_over_labels_are_those_of_all_labels(metric, data):
    def table() -> np.ndarray:
        return np.array(data.draw(st.lists(st.integers(0, 3), min_size=9, max_size=9))).reshape(
            3, 3
        )

    one, other = table(), table()
    rate = cells(metric)

    def value(completed: np.ndarray) -> float | None:
        hits, misses = rate.of(completed)
        return hits / (hits + misses) if hits + misses else None

    ranges = label_ranges(rate, one, other)
    rates = list(with_labels(value, one, other))
    if ranges is None:
        assert not rates or len(set(rates)) == 1
        return
    assert ranges.first == ends([a for a, _ in rates])
    assert ranges.other == ends([b for _, b in rates])
    assert ranges.effect == ends([a - b for a, b in rates])


def table_of(
    tpr: float, fpr: float, coverage: tuple[float, float], rows: int = 1_000
) -> np.ndarray:
    """Expected rows by label and decision; half have label 1; coverage by decision."""
    known = 500 * np.array([[1 - fpr, fpr], [1 - tpr, tpr]])
    table = np.zeros((3, 3), int)
    table[:2, :2] = np.rint(known * coverage)
    table[2, :2] = np.rint(known.sum(axis=0)) - table[:2, :2].sum(axis=0)
    return table


@pytest.mark.parametrize("metric", ["tpr", "fpr", "fnr", "ppv", "npv", "accuracy"])
def test_reweighting_restores_the_rate_of_labels_missing_by_decision(metric):
    rate = cells(metric)
    hits, misses = rate.of(table_of(0.7, 0.2, (1, 1)))
    missing = table_of(0.7, 0.2, (0.4, 0.8))
    assert reweighted_rate(rate, missing) == pytest.approx(hits / (hits + misses), abs=2e-3)
    assert reweighted_rate(rate, table_of(0.7, 0.2, (0, 0.8))) is None or metric == "ppv"


@pytest.mark.parametrize("metric", ["tpr", "ppv", "accuracy"])
def test_completed_labels_equal_the_known_ones_if_coverage_is_equal(metric):
    rate, table = cells(metric), table_of(0.7, 0.2, (0.5, 0.5))
    for one, other in completed_labels(rate, table, table):
        assert one == other == rate.of(table)


def test_completed_labels_surround_the_truth_of_labels_missing_by_outcome():
    """Positives of the second group that are not selected lose two fifths of their labels."""
    rate, full = cells("tpr"), table_of(0.7, 0.3, (1, 1))
    lacking = full.copy()
    lacking[1, 0] -= 60
    lacking[2, 0] += 60
    differences = [a[0] / sum(a) - b[0] / sum(b) for a, b in completed_labels(rate, full, lacking)]
    assert min(differences) < 0 <= max(differences) + 1e-12
    assert rate.of(full)[0] / sum(rate.of(full)) < rate.of(lacking)[0] / sum(rate.of(lacking))


def test_completed_groups_surround_the_truth_of_misses_that_hide_their_group():
    tables = list(completed_groups((50, 50), (50, 20), (100, 70), (0, 30)))
    differences = [a[0] / sum(a) - b[0] / sum(b) for a, b in tables]
    assert min(differences) < 0 < max(differences) + 0.01
    assert ((50, 50), (50, 50)) in tables
