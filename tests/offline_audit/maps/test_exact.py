"""Exact transport has the lowest cost, and its counterparts are rows of the target."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats

from offline_audit import AuditInputError, Columns
from offline_audit.maps import exact
from offline_audit.maps.columns import Scaling
from offline_audit.maps.exact import ExactMethod, Plan, distinct_rows, optimal_plan
from offline_audit.maps.transport_map import COSTS, cost_of
from tests.offline_audit.maps.two_groups import (
    gaussians,
)
from tests.oracle.assignment import cheapest_assignment, cheapest_plan

SMALL = gaussians(150, unseen=2_000)


def mean_cost(cost, groups, people, transported):
    scaling = Scaling.of(groups.source, groups.target, groups.columns)
    return cost.matched(scaling.scaled(people), scaling.scaled(transported)).mean()


@pytest.mark.parametrize(
    "cost", [*COSTS.values(), cost_of(lambda a, b: COSTS["l2"].pairwise(a, b) ** 3)]
)
def test_the_plan_has_the_cost_of_the_cheapest_assignment(cost):
    g = SMALL
    fitted = ExactMethod(cost=cost).fit(g.source, g.target, g.columns)
    assert not fitted.splits
    transported = fitted.transport(g.source)[0]
    # Each target row exactly once.
    assert np.array_equal(np.unique(transported, axis=0), np.unique(g.target, axis=0))
    scaling = Scaling.of(g.source, g.target, g.columns)
    pairwise = cost.pairwise(scaling.scaled(g.source), scaling.scaled(g.target))
    expected = cheapest_assignment(pairwise)
    assert mean_cost(cost, g, g.source, transported) == pytest.approx(expected, rel=1e-6)


def test_plans_between_groups_of_unequal_size_have_the_lowest_cost():
    rng = np.random.default_rng(1)
    costs = rng.random((12, 7))
    source_counts, target_counts = rng.integers(1, 5, 12), rng.integers(1, 5, 7)
    masses = optimal_plan(costs, source_counts, target_counts)
    shares = masses / masses.sum()
    np.testing.assert_allclose(shares.sum(1), source_counts / source_counts.sum())
    np.testing.assert_allclose(shares.sum(0), target_counts / target_counts.sum())
    expected = cheapest_plan(
        costs, source_counts / source_counts.sum(), target_counts / target_counts.sum()
    )
    assert (shares * costs).sum() == pytest.approx(expected)


def test_draws_of_a_split_row_follow_the_shares_of_the_plan():
    plan = Plan.of(np.array([[0.2, 0.0, 0.6], [0.0, 0.5, 0.0], [0.3, 0.3, 0.3]]))
    assert plan.splits
    uniforms = (np.arange(600) + 0.5) / 600
    for row, expected in enumerate(np.array([[0.25, 0, 0.75], [0, 1, 0], [1 / 3] * 3])):
        targets = plan.drawn(np.full(600, row), uniforms)
        np.testing.assert_allclose(np.bincount(targets, minlength=3) / 600, expected, atol=1 / 600)
    assert plan.drawn(np.array([0, 1, 2]), np.full(3, np.nextafter(1, 0))).tolist() == [2, 1, 2]
    assert not Plan.of(np.eye(3)).splits


def test_duplicates_share_their_counterparts():
    """Whole numbers, 0 to 3 against 1 to 4: every row moves by one."""
    source = np.repeat(np.arange(4, dtype=np.float32), 50)[:, None]
    columns = Columns.numeric(["a"])
    moved = ExactMethod().fit(source, source + 1, columns).transport(source)[0]
    assert np.array_equal(moved, source + 1)
    split = np.repeat(np.array([[0.0], [1.0]], np.float32), 100, axis=0)
    fitted = ExactMethod().fit(np.zeros((60, 1), np.float32), split, columns)
    assert fitted.splits
    assert fitted.transport(np.zeros((1, 1), np.float32), 8).mean() == 0.5


def test_counterparts_of_unseen_rows_are_rows_of_the_target():
    g = gaussians(1_500)
    transported = ExactMethod().fit(g.source, g.target, g.columns).transport(g.unseen)[0]
    observed = {row.tobytes() for row in g.target}
    assert {row.tobytes() for row in transported} <= observed
    for column in range(3):
        # 1,500 fitted: 1.63 is the two-sample bound at 1%; nearest neighbours add as much error.
        assert (
            stats.ks_2samp(transported[:, column], g.unseen_target[:, column]).statistic
            < 2 * 1.63 / 33
        )
    actual, expected = (np.corrcoef(x, rowvar=False) for x in (transported, g.unseen_target))
    # The standard error of a correlation of 1,500 rows is .026.
    np.testing.assert_allclose(actual, expected, atol=4 * 0.026)


def test_the_seed_determines_the_sample_only():
    g = gaussians(400)
    sampled = ExactMethod(rows=50)
    first, repeated, other = (
        sampled.fit(g.source, g.target, g.columns, seed=seed).transport(g.unseen)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, repeated)
    assert not np.array_equal(first, other)
    assert len(np.unique(first[0], axis=0)) <= 50
    one, two = (
        ExactMethod().fit(g.source, g.target, g.columns, seed=seed).transport(g.unseen)
        for seed in (1, 2)
    )
    assert np.array_equal(one, two)
    rows, counts = distinct_rows(g.source, 50, np.random.default_rng(0))
    assert rows.shape == (50, 3)
    assert counts.sum() == 50


def test_a_solver_that_does_not_converge_and_a_missing_package_are_errors(monkeypatch):
    monkeypatch.setattr(exact, "_MOST_PIVOTS", 3)
    with pytest.raises(AuditInputError, match="reduce rows"):
        ExactMethod().fit(SMALL.source, SMALL.target, SMALL.columns)
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(AuditInputError, match=r"pip install 'evenhand\[audit\]'"):
        ExactMethod().fit(SMALL.source, SMALL.target, SMALL.columns)
