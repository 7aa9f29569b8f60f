"""Counts say nothing of few people, and limits are no one's own value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_audit.fliptest.disclosure import few_people, member_counts, round_to, told_counts


def test_members_and_others_are_counted_by_code():
    codes = np.array([0, 2, 2, 2, 0])
    members = np.array([True, True, False, False, False])
    assert member_counts(codes, 4, members).tolist() == [[1, 0, 1, 0], [1, 0, 2, 0]]


def test_few_are_some_but_not_enough():
    assert few_people(np.array([[0, 1], [9, 10]]), 10).tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize(
    ("row", "told"),
    [((3, 90), (0, 93)), ((90, 3), (93, 0)), ((0, 90), (0, 90)), ((10, 90), (10, 90))],
)
def test_few_are_told_with_those_beside_them(row, told):
    table = np.array([(50, 50), row])
    assert told_counts(table, 10).tolist() == [[50, 50], list(told)]


@given(
    table=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=3),
    smallest=st.integers(1, 20),
)
def test_only_a_row_of_few_on_both_sides_stays_as_it_is(table, smallest):
    before = np.array(table)
    after = told_counts(before, smallest)
    assert (after.sum(1) == before.sum(1)).all()
    both = few_people(before, smallest).all(1)
    assert (after[both] == before[both]).all()
    for row in after[~both]:
        # Few beside none are still few once they are told with them.
        assert not few_people(row, smallest).any() or row.sum() < smallest


@pytest.mark.parametrize(
    ("value", "spread", "whole", "expected"),
    [
        (1_234.5, 5_000, False, 1_200.0),
        (0.123, 1.0, False, 0.12),
        (1_987.3, 30.0, False, 1_987.0),
        (5.0, 23.0, True, 5.0),
        (0.49, 0.5, True, 0.0),
        (-77.0, 1_000.0, True, -80.0),
    ],
)
def test_limits_are_rounded_to_the_spread(value, spread, whole, expected):
    assert round_to(value, spread, whole=whole) == expected
