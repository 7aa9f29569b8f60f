"""Costs follow their formulas, methods are selected by name, draws are even and independent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor import Feature
from offline_audit import AuditInputError, Columns, map_method
from offline_audit.maps.exact import ExactMethod
from offline_audit.maps.quantile import QuantileMethod
from offline_audit.maps.transport_map import (
    COSTS,
    MAPS,
    SQUARED_L2,
    SparseMethod,
    cost_of,
    draw_shifts,
    draw_uniforms,
    draws_per_row,
    duplicate_codes,
    one_counterpart,
)

ONE, OTHER = np.random.default_rng(0).normal(size=(2, 5, 3))
FORMULAS = {
    "squared_l2": lambda a, b: sum((x - y) ** 2 for x, y in zip(a, b, strict=True)),
    "l2": lambda a, b: sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5,
    "squared_l1": lambda a, b: sum(abs(x - y) for x, y in zip(a, b, strict=True)) ** 2,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_cost_follows_its_formula(name):
    expected = [[FORMULAS[name](a, b) for b in OTHER] for a in ONE[:4]]
    np.testing.assert_allclose(cost_of(name).pairwise(ONE[:4], OTHER), expected)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 1_200), st.sampled_from(sorted(COSTS)))
def test_matched_is_the_diagonal_of_pairwise(n, name):
    one, other = np.random.default_rng(n).normal(size=(2, n, 2))
    cost = COSTS[name]
    np.testing.assert_allclose(cost.matched(one, other), np.diagonal(cost.pairwise(one, other)))


def test_only_squared_l2_has_one_optimal_map():
    assert [name for name, cost in COSTS.items() if cost.strictly_convex] == ["squared_l2"]
    assert not cost_of(lambda a, b: np.zeros((len(a), len(b)))).strictly_convex


def test_an_own_cost_has_the_name_of_its_function():
    def manhattan(a, b):
        return np.abs(a[:, None] - b).sum(2)

    assert cost_of(manhattan).name == "manhattan"
    assert cost_of(lambda a, b: manhattan(a, b)).name == "own"
    np.testing.assert_allclose(cost_of(manhattan).pairwise(ONE, OTHER), manhattan(ONE, OTHER))
    assert cost_of(SQUARED_L2) is SQUARED_L2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, b: np.zeros(3), r"\(5, 5\); got \(3,\)"),
        (lambda a, b: np.full((len(a), len(b)), np.nan), "finite and not negative"),
        (lambda a, b: np.full((len(a), len(b)), np.inf), "finite and not negative"),
        (lambda a, b: np.full((len(a), len(b)), -1), "finite and not negative"),
        (lambda a, b: np.full((len(a), len(b)), "much"), "must return numbers"),
        (lambda a, b: None, "must return numbers|must return shape"),
    ],
)
def test_invalid_results_of_an_own_cost_are_refused(function, message):
    with pytest.raises(AuditInputError, match=message):
        cost_of(function).pairwise(ONE, OTHER)


def test_an_error_of_an_own_cost_is_not_wrapped():
    def broken(a, b):
        raise TypeError("an error of the function")

    with pytest.raises(TypeError, match="an error of the function"):
        cost_of(broken).pairwise(ONE, OTHER)


@pytest.mark.parametrize("cost", ["l3", 5, None])
def test_unknown_costs_are_refused(cost):
    with pytest.raises(AuditInputError, match="cost"):
        cost_of(cost)


METHODS_WITH_COSTS = ("entropic", "exact", "wgan")


@pytest.mark.parametrize("name", MAPS)
def test_each_name_has_its_method(name):
    method = map_method(name)
    assert method.name == name
    assert method.cost is COSTS["squared_l2"]
    assert method.quick == (name not in METHODS_WITH_COSTS)
    assert isinstance(method, SparseMethod) == ("quantile" in name)


@pytest.mark.parametrize("name", METHODS_WITH_COSTS)
def test_methods_with_costs_accept_other_costs(name):
    assert map_method(name, "squared_l1").cost is COSTS["squared_l1"]


@pytest.mark.parametrize("name", [name for name in MAPS if name not in METHODS_WITH_COSTS])
def test_other_methods_refuse_a_cost_and_name_those_that_accept_it(name):
    with pytest.raises(AuditInputError, match="for squared_l1 use one of entropic, exact"):
        map_method(name, "squared_l1")


def test_a_method_object_is_returned_unchanged():
    method = ExactMethod(rows=50)
    assert map_method(method) is method
    assert map_method(method, "squared_l2") is method
    squared_l1 = ExactMethod(cost=COSTS["squared_l1"])
    assert map_method(squared_l1) is squared_l1
    assert map_method(squared_l1, "squared_l1") is squared_l1


def test_a_cost_that_contradicts_the_method_is_refused():
    with pytest.raises(AuditInputError, match="on the map method itself, which now has squared_l2"):
        map_method(ExactMethod(), "l2")


@pytest.mark.parametrize("name", ["gan", "", "joint-quantile", 3, None])
def test_unknown_methods_are_refused(name):
    with pytest.raises(AuditInputError, match="map"):
        map_method(name)


def test_an_own_cost_is_used_by_the_map():
    def far(a, b):
        return 10 + np.abs(a[:, None] - b).sum(2)

    method = map_method("exact", far)
    rows = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    moved = method.fit(rows, rows + 1, Columns.numeric(["a", "b"])).transport(rows)
    assert moved.shape == (1, 30, 2)
    assert method.cost.name == "far"


BINARY = Columns(features=(Feature(name="b", kind="binary"),))


def test_duplicates_share_a_code():
    people = np.array([[0, 1], [2, 3], [0, 1], [0, 1], [2, 3]], np.float32)
    codes = duplicate_codes(people)
    assert codes is not None
    assert codes.tolist() == [0, 1, 0, 0, 1]


def test_few_duplicates_are_ignored():
    people = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    assert duplicate_codes(people) is None
    # Ten of a hundred rows occur twice.
    assert duplicate_codes(np.concatenate([people, people[:10]])) is None
    assert duplicate_codes(np.concatenate([people, np.zeros((100, 2), np.float32)])) is not None


def test_rows_get_as_many_draws_as_their_copies():
    assert draws_per_row(np.ones(500, int), 8) == 8
    assert draws_per_row(np.full(50, 3), 8) == 24
    assert draws_per_row(np.array([100_000, 100_000]), 8) == 256
    # One row with many copies among very many distinct rows must not multiply the work.
    assert draws_per_row(np.array([10_000, *[1] * 60_000]), 8) == 8


@pytest.mark.parametrize("share", [0.1, 0.37, 0.8])
def test_one_counterpart_per_row_has_the_targets_shares(share):
    rng = np.random.default_rng(1)
    source = np.zeros((1_000, 1), np.float32)
    target = (rng.random((1_000, 1)) < share).astype(np.float32)
    fitted = QuantileMethod().fit(source, target, BINARY)
    transported = one_counterpart(fitted, source)
    assert transported.shape == source.shape
    assert abs(transported.mean() - target.mean()) < 2 / 256
    assert fitted.transport(source)[0].mean() in (0, 1)


def test_distinct_rows_get_their_first_draw():
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(2, 200, 1)).astype(np.float32)
    fitted = QuantileMethod().fit(source, target + 1, Columns.numeric(["a"]))
    assert np.array_equal(one_counterpart(fitted, source), fitted.transport(source)[0])


def test_uniforms_depend_on_the_row_and_are_evenly_spaced_over_the_draws():
    people = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    uniforms = np.stack([draw_uniforms(people, 4, draw, 16) for draw in range(16)])
    assert uniforms.min() >= 0
    assert uniforms.max() < 1
    np.testing.assert_allclose(np.diff(np.sort(uniforms, 0), axis=0), 1 / 16, atol=1e-6)
    order = np.random.default_rng(1).permutation(200)
    assert np.array_equal(draw_uniforms(people[order], 4, 3, 16), uniforms[3, order])
    # Mean of 200 uniforms: standard error .02.
    np.testing.assert_allclose(draw_uniforms(people, 4, 0, 1).mean(0), 0.5, atol=4 * 0.0204)


def test_the_uniforms_of_one_rows_draws_are_uncorrelated():
    shifts = draw_shifts(6, 256)
    assert np.array_equal(np.sort(shifts, 0)[:, 0], np.arange(256) / 256)
    correlations = np.corrcoef(shifts.T) - np.eye(6)
    assert np.abs(correlations).max() < 4 / np.sqrt(256)
    # The shifts of a column do not depend on the number of columns.
    assert np.array_equal(draw_shifts(3, 256), shifts[:, :3])
    assert draw_shifts(0, 8).shape == (8, 0)
