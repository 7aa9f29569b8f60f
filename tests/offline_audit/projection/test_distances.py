"""Distances are those to the boundary, for each kind of classifier."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from offline_audit import (
    AuditInputError,
    discrete_distances,
    kernel_distances,
    linear_distances,
    network_distances,
)
from tests.offline_audit.projection.projected import projected


def changes_of(result, rows):
    return result.changes(rows)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
W, B = np.array([1.0, -0.5, 0.25]), 0.2
ALL = np.arange(len(X))


def test_feature_changes_of_a_linear_classifier_reach_the_boundary():
    result = linear_distances(X, W, B, feature_names=["a", "b", "c"])
    changes = changes_of(result, ALL)
    np.testing.assert_allclose((X + changes) @ W + B, 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(changes, axis=1), result.distances)


def test_the_cost_with_discrete_features_is_that_of_exhaustive_search():
    levels = RNG.integers(0, 3, (300, 2)).astype(float)
    x = np.hstack([X[:, :1], levels])
    w, jump = np.array([0.8, 0.6, -0.9]), 0.5
    result = discrete_distances(x, w, B, discrete=[1, 2], jump=jump)
    score = x @ w + B
    combinations = np.unique(levels, axis=0)
    for row in range(60):
        costs = [abs(score[row]) / 0.8]
        for combination in combinations:
            after = score[row] + (combination - levels[row]) @ w[1:]
            changed = (after >= 0) != (score[row] >= 0)
            costs.append(jump + (0.0 if changed else abs(after) / 0.8))
        assert result.distances[row] == pytest.approx(min(costs))
    ended = (x + 1.000001 * changes_of(result, ALL)) @ w + B
    reached = ((ended >= 0) != (score >= 0)) | (np.abs(ended) < 1e-5)
    assert reached.all()


def test_allowed_combinations_are_in_the_order_of_the_columns():
    one = discrete_distances(X, W, B, discrete=[1, 2], jump=0.1, allowed=[[0, 5], [3, -4]])
    other = discrete_distances(X, W, B, discrete=[2, 1], jump=0.1, allowed=[[5, 0], [-4, 3]])
    np.testing.assert_array_equal(one.distances, other.distances)
    np.testing.assert_array_equal(changes_of(one, ALL), changes_of(other, ALL))


def test_without_a_continuous_weight_decisions_change_by_a_jump_or_never():
    x = np.array([[0.3, 0.0], [0.1, 1.0], [0.2, 0.0]])
    result = discrete_distances(x, [0.0, 1.0], -0.5, discrete=[1], jump=2.0)
    assert result.distances.tolist() == [2.0, 2.0, 2.0]
    never_changing = discrete_distances(x, [0.0, 0.1], -0.5, discrete=[1], jump=2.0)
    assert np.isinf(never_changing.distances).all()


def test_the_distance_of_a_support_vector_machine_is_the_square_root_of_the_papers():
    labels = X[:, 0] ** 2 + X[:, 1] > 0.5
    svm = SVC(gamma=0.3).fit(X, labels)
    result = kernel_distances(
        X, svm.support_vectors_, svm.dual_coef_, float(svm.intercept_[0]), gamma=0.3
    )
    s = svm.support_vectors_
    gram = np.exp(-0.3 * ((s[:, None] - s[None]) ** 2).sum(axis=2))
    squared = svm.decision_function(X) ** 2 / (svm.dual_coef_[0] @ gram @ svm.dual_coef_[0])
    np.testing.assert_allclose(result.distances**2, squared, rtol=1e-9)
    linear = kernel_distances(X, np.eye(3), W, B, kernel=lambda a, b: a @ b.T)
    np.testing.assert_allclose(linear.distances, linear_distances(X, W, B).distances)


def circle(x: torch.Tensor) -> torch.Tensor:
    """Decision 1 inside the unit circle."""
    return 1 - (x[:, :2] ** 2).sum(dim=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear_distances(X, W[:2], B), "weights: 2 weights for 3 features"),
        (lambda: linear_distances(X, 0 * W, B), "weights: all values are 0"),
        (lambda: linear_distances(X[:, 0], W, B), "features: must be a non-empty array"),
        (lambda: linear_distances(np.where(X > 2, np.nan, X), W, B), "column . has values that"),
        (lambda: linear_distances(X, ["x", "y", "z"], B), "weights: not all values are numbers"),
        (lambda: linear_distances(X, [1.0, np.nan, 0.0], B), "weights: not all values are finite"),
        (lambda: linear_distances(X, W, cast("float", "x")), "intercept: not all values"),
        (lambda: linear_distances(X, W, math.nan), "intercept: must be one finite number"),
        (lambda: discrete_distances(X, W, B, discrete=[5], jump=1.0), "must be from 0 to 2"),
        (lambda: discrete_distances(X, W, B, discrete=[-1], jump=1.0), "must be from 0 to 2"),
        (lambda: discrete_distances(X, W, B, discrete=[1, 1], jump=1.0), "occurs twice"),
        (lambda: discrete_distances(X, W, B, discrete=[], jump=1.0), "discrete: at least one"),
        (
            lambda: discrete_distances(X, W, B, discrete=[0], jump=1.0, allowed=[[0, 1]]),
            "allowed: 2 columns for 1 discrete features",
        ),
        (lambda: kernel_distances(X, X[:1], ["x"], 0.0, gamma=1.0), "dual_coefs: not all values"),
        (
            lambda: discrete_distances(X, W, B, discrete=[0], jump=0.0),
            "jump: must be positive, not 0",
        ),
        (lambda: kernel_distances(X, X[:4], np.ones(3), 0.0, gamma=1.0), "support_vectors: shape"),
        (lambda: kernel_distances(X, X[:4], np.ones(4), 0.0), "gamma: the default kernel"),
        (
            lambda: network_distances(circle, X, threshold=1.0),
            "threshold: must be between 0 and 1, not 1",
        ),
    ],
)
def test_invalid_classifier_parameters_are_rejected(call, message):
    with pytest.raises(AuditInputError, match=message):
        call()


def boundaries():
    """Distances of the same linear classifier, by each function."""
    w = torch.tensor(W, dtype=torch.float32)
    return {
        "linear": linear_distances(X, W, B),
        "discrete": discrete_distances(X, W, B, discrete=[2], jump=5.0),
        "kernel": kernel_distances(X, np.eye(3), W, B, kernel=lambda a, b: a @ b.T),
        "network": network_distances(lambda x: x @ w + B, X),
    }


@pytest.mark.parametrize("kind", ["linear", "discrete", "kernel", "network"])
def test_decisions_that_differ_from_the_classifier_are_counted_or_rejected(kind):
    boundary = boundaries()[kind]
    decisions = (X @ W + B >= 0).astype(int)
    groups = np.where(RNG.random(len(X)) < 0.5, "a", "b")
    same = projected(decisions, boundary, groups)
    assert not any("from the classifier's" in warning for warning in same.warnings)
    some = decisions.copy()
    some[np.argsort(-np.abs(X @ W + B))[:7]] ^= 1
    result = projected(some, boundary, groups)
    assert any("7 decisions differ from the classifier's" in warning for warning in result.warnings)
    with pytest.raises(AuditInputError, match="300 of 300 differ from those of the classifier"):
        projected(1 - decisions, boundary, groups)


def test_on_the_boundary_either_decision_is_accepted():
    x = np.where(np.arange(300)[:, None] < 30, 0.0, X)
    decisions = (x @ W >= 0).astype(int)
    decisions[:30] = np.arange(30) % 2
    groups = np.arange(300) % 2
    assert not any(
        "classifier's" in warning
        for warning in projected(decisions, linear_distances(x, W, 0.0), groups).warnings
    )


def test_a_frame_is_ordered_by_the_names_of_the_features():
    pd: Any = pytest.importorskip("pandas")
    names = ["a", "b", "c"]
    frame = pd.DataFrame(X, columns=names)
    net = torch.nn.Linear(3, 1)
    expected = linear_distances(X, W, B, feature_names=names)
    by_net = network_distances(net, X, feature_names=names)
    for table in (frame, frame[["c", "a", "b"]]):
        result = linear_distances(table, W, B, feature_names=names)
        np.testing.assert_array_equal(result.distances, expected.distances)
        other = network_distances(net, table, feature_names=names)
        np.testing.assert_array_equal(other.distances, by_net.distances)
    # Without names, the frame's order is that of the weights, and it names the features.
    assert linear_distances(frame, W, B).feature_names == ("a", "b", "c")
    with pytest.raises(AuditInputError, match="no column c; the model has no feature sex"):
        linear_distances(frame.rename(columns={"c": "sex"}), W, B, feature_names=names)
