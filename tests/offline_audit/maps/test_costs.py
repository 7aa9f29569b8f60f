"""Costs are what their names say, and one's own is checked before it is believed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_audit import AuditInputError
from offline_audit.maps.costs import COSTS, SQUARED_L2, cost_of

ONE, OTHER = np.random.default_rng(0).normal(size=(2, 5, 3))
FORMULAS = {
    "squared_l2": lambda a, b: sum((x - y) ** 2 for x, y in zip(a, b, strict=True)),
    "l2": lambda a, b: sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5,
    "squared_l1": lambda a, b: sum(abs(x - y) for x, y in zip(a, b, strict=True)) ** 2,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_cost_is_its_formula(name):
    wanted = [[FORMULAS[name](a, b) for b in OTHER] for a in ONE[:4]]
    np.testing.assert_allclose(cost_of(name).pairwise(ONE[:4], OTHER), wanted)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 1_200), st.sampled_from(sorted(COSTS)))
def test_matched_is_the_diagonal_of_pairwise(n, name):
    one, other = np.random.default_rng(n).normal(size=(2, n, 2))
    cost = COSTS[name]
    np.testing.assert_allclose(cost.matched(one, other), np.diagonal(cost.pairwise(one, other)))


def test_only_squared_l2_has_one_optimal_map():
    assert [name for name, cost in COSTS.items() if cost.strictly_convex] == ["squared_l2"]
    assert not cost_of(lambda a, b: np.zeros((len(a), len(b)))).strictly_convex


def test_ones_own_is_called_by_its_name():
    def walked(a, b):
        return np.abs(a[:, None] - b).sum(2)

    assert cost_of(walked).name == "walked"
    assert cost_of(lambda a, b: walked(a, b)).name == "own"
    np.testing.assert_allclose(cost_of(walked).pairwise(ONE, OTHER), walked(ONE, OTHER))
    assert cost_of(SQUARED_L2) is SQUARED_L2


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda a, b: np.zeros(3), r"\(5, 5\), not \(3,\)"),
        (lambda a, b: np.full((len(a), len(b)), np.nan), "finite and not negative"),
        (lambda a, b: np.full((len(a), len(b)), np.inf), "finite and not negative"),
        (lambda a, b: np.full((len(a), len(b)), -1), "finite and not negative"),
        (lambda a, b: np.full((len(a), len(b)), "much"), "does not give numbers"),
        (lambda a, b: None, "does not give numbers|must give costs"),
    ],
)
def test_what_is_no_cost_is_refused_when_it_is_asked(function, said):
    with pytest.raises(AuditInputError, match=said):
        cost_of(function).pairwise(ONE, OTHER)


def test_an_error_of_ones_own_function_is_not_hidden():
    def broken(a, b):
        raise TypeError("my own slip")

    with pytest.raises(TypeError, match="my own slip"):
        cost_of(broken).pairwise(ONE, OTHER)


@pytest.mark.parametrize("cost", ["l3", 5, None])
def test_what_cannot_be_a_cost_is_refused_by_name(cost):
    with pytest.raises(AuditInputError, match="cost"):
        cost_of(cost)
