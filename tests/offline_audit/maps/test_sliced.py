"""The sliced map reaches distributions that no affine map reaches."""

from __future__ import annotations

import numpy as np
from scipy import stats

from monitor import Feature
from offline_audit import Columns
from offline_audit.maps.gaussian import GaussianMethod
from offline_audit.maps.sliced import SlicedMethod, SlicedStep
from tests.offline_audit.maps.two_groups import (
    MIXED,
    gaussians,
    mixed,
)

GAUSSIANS = gaussians(4_000)


def largest_ks_statistic(one, other):
    """The largest two-sample KS over features and over sums and differences of two."""
    pairs = [one, other]
    for first in range(3):
        for second in range(first):
            pairs = [
                np.column_stack([x, x[:, first] + x[:, second], x[:, first] - x[:, second]])
                for x in pairs
            ]
    return max(stats.ks_2samp(a, b).statistic for a, b in zip(*(x.T for x in pairs), strict=True))


def test_unseen_rows_get_the_targets_distribution():
    g = GAUSSIANS
    moved = SlicedMethod().fit(g.source, g.target, g.columns).transport(g.unseen)[0]
    # 4,000 per group: 1.63 is the two-sample bound at 1%; the error of the fit is as large.
    scale = np.array([1.0, 100.0, 0.01])
    assert largest_ks_statistic(moved / scale, g.unseen_target / scale) < 2 * 1.63 / 44.7
    actual, expected = (np.corrcoef(x, rowvar=False) for x in (moved, g.unseen_target))
    # The standard error of a correlation of 4,000 rows is .016, in both samples.
    np.testing.assert_allclose(actual, expected, atol=4 * 0.016 * np.sqrt(2))


def test_the_gaussian_map_is_applied_first():
    """A single step along the features would not change correlations."""
    g = GAUSSIANS
    moved = SlicedMethod(steps=1).fit(g.source, g.target, g.columns).transport(g.unseen)[0]
    actual, expected = (np.corrcoef(x, rowvar=False) for x in (moved, g.unseen_target))
    np.testing.assert_allclose(actual, expected, atol=4 * 0.016 * np.sqrt(2))


def clusters(n, seed):
    """A Gaussian cloud, and three clusters of unequal weight that are not on a line."""
    rng = np.random.default_rng(seed)
    centres = np.array([[4.0, 0, 0], [-2, 3, 0], [-2, -3, 3]])
    cluster = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    return (
        rng.normal(size=(n, 3)).astype(np.float32),
        (centres[cluster] + 0.5 * rng.normal(size=(n, 3))).astype(np.float32),
        centres,
    )


def test_it_reaches_clusters_that_an_affine_map_misses():
    source, target, centres = clusters(6_000, 1)
    unseen, unseen_target, _ = clusters(6_000, 2)
    columns = Columns.numeric(["a", "b", "c"])

    def shares_in_clusters(method):
        moved = method.fit(source, target, columns).transport(unseen)[0]
        distances = np.linalg.norm(moved[:, None] - centres, axis=2)
        # 3.4 standard deviations (.5) contain nearly all of a cluster in three dimensions.
        shares = [(distances[:, k] < 1.7).mean() for k in range(3)]
        return np.array(shares), largest_ks_statistic(moved, unseen_target)

    shares, ks = shares_in_clusters(SlicedMethod(steps=40))
    assert shares.sum() > 0.9
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.05)
    affine_shares, affine_ks = shares_in_clusters(GaussianMethod())
    assert affine_shares.sum() < 0.6
    assert ks < 0.25 * affine_ks


def test_marginals_of_all_kinds_are_matched():
    g = mixed(20_000, unseen=20_000)
    moved = SlicedMethod().fit(g.source, g.target, g.columns).transport(g.unseen)[0]
    for column in range(len(MIXED)):
        # 20,000 per group: 1.63 is the two-sample bound at 1%; the error of the fit is as large.
        assert (
            stats.ks_2samp(moved[:, column], g.unseen_target[:, column]).statistic < 2 * 1.63 / 100
        )
    actual, expected = (np.asarray(np.corrcoef(x[:, :3].T)) for x in (moved, g.unseen_target))
    # Income is correlated with children and with owning a home in the target only.
    assert expected[0, 1] > 0.3
    np.testing.assert_allclose(actual, expected, atol=0.1)


def test_duplicates_are_transported_to_the_targets_distribution():
    """One count with many ties: 0 is 24% of the source and 50% of the target."""
    rng = np.random.default_rng(8)
    source, target = (
        (rng.geometric(probability, (20_000, 1)) - 1).astype(np.float32)
        for probability in (0.25, 0.5)
    )
    columns = Columns(features=(Feature(name="arrests", kind="integer"),))
    moved = SlicedMethod().fit(source, target, columns).transport(source, 64)
    # The same rows: only the spacing of the draws and the grid add error.
    assert stats.ks_2samp(moved.ravel(), target.ravel()).statistic < 1 / 64 + 1 / 257
    assert np.isin(moved[:, source[:, 0] == 2], [0, 1]).all()


def test_a_step_along_features_gives_the_sample_the_targets_quantiles():
    rng = np.random.default_rng(3)
    moved, target = rng.normal(size=(2_000, 2)), rng.gamma(1, size=(3_000, 2))
    actual = SlicedStep.between(moved, target, np.eye(2)).transport(moved)
    ranks = np.linspace(0, 1, 257)
    expected = np.quantile(target, ranks, axis=0)
    # Between ranks the map is linear.
    np.testing.assert_allclose(np.quantile(actual, ranks, axis=0), expected, atol=0.05)
    assert (np.argsort(actual[:, 0]) == np.argsort(moved[:, 0])).all()


def test_values_outside_the_fitted_range_keep_their_distance():
    rng = np.random.default_rng(4)
    moved, target = rng.random((500, 1)), 10 + rng.random((500, 1))
    step = SlicedStep.between(moved, target, np.eye(1))
    outside = np.array([[-3.0], [5.0]])
    expected = [target.min() - (moved.min() + 3), target.max() + (5 - moved.max())]
    np.testing.assert_allclose(step.transport(outside)[:, 0], expected)


def test_the_seed_determines_the_directions():
    g = GAUSSIANS
    first, repeated, other = (
        SlicedMethod(steps=3).fit(g.source, g.target, g.columns, seed=seed).transport(g.unseen)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, repeated)
    assert not np.array_equal(first, other)
