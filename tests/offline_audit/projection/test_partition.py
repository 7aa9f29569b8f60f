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
    assert any("Labels of a are known for 100.0%" in warning for warning in result.warnings)


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
    negative = np.flatnonzero((groups == "b") & (DECISIONS == 0))
    labels[negative[20:]] = np.nan
    result = projected(DECISIONS, DISTANCES, groups, labels=labels, criterion="equal_opportunity")
    assert any("of the rows of b with decision 0 and" in warning for warning in result.warnings)
    assert not any("Labels of a " in warning for warning in result.warnings)
    by_chance = LABELS.astype(float)
    by_chance[::3] = np.nan
    fair = projected(DECISIONS, DISTANCES, groups, labels=by_chance, criterion="equal_opportunity")
    assert not any("abels" in warning for warning in fair.warnings)


def test_labels_of_all_but_one_row_of_one_decision_are_selective():
    labels = one_decision_labelled(GROUPS, "b")
    labels[np.flatnonzero(np.isnan(labels))[0]] = 1.0
    result = projected(DECISIONS, DISTANCES, GROUPS, labels=labels, criterion="equal_opportunity")
    assert result.p_value is None
    assert "labels of b exist for one decision only" in result.reason


def test_labels_missing_by_outcome_in_one_group_cannot_be_determined():
    """The gap of complete labels is 0; of the labelled rows it is not."""
    decisions = np.tile([0, 0, 0, 1, 1, 1, 1, 1], 500)
    groups = np.repeat(["a", "b"], 2_000)
    labels = np.tile([1.0, 0, 1, 1, 1, 1, 0, 1], 500)
    rng = np.random.default_rng(4)
    hidden = (groups == "b") & (labels == 1) & (decisions == 0) & (rng.random(4_000) < 0.4)
    labels[hidden] = np.nan
    distances = rng.random(4_000)
    result = projected(decisions, distances, groups, labels=labels, criterion="equal_opportunity")
    assert result.p_value is None
    assert "of the rows of b with decision 0 and 100.0% of those of a" in result.reason
    (open_gap,) = result.ranges
    low, high = open_gap.over_labels.effect
    assert low < 0 <= high
    assert f"{100 * low:+.1f} to {100 * high:+.1f} percentage points" in " ".join(
        str(result).split()
    )
    (drawn,) = (line for line in result.plot().axes[0].lines if "thin" in str(line.get_label()))
    assert list(drawn.get_xdata()) == pytest.approx([100 * low, 100 * high])


def test_rows_of_unknown_group_that_differ_from_the_others_cannot_be_determined():
    decisions = np.tile([0, 1], 2_000)
    groups = np.repeat(np.array(["a", "b"], object), 2_000)
    hidden = (groups == "b") & (decisions == 0) & (np.arange(4_000) % 3 == 0)
    groups[hidden] = None
    result = projected(decisions, np.ones(4_000), groups)
    assert result.p_value is None
    assert "rows of unknown group get decision 1 at another rate" in result.reason.lower()
    assert result.unknown.groups == {"group": int(hidden.sum())}
    low, high = result.ranges[0].over_groups.effect
    assert low < 0 <= high
