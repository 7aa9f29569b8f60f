"""Counts and histograms instead of rows."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import (
    AuditInputError,
    ScoreCounts,
    TableCounts,
    permutation_test,
    selection_table,
)
from offline_audit.window.counts import Cell, GroupCounts, ScoreBars, ScoreHistogram

N = 200
GROUPS = ["female", "male"] * (N // 2)
SCORES = np.linspace(0, 1, N)


@pytest.mark.parametrize("rows", [-1, 2.5, float("nan")])
def test_counts_are_whole_numbers(rows):
    with pytest.raises(AuditInputError, match="whole numbers"):
        TableCounts.from_mapping({"a": {(1, 1): rows}, "b": {(1, 1): 3}})


def test_a_label_of_counts_is_0_or_1_or_none():
    with pytest.raises(AuditInputError, match="every label must be 0, 1 or None"):
        TableCounts.from_mapping({"a": {(2, 1): 4}})
    with pytest.raises(AuditInputError, match="counts: empty"):
        TableCounts.from_cells([])


def test_rows_without_a_score_give_a_warning():
    bars = tuple(
        ScoreBars(group=g, label=None, decision=None, counts=(40, 30, 20, 10), missing=3)
        for g in ("a", "b")
    )
    counts = ScoreCounts.from_histogram(ScoreHistogram(attribute="sex", bins=4, bars=bars))
    results = permutation_test(metrics="mean_score", counts=counts, n_resamples=99)
    assert "Excluded: 6 rows without a score." in results.warnings


@pytest.mark.parametrize(
    "counts",
    [
        {"a": {(1, 1): "x"}}, {"a": {(1, 1): None}}, {"a": {(1, 1): 10**20}},
        {"a": {(1, 1): 10**400}}, {"a": {1: 3}}, {"a": {(1, 1, 1): 3}}, {"a": 3}, 3,
        {"a": {("1", 1): 3}}, {"a": {([], 1)[1:]: 3}},
    ],
)  # fmt: skip
def test_invalid_counts_are_rejected(counts):
    with pytest.raises(AuditInputError, match="counts"):
        TableCounts.from_mapping(counts)


def test_binned_scores_are_from_0_to_1():
    with pytest.raises(AuditInputError, match="scores: one number per row"):
        ScoreCounts.from_arrays(groups=GROUPS, scores=None)
    with pytest.raises(AuditInputError, match="rescale them") as error:
        ScoreCounts.from_arrays(groups=GROUPS, scores=SCORES * 2)
    assert "score_limits" not in str(error.value)


def test_counts_come_from_the_cells_of_a_window():
    cells = [
        Cell(attributes=("sex",), groups=(group,), label=label, decision=decision, rows=rows)
        for group, label, decision, rows in [
            ("female", 1, 1, 30), ("female", 1, 0, 20), ("female", None, 0, 5),
            ("male", 1, 1, 45), ("male", 1, 0, 9), (None, 1, 1, 7), (None, None, None, 2),
        ]
    ]  # fmt: skip
    crossed = [
        Cell(attributes=("sex", "race"), groups=(s, r), label=1, decision=d, rows=20 + d)
        for s in ("female", "male")
        for r in ("Black", None)
        for d in (0, 1)
    ]
    counts = TableCounts.from_cells(GroupCounts(cells=(*cells, *crossed)).cells)
    results = permutation_test(metrics="tpr", counts=counts)
    assert [(c.attribute, c.versus) for c in results] == [
        ("sex", "female against male"),
        ("sex × race", "female × Black against male × Black"),
    ]
    assert (results[0].group.hits, results[0].group.counted, results[0].group.rows) == (30, 50, 55)
    table = selection_table(counts=counts)
    assert table.of(None, "sex").rows == 7
    assert table.undecided == 2


def test_histograms_come_from_a_window():
    rng = np.random.default_rng(1)
    bars = tuple(
        ScoreBars(
            group=group, label=label, decision=None,
            counts=tuple(rng.multinomial(300, [0.4, 0.3, 0.2, 0.1][:: 1 if label == 0 else -1])),
            missing=2,
        )
        for group in ("female", "male", None)
        for label in (0, 1)
    )  # fmt: skip
    counts = ScoreCounts.from_histogram(ScoreHistogram(attribute="sex", bins=4, bars=bars))
    assert counts.unscored == 12
    results = permutation_test(metrics=["auc", "mean_score"], counts=counts, n_resamples=99)
    assert results[0].group.counted == 600
    assert results[0].group.estimate == pytest.approx(0.75, abs=0.06)
    assert results[1].binning_error == 0.25
