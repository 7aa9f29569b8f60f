"""Rows: missing and invalid values, names of groups, units and duplicates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offline_audit import AuditInputError, TableCounts, permutation_test, selection_table

N = 200
GROUPS = np.array(["female", "male"] * (N // 2))
DECISIONS = np.array([0, 0, 1, 1] * (N // 4))
LABELS = np.array([0, 1, 1, 1, 0] * (N // 5))
SCORES = np.linspace(0, 1, N)


def sample(n: int, seed: int, *, decimals: int | None = None, share: float = 0.3):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(int)
    scores = np.clip(0.25 * labels + 0.6 * rng.beta(2, 3, n), 0, 1)
    if decimals is not None:
        scores = np.round(scores, decimals)
    groups = np.where(rng.random(n) < share, "a", "b")
    return groups, labels, scores


def test_similar_group_names_give_a_warning():
    groups = np.where(np.arange(N) % 20 == 0, "femal", GROUPS)
    result = permutation_test(metrics="selection_rate", groups=groups, decisions=DECISIONS)
    assert any("'femal' and 'female'" in warning for warning in result.warnings)
    assert "Are they the same?" in str(result)


@pytest.mark.parametrize(
    "names", [("male", "female"), ("group1", "group2"), ("A", "B"), ("18-25", "26-35")]
)
def test_different_group_names_give_no_warning(names):
    groups = np.array(names)[np.arange(N) % 2]
    assert not permutation_test(
        metrics="selection_rate", groups=groups, decisions=DECISIONS
    ).warnings


def test_unexpected_group_names_are_listed_in_the_error():
    groups = np.where(np.arange(N) % 20 == 0, "femal", GROUPS)
    with pytest.raises(AuditInputError, match=r"unexpected group 'femal'; expected: female"):
        permutation_test(
            metrics="selection_rate",
            groups=groups,
            decisions=DECISIONS,
            expected_groups=["female", "male"],
        )


@pytest.mark.parametrize("missing", [None, np.nan, "", "  ", np.datetime64("NaT")])
def test_unknown_groups_do_not_form_a_group(missing):
    groups = np.array([*GROUPS[:-10], *[missing] * 10], dtype=object)
    result = permutation_test(metrics="selection_rate", groups=groups, decisions=DECISIONS)
    assert [result[0].group.rows, result[0].other.rows] == [95, 95]  # type: ignore[union-attr]
    assert selection_table(groups=groups, decisions=DECISIONS).of(None).rows == 10


def test_pandas_columns_are_accepted():
    pd: Any = pytest.importorskip("pandas")
    frame = pd.DataFrame({"sex": GROUPS, "decision": DECISIONS, "label": LABELS})
    frame.loc[3, "label"] = None
    frame["sex"] = frame["sex"].astype("string")
    frame.loc[4, "sex"] = pd.NA
    result = permutation_test(
        metrics="tpr",
        groups=frame["sex"],
        decisions=frame["decision"],
        labels=frame["label"].astype("Int64"),
    )[0]
    assert result.group.counted + result.other.counted == LABELS.sum() - LABELS[3] - LABELS[4]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "groups",
    [
        [float("nan"), *GROUPS[1:]],
        np.array([float("nan"), *GROUPS[1:]], object),
        np.ma.masked_array(np.array(GROUPS), mask=np.arange(N) == 0),
        ["", *GROUPS[1:]],
        [None, *GROUPS[1:]],
    ],
    ids=["list", "array", "mask", "blank", "none"],
)
def test_a_missing_group_does_not_form_a_group(groups):
    result = permutation_test(metrics="selection_rate", groups=groups, decisions=DECISIONS)
    assert [comparison.versus for comparison in result] == ["female against male"]
    assert result[0].group.rows == N // 2 - 1


def test_masked_decisions_are_unknown_and_masked_scores_are_rejected():
    masked = np.ma.masked_array(DECISIONS, mask=np.arange(N) < 10)
    result = permutation_test(metrics="selection_rate", groups=GROUPS, decisions=masked)[0]
    assert result.group.counted == N // 2 - 5
    with pytest.raises(AuditInputError, match="10 values missing"):
        permutation_test(
            metrics="mean_score",
            groups=GROUPS,
            scores=np.ma.masked_array(SCORES, mask=np.arange(N) < 10),
        )


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ([float("nan"), *map(str, range(1, N))], "1 row without"),
        (np.array([float("nan"), *map(str, range(1, N))]), "the text 'nan' are no units"),
        (["nan", *map(str, range(1, N))], "1 row without a unit, the first is row 0"),
        ([[1, 2]] * N, "one value per row"),
        ([[1]] * 3 + [[1, 2]] * (N - 3), "one value per row"),
        (np.array([[1], [2, 3]] * (N // 2), dtype=object), "one id per row"),
        (
            np.ma.masked_array(np.arange(N), mask=np.arange(N) == 3),
            "1 row without a unit, the first is row 3",
        ),
    ],
)
def test_invalid_units_are_rejected(units, message):
    with pytest.raises(AuditInputError, match=message):
        permutation_test(metrics="selection_rate", groups=GROUPS, decisions=DECISIONS, units=units)


def test_missing_units_of_pandas_are_rejected():
    pd: Any = pytest.importorskip("pandas")
    units = pd.Series([None, *map(str, range(1, N))], dtype="string")
    with pytest.raises(AuditInputError, match="1 row without"):
        permutation_test(metrics="selection_rate", groups=GROUPS, decisions=DECISIONS, units=units)


def test_groups_may_be_numbers():
    groups = np.array([0, 1] * (N // 2))
    result = permutation_test(
        metrics="selection_rate", groups=groups, decisions=DECISIONS, reference=0
    )
    assert [comparison.versus for comparison in result] == ["1 against 0"]
    assert permutation_test(
        metrics="selection_rate", groups=groups, decisions=DECISIONS, expected_groups=[0, 1, 2]
    )[0].determined
    cells = {(1, 1): 30, (1, 0): 20}
    counts = TableCounts.from_mapping({1: cells, 0: cells, None: cells, float("nan"): cells})
    assert counts.groups[0].names == ("0", "1")
    assert counts.groups[0].table[2].sum() == 100
    assert TableCounts.from_mapping({"": cells, "a": cells}).groups[0].names == ("a",)


def test_many_duplicates_without_units_give_a_warning():
    groups, labels, scores = sample(300, 6)
    rows = np.repeat(np.arange(300), 3)
    result = permutation_test(
        metrics="auc", groups=groups[rows], labels=labels[rows], scores=scores[rows], n_resamples=99
    )
    assert any("Pass `units`" in warning for warning in result.warnings)
    assert not permutation_test(
        metrics="auc", groups=groups, labels=labels, scores=scores, n_resamples=99
    ).warnings


@pytest.mark.parametrize("metric", ["mean_score", lambda group: float(group.scores.mean())])
def test_rows_of_a_unit_without_a_group_do_not_count(metric):
    groups, _, scores = sample(300, 6)
    units = np.repeat(np.arange(300), 2)
    partly = np.repeat(groups, 2).astype(object)
    partly[1::2] = None
    known = permutation_test(metrics=metric, groups=groups, scores=scores, n_resamples=99)[0]
    mixed = permutation_test(
        metrics=metric,
        groups=partly,
        scores=np.stack([scores, np.ones(300)], axis=1).ravel(),
        units=units,
        n_resamples=99,
    )[0]
    assert mixed.effect == pytest.approx(known.effect)
    assert mixed.group.counted == known.group.counted
