"""Groups and rows that cannot be compared are excluded and named."""

from __future__ import annotations

import numpy as np
import pytest

from tests.offline_audit.projection.projected import projected

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 400
DECISIONS = RNG.integers(0, 2, N)
DISTANCES = RNG.exponential(size=N)
GROUPS = RNG.choice(["a", "b"], N)
LABELS = RNG.integers(0, 2, N)


def test_people_and_not_rows_are_counted():
    groups = np.array(["a"] * 300 + ["b"] * 100)
    units = np.concatenate([np.arange(300), np.full(100, 300)])
    result = projected(DECISIONS, DISTANCES, groups, units=units)
    assert "Fewer than two groups" in (result.reason or "")


def test_a_small_group_is_excluded_and_the_others_are_tested():
    groups = np.array(["tiny"] * 5 + ["a"] * 200 + ["b"] * 195)
    result = projected(DECISIONS, DISTANCES, groups)
    assert result.p_value is not None
    assert [effect.groups for effect in result.effects] == [("a", "b")]
    assert any("group = tiny is excluded" in warning for warning in result.warnings)
    assert [c.tested for c in result.counts] == [True, True, False]


def test_unknown_groups_and_labels_are_excluded_and_counted():
    groups = GROUPS.astype(object)
    groups[:3], groups[3], groups[4] = None, float("nan"), ""
    groups[5] = pd.NA
    labels = LABELS.astype(float)
    labels[10:14] = np.nan
    result = projected(DECISIONS, DISTANCES, groups, labels=labels, criterion="equalized_odds")
    warnings = " ".join(result.warnings)
    assert "4 rows without a label are excluded" in warnings
    assert sum(c.rows for c in result.counts) == N - 6 - 4
    assert result.p_value is not None


def test_labels_that_depend_on_the_decision_give_a_warning():
    labels = LABELS.astype(float)
    labels[(DECISIONS == 0) & (RNG.random(N) < 0.5)] = np.nan
    result = projected(DECISIONS, DISTANCES, GROUPS, labels=labels, criterion="equal_opportunity")
    assert any("rates within labels are biased" in warning for warning in result.warnings)


def one_decision_labelled(groups, group):
    """Labels of one group exist only where its decision is 1."""
    return np.where((groups == group) & (DECISIONS == 0), np.nan, LABELS.astype(float))


@pytest.mark.parametrize("criterion", ["equal_opportunity", "equalized_odds"])
def test_a_group_with_labels_for_one_decision_only_is_excluded(criterion):
    groups = np.array(["a"] * 180 + ["b"] * 160 + ["c"] * 60)
    labels = one_decision_labelled(groups, "c")
    result = projected(DECISIONS, DISTANCES, groups, labels=labels, criterion=criterion)
    others = projected(
        DECISIONS[:340], DISTANCES[:340], groups[:340], labels=labels[:340], criterion=criterion
    )
    assert result.p_value == others.p_value
    assert {effect.groups for effect in result.effects} == {("a", "b")}
    assert any("group = c with label 1 is excluded: its labels" in w for w in result.warnings)
    assert not any(c.tested for c in result.counts if c.group == "c")


def test_with_one_identified_group_left_there_is_a_reason():
    labels = one_decision_labelled(GROUPS, "b")
    result = projected(DECISIONS, DISTANCES, GROUPS, labels=labels, criterion="equalized_odds")
    assert result.p_value is None
    assert "labels of b exist for one decision only" in result.reason
    assert projected(DECISIONS, DISTANCES, GROUPS, labels=labels).p_value is not None


def test_rows_with_selective_labels_do_not_affect_other_attributes():
    race = np.array(["x"] * 180 + ["y"] * 160 + ["z"] * 60)
    labels = one_decision_labelled(race, "z")
    both = {"sex": GROUPS, "race": race}
    result = projected(DECISIONS, DISTANCES, both, labels=labels, criterion="equal_opportunity")
    first = {name: values[:340] for name, values in both.items()}
    others = projected(
        DECISIONS[:340], DISTANCES[:340], first, labels=labels[:340], criterion="equal_opportunity"
    )
    assert result.p_value == pytest.approx(others.p_value, rel=1e-12)
    assert [e.gap for e in result.effects] == pytest.approx([e.gap for e in others.effects])


def test_a_group_whose_labels_depend_on_the_decision_is_named():
    groups = np.array(["a"] * 300 + ["b"] * 100)
    labels = LABELS.astype(float)
    # Of the rows of b with decision 0, only three have a label.
    negative = np.flatnonzero((groups == "b") & (DECISIONS == 0))
    labels[negative[3:]] = np.nan
    result = projected(DECISIONS, DISTANCES, groups, labels=labels, criterion="equal_opportunity")
    assert any("depends on the decision in groups of group: b." in w for w in result.warnings)
    by_chance = LABELS.astype(float)
    by_chance[::3] = np.nan
    fair = projected(DECISIONS, DISTANCES, groups, labels=by_chance, criterion="equal_opportunity")
    assert not any("depends on the decision" in warning for warning in fair.warnings)
