"""The fast solvers find what the paper's linear program and brute force find."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_audit import projection_test
from offline_audit.projection.common_rate import common_rate
from offline_audit.projection.overlapping import overlapping_rates
from offline_audit.projection.partition import partition
from offline_audit.projection.sample import Sample
from tests.oracle.projection import by_trying_all, full_program


def projected(decisions, distances, groups, **options: Any) -> Any:
    """The result as `Any`, so that tests need no narrowing of optional fields."""
    return projection_test(groups=groups, decisions=decisions, distances=distances, **options)


SLOW = settings(max_examples=60, deadline=None)


@st.composite
def rows(draw, *, most_groups=4, attributes=1, least=12, most=60):
    """Decisions, distances (with ties, zeros and infinite ones) and groups that are all there."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(least, most))
    decisions = (rng.random(n) < draw(st.sampled_from([0.2, 0.5, 0.8]))).astype(float)
    distances = rng.exponential(size=n)
    kind = draw(st.sampled_from(["smooth", "ties", "zeros", "infinite"]))
    if kind == "ties":
        distances = np.ceil(3 * distances)
    if kind == "zeros":
        distances[rng.random(n) < 0.1] = 0.0
    if kind == "infinite":
        distances[rng.random(n) < 0.1] = math.inf
    groups = []
    for _ in range(attributes):
        k = draw(st.integers(2, most_groups))
        groups.append(np.concatenate([np.arange(k), rng.integers(0, k, n - k)]))
    return decisions, distances, groups


def least_cost(decisions, distances, groups, *, tolerance=0.0, favoured=None):
    named = {f"attribute {i}": codes for i, codes in enumerate(groups)}
    sample = Sample.read(groups=named, decisions=decisions, distances=distances)
    several = len(groups) > 1
    parts = partition(sample, "statistical_parity", smallest_expected=0, all_distances=several)
    stratum = parts.strata[0]
    if several:
        return overlapping_rates(stratum, tolerance=tolerance).cost
    return common_rate(stratum.cells, tolerance=tolerance, favoured=favoured).cost


def same(found: float, wanted: float, precision: float = 1e-9) -> bool:
    """HiGHS itself is exact to about 1e-9 of the problem's numbers."""
    return found == wanted or abs(found - wanted) <= precision * max(wanted, 1.0)


@given(rows())
@SLOW
def test_the_cost_of_a_common_rate_is_that_of_the_full_program(case):
    decisions, distances, groups = case
    assert same(least_cost(*case), full_program(decisions, distances, groups))


@given(rows(), st.sampled_from([0.01, 0.1, 0.3]))
@SLOW
def test_the_cost_with_a_tolerance_is_that_of_the_full_program(case, tolerance):
    wanted = full_program(*case, tolerance=tolerance)
    assert same(least_cost(*case, tolerance=tolerance), wanted)


@given(rows(most_groups=3), st.sampled_from([0.0, 0.05, 0.2]))
@SLOW
def test_a_favoured_group_is_bounded_on_one_side_only(case, tolerance):
    wanted = full_program(*case, tolerance=tolerance, favoured=1)
    assert same(least_cost(*case, tolerance=tolerance, favoured=1), wanted)


@given(rows(most_groups=2, least=4, most=9))
@SLOW
def test_the_cost_of_two_groups_is_that_of_exhaustive_search(case):
    decisions, distances, groups = case
    distances = np.where(np.isinf(distances), 9.0, distances)
    wanted = by_trying_all(decisions, distances, groups[0])
    assert least_cost(decisions, distances, groups) == pytest.approx(wanted, rel=1e-12, abs=1e-12)


def test_equalized_odds_is_the_sum_over_the_two_labels():
    rng = np.random.default_rng(3)
    n = 400
    decisions, labels = rng.integers(0, 2, (2, n)).astype(float)
    groups, distances = rng.integers(0, 3, n), rng.exponential(size=n)
    found = projected(decisions, distances, groups, criterion="equalized_odds", labels=labels)
    parts = [
        full_program(decisions[labels == y], distances[labels == y], [groups[labels == y]])
        for y in (0, 1)
    ]
    assert found.statistic == pytest.approx(sum(parts), rel=1e-12)


def test_only_the_nearest_rows_are_sorted():
    rng = np.random.default_rng(5)
    n = 50_000
    sample = Sample.read(
        groups={"group": rng.integers(0, 2, n)},
        decisions=rng.integers(0, 2, n),
        distances=rng.exponential(size=n),
    )
    near = partition(sample, "statistical_parity", smallest_expected=5, all_distances=False)
    whole = partition(sample, "statistical_parity", smallest_expected=5, all_distances=True)
    for cell, full in zip(near.strata[0].cells, whole.strata[0].cells, strict=True):
        assert len(cell.rise.nearest) < 0.1 * len(full.rise.nearest)
        np.testing.assert_array_equal(
            cell.rise.nearest, full.rise.nearest[: len(cell.rise.nearest)]
        )
