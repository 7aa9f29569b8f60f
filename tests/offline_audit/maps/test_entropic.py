"""Entropic transport agrees with POT and converges to the exact plan."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy import stats

from offline_audit import AuditInputError, Columns
from offline_audit.maps import entropic
from offline_audit.maps.columns import Scaling
from offline_audit.maps.entropic import EntropicMethod, conditional, target_potentials
from offline_audit.maps.transport_map import COSTS, cost_of
from tests.offline_audit.maps.two_groups import (
    MIXED,
    gaussians,
    mixed,
)
from tests.oracle.assignment import cheapest_assignment

SMALL = gaussians(120, unseen=2_000)


def pairwise(groups, cost=COSTS["squared_l2"]):
    scaling = Scaling.of(groups.source, groups.target, groups.columns)
    return cost.pairwise(scaling.scaled(groups.source), scaling.scaled(groups.target))


def plan_of(costs, epsilon, source_weights=None):
    source_weights = (
        np.full(len(costs), 1 / len(costs)) if source_weights is None else source_weights
    )
    target_weights = np.full(costs.shape[1], 1 / costs.shape[1])
    potentials = target_potentials(costs, source_weights, target_weights, epsilon)
    return source_weights[:, None] * conditional(costs, potentials, epsilon)


@pytest.mark.parametrize("epsilon", [2.0, 0.3, 0.05])
def test_the_plan_agrees_with_sinkhorn_in_the_log_domain(epsilon, monkeypatch):
    monkeypatch.setattr(entropic, "_TOLERANCE", 1e-10)
    costs = pairwise(gaussians(60))[:, :40]
    source_weights = np.random.default_rng(1).dirichlet(np.ones(60))
    expected = ot.sinkhorn(
        source_weights,
        np.full(40, 1 / 40),
        costs,
        epsilon,
        "sinkhorn_log",
        numItermax=100_000,
        stopThr=1e-12,
    )
    np.testing.assert_allclose(plan_of(costs, epsilon, source_weights), expected, atol=1e-8)


def test_the_cost_converges_to_that_of_the_exact_plan():
    costs = pairwise(SMALL)
    lowest_cost = cheapest_assignment(costs)
    excess = [
        float((plan_of(costs, e) * costs).sum()) - lowest_cost for e in (1.0, 0.1, 0.01, 0.003)
    ]
    assert excess == sorted(excess, reverse=True)
    # Far below the mean cost of a pair, 8; slightly negative within the tolerance of the plan.
    assert -0.01 < excess[-1] < 0.01
    assert excess[0] > 0.1


def test_an_outlier_does_not_overflow():
    """The exponential of its cost over epsilon exceeds the range of a float."""
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(2, 40, 2))
    target[0] = 300.0
    costs = COSTS["squared_l2"].pairwise(source, target)
    plan = plan_of(costs, 0.1)
    assert costs.min(0).max() / 0.1 > 1e5
    np.testing.assert_allclose(plan.sum(0), 1 / 40, atol=1e-4)


@pytest.mark.parametrize(
    "cost",
    [
        COSTS["squared_l2"],
        COSTS["squared_l1"],
        cost_of(lambda a, b: COSTS["l2"].pairwise(a, b) ** 3),
    ],
)
def test_counterparts_of_unseen_rows_are_rows_of_the_target(cost):
    g = gaussians(1_000)
    transported = (
        EntropicMethod(cost=cost).fit(g.source, g.target, g.columns).transport(g.unseen)[0]
    )
    assert {row.tobytes() for row in transported} <= {row.tobytes() for row in g.target}
    for column in range(3):
        # 1,000 fitted: 1.63 is the two-sample bound at 1%; the error of the fit is as large.
        assert (
            stats.ks_2samp(transported[:, column], g.unseen_target[:, column]).statistic
            < 2 * 1.63 / 28
        )
    actual, expected = (np.corrcoef(x, rowvar=False) for x in (transported, g.unseen_target))
    # The standard error of a correlation of 1,000 rows is .032, for the fit and for the draws.
    np.testing.assert_allclose(actual, expected, atol=4 * 0.032 * np.sqrt(2))


def test_draws_follow_the_conditional_probabilities():
    g = gaussians(30)
    fitted = EntropicMethod(epsilon=0.2).fit(g.source, g.target, g.columns)
    row = g.unseen[:1]
    counterparts = fitted.transport(row, 2_000)[:, 0]
    scaling = Scaling.of(g.source, g.target, g.columns)
    costs = COSTS["squared_l2"].pairwise(scaling.scaled(row), scaling.scaled(g.target))
    scale = 0.2 * np.median(pairwise(g))
    potentials = target_potentials(pairwise(g), np.full(30, 1 / 30), np.full(30, 1 / 30), scale)
    probabilities = np.exp((potentials - costs[0]) / scale)
    probabilities /= probabilities.sum()
    frequencies = [(counterparts == target_row).all(1).mean() for target_row in g.target]
    # Evenly spaced draws are off by at most one at either end; the map sorts its targets, so
    # its potentials differ within the tolerance of the iteration.
    np.testing.assert_allclose(frequencies, probabilities, atol=2 / 2_000 + 1e-3)


def test_barycentric_maps_are_deterministic_and_vary_less():
    g = gaussians(500)
    stochastic, barycentric_map = (
        EntropicMethod(epsilon=0.1, barycentric=b).fit(g.source, g.target, g.columns)
        for b in (False, True)
    )
    assert stochastic.splits
    assert not barycentric_map.splits
    transported = barycentric_map.transport(g.unseen, 5)
    assert len(transported) == 1
    # Evenly spaced, so that their mean is off by less than 1/√2,000 of a spread of about 1.
    average = stochastic.transport(g.unseen[:20], 2_000).mean(0)
    np.testing.assert_allclose(
        transported[0, :20] / [1, 100, 0.01], average / [1, 100, 0.01], atol=0.02
    )
    assert (transported[0].std(0) < 0.97 * g.target.std(0)).all()
    assert EntropicMethod(barycentric=True).fit(*mixed(50)[:2], MIXED).splits


def test_a_median_cost_of_zero_is_replaced_by_the_mean():
    """Most pairs of rows are identical."""
    rows = np.array([[2.0, 2.0]] * 5 + [[2.0, 3.0]], np.float32)
    moved = EntropicMethod().fit(rows, rows, Columns.numeric(["a", "b"])).transport(rows)[0]
    assert np.array_equal(moved, rows)


def test_an_iteration_that_does_not_converge_is_an_error(monkeypatch):
    monkeypatch.setattr(entropic, "_ROUNDS", 1)
    monkeypatch.setattr(entropic, "_STEPS", 1)
    with pytest.raises(AuditInputError, match="use a larger epsilon"):
        EntropicMethod(epsilon=0.001).fit(SMALL.source, SMALL.target, SMALL.columns)
