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
from offline_audit.fliptest.subgroup import _largest_p_value, name_subgroup

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


def draw_rows(n, seed=0):
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


def subgroup_of(flipset, side="advantaged", **options) -> Any:
    """Typed as Any, so that tests can read optional fields without narrowing."""
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
    features = draw_rows(6_000)
    inside = RULES[rule](features)
    chance = np.random.default_rng(1).random(len(features))
    subgroup = subgroup_of(flipset_of(features, chance < np.where(inside, 0.3, 0.01)), seed=3)
    assert subgroup.rule == rule
    assert subgroup.confirmed
    assert (subgroup.holds(features, COLUMNS) == inside).all()
    exact = subgroup_of(
        flipset_of(features, chance < np.where(inside, 0.3, 0.01)), seed=3, smallest_cell=1
    )
    low, high = exact.interval
    assert low <= 0.29 <= high
    assert subgroup.withheld is not None or subgroup.interval == exact.interval


def test_both_halves_count_disjoint_people():
    features = draw_rows(6_000)
    inside = features[:, 2] == 1
    flips = np.random.default_rng(1).random(6_000) < np.where(inside, 0.3, 0.05)
    subgroup = subgroup_of(flipset_of(features, flips))
    halves = (subgroup.fitted, subgroup.tested)
    assert sum(half.inside for half in halves) == inside.sum()
    assert sum(half.outside for half in halves) == (~inside).sum()
    assert sum(half.flips_inside for half in halves) == (flips & inside).sum()
    assert sum(half.flips_outside for half in halves) == (flips & ~inside).sum()
    tested = subgroup.tested
    assert tested.share_inside == tested.flips_inside / tested.inside
    assert tested.covered == tested.flips_inside / (tested.flips_inside + tested.flips_outside)
    table = [
        [tested.flips_inside, tested.flips_outside],
        [tested.inside - tested.flips_inside, tested.outside - tested.flips_outside],
    ]
    assert subgroup.p_value == stats.fisher_exact(table, alternative="greater").pvalue
    assert subgroup.withheld is None


def test_random_flips_are_confirmed_at_the_level():
    """On the half that the rule was fitted on, the same test rejects far too often."""
    runs, confirmed, rejected_on_fitted_half = 200, 0, 0
    for seed in range(runs):
        features = draw_rows(1_000, seed)
        flips = np.random.default_rng(10_000 + seed).random(1_000) < 0.1
        subgroup = subgroup_of(flipset_of(features, flips), seed=seed)
        confirmed += subgroup.confirmed
        if subgroup.fitted is not None:
            half = subgroup.fitted
            table = [
                [half.flips_inside, half.flips_outside],
                [half.inside - half.flips_inside, half.outside - half.flips_outside],
            ]
            rejected_on_fitted_half += (
                stats.fisher_exact(table, alternative="greater").pvalue <= 0.05
            )
    assert confirmed <= stats.binom.ppf(1 - 1e-4, runs, 0.05)
    assert rejected_on_fitted_half > stats.binom.ppf(1 - 1e-4, runs, 0.05)


def test_a_rule_that_fails_on_the_other_half_is_not_confirmed():
    features = draw_rows(1_000)
    flips = np.random.default_rng(0).random(1_000) < 0.1
    subgroup = next(
        candidate
        for candidate in (subgroup_of(flipset_of(features, flips), seed=seed) for seed in range(50))
        if candidate.rule is not None and not candidate.confirmed
    )
    assert subgroup.p_value > subgroup.alpha
    assert "(not confirmed)" in str(subgroup)
    assert subgroup.to_dict()["confirmed"] is False


def test_shorter_rules_are_preferred():
    features = draw_rows(8_000)
    # A second condition (years < 10) would improve the rule only slightly.
    inside = (features[:, 2] == 1) & (features[:, 1] < 10)
    flips = np.random.default_rng(2).random(8_000) < 0.3 * inside
    assert subgroup_of(flipset_of(features, flips)).rule == "part_time = 1"


def test_the_number_of_conditions_is_limited():
    features = draw_rows(8_000)
    inside = (features[:, 2] == 1) & (features[:, 1] < 5) & (features[:, 0] < 900)
    flipset = flipset_of(features, inside)
    assert len(subgroup_of(flipset, most_conditions=1).conditions) == 1
    assert len(subgroup_of(flipset, most_conditions=2).conditions) == 2
    assert {c.variable for c in subgroup_of(flipset).conditions} == {"part_time", "years", "income"}


def test_membership_follows_from_most_counterparts():
    features = draw_rows(4_000)
    inside = features[:, 2] == 1
    flips = np.stack([inside, inside, features[:, 3] == 1])
    assert subgroup_of(flipset_of(features, flips)).rule == "part_time = 1"


@pytest.mark.parametrize(("members", "role"), [(0, "members"), (19, "members"), (985, "others")])
def test_too_few_members_or_others_have_no_rule(members, role):
    subgroup = subgroup_of(flipset_of(draw_rows(1_000), np.arange(1_000) < members))
    assert (subgroup.rule, subgroup.fitted, subgroup.tested, subgroup.p_value) == (None,) * 4
    assert not subgroup.confirmed
    assert subgroup.reason == f"there are fewer than 20 {role}"
    assert not subgroup.holds(draw_rows(10), COLUMNS).any()
    assert subgroup.reason in str(subgroup)


