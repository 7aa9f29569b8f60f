"""Which groups are compared, and comparisons without enough data."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import METRICS, permutation_test
from offline_audit.permutation import Comparisons

N = 200
GROUPS = np.array(["female", "male"] * (N // 2))
DECISIONS = np.array([0, 0, 1, 1] * (N // 4))
LABELS = np.array([0, 1, 1, 1, 0] * (N // 5))
SCORES = np.linspace(0, 1, N)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 900
    labels = rng.integers(0, 2, n)
    scores = np.clip(0.3 * labels + 0.6 * rng.random(n), 0, 1)
    return {
        "groups": {
            "sex": rng.choice(["female", "male"], n),
            "race": rng.choice(
                np.array(["Asian", "Black", "White", None]), n, p=[0.2, 0.3, 0.45, 0.05]
            ),
        },
        "labels": labels,
        "scores": scores,
        "decisions": (scores > 0.5).astype(int),
    }


@pytest.fixture(scope="module")
def found(rows) -> Comparisons:
    return permutation_test(metrics=list(METRICS), **rows, n_resamples=99)


def versus(found: Comparisons) -> list[str]:
    return [each.versus for each in found]


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
        ("tpr", {"decisions": DECISIONS, "labels": np.arange(N) < 4}, "not enough data"),
    ],
)
def test_without_enough_data_there_is_a_reason_and_no_p_value(metric, columns, reason):
    found = permutation_test(metrics=metric, groups=GROUPS, n_resamples=99, **columns)[0]
    assert found.p_value is None
    assert found.statistic is None
    assert not found.enough_data
    assert found.reason is not None
    assert reason in found.reason
    assert reason in str(found).replace("\n  ", " ")


def test_each_group_is_compared_with_the_rest_and_two_with_each_other(rows):
    found = permutation_test(
        metrics="selection_rate", groups=rows["groups"], decisions=rows["decisions"]
    )
    assert versus(found) == [
        "female against male",
        "Asian against not Asian",
        "Black against not Black",
        "White against not White",
    ]
    others = [each.other.rows for each in found if each.other]
    known = sum(group is not None for group in rows["groups"]["race"])
    assert [each.group.rows + rest for each, rest in zip(found, others, strict=True)] == [
        900,
        known,
        known,
        known,
    ]


def test_all_other_groups_are_compared_with_the_reference(rows):
    found = permutation_test(
        metrics="selection_rate",
        groups=rows["groups"],
        decisions=rows["decisions"],
        reference="White",
    )
    assert versus(found) == [
        "female against male",
        "Asian against White",
        "Black against White",
    ]
    by_attribute = permutation_test(
        metrics="selection_rate",
        groups=rows["groups"],
        decisions=rows["decisions"],
        reference={"sex": "female"},
    )
    assert versus(by_attribute)[0] == "male against female"
    assert by_attribute[0].effect == pytest.approx(-found[0].effect)  # type: ignore[operator]


def test_a_tuple_crosses_attributes(rows):
    found = permutation_test(
        metrics="selection_rate",
        groups=rows["groups"],
        decisions=rows["decisions"],
        by=["sex", "race", ("sex", "race")],
    )
    crossed = [each.group.name for each in found if each.attribute == "sex × race"]
    assert crossed == [
        f"{sex} × {race}" for sex in ("female", "male") for race in ("Asian", "Black", "White")
    ]
    both = (rows["groups"]["sex"] == "male") & (rows["groups"]["race"] == "White")
    assert found.of("selection_rate", "male × White").group.rows == both.sum()


def test_one_sided_p_values_add_up_to_one(rows):
    ps = [
        permutation_test(
            metrics="tpr", groups=rows["groups"]["sex"], labels=rows["labels"],
            decisions=rows["decisions"], alternative=side,
        )[0].p_value
        for side in ("greater", "less")
    ]  # fmt: skip
    assert sum(ps) == pytest.approx(1)  # type: ignore[arg-type]
