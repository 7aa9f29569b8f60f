"""Sliced steps transport people onto shapes that no affine map reaches, and keep every kind."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from monitor import Feature
from offline_audit import AuditInputError, Columns
from offline_audit.maps.gaussian import GaussianMethod
from offline_audit.maps.sliced import SlicedMethod, SlicedStep
from tests.offline_audit.maps.two_groups import (
    MIXED,
    Groups,
    assert_kinds_are_kept,
    assert_no_batch_matters,
    gaussians,
    mixed,
    mixed_people,
)

GAUSSIANS = gaussians(4_000)


def furthest_apart(one, other):
    """The largest two-sample KS over features and over sums and differences of two."""
    pairs = [one, other]
    for first in range(3):
        for second in range(first):
            pairs = [
                np.column_stack([x, x[:, first] + x[:, second], x[:, first] - x[:, second]])
                for x in pairs
            ]
    return max(stats.ks_2samp(a, b).statistic for a, b in zip(*(x.T for x in pairs), strict=True))


def test_unseen_people_arrive_with_the_targets_distribution():
    g = GAUSSIANS
    moved = SlicedMethod().fit(g.source, g.target, g.columns).transport(g.unseen)[0]
    # 4,000 of each: 1.63 is the two-sample bound at 1%, and the fit's own error adds as much.
    scale = np.array([1.0, 100.0, 0.01])
    assert furthest_apart(moved / scale, g.there / scale) < 2 * 1.63 / 44.7
    found, wanted = (np.corrcoef(x, rowvar=False) for x in (moved, g.there))
    # Standard error of a correlation from 4,000 is .016, twice.
    np.testing.assert_allclose(found, wanted, atol=4 * 0.016 * np.sqrt(2))


def test_the_gaussian_map_comes_first():
    """A single step, along features, leaves correlations as they are."""
    g = GAUSSIANS
    moved = SlicedMethod(steps=1).fit(g.source, g.target, g.columns).transport(g.unseen)[0]
    found, wanted = (np.corrcoef(x, rowvar=False) for x in (moved, g.there))
    np.testing.assert_allclose(found, wanted, atol=4 * 0.016 * np.sqrt(2))


def clusters(n, seed):
    """A Gaussian cloud, and three clusters of unequal weight that are not on a line."""
    rng = np.random.default_rng(seed)
    centres = np.array([[4.0, 0, 0], [-2, 3, 0], [-2, -3, 3]])
    chosen = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    return (
        rng.normal(size=(n, 3)).astype(np.float32),
        (centres[chosen] + 0.5 * rng.normal(size=(n, 3))).astype(np.float32),
        centres,
    )


def test_clusters_are_reached_that_an_affine_map_misses():
    source, target, centres = clusters(6_000, 1)
    unseen, there, _ = clusters(6_000, 2)
    columns = Columns.numeric(["a", "b", "c"])

    def shares_in_clusters(method):
        moved = method.fit(source, target, columns).transport(unseen)[0]
        distances = np.linalg.norm(moved[:, None] - centres, axis=2)
        # 3.4 of .5 hold nearly all of a cluster in three dimensions.
        shares = [(distances[:, k] < 1.7).mean() for k in range(3)]
        return np.array(shares), furthest_apart(moved, there)

    shares, apart = shares_in_clusters(SlicedMethod(steps=40))
    assert shares.sum() > 0.9
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.05)
    blunt, blunt_apart = shares_in_clusters(GaussianMethod())
    assert blunt.sum() < 0.6
    assert apart < 0.25 * blunt_apart


def test_marginals_of_all_kinds_are_met():
    g = mixed(20_000, unseen=20_000)
    moved = SlicedMethod().fit(g.source, g.target, g.columns).transport(g.unseen)[0]
    for column in range(len(MIXED)):
        # 20,000 of each: 1.63 is the two-sample bound at 1%, and the fit's own error adds as much.
        assert stats.ks_2samp(moved[:, column], g.there[:, column]).statistic < 2 * 1.63 / 100
    found, wanted = (np.asarray(np.corrcoef(x[:, :3].T)) for x in (moved, g.there))
    # Income goes with children and with owning a home in the target only.
    assert wanted[0, 1] > 0.3
    np.testing.assert_allclose(found, wanted, atol=0.1)


def test_people_who_are_alike_go_to_all_that_others_have():
    """Counts alone: those of 0 are 24% of the source and 50% of the target, and so on."""
    rng = np.random.default_rng(8)
    source, target = (
        (rng.geometric(chance, (20_000, 1)) - 1).astype(np.float32) for chance in (0.25, 0.5)
    )
    columns = Columns(features=(Feature(name="arrests", kind="integer"),))
    moved = SlicedMethod().fit(source, target, columns).transport(source, 64)
    # The same people, so only a step of the draws and the grid are between them.
    assert stats.ks_2samp(moved.ravel(), target.ravel()).statistic < 1 / 64 + 1 / 257
    assert np.isin(moved[:, source[:, 0] == 2], [0, 1]).all()


def test_a_step_along_features_gives_the_sample_the_targets_quantiles():
    rng = np.random.default_rng(3)
    moved, target = rng.normal(size=(2_000, 2)), rng.gamma(1, size=(3_000, 2))
    found = SlicedStep.between(moved, target, np.eye(2)).transport(moved)
    ranks = np.linspace(0, 1, 257)
    wanted = np.quantile(target, ranks, axis=0)
    # Between ranks the map is straight.
    np.testing.assert_allclose(np.quantile(found, ranks, axis=0), wanted, atol=0.05)
    assert (np.argsort(found[:, 0]) == np.argsort(moved[:, 0])).all()


def test_who_is_outside_of_what_was_seen_stays_as_far_outside():
    rng = np.random.default_rng(4)
    moved, target = rng.random((500, 1)), 10 + rng.random((500, 1))
    step = SlicedStep.between(moved, target, np.eye(1))
    outside = np.array([[-3.0], [5.0]])
    wanted = [target.min() - (moved.min() + 3), target.max() + (5 - moved.max())]
    np.testing.assert_allclose(step.transport(outside)[:, 0], wanted)


def test_the_seed_draws_the_directions():
    g = GAUSSIANS
    first, again, other = (
        SlicedMethod(steps=3).fit(g.source, g.target, g.columns, seed=seed).transport(g.unseen)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("groups", [GAUSSIANS, mixed(500)], ids=["numeric", "mixed"])
def test_no_batch_matters(groups):
    fitted = SlicedMethod().fit(groups.source, groups.target, groups.columns)
    assert_no_batch_matters(fitted, groups.unseen)
    assert len(fitted.transport(groups.unseen, 4)) == (4 if groups.columns is MIXED else 1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(2, 40))
def test_every_kind_is_kept(seed, here, there):
    rng = np.random.default_rng(seed)
    source, target = mixed_people(here, 0, rng), mixed_people(there, 1, rng)
    groups = Groups(source, target, mixed_people(30, 0, rng), target, MIXED)
    fitted = SlicedMethod(steps=4).fit(source, target, MIXED, seed=seed)
    assert_kinds_are_kept(fitted.transport(groups.unseen, 2), groups)


def test_constant_features_and_groups_that_are_the_same_do_no_harm():
    rng = np.random.default_rng(5)
    columns = Columns.numeric(["a", "b"])
    source = np.column_stack([rng.normal(size=100), np.full(100, 3.0)]).astype(np.float32)
    target = rng.normal(size=(100, 2)).astype(np.float32)
    assert np.isfinite(SlicedMethod().fit(source, target, columns).transport(source)).all()
    back = SlicedMethod().fit(target, source, columns).transport(target)[0]
    np.testing.assert_allclose(back[:, 1], 3.0, rtol=1e-5)
    same = SlicedMethod().fit(target, target, columns).transport(target)[0]
    np.testing.assert_allclose(same, target, atol=1e-5)
    still = np.full((5, 2), 2.0, np.float32)
    np.testing.assert_allclose(SlicedMethod().fit(still, still, columns).transport(still)[0], still)


def test_ten_thousand_people_of_ten_features_take_no_time():
    rng = np.random.default_rng(6)
    source, target = rng.normal(size=(2, 10_000, 10)).astype(np.float32)
    columns = Columns.numeric([f"f{k}" for k in range(10)])
    took = []
    for _ in range(3):
        started = time.process_time()
        SlicedMethod().fit(source, target**3, columns)
        took.append(time.process_time() - started)
    # A fifth of a second where this was written.
    assert min(took) < 2.0


def test_what_cannot_be_is_refused_in_words():
    with pytest.raises(AuditInputError, match="steps"):
        SlicedMethod(steps=0)
