"""The fast solvers agree with the linear program of the paper and with exhaustive search."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import OptimizeResult, linprog

from offline_audit.projection.fair_change import common_rate, overlapping_rates
from offline_audit.projection.partition import partition
from offline_audit.projection.sample import Sample
from tests.offline_audit.projection.projected import projected
from tests.oracle.projection import brute_force, full_program

SLOW = settings(max_examples=60, deadline=None)


@st.composite
def rows(draw, *, most_groups=4, attributes=1, least=12, most=60):
    """Decisions, distances (with ties, zeros or infinite ones) and groups, none of them empty."""
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
    by_attribute = {f"attribute {i}": codes for i, codes in enumerate(groups)}
    sample = Sample.read(groups=by_attribute, decisions=decisions, distances=distances)
    several = len(groups) > 1
    parts = partition(sample, "statistical_parity", smallest_expected=0, all_distances=several)
    stratum = parts.strata[0]
    if several:
        return overlapping_rates(stratum, tolerance=tolerance).cost
    return common_rate(stratum.cells, tolerance=tolerance, favoured=favoured).cost


def is_close(result: float, expected: float, precision: float = 1e-9) -> bool:
    """Equality up to the precision of HiGHS, which is about 1e-9."""
    return result == expected or abs(result - expected) <= precision * max(expected, 1.0)


@given(rows())
@SLOW
def test_the_cost_of_a_common_rate_is_that_of_the_full_program(case):
    decisions, distances, groups = case
    assert is_close(least_cost(*case), full_program(decisions, distances, groups))


@given(rows(), st.sampled_from([0.01, 0.1, 0.3]))
@SLOW
def test_the_cost_with_a_tolerance_is_that_of_the_full_program(case, tolerance):
    expected = full_program(*case, tolerance=tolerance)
    assert is_close(least_cost(*case, tolerance=tolerance), expected)


@given(rows(most_groups=3), st.sampled_from([0.0, 0.05, 0.2]))
@SLOW
def test_a_favoured_group_is_bounded_on_one_side_only(case, tolerance):
    expected = full_program(*case, tolerance=tolerance, favoured=1)
    assert is_close(least_cost(*case, tolerance=tolerance, favoured=1), expected)


@given(rows(most_groups=2, least=4, most=9))
@SLOW
def test_the_cost_of_two_groups_is_that_of_exhaustive_search(case):
    decisions, distances, groups = case
    distances = np.where(np.isinf(distances), 9.0, distances)
    expected = brute_force(decisions, distances, groups[0])
    assert least_cost(decisions, distances, groups) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_equalized_odds_is_the_sum_over_the_two_labels():
    rng = np.random.default_rng(3)
    n = 400
    decisions, labels = rng.integers(0, 2, (2, n)).astype(float)
    groups, distances = rng.integers(0, 3, n), rng.exponential(size=n)
    result = projected(decisions, distances, groups, criterion="equalized_odds", labels=labels)
    parts = [
        full_program(decisions[labels == y], distances[labels == y], [groups[labels == y]])
        for y in (0, 1)
    ]
    assert result.statistic == pytest.approx(sum(parts), rel=1e-12)


@given(rows(attributes=2, most_groups=3, least=20), st.sampled_from([0.0, 0.05]))
@SLOW
def test_the_cost_of_overlapping_attributes_is_that_of_the_full_program(case, tolerance):
    expected = full_program(*case, tolerance=tolerance)
    assert is_close(least_cost(*case, tolerance=tolerance), expected, 1e-8)


def test_the_optimum_of_overlapping_attributes_is_certified_on_many_rows():
    rng = np.random.default_rng(4)
    n = 30_000
    sex, race = rng.integers(0, 2, n), rng.integers(0, 4, n)
    decisions = (rng.random(n) < 0.4 + 0.1 * sex + 0.02 * race).astype(int)
    sample = Sample.read(
        groups={"sex": sex, "race": race}, decisions=decisions, distances=rng.exponential(size=n)
    )
    parts = partition(sample, "statistical_parity", smallest_expected=5, all_distances=True)
    change = overlapping_rates(parts.strata[0])
    assert change.certified_gap < 1e-9
    stratum = parts.strata[0]
    after = stratum.positives + change.rise - change.fall
    rates = (stratum.membership @ after) / stratum.group_sizes
    assert np.ptp(rates) < 1e-9


def overlapping(scale=1.0, n=600, seed=6):
    rng = np.random.default_rng(seed)
    sex, race = rng.integers(0, 2, n), rng.integers(0, 3, n)
    decisions = (rng.random(n) < 0.3 + 0.2 * sex + 0.1 * race).astype(float)
    distances = rng.exponential(size=n)
    sample = Sample.read(
        groups={"sex": sex, "race": race}, decisions=decisions, distances=scale * distances
    )
    parts = partition(sample, "statistical_parity", smallest_expected=5, all_distances=True)
    return parts.strata[0], full_program(decisions, distances, [sex, race])


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12, 1e60])
def test_the_unit_of_distances_does_not_change_the_solution(scale):
    stratum, expected = overlapping(scale)
    result = overlapping_rates(stratum)
    assert result.cost / scale == pytest.approx(expected, rel=1e-8)
    assert result.certified_gap < 1e-8


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_solver_failure_leaves_the_certified_gap(monkeypatch, rounds):
    stratum, expected = overlapping()
    calls = iter(range(100))

    def failing(**program):
        result = linprog(**program)
        result.status = 0 if next(calls) < rounds else 4
        return result

    monkeypatch.setattr("offline_audit.projection.fair_change.linprog", failing)
    result = overlapping_rates(stratum)
    if rounds == 0:
        assert math.isinf(result.cost)
        assert math.isinf(result.certified_gap)
    else:
        assert result.cost > expected
        assert result.certified_gap >= 1 - expected / result.cost > 1e-9


def test_a_solver_failure_is_reported_without_a_p_value(monkeypatch):
    rng = np.random.default_rng(7)
    groups = {"sex": rng.integers(0, 2, 400), "race": rng.integers(0, 2, 400)}
    rows = rng.integers(0, 2, 400), rng.exponential(size=400), groups
    failed = OptimizeResult(status=4)
    monkeypatch.setattr("offline_audit.projection.fair_change.linprog", lambda **_: failed)
    result = projected(*rows)
    assert result.p_value is None
    assert "The solver failed" in result.reason


def test_overlapping_attributes_without_finite_distances_have_cost_0_or_no_fair_change():
    groups = {"sex": np.repeat([0, 1], 100), "race": np.tile([0, 1], 100)}
    never = np.full(200, math.inf)
    fair = projected(np.tile([0, 0, 1, 1], 50), never, groups)
    assert (fair.statistic, fair.p_value) == (0.0, 1.0)
    unfair = projected(np.repeat([0, 1, 0, 1], [70, 30, 30, 70]), never, groups)
    assert "Too few rows have a finite distance" in unfair.reason
