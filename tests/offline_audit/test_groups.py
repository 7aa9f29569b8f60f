"""Selective and uneven labels are recognised from counts by decision."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit.groups import Crossing, crossed, only_labelled_decision, uneven_labels
from offline_audit.validation import UNKNOWN


@pytest.mark.parametrize(
    ("rows", "labelled", "decision"),
    [
        ([50, 50], [0, 20], 1),
        ([50, 50], [1, 0], 0),
        ([50, 50], [1, 20], UNKNOWN),
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


def test_a_crossing_with_an_attribute_without_known_groups_has_no_groups():
    known = Crossing(attribute="sex", names=("a", "b"), codes=np.array([0, 1, 1]))
    unknown = Crossing(attribute="age", names=(), codes=np.full(3, UNKNOWN))
    result = crossed([known, unknown])
    assert (result.attribute, result.names) == ("sex × age", ())
    assert result.codes.tolist() == [UNKNOWN] * 3
