"""The three classifiers have their documented properties on held-out rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from monitor import World, decide, train_fair, train_proxy_biased, train_subgroup_biased
from monitor.errors import PopulationError
from monitor.world.classifiers import in_biased_subgroup

WORLD = World()


@pytest.fixture(scope="module", params=[0, 1], ids=["seed 0", "seed 1"])
def seed(request) -> int:
    return request.param


@pytest.fixture(scope="module")
def train(seed):
    return WORLD.people(40_000, seed=100 + seed)


@pytest.fixture(scope="module")
def test(seed):
    return WORLD.people(100_000, seed=200 + seed)


def rates(test, decisions, attribute):
    groups = test.groups[attribute]
    return np.array([decisions[groups == g].mean() for g in np.unique(groups)])


def test_the_fair_classifier_flips_no_decision_and_is_accurate(train, test, seed):
    decision = partial(decide, train_fair(train, seed=seed))
    for attribute in test.groups:
        assert test.true_flips(decision, attribute).mean() < 0.01
    majority = max(test.repaid.mean(), 1 - test.repaid.mean())
    assert (decision(test.features) == test.repaid).mean() > majority + 0.1


def test_the_proxy_biased_classifier_flips_many(train, test, seed):
    decision = partial(decide, train_proxy_biased(train, seed=seed))
    for attribute in test.groups:
        assert test.true_flips(decision, attribute).mean() > 0.1
    men, women = rates(test, decision(test.features), "sex")
    assert men - women > 0.1


def test_the_subgroup_biased_classifier_has_equal_group_rates(train, test, seed):
    decision = partial(decide, train_subgroup_biased(train, seed=seed))
    men, women = rates(test, decision(test.features), "sex")
    assert abs(men - women) < 0.01
    as_men, as_women = (decision(test.counterfactual("sex", g)) for g in ("man", "woman"))
    assert abs(as_men.mean() - as_women.mean()) < 0.003
    assert (as_men & ~as_women).mean() > 0.01
    assert (as_women & ~as_men).mean() > 0.01
    flips = test.true_flips(decision, "sex")
    inside = in_biased_subgroup(WORLD, test.features)
    assert flips[inside].mean() > 0.1
    assert flips[~inside].mean() < 0.01
    assert flips[inside].sum() / flips.sum() > 0.9


def test_training_is_reproducible_and_does_not_change_the_global_random_state():
    people = WORLD.people(6_000, seed=1)
    before = torch.get_rng_state()
    first, second = (train_subgroup_biased(people, seed=3) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    features = torch.from_numpy(people.features)
    assert torch.equal(first(features), second(features))
    other = train_subgroup_biased(people, seed=4)
    assert not torch.equal(first(features), other(features))


@pytest.mark.parametrize("train", [train_fair, train_proxy_biased, train_subgroup_biased])
def test_progress_is_reported_after_every_epoch(train):
    calls = []
    train(
        WORLD.people(6_000, seed=1),
        seed=0,
        progress=lambda done, total: calls.append((done, total)),
    )
    totals = {total for _, total in calls}
    assert len(totals) == 1
    assert [done for done, _ in calls] == list(range(1, totals.pop() + 1))


@pytest.mark.parametrize("train", [train_fair, train_proxy_biased, train_subgroup_biased])
def test_too_few_rows_are_rejected(train):
    with pytest.raises(PopulationError, match="50 rows are too few"):
        train(WORLD.people(50, seed=1), seed=0)


def test_training_does_not_change_the_number_of_threads():
    before = torch.get_num_threads()
    train_fair(WORLD.people(200, seed=1), seed=0)
    assert torch.get_num_threads() == before
