"""Coverage of labels by group and decision, and unknown groups in the head of a result."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import permutation_test, projection_test
from offline_audit.coverage import (
    LabelCoverage,
    Unknowns,
    equal_shares_p_value,
    one_decision_only,
    only_labelled_decision,
    uneven_labels,
)
from offline_audit.validation import UNKNOWN


@pytest.mark.parametrize(
    ("rows", "labelled", "decision"),
    [
        ([50, 50], [0, 20], 1),
        ([50, 50], [1, 0], 0),
        ([50, 50], [1, 20], 1),
        ([500, 500], [1, 500], 1),
        ([500, 500], [400, 9], 0),
        ([500, 500], [10, 500], UNKNOWN),
        ([20, 500], [5, 500], UNKNOWN),
        ([100, 150], [5, 12], UNKNOWN),
        ([50, 50], [0, 0], UNKNOWN),
        ([0, 50], [0, 20], UNKNOWN),
    ],
)
def test_labels_are_selective_if_one_of_two_decisions_has_labels(rows, labelled, decision):
    assert only_labelled_decision(np.array(rows), np.array(labelled)) == decision


def test_selective_labels_are_recognised_by_group():
    rows, labelled = np.array([[50, 50], [9, 9]]), np.array([[50, 50], [0, 9]])
    assert only_labelled_decision(rows, labelled).tolist() == [UNKNOWN, 1]


def test_labels_are_uneven_if_their_shares_differ_by_more_than_a_tenth():
    rows = np.array([[100, 100], [100, 100], [0, 100]])
    labelled = np.array([[50, 65], [50, 55], [0, 50]])
    assert uneven_labels(rows, labelled).tolist() == [True, False, False]


def test_a_difference_that_chance_explains_is_not_uneven():
    rows, labelled = np.array([[10, 10], [1_000, 1_000]]), np.array([[5, 7], [500, 700]])
    assert uneven_labels(rows, labelled, standard_errors=3).tolist() == [False, True]


def table(labelled: tuple[int, int], rows: tuple[int, int]) -> np.ndarray:
    """Rows by label and decision; half of the labelled rows have label 1."""
    cells = np.zeros((3, 3), int)
    for decision in (0, 1):
        half = labelled[decision] // 2
        cells[:, decision] = half, labelled[decision] - half, rows[decision] - labelled[decision]
    return cells


def test_equal_coverage_is_silent_and_a_deficit_names_group_and_decision():
    rows = (500, 500)
    equal = LabelCoverage.of(("a", "b"), (table((450, 450), rows), table((448, 452), rows)))
    assert not equal.differs
    assert list(equal.warnings()) == []
    lower = LabelCoverage.of(("a", "b"), (table((450, 450), rows), table((400, 450), rows)))
    assert lower.differs
    (warning,) = lower.warnings()
    assert "80.0% of the rows of b with decision 0 and 90.0% of those of a" in warning


def test_labels_that_depend_on_the_decision_in_both_groups_alike_name_both():
    both = LabelCoverage.of(("a", "b"), (table((200, 400), (500, 500)),) * 2)
    assert not both.differs
    assert [warning.split()[2] for warning in both.warnings()] == ["a", "b"]


def test_a_decision_that_does_not_count_is_not_tested():
    tables = table((450, 450), (500, 500)), table((100, 450), (500, 500))
    assert LabelCoverage.of(("a", "b"), tables).differs
    assert not LabelCoverage.of(("a", "b"), tables, (1,)).differs


def test_small_counts_are_tested_exactly_and_large_ones_like_them():
    assert equal_shares_p_value([8, 8], [8, 4], 1.0) == pytest.approx(0.0769, abs=1e-4)
    assert equal_shares_p_value([8, 0], [8, 0], 1.0) == 1.0
    # Rows of the same person say less.
    assert equal_shares_p_value([900, 900], [500, 560], 1.0) < 0.01
    assert equal_shares_p_value([900, 900], [500, 560], 0.1) > 0.3


def test_a_handful_of_labels_is_counted_in_the_reason():
    reason = one_decision_only(" of b", np.array([500, 500]), np.array([1, 500]))
    assert reason is not None
    assert "only for rows of b with decision 1, and for 1 of the 500 others" in reason
    assert one_decision_only("", np.array([500, 500]), np.array([50, 500])) is None


def test_unknowns_are_counted_in_one_line():
    unknown = Unknowns(rows=4_000, groups={"group": 2_000}, labels=40)
    assert str(unknown) == "Rows: 4,000; unknown: group 2,000 (50.0%), label 40 (1.0%)."
    assert str(Unknowns(rows=10, groups={"sex": 0}, labels=0)) == "Rows: 10; unknown: none."
    several = Unknowns.joined([None, unknown, Unknowns(rows=4_000, groups={"age": 4})])
    assert "group of age 4 (0.1%)" in str(several)
    assert several is not None
    assert several.labels == 40
    assert Unknowns.joined([None]) is None


@pytest.mark.parametrize("audit", ["permutation", "projection"])
def test_coverage_of_few_people_with_many_rows_is_no_evidence(audit):
    """One person in twenty has 40 rows; labels are missing by person, at random."""
    differing = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        person = np.repeat(np.arange(600), np.where(rng.random(600) < 0.05, 40, 1))
        sex, latent = rng.choice(["f", "m"], 600)[person], rng.normal(size=600)[person]
        labels = (rng.random(600) < 0.5).astype(float)
        labels[rng.random(600) < 0.4] = np.nan
        decisions = latent > 0
        if audit == "permutation":
            comparison = permutation_test(
                sex, decisions, labels[person], units=person, metrics="tpr",
                n_resamples=99, progress=False,
            )[0]  # fmt: skip
            coverage = comparison.missing.coverage
            differing += coverage is not None and coverage.differs
        else:
            result = projection_test(
                groups=sex, decisions=decisions, distances=np.abs(latent) + 0.01,
                labels=labels[person], units=person, criterion="equal_opportunity",
            )  # fmt: skip
            differing += any("missing alike" in warning for warning in result.warnings)
    # 5% of 20, and three standard errors.
    assert differing <= 4
