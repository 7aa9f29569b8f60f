"""The Gaussian map matches means and covariances at the lowest cost."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import sqrtm

from offline_audit import Columns
from offline_audit.maps.gaussian import GaussianMethod, bures
from tests.offline_audit.maps.two_groups import (
    gaussians,
)

GAUSSIANS = gaussians(4_000)


def test_unseen_rows_get_the_targets_distribution():
    g = GAUSSIANS
    moved = GaussianMethod().fit(g.source, g.target, g.columns).transport(g.unseen)[0]
    for column in range(3):
        # 4,000 per group: 1.63 is the two-sample bound at 1%; the error of the fit is as large.
        assert (
            stats.ks_2samp(moved[:, column], g.unseen_target[:, column]).statistic < 2 * 1.63 / 44.7
        )
    # The standard error of a correlation of 4,000 rows is .016, in both samples.
    actual, expected = (np.corrcoef(x, rowvar=False) for x in (moved, g.unseen_target))
    np.testing.assert_allclose(actual, expected, atol=4 * 0.016 * np.sqrt(2))


def test_moments_of_the_sample_are_matched_exactly():
    rng = np.random.default_rng(1)
    source, target = rng.normal(size=(50, 4)), rng.gamma(2, size=(70, 4)) @ rng.normal(size=(4, 4))
    moved = bures(source, target).transport(source)
    np.testing.assert_allclose(moved.mean(0), target.mean(0), atol=1e-10)
    np.testing.assert_allclose(np.cov(moved.T), np.cov(target.T), atol=1e-9)


def test_the_matrix_has_the_lowest_cost():
    """Any other linear map onto the same covariance differs by a rotation and costs more."""
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(2, 300, 3)) @ rng.normal(size=(3, 3))
    target = target @ rng.normal(size=(3, 3))
    affine = bures(source, target)
    s, t = np.cov(source.T), np.cov(target.T)
    np.testing.assert_allclose(affine.matrix, affine.matrix.T, atol=1e-10)
    cost = np.trace(s + t - 2 * np.real(sqrtm(sqrtm(s) @ t @ sqrtm(s))))
    moved = affine.transport(source) - affine.target + affine.source
    # With n − 1, as in the covariances.
    assert ((moved - source) ** 2).sum() / 299 == pytest.approx(cost)


def test_nearly_collinear_features_keep_their_small_difference():
    rng = np.random.default_rng(3)
    common, noise = rng.normal(size=(2, 2_000)), 0.004 * rng.normal(size=(2, 2_000))
    source = np.column_stack([common[0], common[0] + noise[0]])
    target = np.column_stack([common[1], common[1] + 2 * noise[1]])
    moved = bures(source, target).transport(source)
    actual = (moved[:, 1] - moved[:, 0]).std()
    assert actual == pytest.approx((target[:, 1] - target[:, 0]).std(), rel=1e-6)


def test_a_constant_feature_moves_to_the_targets_mean():
    rng = np.random.default_rng(4)
    source = np.column_stack([rng.normal(size=100), np.full(100, 3.0)]).astype(np.float32)
    target = rng.normal(size=(100, 2)).astype(np.float32)
    columns = Columns.numeric(["a", "b"])
    forward = GaussianMethod().fit(source, target, columns).transport(source)[0]
    np.testing.assert_allclose(forward[:, 1], target[:, 1].mean(), rtol=1e-5)
    backward = GaussianMethod().fit(target, source, columns).transport(target)[0]
    np.testing.assert_allclose(backward[:, 1], 3.0, rtol=1e-5)


def test_equal_groups_are_not_moved():
    g = GAUSSIANS
    moved = GaussianMethod().fit(g.source, g.source, g.columns).transport(g.source)[0]
    np.testing.assert_allclose(moved, g.source, rtol=1e-4, atol=1e-4)
