"""Three variables may differ where no pair does; an order that does not explain it is dropped."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from monitor import Feature, OneHotGroup
from monitor.scoring.counterfactual.pairs import Variables
from monitor.scoring.counterfactual.triples import differing_triples
from tests.monitor.scoring.counterfactual.test_dependence import (
    N,
    correlation_only,
    fitted,
    numeric,
    product,
    transported,
)


def chain(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The group shifts the first feature; the third one follows the square of the second."""
    rng = np.random.default_rng(seed)
    groups = (rng.random(2 * N) < 0.5).astype(int)
    rows = rng.standard_normal((2 * N, 3))
    rows[:, 0] += 0.9 * groups
    rows[:, 1] = 0.8 * rows[:, 0] + 0.6 * rows[:, 1]
    rows[:, 2] = 0.5 * rows[:, 1] ** 2 + 0.5 * rows[:, 2]
    return rows, groups


def test_a_feature_is_transported_given_the_product_of_two_others():
    rows, groups = product(1)
    maps = fitted(rows, groups, numeric(3), order=("x0", "x1", "x2"))
    new, new_groups = product(2)
    source, target = new[new_groups == 0], new[new_groups == 1]
    moved = transported(maps, source)
    assert np.array_equal(moved[:, :2], source[:, :2].astype(np.float32))
    truth = source[:, 2] - 1.8 * source[:, 0] * source[:, 1]
    assert np.corrcoef(moved[:, 2], truth)[0, 1] > 0.95
    assert stats.ks_2samp(moved[:, 2], target[:, 2]).statistic < 0.035


def test_any_of_three_variables_may_move_if_no_order_is_known():
    maps = fitted(*product(1), numeric(3))
    moving = [
        [column for repair in order for column in repair.free.tolist()] for order in maps.repairs
    ]
    assert sorted(moving) == [[0], [1], [2]]


def test_a_number_moves_given_binary_features():
    """An exclusive or: no pair of the three features depends on each other in either group."""
    rng = np.random.default_rng(3)
    groups, first, second = (rng.random((3, 2 * N)) < 0.5).astype(int)
    score = (1 - 2 * groups) * (2.0 * (first ^ second) - 1) + 0.6 * rng.standard_normal(2 * N)
    rows = np.column_stack([first, second, score])
    kinds = [Feature(name=name, kind="binary") for name in "ab"]
    maps = fitted(rows, groups, [*kinds, Feature(name="score", kind="numeric")])
    assert maps.orders == 1
    moved = transported(maps, rows[groups == 0])
    for differ in (0, 1):
        ours = moved[(moved[:, 0] != moved[:, 1]) == differ, 2]
        target = score[(groups == 1) & ((first != second) == differ)]
        # The shape of a lower half of all ranks is not that of an upper half.
        assert stats.ks_2samp(ours, target).statistic < 0.06


def test_an_order_that_does_not_explain_the_difference_is_dropped():
    rows, groups = chain(1)
    maps = fitted(rows, groups, numeric(3))
    assert [[r.free.tolist() for r in order] for order in maps.repairs] == [[[2]]]
    source = rows[groups == 0]
    moved = transported(maps, source)
    truth = source[:, 2] - 0.5 * source[:, 1] ** 2 + 0.5 * (source[:, 1] + 0.72) ** 2
    assert np.abs(moved[:, 2] - truth).mean() < 0.12


def test_residuals_have_the_shape_of_their_category():
    """Hours that depend on the trade in three far places, in the reverse order in one group."""
    rng = np.random.default_rng(4)
    groups = (rng.random(2 * N) < 0.5).astype(int)
    trade = rng.integers(3, size=2 * N)
    hours = 5 * (1 - 2 * groups) * (trade - 1) + rng.normal(size=2 * N)
    rows = np.column_stack([trade[:, None] == np.arange(3), hours])
    kinds = [Feature(name=f"trade={i}", kind="onehot") for i in range(3)]
    one_hot = [OneHotGroup(name="trade", features=tuple(kind.name for kind in kinds))]
    maps = fitted(rows, groups, [*kinds, Feature(name="hours", kind="numeric")], one_hot)
    moved = transported(maps, rows[groups == 0])
    for category in range(3):
        ours = moved[moved[:, category] == 1, 3]
        target = hours[(groups == 1) & (trade == category)]
        assert stats.ks_2samp(ours, target).statistic < 0.07
    assert maps.repairs[0][0].residuals.shape[2] > 1


@pytest.mark.parametrize("seed", range(3))
def test_residuals_of_one_shape_share_a_table(seed):
    """Tables by location cost time; normal variables with other correlations have one shape."""
    rows, groups = correlation_only(seed)
    maps = fitted(rows, groups, numeric(3))
    assert {repair.residuals.shape[2] for order in maps.repairs for repair in order} == {1}


def test_a_triple_is_found_where_no_pair_differs():
    rows, groups = product(5)
    rows = np.column_stack([rows, np.random.default_rng(0).normal(size=len(rows))])
    one, other = (rows[groups == group].astype(np.float32) for group in (0, 1))
    variables = Variables(ordered=[0, 1, 2, 3], categories=[])
    assert differing_triples(one, other, variables) == [(0, 1, 2)]


@pytest.mark.calibration
def test_triples_of_equal_groups_are_rejected_at_the_stated_level():
    """At most 0.1% of families, also for heavy tails, rare flags and categories; 400 runs."""
    rng, rejected = np.random.default_rng(6), 0
    variables = Variables(ordered=[0, 1, 2], categories=[[3, 4]])
    for _ in range(400):
        rows = rng.multivariate_normal(np.zeros(3), np.eye(3) * 0.5 + 0.5, 800)
        rows[:, 1] = np.exp(3 * rows[:, 1])
        rows[:, 2] = rng.random(800) < 0.03
        trade = rng.random((800, 1)) < np.array([0.1, 1.0])
        table = np.column_stack([rows, trade[:, 0], ~trade[:, 0]]).astype(np.float32)
        rejected += bool(differing_triples(table[:320], table[320:], variables))
    assert rejected <= stats.binom.ppf(0.999, 400, 0.001)
