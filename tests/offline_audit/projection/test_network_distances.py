"""Distances of networks: exact for linear ones, refined by a search for curved boundaries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from offline_audit import (
    linear_distances,
    network_distances,
)
from tests.offline_audit.projection.projected import projected


def changes_of(result, rows):
    return result.changes(rows)


def refined_by(result, rows):
    return result.refine(rows)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
W, B = np.array([1.0, -0.5, 0.25]), 0.2
ALL = np.arange(len(X))


def test_a_linear_networks_distances_are_exact_before_and_after_the_search():
    expected = linear_distances(X, W, B)

    def logit(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.tensor(W, dtype=torch.float32) + B + math.log(0.3 / 0.7)

    result = network_distances(logit, X, threshold=0.3)
    np.testing.assert_allclose(result.distances, expected.distances, atol=1e-5)
    refined = refined_by(result, ALL)
    assert refined.converged.all()
    np.testing.assert_allclose(refined.distances, expected.distances, atol=1e-5)
    np.testing.assert_allclose(refined.changes, changes_of(expected, ALL), atol=1e-4)


def circle(x: torch.Tensor) -> torch.Tensor:
    """Decision 1 inside the unit circle."""
    return 1 - (x[:, :2] ** 2).sum(dim=1)


def test_the_search_finds_a_curved_boundary_that_first_order_distances_miss():
    result = network_distances(circle, X)
    radius = np.linalg.norm(X[:, :2], axis=1)
    far = np.flatnonzero(radius > 0.2)
    expected = np.abs(radius - 1)[far]
    assert np.max(np.abs(result.distances[far] / expected - 1)) > 0.3
    refined = refined_by(result, far)
    assert refined.converged.all()
    np.testing.assert_allclose(refined.distances, expected, rtol=2e-3, atol=1e-5)
    ended = torch.tensor(X[far] + 1.001 * refined.changes, dtype=torch.float32)
    assert ((circle(ended) >= 0).numpy() != (radius[far] <= 1)).all()


def saturated(x: torch.Tensor) -> torch.Tensor:
    """Decision 1 right of a parabola; far from it the logit is flat and whole steps overshoot."""
    return torch.atan(6 * (x[:, 0] - 0.5 * x[:, 1] ** 2))


def test_steps_that_overshoot_are_shortened():
    rows = X[:, :2]
    refined = refined_by(network_distances(saturated, rows), ALL)
    curve = np.linspace(-4, 4, 20_001)
    points = np.column_stack([0.5 * curve**2, curve])
    expected = np.array([np.linalg.norm(points - row, axis=1).min() for row in rows])
    # The search fails in a few rows far out on the flat part, and these count as not converged.
    assert refined.converged.mean() > 0.97
    reached = (refined.distances / expected)[refined.converged]
    assert np.quantile(reached, 0.99) < 1.01
    assert reached.min() > 0.999


def test_distances_of_changed_decisions_are_refined_with_a_warning():
    # Own generator: the groups must not depend on which tests ran before.
    groups = np.where(np.random.default_rng(1).random(len(X)) < 0.5, "a", "b")
    decisions = (circle(torch.tensor(X)) >= 0).numpy() & ~((groups == "a") & (X[:, 2] > 0.5))
    first = network_distances(circle, X)
    # All figures are shown: the test is about refinement, not about withheld small counts.
    result = projected(decisions, first, groups, smallest_cell=1)
    exact = np.abs(np.linalg.norm(X[:, :2], axis=1) - 1)
    expected = projected(decisions, exact, groups, smallest_cell=1)
    assert any("refined by a search" in warning for warning in result.warnings)
    assert result.statistic == pytest.approx(expected.statistic, rel=0.15)
    assert len(result.explanation.features) > 0


def test_a_row_with_a_zero_gradient_never_changes():
    result = network_distances(lambda x: 0 * x[:, 0] + 1.0, X)
    assert np.isinf(result.distances).all()
    assert not refined_by(result, ALL[:5]).converged.any()
