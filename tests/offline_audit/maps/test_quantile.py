"""The quantile map: the monitor's map, the names of moved features, draws and refits.

The default map adds the target's dependence between features.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from monitor import Feature, OneHotGroup
from monitor.scoring.counterfactual import fit_transport_maps, row_uniforms
from offline_audit import Columns
from offline_audit.maps.quantile import FAMILY_LEVEL, JointQuantileMethod, QuantileMethod
from offline_audit.maps.transport_map import SparseMethod
from tests.offline_audit.maps.two_groups import (
    MIXED,
    RHO,
    TWO,
    correlated,
    mixed,
    mixed_people,
)


def shifted(n, seed=0, by=(1.0, 0.0)):
    rng = np.random.default_rng(seed)
    source, target = rng.normal(size=(2, n, 2))
    return source.astype(np.float32), (target + by).astype(np.float32)


def test_it_equals_the_map_of_the_monitor():
    g = mixed(800)
    maps = fit_transport_maps(
        np.concatenate([g.source, g.target]),
        np.repeat(np.array([0, 1], np.int8), 800),
        MIXED.features,
        MIXED.one_hot_groups,
        2,
        level=FAMILY_LEVEL / len(MIXED.variables),
    )
    rows = torch.from_numpy(g.unseen)
    source_codes = torch.zeros((1, len(rows)), dtype=torch.long)
    expected = maps.transport(
        rows, source_codes, source_codes + 1, row_uniforms(rows, maps.n_uniforms)[None]
    ).features
    transported = QuantileMethod().fit(g.source, g.target, MIXED).transport(g.unseen)
    assert np.array_equal(transported, expected.numpy())


def test_features_that_do_not_differ_are_not_moved():
    source, target = shifted(500)
    fitted = QuantileMethod().fit(source, target, TWO)
    assert fitted.moved == ("x0",)
    assert fitted.splits
    transported = fitted.transport(source, 4)
    assert (transported[:, :, 1] == source[:, 1]).all()
    assert (transported[:, :, 0] != source[:, 0]).all()
    identity = QuantileMethod().fit(source, source[::-1], TWO)
    assert identity.moved == ()
    assert not identity.splits
    assert np.array_equal(identity.transport(source, 4), source[None])


def test_categories_that_move_are_named_by_their_group():
    g = mixed(1_000)
    moved = QuantileMethod().fit(g.source, g.target, MIXED).moved
    assert set(moved) == {"income", "children", "owns", "town", "job"}


def test_the_identity_check_agrees_with_the_fit():
    """About 1 in 20 of 300 random splits moves a row."""
    method = QuantileMethod()
    assert isinstance(method, SparseMethod)
    rng = np.random.default_rng(3)
    people = np.concatenate([mixed_people(80, 0, rng), mixed_people(80, 1, rng)])
    is_identity = method.identity_check(people, MIXED)
    moved = 0
    for _ in range(300):
        first = rng.permutation(160) < 70
        fitted = method.fit(people[first], people[~first], MIXED)
        assert is_identity(first) == (not fitted.splits)
        moved += fitted.splits
    assert 1 <= moved <= 30


def test_a_refit_moves_the_same_features_only():
    source, target = shifted(400)
    method = QuantileMethod()
    fitted = method.fit(source, target, TWO)
    # Here the second feature differs and the first does not.
    new_source, new_target = shifted(400, seed=1, by=(0.0, 2.0))
    assert method.fit(new_source, new_target, TWO).moved == ("x1",)
    refitted = method.refit(fitted, new_source, new_target, TWO)
    assert refitted.moved == ("x0",)
    transported = refitted.transport(new_source)[0]
    assert np.array_equal(transported[:, 1], new_source[:, 1])
    # Transported by the ranks of the new rows.
    assert abs(transported[:, 0].mean() - new_target[:, 0].mean()) < 0.05


def test_draws_of_one_row_are_independent_between_features():
    """Two binary features of identical rows."""
    rng = np.random.default_rng(0)
    columns = Columns(features=tuple(f.model_copy(update={"kind": "binary"}) for f in TWO.features))
    target = (rng.random((4_000, 2)) < (0.5, 0.3)).astype(np.float32)
    source = np.zeros((4_000, 2), np.float32)
    counterparts = QuantileMethod().fit(source, target, columns).transport(source[:1], 256)[:, 0]
    shares = np.array([(target == pair).all(1).mean() for pair in ((1, 1), (1, 0), (0, 1))])
    drawn_shares = np.array(
        [(counterparts == pair).all(1).mean() for pair in ((1, 1), (1, 0), (0, 1))]
    )
    # Means are exact up to the grid; the joint shares are those of 256 random draws.
    np.testing.assert_allclose(counterparts.mean(0), target.mean(0), atol=2 / 256)
    np.testing.assert_allclose(drawn_shares, shares, atol=4 * np.sqrt(0.25 / 256))


def test_duplicates_get_different_random_counterparts():
    rng = np.random.default_rng(1)
    columns = Columns(features=(TWO.features[0].model_copy(update={"kind": "binary"}),))
    source = np.zeros((1_000, 1), np.float32)
    target = (rng.random((1_000, 1)) < 0.4).astype(np.float32)
    fitted = QuantileMethod().fit(source, target, columns)
    assert fitted.transport(source)[0].std() == 0
    counterparts = fitted.random_counterparts(source, 0)
    assert abs(counterparts.mean() - target.mean()) < 4 * np.sqrt(0.24 / 1_000)
    assert np.array_equal(counterparts, fitted.random_counterparts(source, 0))
    assert not np.array_equal(counterparts, fitted.random_counterparts(source, 1))


def test_rows_are_transported_equally_in_large_batches():
    source, target = shifted(40_000)
    fitted = QuantileMethod().fit(source[:500], target[:500], TWO)
    assert np.array_equal(
        fitted.transport(source)[0][35_000:], fitted.transport(source[35_000:])[0]
    )


def ks_statistic(one, other):
    return stats.ks_2samp(one, other, method="asymp").statistic


@pytest.fixture(scope="module")
def fitted_to_correlated():
    source, target, counterfactuals = correlated(10_000)
    return source, target, counterfactuals, JointQuantileMethod().fit(source, target, TWO)


def test_the_default_map_detects_true_flips_that_the_quantile_map_misses(fitted_to_correlated):
    source, target, counterfactuals, fitted = fitted_to_correlated

    def precision_and_recall(transported):
        def decide(rows):
            return rows @ (0.7, 1.0) > 0.5

        true, flips = (
            decide(source) != decide(counterfactuals),
            decide(source) != decide(transported),
        )
        return (true & flips).sum() / flips.sum(), (true & flips).sum() / true.sum()

    margins = QuantileMethod().fit(source, target, TWO)
    precision, recall = precision_and_recall(fitted.transport(source)[0])
    assert precision > 0.95
    assert recall > 0.88
    precision, recall = precision_and_recall(margins.transport(source)[0])
    assert precision < 0.75
    assert recall < 0.55


def test_features_that_do_not_differ_stay_and_the_others_get_the_targets_dependence(
    fitted_to_correlated,
):
    *_, fitted = fitted_to_correlated
    unseen, unseen_target, _ = correlated(10_000, seed=5)
    transported = fitted.transport(unseen)[0]
    assert np.array_equal(transported[:, 0], unseen[:, 0])
    assert fitted.repair.free.tolist() == [False, True]
    # The steps leave a part of the gap of .95 that the Kolmogorov–Smirnov test cannot detect.
    before, after, expected = (
        stats.pearsonr(*x.T).statistic for x in (unseen, transported, unseen_target)
    )
    assert abs(before - RHO[0]) < 0.04
    assert abs(after - expected) < 0.2
    assert ks_statistic(transported[:, 1], unseen_target[:, 1]) < 2 * 1.63 / np.sqrt(5_000)


def test_with_equal_dependence_the_default_map_is_the_quantile_map():
    rng = np.random.default_rng(2)
    covariance = [[1, 0.6], [0.6, 1]]
    source = rng.multivariate_normal([0, 0], covariance, 3_000).astype(np.float32)
    target = rng.multivariate_normal([0.5, 0], covariance, 3_000).astype(np.float32)
    fitted = JointQuantileMethod().fit(source, target, TWO)
    assert fitted.repair is None
    margins = QuantileMethod().fit(source, target, TWO)
    assert np.array_equal(fitted.transport(source, 3), margins.transport(source, 3))


def test_both_features_may_move_if_only_their_dependence_differs():
    rng = np.random.default_rng(3)
    source, target = (
        rng.multivariate_normal([0, 0], [[1, r], [r, 1]], 4_000).astype(np.float32)
        for r in (0.8, 0.0)
    )
    fitted = JointQuantileMethod().fit(source, target, TWO)
    assert fitted.margins.moved == ()
    assert fitted.splits
    transported = fitted.transport(source)[0]
    assert abs(np.corrcoef(transported.T)[0, 1]) < 0.1
    for column in range(2):
        assert ks_statistic(transported[:, column], target[:, column]) < 1.63 / np.sqrt(2_000)


def category_and_number(n, group, rng):
    """A category that depends on a number, in opposite directions in the two groups."""
    number = rng.normal(size=n)
    slope = number * (1.5 if group == 0 else -1.5)
    probabilities = np.exp(np.column_stack([slope, np.zeros(n), -slope]))
    probabilities /= probabilities.sum(1, keepdims=True)
    category = (rng.random((n, 1)) > np.cumsum(probabilities, 1)).sum(1)
    one_hot = category[:, None] == np.arange(3)
    return np.column_stack([number, one_hot]).astype(np.float32)


def test_categories_are_repaired():
    columns = Columns(
        features=(
            Feature(name="number", kind="numeric"),
            *(Feature(name=f"town={t}", kind="onehot") for t in "abc"),
        ),
        one_hot_groups=(OneHotGroup(name="town", features=("town=a", "town=b", "town=c")),),
    )
    rng = np.random.default_rng(4)
    source, target = (category_and_number(5_000, group, rng) for group in (0, 1))
    transported = JointQuantileMethod().fit(source, target, columns).transport(source)[0]
    assert (transported[:, 1:].sum(1) == 1).all()
    means = [
        [rows[rows[:, town] == 1, 0].mean() for town in (1, 2, 3)]
        for rows in (source, transported, target)
    ]
    assert means[0][0] > 0.5 > -0.5 > means[2][0]
    # The standard error of a mean of about 1,600 is .025; one axis of the category is repaired.
    np.testing.assert_allclose(means[1], means[2], atol=0.15)


def binary_rows(n, shares, rng):
    return (rng.random((n, len(shares))) < shares).astype(np.float32)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_duplicates_are_not_mistaken_for_dependence(width):
    """One draw moves all copies of a row, which must not count as dependence between features."""
    rng = np.random.default_rng(width)
    columns = Columns(features=tuple(Feature(name=f"b{i}", kind="binary") for i in range(width)))
    repaired = 0
    for _ in range(20):
        source = binary_rows(1_000, [0.5] * width, rng)
        target = binary_rows(1_000, [0.62] * width, rng)
        fitted = JointQuantileMethod().fit(source, target, columns)
        repaired += fitted.repair is not None
    assert repaired <= 2


def test_the_identity_check_of_the_default_map_agrees_with_its_fit():
    method = JointQuantileMethod()
    assert isinstance(method, SparseMethod)
    rng = np.random.default_rng(6)
    people = np.concatenate([mixed_people(80, 0, rng), mixed_people(80, 1, rng)])
    is_identity = method.identity_check(people, MIXED)
    moved = 0
    for _ in range(200):
        first = rng.permutation(160) < 75
        fitted = method.fit(people[first], people[~first], MIXED)
        assert is_identity(first) == (not fitted.splits)
        if not fitted.splits:
            assert np.array_equal(fitted.transport(people)[0], people)
        moved += fitted.splits
    assert 1 <= moved <= 25


def test_a_refit_repairs_the_same_pairs_and_moves_the_same_variables(fitted_to_correlated):
    source, target, _, fitted = fitted_to_correlated
    method = JointQuantileMethod()
    rng = np.random.default_rng(7)
    # Two groups without dependence, in which both features are shifted.
    new_source, new_target = rng.normal(size=(2, 800, 2)).astype(np.float32)
    refitted = method.refit(fitted, new_source, new_target + np.float32(1), TWO)
    assert refitted.margins.moved == fitted.margins.moved == ("x1",)
    assert refitted.repair is not None
    assert refitted.repair.pairs == fitted.repair.pairs
    assert np.array_equal(refitted.transport(new_source)[0][:, 0], new_source[:, 0])
    without_repair = method.fit(source[:800], source[800:1_600], TWO)
    assert without_repair.repair is None
    assert method.refit(without_repair, source[:500], target[:500], TWO).repair is None


def test_the_seed_determines_the_repair():
    source, target, _ = correlated(1_500)
    first, repeated, other = (
        JointQuantileMethod().fit(source, target, TWO, seed=seed).transport(source)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, repeated)
    assert not np.array_equal(first, other)
