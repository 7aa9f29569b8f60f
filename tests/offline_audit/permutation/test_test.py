"""The entry of the permutation test: rejected arguments, seeds, and agreement with scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from offline_audit import (
    AuditInputError,
    ScoreCounts,
    TableCounts,
    permutation_test,
    selection_table,
)

N = 200
GROUPS = np.array(["female", "male"] * (N // 2))
DECISIONS = np.array([0, 0, 1, 1] * (N // 4))
LABELS = np.array([0, 1, 1, 1, 0] * (N // 5))
SCORES = np.linspace(0, 1, N)
COUNTS = TableCounts.from_mapping(
    {"a": {(1, 1): 30, (1, 0): 20}, "b": {(1, 1): 20, (1, 0): 40}}, attribute="sex"
)


def changed(values, row: int, value):
    """A copy with another value in one row."""
    copy = np.array(values, dtype=object)
    copy[row] = value
    return copy


def sample(n: int, seed: int, *, decimals: int | None = None, share: float = 0.3):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(int)
    scores = np.clip(0.25 * labels + 0.6 * rng.beta(2, 3, n), 0, 1)
    if decimals is not None:
        scores = np.round(scores, decimals)
    groups = np.where(rng.random(n) < share, "a", "b")
    return groups, labels, scores


@pytest.mark.parametrize(
    ("metric", "columns", "message"),
    [
        ("tpr", {"decisions": DECISIONS}, "tpr: needs labels"),
        ("auc", {"labels": LABELS}, "auc: needs scores"),
        ("selection_rate", {}, "selection_rate: needs decisions"),
        ("recall", {"decisions": DECISIONS}, "metrics: unknown metric 'recall'"),
        ([], {"decisions": DECISIONS}, "metrics: at least one metric"),
        ("selection_rate", {"decisions": DECISIONS[:-1]}, "arrays have different lengths"),
        ("selection_rate", {"decisions": changed(DECISIONS, 7, 3)}, "neither 0 nor 1.*row 7"),
        ("selection_rate", {"decisions": DECISIONS * 0.7}, "neither 0 nor 1"),
        ("selection_rate", {"decisions": ["yes"] * N}, "decisions: not all values are numbers"),
        ("selection_rate", {"decisions": DECISIONS[:, None]}, "decisions: one value per row"),
        ("mean_score", {"scores": changed(SCORES, 9, None)}, "1 value missing or inf.*row 9"),
        ("mean_score", {"scores": np.where(SCORES > 0.9, np.nan, SCORES)}, "missing or infinite"),
        ("mean_score", {"scores": SCORES * 2}, "100 values outside 0 to 1, the first in row 100"),
        ("mean_score", {"scores": changed(SCORES, 0, np.inf)}, "infinite"),
        ("mean_score", {"scores": SCORES, "units": [None] * N}, "units: 200 rows without"),
        (
            "mean_score",
            {"scores": SCORES, "units": np.zeros(N)},
            "1 unit with rows in more than one",
        ),
        ("mean_score", {"scores": SCORES, "n_resamples": 10}, "n_resamples: must be at least 99"),
        (
            "mean_score",
            {"scores": SCORES, "confidence_level": 95},
            "confidence_level: must be from 0.5",
        ),
        ("mean_score", {"scores": SCORES, "alternative": "larger"}, "alternative: must be one of"),
        ("mean_score", {"scores": SCORES, "exchange": "none"}, "exchange: must be one of"),
        ("mean_score", {"scores": SCORES, "bins": -1}, "bins: must be None, 0 for no bins"),
        ("mean_score", {"scores": SCORES, "reference": "men"}, "reference: unknown group 'men'"),
        ("mean_score", {"scores": SCORES, "by": [("sex", "age")]}, "no protected attribute"),
    ],
)
def test_an_invalid_argument_is_named_in_the_error(metric, columns, message):
    with pytest.raises(AuditInputError, match=message):
        permutation_test(metrics=metric, groups=GROUPS, **columns)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["female"] * N, "At least two groups of group are needed; only female is known"),
        ([None] * N, "At least two groups of group are needed; none is known"),
        ([], "arrays have no rows"),
        (np.where(np.arange(N) < 3, "Female ", GROUPS), "differ only in case or spaces"),
        (np.linspace(18, 70, 201), "arrays have different lengths|distinct values"),
        (np.linspace(18, 70, 300), "bin the column, or use `correlation_test`"),
        (np.ones((N, 2)), "one value per row"),
        ({}, "at least one attribute"),
    ],
)
def test_invalid_groups_are_rejected(groups, message):
    with pytest.raises(AuditInputError, match=message):
        permutation_test(
            metrics="selection_rate", groups=groups, decisions=DECISIONS[: len(groups)]
        )


def test_no_error_message_contains_a_value_of_a_row():
    with pytest.raises(AuditInputError) as error:
        permutation_test(metrics="mean_score", groups=GROUPS, scores=changed(SCORES, 5, 123.456))
    assert "123" not in str(error.value)


def test_counts_and_arrays_together_are_rejected():
    counts = TableCounts.from_mapping({"a": {(1, 1): 9}, "b": {(1, 1): 3}})
    with pytest.raises(AuditInputError, match="either arrays or counts"):
        permutation_test(metrics="tpr", counts=counts, groups=GROUPS)
    with pytest.raises(AuditInputError, match="a function needs rows"):
        permutation_test(metrics=lambda _: 0.0, counts=counts)
    with pytest.raises(AuditInputError, match="groups: missing; pass one group per row"):
        permutation_test(metrics="tpr")
    with pytest.raises(AuditInputError, match="at least 2"):
        ScoreCounts.from_arrays(groups=GROUPS, scores=SCORES, bins=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": {"race": "male"}}, "reference: unknown attribute 'race'"),
        ({"expected_groups": {"race": ["x"]}}, "expected_groups: unknown attribute 'race'"),
        ({"expected_groups": "female"}, "expected_groups: must be a list of names"),
        ({"expected_groups": 3}, "expected_groups: must be a list of names"),
        ({"seed": -1}, "seed: must be a whole number of at least 0"),
        ({"seed": None}, "seed: must be a whole number"),
        ({"n_resamples": 199.5}, "n_resamples: must be a whole number"),
        ({"n_resamples": "199"}, "n_resamples: must be a whole number"),
        ({"n_resamples": True}, "n_resamples: must be a whole number"),
        ({"bins": 8}, "bins: must be None, 0 for no bins, or a whole number of at least 32"),
        ({"bins": 64.0}, "bins: must be None, 0"),
        ({"confidence_level": "95"}, "confidence_level: must be from"),
        ({"score_limits": (1,)}, "score_limits: must be None or two numbers"),
        ({"score_limits": (1, 0)}, "score_limits: must be None or two numbers"),
        ({"score_limits": 1}, "score_limits: must be None or two numbers"),
        ({"metrics": 3}, "metrics: must be names from METRICS or functions; got int"),
        ({"metrics": [3]}, "metrics: must be names from METRICS or functions; got int"),
        ({"metrics": None}, "metrics: must be names from METRICS or functions; got NoneType"),
        ({"decisions": ["0", "1"] * (N // 2)}, "decisions: not all values are numbers"),
        ({"decisions": [[0], [1, 2]] * (N // 2)}, "decisions: one value per row"),
        ({"groups": [b"\xff", b"a"] * (N // 2)}, "a name cannot be decoded"),
        ({"groups": [["a"], ["b", "c"]] * (N // 2)}, "groups of group: one value per row"),
        ({"scores": SCORES * 1e200, "score_limits": None}, "beyond 1e100"),
        ({"scores": [10**400] * N, "score_limits": None}, "not all values are numbers"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    arguments: dict[str, Any] = {
        "metrics": "selection_rate",
        "groups": GROUPS,
        "decisions": DECISIONS,
    }
    with pytest.raises(AuditInputError, match=message):
        permutation_test(**(arguments | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expected_groups": ["a", "c"]}, "unexpected group 'b'; expected: a, c"),
        ({"expected_groups": {"race": ["a"]}}, "unknown attribute 'race'"),
        ({"by": "pairs"}, "by: no counts of 'pairs'"),
        ({"reference": {"race": "a"}}, "unknown attribute 'race'"),
    ],
)
def test_options_that_counts_do_not_support_are_rejected(options, message):
    with pytest.raises(AuditInputError, match=message):
        permutation_test(metrics="tpr", counts=COUNTS, **options)
    if "reference" not in options:
        with pytest.raises(AuditInputError, match=message):
            selection_table(counts=COUNTS, **options)


def test_a_mapping_instead_of_counts_is_rejected():
    with pytest.raises(AuditInputError, match="from_mapping"):
        permutation_test(metrics="tpr", counts={"a": {(1, 1): 3}})  # type: ignore[arg-type]
    with pytest.raises(AuditInputError, match="must be `TableCounts`"):
        selection_table(counts={"a": {(1, 1): 3}})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "columns", "reason"),
    [
        ("selection_rate", {"decisions": np.ones(N)}, "no variation: all counted rows"),
        ("selection_rate", {"decisions": np.zeros(N)}, "no variation: all counted rows"),
        ("tpr", {"decisions": DECISIONS, "labels": np.zeros(N)}, "counts no row of female"),
        ("fpr", {"decisions": DECISIONS, "labels": np.ones(N)}, "counts no row of female"),
        ("auc", {"scores": SCORES, "labels": np.ones(N)}, "fewer than two positives or two neg"),
        ("mean_score", {"scores": np.full(N, 0.3)}, "no variation: all counted rows"),
        ("auc", {"scores": np.full(N, 0.3), "labels": LABELS}, "no standard error"),
        ("auc", {"scores": LABELS * 0.5, "labels": LABELS}, "0.0 rows of the smallest class"),
        ("tpr", {"decisions": DECISIONS, "labels": np.arange(N) < 4}, "smallest expected count"),
    ],
)
def test_without_enough_data_there_is_a_reason_and_no_p_value(metric, columns, reason):
    result = permutation_test(metrics=metric, groups=GROUPS, n_resamples=99, **columns)[0]
    assert result.p_value is None
    assert result.statistic is None
    assert not result.determined
    assert result.reason is not None
    assert reason in result.reason
    assert reason in str(result).replace("\n  ", " ")


def test_the_same_seed_gives_the_same_p_value_and_another_seed_another():
    rng = np.random.default_rng(1)
    scores, groups = rng.random(200), rng.choice(["a", "b"], 200)
    ps = [
        permutation_test(metrics="mean_score", groups=groups, scores=scores, seed=seed)[0].p_value
        for seed in (0, 0, 1)
    ]
    assert ps[0] == ps[1]
    assert ps[0] != ps[2]


def test_bins_for_the_permutations_do_not_change_the_statistic():
    groups, labels, scores = sample(3_000, 8)
    exact, binned = (
        permutation_test(
            metrics=["auc", "mean_score"], groups=groups, labels=labels, scores=scores, bins=bins
        )
        for bins in (0, 64)
    )
    for one, other in zip(exact, binned, strict=True):
        assert one.statistic == other.statistic
        assert one.p_value == pytest.approx(other.p_value, abs=4 * 0.005 * np.sqrt(2))


def test_the_plain_difference_agrees_with_scipys_permutation_test():
    groups, _, scores = sample(80, 9, share=0.5)
    one, two = scores[groups == "a"], scores[groups == "b"]
    (result,) = permutation_test(
        metrics="mean_score", groups=groups, scores=scores, studentized=False
    )
    expected = stats.permutation_test(
        (one, two),
        lambda x, y, axis: np.mean(x, axis=axis) - np.mean(y, axis=axis),
        n_resamples=10_000,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    assert result.statistic == pytest.approx(expected.statistic)
    assert result.p_value == pytest.approx(expected.pvalue, abs=4 * 0.005 * np.sqrt(2))


def test_one_sided_p_values_add_up_to_one():
    groups, labels, scores = sample(900, 0, share=0.5)
    ps = [
        permutation_test(
            metrics="tpr", groups=groups, labels=labels,
            decisions=scores > 0.5, alternative=side,
        )[0].p_value
        for side in ("greater", "less")
    ]  # fmt: skip
    assert sum(ps) == pytest.approx(1)  # type: ignore[arg-type]
