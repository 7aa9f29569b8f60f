"""The default map: the monitor's margins, then the target's dependence between features."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from monitor import Feature, OneHotGroup
from offline_audit import Columns
from offline_audit.maps.joint_quantile import JointQuantileMethod
from offline_audit.maps.quantile import QuantileMethod
from offline_audit.maps.transport_map import SparseMethod
from tests.offline_audit.maps.two_groups import MIXED, RHO, TWO, correlated, mixed_people


def ks_statistic(one, other):
    return stats.ks_2samp(one, other, method="asymp").statistic


@pytest.fixture(scope="module")
def fitted_to_correlated():
    source, target, counterfactuals = correlated(10_000)
    return source, target, counterfactuals, JointQuantileMethod().fit(source, target, TWO)


def test_it_detects_true_flips_that_the_quantile_map_misses(fitted_to_correlated):
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


def test_with_equal_dependence_it_is_the_quantile_map():
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


def test_the_identity_check_agrees_with_the_fit():
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
