"""What unknown groups and labels leave open, in text, JSON and plot, and no false difference."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from offline_audit import TableCounts, permutation_test, selection_table

# Rows by label and decision; TPR .7, FPR .3.
FAIR = {(1, 1): 350, (1, 0): 150, (0, 1): 150, (0, 0): 350}
# Of the positives that were not selected, two fifths have no label: the TPR seems to be .8.
HIDDEN = {(1, 1): 350, (1, 0): 90, (None, 0): 60, (0, 1): 150, (0, 0): 350}


def first(*args: Any, **options: Any) -> Any:
    """The first comparison of a permutation test."""
    return permutation_test(*args, **options)[0]


def compared(one, other, metric="tpr", **unknown):
    counts = TableCounts.from_mapping({"a": one, "b": other} | unknown)
    return first(counts=counts, metrics=metric)


def test_labels_missing_by_outcome_in_one_group_are_no_difference():
    result = compared(FAIR, HIDDEN)
    assert result.missing.known_p_value is not None
    assert result.missing.known_p_value < 0.01
    assert result.p_value is None
    assert "88.0% of the rows of b that were not selected and 100.0% of those of a" in result.reason
    assert any("labels are not missing alike" in warning for warning in result.warnings)
    low, high = result.missing.over_labels.effect
    assert low < 0 <= high
    # The truth is within the ranges of both rates, and of the difference.
    assert result.missing.over_labels.other[0] <= 0.7 <= result.missing.over_labels.other[1]
    printed = " ".join(str(result).split())
    assert "over all values of the unknown labels: a 0.700 to 0.700, b 0.700 to 0.795" in printed
    assert "if labels are missing at random within group and decision" in printed


def test_a_difference_that_no_value_of_the_labels_removes_is_one():
    far = {(1, 1): 150, (1, 0): 290, (None, 0): 60, (0, 1): 150, (0, 0): 350}
    result = compared(FAIR, far)
    assert result.rejected
    assert result.missing.over_labels.effect[0] > 0
    assert result.missing.coverage.differs
    low, high = result.interval
    assert low < 0.7 - 150 / 440 < 0.7 - 150 / 500 < high


def test_labels_missing_alike_keep_the_p_value():
    alike = {(1, 1): 280, (1, 0): 120, (0, 1): 120, (0, 0): 280, (None, 0): 100, (None, 1): 100}
    other = {(1, 1): 240, (1, 0): 160, (0, 1): 160, (0, 0): 240, (None, 0): 100, (None, 1): 100}
    result = compared(alike, other)
    assert result.p_value == result.missing.known_p_value
    assert result.warnings == ()


def test_selective_labels_but_for_one_row_are_not_identified():
    selective = {(1, 1): 300, (0, 1): 200, (0, 0): 1, (None, 0): 499}
    for metric in ("tpr", "fpr", "fnr", "npv", "accuracy"):
        result = compared(selective, FAIR, metric)
        assert result.p_value is None
        assert result.effect is None
        assert "only for rows of a that were selected, and for 1 of the 500 others" in result.reason
    assert compared(selective, FAIR, "ppv").determined
    # The worst case says how little is known.
    low, high = compared(selective, FAIR).missing.over_labels.first
    assert high - low > 0.5


def test_a_score_metric_is_not_tested_on_labels_missing_unlike():
    rng = np.random.default_rng(0)
    groups, scores = np.repeat(["a", "b"], 1_000), rng.random(2_000)
    labels = (rng.random(2_000) < scores).astype(float)
    labels[(groups == "b") & (rng.random(2_000) < 0.3)] = np.nan
    decisions = (scores > 0.5).astype(int)
    for metric in ("auc", "calibration_gap"):
        result = first(groups, decisions, labels, scores, metrics=metric, n_resamples=99)
        assert result.p_value is None
        assert "the unknown labels decide whether" in result.reason


@pytest.fixture
def half_unknown():
    """2,000 of 4,000 rows have an unknown group; 95% of these are selected."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.array(["a", "b", None], object), [1_000, 1_000, 2_000])
    decisions = rng.random(4_000) < np.where(groups == None, 0.95, 0.5)  # noqa: E711
    return groups, decisions.astype(int)


def test_unknown_groups_are_counted_bounded_and_decide(half_unknown):
    result = first(*half_unknown, metrics="selection_rate")
    assert result.missing.known_p_value > 0.05
    assert result.p_value is None
    assert "the unknown groups decide whether selection_rate differs" in result.reason
    printed = " ".join(str(result).split())
    assert "Rows: 4,000; unknown: group 2,000 (50.0%)." in printed
    low, high = result.missing.over_groups.effect
    assert low < -0.3
    assert high > 0.3
    assert f"effect {low:+.3f} to {high:+.3f}, ratio" in printed


def test_the_range_is_a_thin_line_beyond_the_interval(half_unknown):
    result = first(*half_unknown, metrics="selection_rate")
    low, high = result.missing.effect_range
    (line,) = (x for x in result.plot().axes[0].lines if "thin" in str(x.get_label()))
    assert list(line.get_xdata()) == pytest.approx([100 * low, 100 * high])
    assert line.get_linewidth() < 1
    assert low < result.interval[0] < result.interval[1] < high


def test_ranges_are_in_json(half_unknown):
    result = first(*half_unknown, metrics="selection_rate")
    data = json.loads(json.dumps(result.to_dict()))["missing"]
    assert data["unknown"] == {"rows": 4_000, "groups": {"group": 2_000}, "labels": None}
    assert data["over_groups"]["effect"] == list(result.missing.over_groups.effect)


def test_groups_unknown_at_random_keep_the_p_value():
    rng = np.random.default_rng(2)
    groups = rng.choice(np.array(["a", "b", None], object), 3_000)
    decisions = rng.integers(0, 2, 3_000)
    result = first(groups, decisions, metrics="selection_rate")
    known = groups != None  # noqa: E711
    alone = first(groups[known], decisions[known], metrics="selection_rate")
    assert result.p_value == alone.p_value
    assert result.missing.over_groups is not None


def test_the_selection_table_has_ranges_of_rates_and_ratios(half_unknown):
    table: Any = selection_table(*half_unknown)
    row = table.of("a")
    low, high = row.rate_range
    assert low < row.rate < high
    assert row.impact_range[0] < row.impact_ratio <= row.impact_range[1]
    printed = " ".join(str(table).split())
    assert "unknown: group 2,000 (50.0%)" in printed
    assert f"the rate of a is {low:.3f} to {high:.3f}" in printed
    assert [x for x in table.plot().axes[0].lines if "thin" in str(x.get_label())]
    known = selection_table(np.repeat(["a", "b"], 50), np.tile([0, 1], 50))
    assert known.of("a").rate_range is None


def test_what_is_not_known_differs_from_what_is_complete():
    result = compared(FAIR, FAIR)
    assert dataclasses.replace(result.missing, known_p_value=None).effect_range is None
    assert result.missing.coverage is None