def test_an_empty_group_has_no_rule():
    assert subgroup_of(flipset_of(draw_rows(0), np.zeros(0, bool))).reason is not None


def test_duplicates_only_have_no_rule():
    features = np.ones((400, 7), np.float32)
    features[:, 4:] = 0
    subgroup = subgroup_of(flipset_of(features, np.arange(400) % 4 == 0))
    assert subgroup.reason == "no feature separates members from others"


def flipset_with_few_outside(outside):
    features = draw_rows(4_000)
    inside = features[:, 2] == 1
    flips = inside & (np.random.default_rng(0).random(4_000) < 0.3)
    flips[np.flatnonzero(~inside)[:outside]] = True
    return flipset_of(features, flips)


def test_counts_of_both_halves_are_withheld_if_one_is_small():
    subgroup = subgroup_of(flipset_with_few_outside(6))
    assert subgroup.rule == "part_time = 1"
    assert subgroup.withheld == "fewer than 10 members outside the rule"
    assert (subgroup.fitted, subgroup.tested, subgroup.interval) == (None, None, None)
    printed = " ".join(str(subgroup).split())
    assert f"Counts are suppressed, as there are {subgroup.withheld} in a half." in printed
    assert "half inside" not in printed
    exact = subgroup_of(flipset_with_few_outside(6), smallest_cell=1)
    assert exact.fitted.flips_outside + exact.tested.flips_outside == 6
    assert exact.withheld is None
    assert exact.p_value < subgroup.p_value < 1e-4
    assert subgroup.confirmed


def test_withheld_counts_do_not_change_the_p_value():
    """The p-value is the largest that counts of 1 to 9 allow, whichever they are."""
    tables = [np.array([[90 - few, few], [300, 900]]) for few in range(1, 10)]
    p_values = [_largest_p_value(table, 10) for table in tables]
    assert len(set(p_values)) == 1
    assert p_values[0] == max(
        stats.fisher_exact(table, alternative="greater").pvalue for table in tables
    )
    few_others = [np.array([[90, 60], [few, 400 - few]]) for few in (1, 4, 9)]
    worst = stats.fisher_exact(few_others[-1], alternative="greater").pvalue
    assert {_largest_p_value(table, 10) for table in few_others} == {worst}
    shown = np.array([[90, 60], [0, 400]])
    assert _largest_p_value(shown, 10) == stats.fisher_exact(shown, alternative="greater").pvalue


def test_limits_are_rounded():
    features = draw_rows(6_000)
    threshold = float(np.sort(features[:, 0])[2_000])
    subgroup = subgroup_of(flipset_of(features, features[:, 0] < threshold))
    (condition,) = subgroup.conditions
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
    long_names = Columns(
        features=(
            *COLUMNS.features[:2],
            COLUMNS.features[2].model_copy(update={"name": "<b>part time</b> " + "long " * 20}),
            *COLUMNS.features[3:],
        ),
        one_hot_groups=COLUMNS.one_hot_groups,
    )
    features = draw_rows(4_000)
    subgroup = name_subgroup(flipset_of(features, features[:, 2] == 1), "advantaged", long_names)
    assert max(map(len, str(subgroup).splitlines())) <= 100
    assert "<b>" not in subgroup._repr_html_()
    data = json.loads(json.dumps(subgroup.to_dict()))
    assert data["rule"] == subgroup.rule
    assert data["tested"]["flips_outside"] == 0


def test_invalid_input_is_rejected():
    with pytest.raises(AuditInputError, match="1 columns are described, but features have 7"):
        name_subgroup(
            flipset_of(draw_rows(9), np.ones(9, bool)), "advantaged", Columns.numeric(["a"])
        )
    with pytest.raises(AuditInputError, match="most_conditions"):
        subgroup_of(flipset_of(draw_rows(9), np.ones(9, bool)), most_conditions=0)


def test_the_seed_determines_the_halves():
    features = draw_rows(2_000)
    flips = np.random.default_rng(0).random(2_000) < 0.1 + 0.1 * (features[:, 2] == 1)
    subgroup = subgroup_of(flipset_of(features, flips), seed=1)
    assert subgroup == subgroup_of(flipset_of(features, flips), seed=1)
    assert subgroup.tested != subgroup_of(flipset_of(features, flips), seed=2).tested


@pytest.mark.parametrize(("origin", "target"), [("woman", "man"), ("man", "woman")])
def test_the_self_employed_are_named_where_the_model_is_biased_against_them(origin, target):
    world = World()
    columns = Columns(features=world.features, one_hot_groups=world.one_hot_groups)
    classifier = train_subgroup_biased(world.people(20_000, seed=1), seed=0)
    people = world.people(20_000, seed=2)
    rows = people.groups["sex"] == world.attributes[0].groups.index(origin)
    own, twins = people.features[rows], people.counterfactual("sex", target)[rows]
    flipset = Flipset(
        features=own,
        counterparts=twins[None],
        decisions=decide(classifier, own),
        counterpart_decisions=decide(classifier, twins)[None],
    )
    for side in SIDES:
        subgroup: Any = name_subgroup(flipset, side, columns, seed=0)
        assert "self_employed = 1" in subgroup.rule
        assert subgroup.confirmed
        assert in_biased_subgroup(world, own)[subgroup.holds(own, columns)].all()
