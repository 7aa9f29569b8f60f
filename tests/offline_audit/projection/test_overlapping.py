"""Several attributes: the solver finds and certifies the optimum of the full linear program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import OptimizeResult, linprog

from offline_audit import projection_test
from offline_audit.projection.overlapping import overlapping_rates
from offline_audit.projection.partition import partition
from offline_audit.projection.sample import Sample
from tests.offline_audit.projection.test_common_rate import least_cost, rows, same
from tests.oracle.projection import full_program


def projected(decisions, distances, groups, **options: Any) -> Any:
    """The result as `Any`, so that tests need no narrowing of optional fields."""
    return projection_test(groups=groups, decisions=decisions, distances=distances, **options)


SLOW = settings(max_examples=60, deadline=None)


@given(rows(attributes=2, most_groups=3, least=20), st.sampled_from([0.0, 0.05]))
@SLOW
def test_the_cost_of_overlapping_attributes_is_that_of_the_full_program(case, tolerance):
    wanted = full_program(*case, tolerance=tolerance)
    assert same(least_cost(*case, tolerance=tolerance), wanted, 1e-8)


def test_the_optimum_of_overlapping_attributes_is_certified_on_many_rows():
    rng = np.random.default_rng(4)
    n = 30_000
    sex, race = rng.integers(0, 2, n), rng.integers(0, 4, n)
    decisions = (rng.random(n) < 0.4 + 0.1 * sex + 0.02 * race).astype(int)
    sample = Sample.read(
        groups={"sex": sex, "race": race}, decisions=decisions, distances=rng.exponential(size=n)
    )
    parts = partition(sample, "statistical_parity", smallest_expected=5, all_distances=True)
    turns = overlapping_rates(parts.strata[0])
    assert turns.certified_gap < 1e-9
    stratum = parts.strata[0]
    after = stratum.positives + turns.rise - turns.fall
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
    stratum, wanted = overlapping(scale)
    found = overlapping_rates(stratum)
    assert found.cost / scale == pytest.approx(wanted, rel=1e-8)
    assert found.certified_gap < 1e-8


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_solver_failure_leaves_the_certified_gap(monkeypatch, rounds):
    stratum, wanted = overlapping()
    calls = iter(range(100))

    def failing(**program):
        found = linprog(**program)
        found.status = 0 if next(calls) < rounds else 4
        return found

    monkeypatch.setattr("offline_audit.projection.overlapping.linprog", failing)
    found = overlapping_rates(stratum)
    if rounds == 0:
        assert math.isinf(found.cost)
        assert math.isinf(found.certified_gap)
    else:
        assert found.cost > wanted
        assert found.certified_gap >= 1 - wanted / found.cost > 1e-9


def test_a_solver_failure_is_reported_without_a_p_value(monkeypatch):
    rng = np.random.default_rng(7)
    groups = {"sex": rng.integers(0, 2, 400), "race": rng.integers(0, 2, 400)}
    rows = rng.integers(0, 2, 400), rng.exponential(size=400), groups
    failed = OptimizeResult(status=4)
    monkeypatch.setattr("offline_audit.projection.overlapping.linprog", lambda **_: failed)
    found = projected(*rows)
    assert found.p_value is None
    assert "the solver failed" in found.reason


def test_overlapping_attributes_without_finite_distances_have_cost_0_or_no_fair_change():
    groups = {"sex": np.repeat([0, 1], 100), "race": np.tile([0, 1], 100)}
    never = np.full(200, math.inf)
    fair = projected(np.tile([0, 0, 1, 1], 50), never, groups)
    assert (fair.statistic, fair.p_value) == (0.0, 1.0)
    unfair = projected(np.repeat([0, 1, 0, 1], [70, 30, 30, 70]), never, groups)
    assert "too few rows have a finite distance" in unfair.reason
