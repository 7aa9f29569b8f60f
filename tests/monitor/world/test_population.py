"""Counterfactuals follow the equations, and the parameters have their documented effect."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from monitor import World, decide, train_proxy_biased
from monitor.errors import PopulationError
from tests.oracle import lending

UNBIASED = World(direct_bias=0, proxy_bias=0, label_bias=0)


@pytest.mark.parametrize("group", [None, *lending.ALL_GROUPS])
@pytest.mark.parametrize(
    "world", [World(), World(direct_bias=0.7, proxy_bias=1.6, drift=0.8)], ids=["plain", "biased"]
)
def test_people_match_a_slow_reference_implementation(world, group):
    people = world.people(400, seed=11)
    features = people.features
    if group is not None:
        attribute = next(a for a in world.attributes if a.name == group[0])
        features = people.counterfactual(group[0], attribute.groups[group[1]])
    expected = lending.features(people=400, seed=11, group=group, world=world)
    # float32 against float64: 1e-4 relative; rounding may change a floor or a threshold.
    close = np.isclose(features, expected, rtol=1e-4, atol=1e-5)
    assert (~close).sum() <= 2
    assert close.shape == (400, 25)


def test_a_counterfactual_in_the_own_group_changes_nothing():
    people = World(direct_bias=1).people(5_000, seed=3)
    for attribute in people.world.attributes:
        for index, group in enumerate(attribute.groups):
            twins = people.counterfactual(attribute.name, group)
            own = people.groups[attribute.name] == index
            assert np.array_equal(twins[own], people.features[own])
            assert not np.array_equal(twins, people.features)


def test_without_bias_no_feature_depends_on_a_group():
    people = UNBIASED.people(20_000, seed=5)
    for attribute in people.groups:
        for _, twins in people.counterfactuals(attribute):
            assert np.array_equal(twins, people.features)


def test_legitimate_features_never_change_with_the_group():
    people = World(direct_bias=2, proxy_bias=2).people(5_000, seed=5)
    legitimate = people.world.legitimate
    for attribute in people.groups:
        for _, twins in people.counterfactuals(attribute):
            assert np.array_equal(twins[:, legitimate], people.features[:, legitimate])
            assert (twins != people.features)[:, ~legitimate].any()


def test_people_do_not_depend_on_parameters_size_or_threads(monkeypatch):
    few, many = World().people(40_000, seed=9), World().people(70_000, seed=9)
    assert np.array_equal(few.features, many.features[:40_000])
    assert np.array_equal(few.labels, many.labels[:40_000])
    legitimate = few.world.legitimate
    other = UNBIASED.people(40_000, seed=9)
    assert np.array_equal(few.features[:, legitimate], other.features[:, legitimate])
    assert np.array_equal(few.repaid, other.repaid)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert np.array_equal(World().people(40_000, seed=9).features, few.features)


def test_another_seed_gives_other_people():
    first, second = World().people(1_000, seed=1), World().people(1_000, seed=2)
    assert not (first.features[:, 0] == second.features[:, 0]).any()


@pytest.mark.parametrize(
    ("attribute", "shares"), [("sex", (0.52, 0.48)), ("ethnicity", (0.55, 0.2, 0.15, 0.1))]
)
def test_groups_have_their_shares(attribute, shares):
    n = 200_000
    observed = np.bincount(World().people(n, seed=2).groups[attribute]) / n
    for share, expected in zip(observed, shares, strict=True):
        assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / n)


def test_every_feature_keeps_its_kind():
    world = World(direct_bias=1, visible=("sex", "ethnicity"))
    people = world.people(20_000, seed=4)
    for rows in (people.features, people.counterfactual("ethnicity", "dovar")):
        for feature, column in zip(world.features, rows.T, strict=True):
            assert np.isfinite(column).all()
            if feature.kind == "integer":
                assert np.array_equal(column, np.round(column))
            if feature.kind in ("binary", "onehot"):
                assert set(np.unique(column)) <= {0, 1}
        names = [feature.name for feature in world.features]
        for group in world.one_hot_groups:
            columns = [names.index(name) for name in group.features]
            assert (rows[:, columns].sum(1) == 1).all()


def test_the_world_has_twenty_to_thirty_columns_with_and_without_visible_attributes():
    assert len(World().features) == 25
    assert len(World(visible=("sex", "ethnicity")).features) == 30


def test_a_visible_attribute_is_the_group_and_follows_the_counterfactual():
    world = World(visible=("sex", "ethnicity"))
    people = world.people(1_000, seed=1)
    assert np.array_equal(people.features[:, 25], people.groups["sex"])
    assert np.array_equal(people.features[:, 26:].argmax(1), people.groups["ethnicity"])
    assert (people.counterfactual("sex", "man")[:, 25] == 0).all()
    assert (people.counterfactual("ethnicity", "cori")[:, 28] == 1).all()


def test_drift_affects_all_groups_equally():
    now, then = World(), World(drift=1)
    before, after = now.people(50_000, seed=1), then.people(50_000, seed=1)
    assert np.median(after.features[:, 0]) < 0.7 * np.median(before.features[:, 0])
    assert after.repaid.mean() < before.repaid.mean() - 0.05
    affected = ~now.legitimate
    assert np.array_equal(before.features[:, affected], after.features[:, affected])


def test_label_bias_changes_only_records_of_disadvantaged_groups():
    people = World(label_bias=1).people(100_000, seed=6)
    recorded_negative = people.repaid & (people.labels == 0)
    assert not (people.labels[~people.repaid]).any()
    advantaged = (people.groups["sex"] == 0) & (people.groups["ethnicity"] == 0)
    assert not recorded_negative[advantaged].any()
    advantaged_women = (people.groups["sex"] == 1) & (people.groups["ethnicity"] == 0)
    share, n = (
        recorded_negative[people.repaid & advantaged_women].mean(),
        (people.repaid & advantaged_women).sum(),
    )
    assert abs(share - 0.4) < 5 * np.sqrt(0.24 / n)
    unbiased = UNBIASED.people(100_000, seed=6)
    assert np.array_equal(unbiased.labels, unbiased.repaid)


# A simple decision rule that depends on officers and proxies.
RULE_WEIGHTS = np.zeros(25, np.float32)
RULE_WEIGHTS[[0, 12, 13, 14, 19, 20, 21]] = [2e-4, 0.5, -0.1, -0.8, -0.03, -1.0, -0.8]


def simple_rule(features):
    return features @ RULE_WEIGHTS >= 0.6


def shares_of_flips(worlds, decide_in=None):
    shares = []
    for world in worlds:
        decision = simple_rule if decide_in is None else decide_in(world)
        people = world.people(20_000, seed=8)
        shares.append([people.true_flips(decision, name).mean() for name in people.groups])
    return np.array(shares)


def test_without_bias_a_classifier_that_uses_the_proxies_changes_no_decision():
    trained = partial(decide, train_proxy_biased(World().people(20_000, seed=1), seed=0))
    people = UNBIASED.people(20_000, seed=8)
    for decision in (simple_rule, trained):
        assert 0.05 < decision(people.features).mean() < 0.95
        for attribute in people.groups:
            assert not people.true_flips(decision, attribute).any()


def strictly_rising(shares) -> bool:
    return bool((np.diff(shares, axis=0) > 0).all())


def test_flips_rise_with_direct_bias():
    worlds = [World(direct_bias=b, proxy_bias=0, label_bias=0) for b in (0, 0.3, 0.6, 1)]
    shares = shares_of_flips(worlds)
    assert (shares[0] == 0).all()
    assert strictly_rising(shares)


def test_flips_rise_with_proxy_bias():
    worlds = [World(direct_bias=0, proxy_bias=b, label_bias=0) for b in (0, 0.3, 0.6, 1)]
    shares = shares_of_flips(worlds)
    assert (shares[0] == 0).all()
    assert strictly_rising(shares)


def test_flips_rise_with_label_bias_in_a_classifier_that_learns_from_the_labels():
    def learn(world):
        return partial(decide, train_proxy_biased(world.people(30_000, seed=1), seed=0))

    worlds = [World(proxy_bias=1, label_bias=b) for b in (0, 0.5, 1)]
    assert strictly_rising(shares_of_flips(worlds, learn))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: World(proxy_bias=-0.1), r"proxy_bias is -0\.1; it must be between 0 and 5"),
        (lambda: World(drift=float("nan")), "drift is nan; it must be between -5 and 5"),
        (
            lambda: World(visible=("height",)),
            "attribute 'height'.*sex, ethnicity",
        ),
        (lambda: World(visible=("sex", "sex")), "lists an attribute twice"),
        (
            lambda: World().people(9, seed=1).true_flips(lambda x: x[:, 0], "sex"),  # type: ignore[arg-type, return-value]
            "decide must return one bool per row, not scores",
        ),
        (lambda: World().people(0, seed=1), "n is 0; it must be at least 1"),
        (lambda: World().people(1, seed=-1), "seed is -1"),
        (
            lambda: World().people(1, seed=1).counterfactual("sex", "dovar"),
            "unknown group 'dovar' of sex; known: man, woman",
        ),
    ],
)
def test_invalid_parameters_are_rejected(make, message):
    with pytest.raises(PopulationError, match=message):
        make()
