"""Definitions of the metrics, and which of them selective labels identify."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import METRICS, TableCounts, permutation_test
from offline_audit.permutation.metrics import FAVOURABLE

N = 200
GROUPS = np.array(["female", "male"] * (N // 2))
DECISIONS = np.array([0, 0, 1, 1] * (N // 4))
LABELS = np.array([0, 1, 1, 1, 0] * (N // 5))
SCORES = np.linspace(0, 1, N)


@pytest.mark.parametrize(
    ("metric", "hits", "counted"),
    [
        ("selection_rate", 20 + 4, 100),
        ("tpr", 20, 30),
        ("fnr", 10, 30),
        ("fpr", 4, 70),
        ("ppv", 20, 24),
        ("npv", 66, 76),
        ("accuracy", 86, 100),
    ],
)
def test_a_rate_counts_the_rows_of_its_definition(metric, hits, counted):
    table = {(1, 1): 20, (1, 0): 10, (0, 1): 4, (0, 0): 66}
    unlabelled: dict[tuple[int | None, int | None], int] = {(None, 1): 6, (None, 0): 3}
    counts = TableCounts.from_mapping({"a": table | unlabelled, "b": table})
    result = permutation_test(metrics=metric, counts=counts)[0]
    extra = (6, 9) if metric == "selection_rate" else (0, 0)
    assert (result.group.hits, result.group.counted) == (hits + extra[0], counted + extra[1])
    assert result.other is not None
    assert (result.other.hits, result.other.counted) == (hits, counted)
    assert result.effect == pytest.approx((hits + extra[0]) / (counted + extra[1]) - hits / counted)


@pytest.mark.parametrize(
    "metric", ["tpr", "fpr", "fnr", "npv", "accuracy", "auc", "calibration_gap"]
)
def test_labels_of_one_decision_only_do_not_identify_the_metric(metric):
    labels = np.where(DECISIONS == 1, LABELS, np.nan)
    result = permutation_test(
        metrics=metric,
        groups=GROUPS,
        decisions=DECISIONS,
        labels=labels,
        scores=SCORES,
        n_resamples=99,
    )[0]
    assert result.p_value is None
    assert result.effect is None
    assert result.interval is None
    assert "only for rows that were selected" in str(result.reason)


def test_labels_of_the_selected_identify_the_ppv():
    labels = np.where(DECISIONS == 1, LABELS, np.nan)
    result = permutation_test(metrics="ppv", groups=GROUPS, decisions=DECISIONS, labels=labels)[0]
    assert result.determined


def test_labels_that_one_decision_gets_more_often_give_a_warning():
    labels = np.where((DECISIONS == 1) | (np.arange(N) % 3 == 0), LABELS, np.nan)
    result = permutation_test(metrics="tpr", groups=GROUPS, decisions=DECISIONS, labels=labels)[0]
    assert any("describes labelled rows only" in warning for warning in result.warnings)


def test_labels_of_one_decision_in_one_group_are_detected():
    counts = TableCounts.from_mapping(
        {
            "a": {(1, 1): 40, (0, 1): 30, (None, 0): 60},
            "b": {(1, 1): 400, (1, 0): 90, (0, 1): 80, (0, 0): 300},
        }
    )
    for metric in ("tpr", "fpr", "accuracy"):
        result = permutation_test(metrics=metric, counts=counts)[0]
        assert result.p_value is None
        assert result.effect is None
        assert "only for rows of a that were selected" in str(result.reason)
    assert permutation_test(metrics="ppv", counts=counts)[0].determined


@pytest.mark.parametrize(
    ("metric", "words", "disadvantaged"),
    [
        ("selection_rate", "gets the favourable decision less often than", "a"),
        ("tpr", "gets the favourable decision less often among actual positives than", "a"),
        ("fpr", "gets the favourable decision less often among actual negatives than", "a"),
        ("fnr", "gets the unfavourable decision less often among actual positives than", "b"),
        ("mean_score", "has a lower mean score than", "a"),
        ("calibration_gap", "has a lower mean difference of label and score than", "b"),
        ("ppv", "has a lower share of actual positives among the selected than", None),
        ("npv", "has a lower share of actual negatives among those not selected than", None),
        ("accuracy", "gets decisions that match the label less often than", None),
        ("auc", "has a lower AUC than", None),
    ],
)
def test_a_lower_value_has_a_direction_and_names_the_disadvantaged_if_the_metric_does(
    metric, words, disadvantaged
):
    groups = ("a", "b")
    assert METRICS[metric].direction(groups, -0.1, FAVOURABLE) == f"a {words} b"
    assert METRICS[metric].disadvantaged(groups, -0.1) == disadvantaged
    opposite = {"a": "b", "b": "a", None: None}[disadvantaged]
    assert METRICS[metric].disadvantaged(groups, 0.1) == opposite
    assert METRICS[metric].disadvantaged(groups, 0.0) is None
    assert METRICS[metric].direction(groups, 0.0) == f"a has the same {metric} as b"


def test_every_metric_has_a_direction():
    named = test_a_lower_value_has_a_direction_and_names_the_disadvantaged_if_the_metric_does
    assert {case[0] for case in named.pytestmark[0].args[1]} == METRICS.keys()


def test_a_sentence_has_both_values_the_difference_and_its_interval():
    table = {(1, 1): 20, (1, 0): 10, (0, 1): 4, (0, 0): 66}
    other = {(1, 1): 28, (1, 0): 2, (0, 1): 4, (0, 0): 66}
    counts = TableCounts.from_mapping({"a": table, "b": other})
    (tpr,) = permutation_test(metrics="tpr", counts=counts)
    low, high = (100 * end for end in tpr.interval or ())
    assert tpr.sentence == (
        "a is selected less often among actual positives than b: 66.7% against 93.3%, a difference "
        f"of -26.7 percentage points (95% interval {low:+.1f} to {high:+.1f})"
    )
    assert f"tpr by group: {tpr.sentence}".replace(" ", "") in "".join(
        str(permutation_test(metrics=["tpr", "fpr"], counts=counts)).split()
    )
    assert "not corrected for the number of tests (2)" in str(
        permutation_test(metrics=["tpr", "fpr"], counts=counts)
    )
