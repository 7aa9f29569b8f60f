"""Bad input: a clear error, or an outcome with a reason; never a p-value that means nothing."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

from offline_audit.errors import AuditInputError
from offline_audit.permutation import (
    ScoreCounts,
    TableCounts,
    correlation_test,
    permutation_test,
    selection_table,
)

N = 200
GROUPS = np.array(["female", "male"] * (N // 2))
DECISIONS = np.array([0, 0, 1, 1] * (N // 4))
LABELS = np.array([0, 1, 1, 1, 0] * (N // 5))
SCORES = np.linspace(0, 1, N)


def changed(values, **at):
    found = np.array(values, dtype=object)
    for place, value in at.items():
        found[int(place[1:])] = value
    return found


@pytest.mark.parametrize(
    ("metric", "columns", "says"),
    [
        ("tpr", {"decisions": DECISIONS}, "tpr: labels are needed"),
        ("auc", {"labels": LABELS}, "auc: scores are needed"),
        ("selection_rate", {}, "selection_rate: decisions are needed"),
        ("recall", {"decisions": DECISIONS}, "metric 'recall': there is none"),
        ([], {"decisions": DECISIONS}, "metrics: none was given"),
        ("selection_rate", {"decisions": DECISIONS[:-1]}, "arrays of different length"),
        ("selection_rate", {"decisions": changed(DECISIONS, _7=3)}, "neither 0 nor 1.*row 7"),
        ("selection_rate", {"decisions": DECISIONS * 0.7}, "neither 0 nor 1"),
        ("selection_rate", {"decisions": ["yes"] * N}, "decisions: not all values are numbers"),
        ("selection_rate", {"decisions": DECISIONS[:, None]}, "decisions: one value a row"),
        ("mean_score", {"scores": changed(SCORES, _9=None)}, "1 value missing or inf.*row 9"),
        ("mean_score", {"scores": np.where(SCORES > 0.9, np.nan, SCORES)}, "missing or infinite"),
        ("mean_score", {"scores": SCORES * 2}, "100 values outside 0 to 1, the first in row 100"),
        ("mean_score", {"scores": changed(SCORES, _0=np.inf)}, "infinite"),
        ("mean_score", {"scores": SCORES, "units": [None] * N}, "units: 200 rows without"),
        ("mean_score", {"scores": SCORES, "units": np.zeros(N)}, "1 have rows in more than one"),
        ("mean_score", {"scores": SCORES, "draws": 10}, "draws: at least 99"),
        ("mean_score", {"scores": SCORES, "confidence": 95}, "confidence: from .5"),
        ("mean_score", {"scores": SCORES, "alternative": "larger"}, "alternative: one of"),
        ("mean_score", {"scores": SCORES, "exchange": "none"}, "exchange: one of"),
        ("mean_score", {"scores": SCORES, "bins": -1}, "bins: None, 0 for none"),
        ("mean_score", {"scores": SCORES, "reference": "men"}, "reference: no group 'men'"),
        ("mean_score", {"scores": SCORES, "intersections": [("sex", "age")]}, "no attribute"),
    ],
)
def test_what_is_wrong_is_said(metric, columns, says):
    with pytest.raises(AuditInputError, match=says):
        permutation_test(metric, groups=GROUPS, **columns)


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        (["female"] * N, "two are needed, there is only 'female'"),
        ([None] * N, "two are needed, there is none"),
        ([], "no rows were given"),
        (np.where(np.arange(N) < 3, "Female ", GROUPS), "differ only in case or spaces"),
        (np.linspace(18, 70, 201), "arrays of different length|no groups"),
        (np.linspace(18, 70, 300), "no groups; a quantity belongs into `correlation_test`"),
        (np.ones((N, 2)), "one value a row"),
        ({}, "no attribute"),
    ],
)
def test_groups_that_are_none_are_refused(groups, says):
    with pytest.raises(AuditInputError, match=says):
        permutation_test("selection_rate", groups=groups, decisions=DECISIONS[: len(groups)])


def test_names_that_look_like_slips_are_listed():
    groups = np.where(np.arange(N) % 20 == 0, "femal", GROUPS)
    found = permutation_test("selection_rate", groups=groups, decisions=DECISIONS)
    assert any("'femal' and 'female'" in warning for warning in found.warnings)
    assert "Are they the same?" in str(found)


@pytest.mark.parametrize(
    "names", [("male", "female"), ("group1", "group2"), ("A", "B"), ("18-25", "26-35")]
)
def test_names_that_are_simply_different_are_not(names):
    groups = np.array(names)[np.arange(N) % 2]
    assert not permutation_test("selection_rate", groups=groups, decisions=DECISIONS).warnings


def test_names_that_were_not_expected_are_an_error_that_lists_them():
    groups = np.where(np.arange(N) % 20 == 0, "femal", GROUPS)
    with pytest.raises(AuditInputError, match=r"1 name not expected: 'femal'; expected are female"):
        permutation_test(
            "selection_rate", groups=groups, decisions=DECISIONS, expected=["female", "male"]
        )


def test_no_message_holds_a_value_of_a_person():
    with pytest.raises(AuditInputError) as caught:
        permutation_test("mean_score", groups=GROUPS, scores=changed(SCORES, _5=123.456))
    assert "123" not in str(caught.value)


@pytest.mark.parametrize(
    ("metric", "columns", "reason"),
    [
        ("selection_rate", {"decisions": np.ones(N)}, "nothing varies"),
        ("selection_rate", {"decisions": np.zeros(N)}, "nothing varies"),
        ("tpr", {"decisions": DECISIONS, "labels": np.zeros(N)}, "no row of female counts"),
        ("fpr", {"decisions": DECISIONS, "labels": np.ones(N)}, "no row of female counts"),
        ("auc", {"scores": SCORES, "labels": np.ones(N)}, "fewer than two positives or two neg"),
        ("mean_score", {"scores": np.full(N, 0.3)}, "nothing varies"),
        ("auc", {"scores": np.full(N, 0.3), "labels": LABELS}, "no standard error"),
        ("auc", {"scores": LABELS * 0.5, "labels": LABELS}, "0.0 of the smallest class"),
        ("tpr", {"decisions": DECISIONS, "labels": np.arange(N) < 4}, "not enough data"),
    ],
)
def test_where_nothing_can_be_told_there_is_a_reason_and_no_p_value(metric, columns, reason):
    found = permutation_test(metric, groups=GROUPS, draws=99, **columns)[0]
    assert found.p_value is None
    assert found.statistic is None
    assert not found.enough_data
    assert found.reason is not None
    assert reason in found.reason
    assert reason in str(found).replace("\n  ", " ")


def test_a_mean_of_few_units_is_not_enough():
    groups = np.array(["a"] * 29 + ["b"] * 171)
    found = permutation_test("mean_score", groups=groups, scores=SCORES)[0]
    assert found.reason == "not enough data: a group has 29 units; 30 are needed"
    assert found.interval is not None


def test_a_rate_is_refused_below_the_stated_count_and_not_above():
    def smallest(hits: int):
        counts = TableCounts.from_mapping(
            {"a": {(None, 1): hits, (None, 0): 100 - hits}, "b": {(None, 1): 2, (None, 0): 98}}
        )
        return permutation_test("selection_rate", counts=counts)[0]

    assert smallest(1).smallest_cell == 1.5
    assert not smallest(1).enough_data
    assert smallest(2).smallest_cell == 2 == smallest(2).least_cell
    assert smallest(2).enough_data


@pytest.mark.parametrize(
    "metric", ["tpr", "fpr", "fnr", "npv", "accuracy", "auc", "calibration_gap"]
)
def test_labels_of_one_decision_only_do_not_identify_the_metric(metric):
    labels = np.where(DECISIONS == 1, LABELS, np.nan)
    found = permutation_test(
        metric, groups=GROUPS, decisions=DECISIONS, labels=labels, scores=SCORES, draws=99
    )[0]
    assert found.p_value is None
    assert found.effect is None
    assert found.interval is None
    assert "only for rows that were selected" in str(found.reason)


def test_labels_of_the_selected_do_identify_the_ppv():
    labels = np.where(DECISIONS == 1, LABELS, np.nan)
    found = permutation_test("ppv", groups=GROUPS, decisions=DECISIONS, labels=labels)[0]
    assert found.enough_data


def test_labels_that_one_decision_gets_more_often_are_told():
    labels = np.where((DECISIONS == 1) | (np.arange(N) % 3 == 0), LABELS, np.nan)
    found = permutation_test("tpr", groups=GROUPS, decisions=DECISIONS, labels=labels)[0]
    assert any("describes labelled rows" in warning for warning in found.warnings)


@pytest.mark.parametrize("missing", [None, np.nan, "", "  ", np.datetime64("NaT")])
def test_unknown_groups_form_no_group(missing):
    groups = np.array([*GROUPS[:-10], *[missing] * 10], dtype=object)
    found = permutation_test("selection_rate", groups=groups, decisions=DECISIONS)
    assert [found[0].group.rows, found[0].other.rows] == [95, 95]  # type: ignore[union-attr]
    assert selection_table(groups=groups, decisions=DECISIONS).of(None).rows == 10


def test_columns_of_pandas_are_arrays_too():
    pd: Any = pytest.importorskip("pandas")
    frame = pd.DataFrame({"sex": GROUPS, "decision": DECISIONS, "label": LABELS})
    frame.loc[3, "label"] = None
    frame["sex"] = frame["sex"].astype("string")
    frame.loc[4, "sex"] = pd.NA
    found = permutation_test(
        "tpr",
        groups=frame["sex"],
        decisions=frame["decision"],
        labels=frame["label"].astype("Int64"),
    )[0]
    assert found.group.counted + found.other.counted == LABELS.sum() - LABELS[3] - LABELS[4]  # type: ignore[union-attr]


@pytest.mark.parametrize("rows", [-1, 2.5, float("nan")])
def test_counts_are_whole_numbers(rows):
    with pytest.raises(AuditInputError, match="whole numbers"):
        TableCounts.from_mapping({"a": {(1, 1): rows}, "b": {(1, 1): 3}})


def test_a_label_of_counts_is_0_or_1_or_none():
    with pytest.raises(AuditInputError, match="a label is neither"):
        TableCounts.from_mapping({"a": {(2, 1): 4}})
    with pytest.raises(AuditInputError, match="counts: there are none"):
        TableCounts.from_cells([])


def test_counts_and_arrays_together_are_refused():
    counts = TableCounts.from_mapping({"a": {(1, 1): 9}, "b": {(1, 1): 3}})
    with pytest.raises(AuditInputError, match="either arrays or counts"):
        permutation_test("tpr", counts=counts, groups=GROUPS)
    with pytest.raises(AuditInputError, match="a function needs rows"):
        permutation_test(lambda _: 0.0, counts=counts)
    with pytest.raises(AuditInputError, match="groups: give arrays"):
        permutation_test("tpr")
    with pytest.raises(AuditInputError, match="at least 2"):
        ScoreCounts.from_arrays(groups=GROUPS, scores=SCORES, bins=1)


def test_units_with_mixed_labels_cannot_change_groups_within_an_outcome():
    units = np.repeat(np.arange(N // 4), 4)
    groups = np.array(["a", "b"])[units % 2]
    with pytest.raises(AuditInputError, match="different labels"):
        permutation_test(
            "selection_rate", groups=groups, decisions=DECISIONS, labels=LABELS, units=units,
            exchange="within outcome",
        )  # fmt: skip


def test_a_correlation_with_what_never_varies_has_a_reason():
    found = correlation_test(np.full(50, 3.0), np.arange(50.0), attribute="age")
    assert found.p_value is None
    assert "age has the same value in every row" in str(found.reason)
    few = correlation_test(np.arange(10.0), np.arange(10.0) ** 2)
    assert few.reason == "not enough data: 10 rows; 30 are needed"
    with pytest.raises(AuditInputError, match="1 value missing"):
        correlation_test([1.0, np.nan], [1.0, 2.0])


def test_dates_are_no_numbers():
    with pytest.raises(AuditInputError, match="not all values are numbers"):
        correlation_test([dt.date(2020, 1, 1)] * 3, [1.0, 2.0, 3.0])
