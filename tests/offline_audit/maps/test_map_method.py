"""A method by its name, with the cost that it can take."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import AuditInputError, Columns, map_method
from offline_audit.maps import MAPS
from offline_audit.maps.costs import COSTS
from offline_audit.maps.exact import ExactMethod
from offline_audit.maps.transport_map import SparseMethod

BY_COST = ("entropic", "exact", "wgan")


@pytest.mark.parametrize("name", MAPS)
def test_a_name_brings_its_method(name):
    method = map_method(name)
    assert method.name == name
    assert method.cost is COSTS["squared_l2"]
    assert method.quick == (name not in BY_COST)
    assert isinstance(method, SparseMethod) == ("quantile" in name)


@pytest.mark.parametrize("name", BY_COST)
def test_some_take_another_cost(name):
    assert map_method(name, "squared_l1").cost is COSTS["squared_l1"]


@pytest.mark.parametrize("name", [name for name in MAPS if name not in BY_COST])
def test_the_others_say_which_do(name):
    with pytest.raises(AuditInputError, match=r"l2; for squared_l1 take one of entropic, exact"):
        map_method(name, "squared_l1")


def test_a_method_of_ones_own_is_taken_as_it_is():
    method = ExactMethod(rows=50)
    assert map_method(method) is method
    assert map_method(method, "squared_l2") is method
    walking = ExactMethod(cost=COSTS["squared_l1"])
    assert map_method(walking) is walking
    assert map_method(walking, "squared_l1") is walking


def test_a_cost_beside_a_method_that_has_another_is_not_passed_over():
    with pytest.raises(AuditInputError, match="cost of its own, squared_l2"):
        map_method(ExactMethod(), "l2")


@pytest.mark.parametrize("name", ["gan", "", "joint-quantile", 3, None])
def test_what_is_no_method_is_refused(name):
    with pytest.raises(AuditInputError, match="map"):
        map_method(name)


def test_ones_own_cost_reaches_the_map():
    def far(a, b):
        return 10 + np.abs(a[:, None] - b).sum(2)

    method = map_method("exact", far)
    people = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    moved = method.fit(people, people + 1, Columns.numeric(["a", "b"])).transport(people)
    assert moved.shape == (1, 30, 2)
    assert method.cost.name == "far"
