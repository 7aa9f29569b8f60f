"""What a caller gives by mistake is refused in words, and what is missing stays missing."""

from __future__ import annotations

import warnings
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
from offline_audit.score_histogram import ScoreBars, ScoreHistogram

N = 200
GROUPS = ["female", "male"] * (N // 2)
DECISIONS = np.array([0, 0, 1, 1] * (N // 4))
LABELS = np.array([0, 1, 1, 1, 0] * (N // 5))
SCORES = np.linspace(0, 1, N)
COUNTS = TableCounts.from_mapping(
    {"a": {(1, 1): 30, (1, 0): 20}, "b": {(1, 1): 20, (1, 0): 40}}, attribute="sex"
)


@pytest.mark.parametrize(
    "groups",
    [
        [float("nan"), *GROUPS[1:]],
        np.array([float("nan"), *GROUPS[1:]]),
        np.ma.masked_array(np.array(GROUPS), mask=np.arange(N) == 0),
        ["", *GROUPS[1:]],
        [None, *GROUPS[1:]],
    ],
    ids=["list", "array", "mask", "blank", "none"],
)
def test_a_group_that_is_missing_is_no_group(groups):
    found = permutation_test("selection_rate", groups=groups, decisions=DECISIONS)
    assert [each.versus for each in found] == ["female against male"]
    assert found[0].group.rows == N // 2 - 1


def test_masked_decisions_are_missing_and_masked_scores_refused():
    masked = np.ma.masked_array(DECISIONS, mask=np.arange(N) < 10)
    found = permutation_test("selection_rate", groups=GROUPS, decisions=masked)[0]
    assert found.group.counted == N // 2 - 5
    with pytest.raises(AuditInputError, match="10 values missing"):
        permutation_test(
            "mean_score", groups=GROUPS, scores=np.ma.masked_array(SCORES, mask=np.arange(N) < 10)
        )


@pytest.mark.parametrize(
    ("units", "says"),
    [
        ([float("nan"), *map(str, range(1, N))], "1 row without"),
        (np.array([float("nan"), *map(str, range(1, N))]), "1 row without"),
        ([[1, 2]] * N, "one value a row"),
        ([[1]] * 3 + [[1, 2]] * (N - 3), "one value a row"),
        (np.array([[1], [2, 3]] * (N // 2), dtype=object), "one id a row"),
        (np.ma.masked_array(np.arange(N), mask=np.arange(N) == 3), "1 row without, first 3"),
    ],
)
def test_units_that_are_none_are_refused(units, says):
    with pytest.raises(AuditInputError, match=says):
        permutation_test("selection_rate", groups=GROUPS, decisions=DECISIONS, units=units)


def test_units_of_pandas_may_be_missing():
    pd: Any = pytest.importorskip("pandas")
    units = pd.Series([None, *map(str, range(1, N))], dtype="string")
    with pytest.raises(AuditInputError, match="1 row without"):
        permutation_test("selection_rate", groups=GROUPS, decisions=DECISIONS, units=units)


def test_rows_without_a_score_are_told():
    bars = tuple(
        ScoreBars(group=g, label=None, decision=None, counts=(40, 30, 20, 10), missing=3)
        for g in ("a", "b")
    )
    counts = ScoreCounts.from_histogram(ScoreHistogram(attribute="sex", bins=4, bars=bars))
    found = permutation_test("mean_score", counts=counts, draws=99)
    assert "Left out: 6 rows without a score." in found.warnings


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"reference": {"race": "male"}}, "reference: there is no attribute 'race'"),
        ({"expected": {"race": ["x"]}}, "expected: there is no attribute 'race'"),
        ({"expected": "female"}, "expected: a list of names"),
        ({"expected": 3}, "expected: a list of names"),
        ({"seed": -1}, "seed: a whole number from 0"),
        ({"seed": None}, "seed: a whole number"),
        ({"draws": 199.5}, "draws: a whole number"),
        ({"draws": "199"}, "draws: a whole number"),
        ({"draws": True}, "draws: a whole number"),
        ({"bins": 8}, "bins: None, 0 for none, or a whole number from 32"),
        ({"bins": 64.0}, "bins: None, 0"),
        ({"confidence": "95"}, "confidence: from"),
        ({"score_limits": (1,)}, "score_limits: None, or two numbers"),
        ({"score_limits": (1, 0)}, "score_limits: None, or two numbers"),
        ({"score_limits": 1}, "score_limits: None, or two numbers"),
        ({"metrics": 3}, "metrics: names or functions"),
        ({"metrics": [3]}, "metrics: names or functions"),
        ({"metrics": None}, "metrics: names or functions"),
        ({"decisions": ["0", "1"] * (N // 2)}, "decisions: not all values are numbers"),
        ({"decisions": [[0], [1, 2]] * (N // 2)}, "decisions: one value a row"),
        ({"groups": [b"\xff", b"a"] * (N // 2)}, "a name is not readable"),
        ({"groups": [["a"], ["b", "c"]] * (N // 2)}, "groups of group: one value a row"),
        ({"scores": SCORES * 1e200, "score_limits": None}, "beyond 1e100"),
        ({"scores": [10**400] * N, "score_limits": None}, "not all values are numbers"),
    ],
)
def test_options_that_are_none_are_refused(options, says):
    given: dict[str, Any] = {"metrics": "selection_rate", "groups": GROUPS, "decisions": DECISIONS}
    with pytest.raises(AuditInputError, match=says):
        permutation_test(**(given | options))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"expected": ["a", "c"]}, "1 name not expected"),
        ({"expected": {"race": ["a"]}}, "no attribute 'race'"),
        ({"intersections": True}, "crossed already"),
        ({"reference": {"race": "a"}}, "no attribute 'race'"),
    ],
)
def test_options_beside_counts_are_not_ignored(options, says):
    with pytest.raises(AuditInputError, match=says):
        permutation_test("tpr", counts=COUNTS, **options)
    if "reference" not in options:
        with pytest.raises(AuditInputError, match=says):
            selection_table(counts=COUNTS, **options)


def test_a_mapping_is_no_counts():
    with pytest.raises(AuditInputError, match="from_mapping"):
        permutation_test("tpr", counts={"a": {(1, 1): 3}})  # type: ignore[arg-type]
    with pytest.raises(AuditInputError, match="`TableCounts` are needed"):
        selection_table(counts={"a": {(1, 1): 3}})  # type: ignore[arg-type]


def test_numbers_name_groups_too():
    groups = np.array([0, 1] * (N // 2))
    found = permutation_test("selection_rate", groups=groups, decisions=DECISIONS, reference=0)
    assert [each.versus for each in found] == ["1 against 0"]
    assert permutation_test(
        "selection_rate", groups=groups, decisions=DECISIONS, expected=[0, 1, 2]
    )[0].enough_data
    cells = {(1, 1): 30, (1, 0): 20}
    counts = TableCounts.from_mapping({1: cells, 0: cells, None: cells, float("nan"): cells})
    assert counts.groups[0].names == ("0", "1")
    assert counts.groups[0].table[2].sum() == 100
    assert TableCounts.from_mapping({"": cells, "a": cells}).groups[0].names == ("a",)


@pytest.mark.parametrize(
    "counts",
    [
        {"a": {(1, 1): "x"}}, {"a": {(1, 1): None}}, {"a": {(1, 1): 10**20}},
        {"a": {(1, 1): 10**400}}, {"a": {1: 3}}, {"a": {(1, 1, 1): 3}}, {"a": 3}, 3,
        {"a": {("1", 1): 3}}, {"a": {([], 1)[1:]: 3}},
    ],
)  # fmt: skip
def test_counts_that_are_none_are_refused(counts):
    with pytest.raises(AuditInputError, match="counts"):
        TableCounts.from_mapping(counts)


def test_scores_for_bins_lie_between_0_and_1():
    with pytest.raises(AuditInputError, match="scores: one number a row"):
        ScoreCounts.from_arrays(groups=GROUPS, scores=None)
    with pytest.raises(AuditInputError, match="scale the scores") as caught:
        ScoreCounts.from_arrays(groups=GROUPS, scores=SCORES * 2)
    assert "score_limits" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [{"alternative": "up"}, {"draws": 9}, {"draws": 99.5}, {"confidence": 95}, {"seed": -1}],
)
def test_a_correlation_checks_its_options(options):
    with pytest.raises(AuditInputError, match=next(iter(options))):
        correlation_test(np.arange(50.0), np.arange(50.0) % 7, **options)


def test_texts_read_as_sentences():
    given: dict[str, Any] = {"groups": GROUPS, "scores": SCORES, "labels": LABELS, "draws": 99}
    gap = permutation_test("calibration_gap", **given)[0]
    assert gap.question.startswith("is the mean by which labels lie above scores the same for")
    one_sided = str(permutation_test("mean_score", **given, alternative="less")[0])
    assert "two-sided, whatever the test is" in one_sided.replace("\n  ", " ")
    assert "by a two-sided test" in one_sided.replace("\n  ", " ")
    by_units = permutation_test("auc", **given, units=np.arange(N))[0]
    assert by_units.exchanged == "the units that count"


def test_figures_have_room_for_long_names_and_none_is_drawn_without_a_warning():
    names = np.array(["a very long name of a group × another long name", "short"])
    found = permutation_test("selection_rate", groups=names[np.arange(N) % 2], decisions=DECISIONS)
    tick = found.plot().axes[0].get_yticklabels()[0].get_text()
    assert max(map(len, tick.splitlines())) <= 28
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = permutation_test("tpr", groups=GROUPS, decisions=DECISIONS, labels=np.zeros(N))
        few.plot().canvas.draw()
