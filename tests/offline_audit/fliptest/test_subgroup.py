"""A rule describes an existing subgroup, and is not confirmed if there is none."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats

from monitor import Feature, OneHotGroup, World, decide, train_subgroup_biased
from monitor.world.classifiers import in_biased_subgroup
from offline_audit import AuditInputError, Columns
from offline_audit.fliptest.flipset import SIDES, Flipset
from offline_audit.fliptest.rules import Condition
from offline_audit.fliptest.subgroup import name_subgroup

COLUMNS = Columns(
    features=(
        Feature(name="income", kind="numeric"),
        Feature(name="years", kind="integer"),
        Feature(name="part_time", kind="binary"),
        *(Feature(name=f"sector={name}", kind="onehot") for name in ("care", "trades", "office")),
        Feature(name="fixed", kind="numeric"),
    ),
    one_hot_groups=(
        OneHotGroup(
            name="sector", features=("sector=care", "sector=trades", "sector=office"), dropped="sea"
        ),
    ),
)


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    features = np.zeros((n, 7), np.float32)
    features[:, 0] = 1_000 * np.exp(0.5 * rng.normal(size=n))
    features[:, 1] = rng.poisson(6, n)
    features[:, 2] = rng.random(n) < 0.3
    sector = rng.choice(4, n)
    for code in range(3):
        features[:, 3 + code] = sector == code
    return features


def flipset_of(features, flips):
    """Flips `[n]` or `[e, n]` of people who all have the favourable decision."""
    flips = np.atleast_2d(flips)
    return Flipset(
        features=features,
        counterparts=np.broadcast_to(features, (len(flips), *features.shape)),
        decisions=np.ones(len(features), bool),
        counterpart_decisions=~flips,
    )


def named(flipset, side="advantaged", **options) -> Any:
    """Of any type, so that tests need not ask what a subgroup leaves open."""
    return name_subgroup(flipset, side, COLUMNS, **options)


RULES = {
    "part_time = 1": lambda x: x[:, 2] == 1,
    "part_time = 0": lambda x: x[:, 2] == 0,
    "years < 5": lambda x: x[:, 1] < 5,
    "years ≥ 8": lambda x: x[:, 1] >= 8,
    "sector is care": lambda x: x[:, 3] == 1,
    "sector is not office": lambda x: x[:, 5] == 0,
    "sector is office or sea": lambda x: ~x[:, 3:5].any(1),
    "sector is sea": lambda x: ~x[:, 3:6].any(1),
    "income < 800": lambda x: x[:, 0] < 800,
    "5 ≤ years < 8": lambda x: (x[:, 1] >= 5) & (x[:, 1] < 8),
    "part_time = 1 and sector is care": lambda x: (x[:, 2] == 1) & (x[:, 3] == 1),
    "part_time = 1 and years < 5": lambda x: (x[:, 2] == 1) & (x[:, 1] < 5),
}


@pytest.mark.parametrize("rule", RULES)
def test_an_existing_rule_is_found_and_confirmed(rule):
    features = people(6_000)
    inside = RULES[rule](features)
    chance = np.random.default_rng(1).random(len(features))
    found = named(flipset_of(features, chance < np.where(inside, 0.3, 0.01)), seed=3)
    assert found.rule == rule
    assert found.confirmed
    assert (found.holds(features, COLUMNS) == inside).all()
    low, high = found.interval
    assert low <= 0.29 <= high


def test_both_halves_count_disjoint_people():
    features = people(6_000)
    inside = features[:, 2] == 1
    flips = np.random.default_rng(1).random(6_000) < np.where(inside, 0.3, 0.05)
    found = named(flipset_of(features, flips))
    halves = (found.fitted, found.tested)
    assert sum(half.inside for half in halves) == inside.sum()
    assert sum(half.outside for half in halves) == (~inside).sum()
    assert sum(half.flips_inside for half in halves) == (flips & inside).sum()
    assert sum(half.flips_outside for half in halves) == (flips & ~inside).sum()
    tested = found.tested
    assert tested.share_inside == tested.flips_inside / tested.inside
    assert tested.covered == tested.flips_inside / (tested.flips_inside + tested.flips_outside)
    table = [
        [tested.flips_inside, tested.flips_outside],
        [tested.inside - tested.flips_inside, tested.outside - tested.flips_outside],
    ]
    assert found.p_value == stats.fisher_exact(table, alternative="greater").pvalue
    assert not tested.coarse


def test_random_flips_are_confirmed_at_the_level():
    """On the half that it was found on the same rule would look sure far too often."""
    runs, confirmed, fooled = 200, 0, 0
    for seed in range(runs):
        features = people(1_000, seed)
        flips = np.random.default_rng(10_000 + seed).random(1_000) < 0.1
        found = named(flipset_of(features, flips), seed=seed)
        confirmed += found.confirmed
        if found.fitted is not None:
            half = found.fitted
            table = [
                [half.flips_inside, half.flips_outside],
                [half.inside - half.flips_inside, half.outside - half.flips_outside],
            ]
            fooled += stats.fisher_exact(table, alternative="greater").pvalue <= 0.05
    assert confirmed <= stats.binom.ppf(1 - 1e-4, runs, 0.05)
    assert fooled > stats.binom.ppf(1 - 1e-4, runs, 0.05)


def test_a_rule_that_fails_on_the_other_half_is_not_confirmed():
    features = people(1_000)
    flips = np.random.default_rng(0).random(1_000) < 0.1
    found = next(
        each
        for each in (named(flipset_of(features, flips), seed=seed) for seed in range(50))
        if each.rule is not None and not each.confirmed
    )
    assert found.p_value > found.alpha
    assert "(not confirmed)" in str(found)
    assert found.to_dict()["confirmed"] is False


def test_shorter_rules_are_preferred():
    features = people(8_000)
    # To leave out the few of long standing would be a little better: not worth a second condition.
    inside = (features[:, 2] == 1) & (features[:, 1] < 10)
    flips = np.random.default_rng(2).random(8_000) < 0.3 * inside
    assert named(flipset_of(features, flips)).rule == "part_time = 1"


def test_the_number_of_conditions_is_limited():
    features = people(8_000)
    inside = (features[:, 2] == 1) & (features[:, 1] < 5) & (features[:, 0] < 900)
    found = flipset_of(features, inside)
    assert len(named(found, most_conditions=1).conditions) == 1
    assert len(named(found, most_conditions=2).conditions) == 2
    assert {c.variable for c in named(found).conditions} == {"part_time", "years", "income"}


def test_membership_follows_from_most_counterparts():
    features = people(4_000)
    inside = features[:, 2] == 1
    flips = np.stack([inside, inside, features[:, 3] == 1])
    assert named(flipset_of(features, flips)).rule == "part_time = 1"


@pytest.mark.parametrize(("members", "role"), [(0, "members"), (19, "members"), (985, "others")])
def test_too_few_members_or_others_have_no_rule(members, role):
    found = named(flipset_of(people(1_000), np.arange(1_000) < members))
    assert (found.rule, found.fitted, found.tested, found.p_value) == (None,) * 4
    assert not found.confirmed
    assert found.reason == f"there are fewer than 20 {role}"
    assert not found.holds(people(10), COLUMNS).any()
    assert found.reason in str(found)


def test_an_empty_group_has_no_rule():
    assert named(flipset_of(people(0), np.zeros(0, bool))).reason is not None


def test_duplicates_only_have_no_rule():
    features = np.ones((400, 7), np.float32)
    features[:, 4:] = 0
    found = named(flipset_of(features, np.arange(400) % 4 == 0))
    assert found.reason == "no feature separates members from others"


def test_small_counts_of_a_rule_are_suppressed():
    features = people(4_000)
    inside = features[:, 2] == 1
    outside = np.flatnonzero(~inside)[:6]
    flips = inside & (np.random.default_rng(0).random(4_000) < 0.3)
    flips[outside] = True
    found = named(flipset_of(features, flips))
    assert found.rule == "part_time = 1"
    assert found.fitted.flips_outside == found.tested.flips_outside == 0
    assert found.fitted.coarse or found.tested.coarse
    assert "Counts below 10 are suppressed" in str(found)
    exact = named(flipset_of(features, flips), smallest_cell=1)
    assert exact.fitted.flips_outside + exact.tested.flips_outside == 6
    assert exact.p_value == pytest.approx(found.p_value)


def test_limits_are_rounded():
    features = people(6_000)
    threshold = float(np.sort(features[:, 0])[2_000])
    found = named(flipset_of(features, features[:, 0] < threshold))
    (condition,) = found.conditions
    assert condition.high not in features[:, 0]
    assert condition.high == pytest.approx(threshold, rel=0.05)
    assert condition.high % 20 == 0


def test_conditions_as_text():
    assert str(Condition(variable="a", low=1_000.0)) == "a ≥ 1,000"
    assert str(Condition(variable="a", low=0.5, high=2.0)) == "0.5 ≤ a < 2"
    assert str(Condition(variable="a", among=("1",), without=("0",))) == "a = 1"
    assert str(Condition(variable="a", among=("x", "y"), without=("z", "w"))) == "a is x or y"
    assert str(Condition(variable="a", among=("x", "y"), without=("z",))) == "a is not z"


def test_a_subgroup_prints_in_a_terminal_and_a_notebook_and_becomes_json():
    odd = Columns(
        features=(
            *COLUMNS.features[:2],
            COLUMNS.features[2].model_copy(update={"name": "<b>part time</b> " + "long " * 20}),
            *COLUMNS.features[3:],
        ),
        one_hot_groups=COLUMNS.one_hot_groups,
    )
    features = people(4_000)
    found = name_subgroup(flipset_of(features, features[:, 2] == 1), "advantaged", odd)
    assert max(map(len, str(found).splitlines())) <= 100
    assert "<b>" not in found._repr_html_()
    data = json.loads(json.dumps(found.to_dict()))
    assert data["rule"] == found.rule
    assert data["tested"]["flips_outside"] == 0


def test_invalid_input_is_rejected():
    with pytest.raises(AuditInputError, match="1 columns are described, but features have 7"):
        name_subgroup(flipset_of(people(9), np.ones(9, bool)), "advantaged", Columns.numeric(["a"]))
    with pytest.raises(AuditInputError, match="most_conditions"):
        named(flipset_of(people(9), np.ones(9, bool)), most_conditions=0)


def test_the_seed_determines_the_halves():
    features = people(2_000)
    flips = np.random.default_rng(0).random(2_000) < 0.1 + 0.1 * (features[:, 2] == 1)
    one = named(flipset_of(features, flips), seed=1)
    assert one == named(flipset_of(features, flips), seed=1)
    assert one.tested != named(flipset_of(features, flips), seed=2).tested


@pytest.mark.parametrize(("origin", "target"), [("woman", "man"), ("man", "woman")])
def test_the_self_employed_are_named_where_the_model_is_biased_against_them(origin, target):
    world = World()
    columns = Columns(features=world.features, one_hot_groups=world.one_hot_groups)
    classifier = train_subgroup_biased(world.people(20_000, seed=1), seed=0)
    everyone = world.people(20_000, seed=2)
    rows = everyone.groups["sex"] == world.attributes[0].groups.index(origin)
    own, twins = everyone.features[rows], everyone.counterfactual("sex", target)[rows]
    flipset = Flipset(
        features=own,
        counterparts=twins[None],
        decisions=decide(classifier, own),
        counterpart_decisions=decide(classifier, twins)[None],
    )
    for side in SIDES:
        found: Any = name_subgroup(flipset, side, columns, seed=0)
        assert "self_employed = 1" in found.rule
        assert found.confirmed
        assert in_biased_subgroup(world, own)[found.holds(own, columns)].all()
