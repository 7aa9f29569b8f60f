"""Bad input gets an error that says what and where, or a result that says why it has no p-value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from offline_audit import AuditInputError, projection_test


def projected(decisions, distances, groups, **options: Any) -> Any:
    """The result as `Any`, so that tests need no narrowing of optional fields."""
    return projection_test(groups=groups, decisions=decisions, distances=distances, **options)


pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 400
DECISIONS = RNG.integers(0, 2, N)
DISTANCES = RNG.exponential(size=N)
GROUPS = RNG.choice(["a", "b"], N)
LABELS = RNG.integers(0, 2, N)


def changed(values, row, value):
    found = np.array(values, dtype=object if isinstance(value, str) or value is None else float)
    found[row] = value
    return found


REFUSED: dict[str, dict[str, Any]] = {
    "decisions: 1 value neither 0 nor 1, the first in row 7": {
        "decisions": changed(DECISIONS, 7, 2)
    },
    "decisions: not all values are numbers": {"decisions": changed(DECISIONS, 7, "yes")},
    "decisions: one value per row": {"decisions": DECISIONS[:, None]},
    "arrays have no rows": {"decisions": [], "distances": [], "groups": []},
    "different lengths: decisions 400, distances 399": {"distances": DISTANCES[1:]},
    "distances: 1 value is NaN, the first in row 3": {"distances": changed(DISTANCES, 3, math.nan)},
    "distances: 1 value is negative, the first in row 3": {
        "distances": changed(DISTANCES, 3, -1.0)
    },
    "labels: 1 value neither 0 nor 1": {
        "labels": changed(LABELS, 5, 3),
        "criterion": "equal_opportunity",
    },
    "labels: required by the criterion equal_opportunity": {"criterion": "equal_opportunity"},
    "criterion: unknown criterion 'parity'; use one of statistical_parity": {"criterion": "parity"},
    "law: unknown law 'wald'; use one of": {"law": "wald"},
    "tolerance: must be at least 0 and below 1, not -0.1": {"tolerance": -0.1},
    "alpha: must be a number between 0 and 1, not 1": {"alpha": 1.0},
    "bandwidth: must be positive, not -1": {"law": "kernel", "bandwidth": -1.0},
    "groups: at least one protected attribute": {"groups": {}},
    "different lengths: .* groups of group 399": {"groups": GROUPS[1:]},
    r"'A ' and 'a' differ only in case or spaces": {"groups": changed(GROUPS, 9, "A ")},
    r"1 name not expected: 'c'; expected are a, b": {
        "groups": changed(GROUPS, 9, "c"),
        "expected_groups": ["a", "b"],
    },
    "2,000 distinct values": {
        "groups": RNG.random(2_000),
        "decisions": RNG.integers(0, 2, 2_000),
        "distances": RNG.random(2_000),
    },
    "favoured: group has no group 'z'; there are a, b": {"favoured": "z"},
    "favoured: there is no attribute sex": {"favoured": {"sex": "a"}},
    "favoured: there are several attributes": {
        "groups": {"x": GROUPS, "y": GROUPS},
        "favoured": "a",
    },
    "units: 1 row without a unit, the first is row 4": {"units": changed(np.arange(N), 4, None)},
    "units: 2 units with rows in more than one group of group": {
        "units": np.repeat(np.arange(N // 2), 2),
        "groups": np.array(["a", "b", "b", "a"] + ["a"] * (N - 4)),
    },
    "distances: 1 value is above 1e\\+100, the first in row 3": {
        "distances": changed(DISTANCES, 3, 1e307)
    },
    "tolerance: not all values are numbers": {"tolerance": "x"},
    "alpha: must be a number between 0 and 1, not .x": {"alpha": "x"},
    "alpha: must be a number between 0 and 1, not .0": {"alpha": [0.1, 0.2]},
    "smallest_expected: must be one finite number": {"smallest_expected": math.nan},
    "smallest_cell: must be one finite number": {"smallest_cell": math.inf},
    "bandwidth: not all values are numbers": {"law": "kernel", "bandwidth": "x"},
    "expected_groups: there is no attribute sex": {"expected_groups": {"sex": ["a", "b"]}},
    "expected_groups: pass a list of names": {"expected_groups": "ab"},
    "expected_groups: pass a list": {"expected_groups": {"group": "ab"}},
    'law: with a tolerance, "kernel" needs': {"law": "kernel", "tolerance": 0.1},
}


@pytest.mark.parametrize("message", REFUSED)
def test_invalid_input_is_refused(message):
    given = {"decisions": DECISIONS, "distances": DISTANCES, "groups": GROUPS}
    with pytest.raises(AuditInputError, match=message):
        projected(**{**given, **REFUSED[message]})


def test_weights_are_not_supported():
    with pytest.raises(TypeError, match="weights"):
        projected(DECISIONS, DISTANCES, GROUPS, weights=np.ones(N))


def test_a_person_with_a_partly_unknown_group_is_accepted():
    groups = np.array(["a", None, "b", "b"] * (N // 4), dtype=object)
    units = np.repeat(np.arange(N // 2), 2)
    assert projected(DECISIONS, DISTANCES, groups, units=units).p_value is not None


WITHOUT_P: dict[str, dict[str, Any]] = {
    "All decisions are 1": {"decisions": np.ones(N, dtype=int)},
    "group has only one group, a": {"groups": np.array(["a"] * N)},
    "no row has a known group": {"groups": np.array([None] * N)},
    "fewer than two groups of group have 5 people": {
        "groups": np.array(["a"] * (N - 4) + ["b"] * 4)
    },
    "no row with label 0 has a known group": {
        "labels": np.ones(N),
        "criterion": "equalized_odds",
    },
    "Labels exist for decision 1 only": {
        "labels": np.where(DECISIONS == 1, LABELS, math.nan),
        "criterion": "equal_opportunity",
    },
    "too few rows have a finite distance": {
        "distances": np.full(N, math.inf),
        "decisions": (GROUPS == "a") ^ (RNG.random(N) < 0.2),
    },
}


@pytest.mark.parametrize("reason", WITHOUT_P)
def test_untestable_data_have_a_reason_and_no_p_value(reason):
    given = {"decisions": DECISIONS, "distances": DISTANCES, "groups": GROUPS}
    found = projected(**{**given, **WITHOUT_P[reason]})
    assert found.p_value is None
    assert found.rejected is None
    assert reason in (found.reason or "")
    assert reason in str(found).replace("\n  ", " ")
    assert found.to_dict()["p_value"] is None


def test_people_and_not_rows_count_as_data():
    groups = np.array(["a"] * 300 + ["b"] * 100)
    units = np.concatenate([np.arange(300), np.full(100, 300)])
    found = projected(DECISIONS, DISTANCES, groups, units=units)
    assert "fewer than two groups" in (found.reason or "")


def test_a_small_group_is_excluded_and_the_others_are_tested():
    groups = np.array(["tiny"] * 5 + ["a"] * 200 + ["b"] * 195)
    found = projected(DECISIONS, DISTANCES, groups)
    assert found.p_value is not None
    assert [effect.groups for effect in found.effects] == [("a", "b")]
    assert any("group = tiny is excluded" in warning for warning in found.warnings)
    assert [c.tested for c in found.counts] == [True, True, False]


def test_unknown_groups_and_labels_are_excluded_and_counted():
    groups = GROUPS.astype(object)
    groups[:3], groups[3], groups[4] = None, float("nan"), ""
    groups[5] = pd.NA
    labels = LABELS.astype(float)
    labels[10:14] = np.nan
    found = projected(DECISIONS, DISTANCES, groups, labels=labels, criterion="equalized_odds")
    told = " ".join(found.warnings)
    assert "4 rows without a label are excluded" in told
    assert sum(c.rows for c in found.counts) == N - 6 - 4
    assert found.p_value is not None


def test_labels_that_depend_on_the_decision_give_a_warning():
    labels = LABELS.astype(float)
    labels[(DECISIONS == 0) & (RNG.random(N) < 0.5)] = np.nan
    found = projected(DECISIONS, DISTANCES, GROUPS, labels=labels, criterion="equal_opportunity")
    assert any("rates within labels are biased" in warning for warning in found.warnings)


def unfair(seed=1, groups=3):
    """Rates .2 and .8 apart, and overlapping attributes."""
    rng = np.random.default_rng(seed)
    sex, race = rng.integers(0, 2, N), rng.integers(0, groups, N)
    return (rng.random(N) < 0.2 + 0.5 * sex + 0.1 * (race == 1)).astype(int), sex, race


def test_rows_on_the_boundary_cost_nothing_and_give_a_warning():
    decisions, sex, _ = unfair()
    found = projected(decisions, np.zeros(N), sex)
    assert found.statistic == 0.0
    assert found.p_value < 1e-9
    assert any("400 rows are on the boundary" in warning for warning in found.warnings)


@pytest.mark.parametrize("given", ["sex", "race", "both"])
@pytest.mark.parametrize(
    "options", [{}, {"tolerance": 0.02}, {"criterion": "equalized_odds", "labels": LABELS}]
)
def test_the_standardized_law_does_not_depend_on_the_cost(given, options):
    decisions, sex, race = unfair()
    groups = {"sex": {"sex": sex}, "race": {"race": race}, "both": {"sex": sex, "race": race}}
    refused_at_0 = np.where((sex == 0) & (decisions == 0), 0.0, DISTANCES)
    wanted = projected(decisions, np.full(N, 1e-12), groups[given], **options)
    for distances in (np.zeros(N), refused_at_0):
        found = projected(decisions, distances, groups[given], **options)
        assert found.p_value == pytest.approx(wanted.p_value, rel=1e-9)
    assert wanted.p_value < 0.2


def test_several_gaps_that_cost_nothing_have_no_p_value():
    decisions, sex, race = unfair()
    one = projected(decisions, np.zeros(N), sex, law="curve")
    assert one.p_value == projected(decisions, np.full(N, 1e-12), sex).p_value
    half = np.where(np.arange(N) % 2, 0.0, DISTANCES)
    for law, groups, far in [
        ("curve", race, np.zeros(N)),
        ("curve", race, half),
        ("kernel", sex, np.zeros(N)),
        ("curve", {"sex": sex, "race": race}, np.zeros(N)),
    ]:
        found = projected(decisions, far, groups, law=law)
        assert found.p_value is None
        assert "closing the gaps costs nothing" in found.reason
        assert "closing the gaps costs nothing" in str(found)


@pytest.mark.parametrize("law", ["standardized", "curve"])
@pytest.mark.parametrize("distance", [0.0, math.inf])
@pytest.mark.parametrize("others", [0.0, 1.0, math.inf])
def test_equal_rates_have_a_p_value_of_one(law, distance, others):
    distances = np.full(N, distance)
    distances[1:] = others
    found = projected(np.tile([0, 1], 200), distances, np.repeat(["a", "b"], 200), law=law)
    assert found.p_value == 1.0


@pytest.mark.parametrize("near", [0, 1, 2])
def test_the_kernel_law_needs_rows_near_the_boundary(near):
    """Rates are equal; nobody, one or two can turn."""
    distances = np.full(N, math.inf)
    distances[:near] = 0.1
    groups = np.repeat(["a", "b"], 200)
    found = projected(np.tile([0, 1], 200), distances, groups, law="kernel")
    if near:
        assert found.p_value == 1.0
    else:
        assert "no row is near enough to the boundary" in found.reason


def test_the_kernel_law_has_no_p_value_for_a_gap_far_from_the_boundary():
    decisions, sex, _ = unfair()
    found = projected(decisions, 100 + DISTANCES, sex, law="kernel", bandwidth=0.1)
    assert found.p_value is None
    assert "no row is near enough" in found.reason


def one_decision_labelled(groups, group):
    """Labels of one group exist only where its decision is 1."""
    return np.where((groups == group) & (DECISIONS == 0), np.nan, LABELS.astype(float))


@pytest.mark.parametrize("criterion", ["equal_opportunity", "equalized_odds"])
def test_a_group_with_labels_for_one_decision_only_is_excluded(criterion):
    groups = np.array(["a"] * 180 + ["b"] * 160 + ["c"] * 60)
    labels = one_decision_labelled(groups, "c")
    found = projected(DECISIONS, DISTANCES, groups, labels=labels, criterion=criterion)
    others = projected(
        DECISIONS[:340], DISTANCES[:340], groups[:340], labels=labels[:340], criterion=criterion
    )
    assert found.p_value == others.p_value
    assert {effect.groups for effect in found.effects} == {("a", "b")}
    assert any("group = c with label 1 is excluded: its labels" in w for w in found.warnings)
    assert not any(c.tested for c in found.counts if c.group == "c")


def test_with_one_identified_group_left_there_is_a_reason():
    labels = one_decision_labelled(GROUPS, "b")
    found = projected(DECISIONS, DISTANCES, GROUPS, labels=labels, criterion="equalized_odds")
    assert found.p_value is None
    assert "labels of b exist for one decision only" in found.reason
    assert projected(DECISIONS, DISTANCES, GROUPS, labels=labels).p_value is not None


def test_rows_at_an_infinite_distance_never_change_and_give_a_warning():
    distances = np.where(RNG.random(N) < 0.3, math.inf, DISTANCES)
    found = projected(DECISIONS, distances, GROUPS, smallest_cell=1)
    assert math.isfinite(found.statistic)
    assert any(
        "at an infinite distance: their decisions never change" in warning
        for warning in found.warnings
    )


@pytest.mark.parametrize("kind", [list, pd.Series, lambda v: np.array(v, dtype=object)])
def test_lists_series_and_arrays_are_accepted(kind):
    found = projected(kind(DECISIONS), kind(DISTANCES), kind(GROUPS))
    assert found.p_value == projected(DECISIONS, DISTANCES, GROUPS).p_value
    as_bool = projected(DECISIONS == 1, DISTANCES, GROUPS == "a")
    assert as_bool.p_value == pytest.approx(found.p_value, rel=1e-12)


def test_input_arrays_are_not_modified():
    given = [DECISIONS.copy(), DISTANCES.copy(), GROUPS.copy()]
    projected(*given)
    for before, after in zip((DECISIONS, DISTANCES, GROUPS), given, strict=True):
        np.testing.assert_array_equal(before, after)


def test_rows_with_selective_labels_do_not_affect_other_attributes():
    race = np.array(["x"] * 180 + ["y"] * 160 + ["z"] * 60)
    labels = one_decision_labelled(race, "z")
    both = {"sex": GROUPS, "race": race}
    found = projected(DECISIONS, DISTANCES, both, labels=labels, criterion="equal_opportunity")
    first = {name: values[:340] for name, values in both.items()}
    others = projected(
        DECISIONS[:340], DISTANCES[:340], first, labels=labels[:340], criterion="equal_opportunity"
    )
    assert found.p_value == pytest.approx(others.p_value, rel=1e-12)
    assert [e.gap for e in found.effects] == pytest.approx([e.gap for e in others.effects])


def test_a_group_whose_labels_depend_on_the_decision_is_named():
    groups = np.array(["a"] * 300 + ["b"] * 100)
    labels = LABELS.astype(float)
    # All but three of the refused of b have no label.
    refused = np.flatnonzero((groups == "b") & (DECISIONS == 0))
    labels[refused[3:]] = np.nan
    found = projected(DECISIONS, DISTANCES, groups, labels=labels, criterion="equal_opportunity")
    assert any("depends on the decision in groups of group: b." in w for w in found.warnings)
    by_chance = LABELS.astype(float)
    by_chance[::3] = np.nan
    fair = projected(DECISIONS, DISTANCES, groups, labels=by_chance, criterion="equal_opportunity")
    assert not any("depends on the decision" in warning for warning in fair.warnings)
