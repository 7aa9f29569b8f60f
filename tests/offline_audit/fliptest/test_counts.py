"""Small counts are suppressed, limits are rounded, and intervals of shares are conservative."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_audit.fliptest.counts import (
    category_length,
    member_counts,
    round_to,
    small_cells,
    standardised_shares,
    suppressed_counts,
)


def test_members_and_others_are_counted_by_code():
    codes = np.array([0, 2, 2, 2, 0])
    members = np.array([True, True, False, False, False])
    assert member_counts(codes, 4, members).tolist() == [[1, 0, 1, 0], [1, 0, 2, 0]]


def test_small_cells_are_above_zero_and_below_the_limit():
    assert small_cells(np.array([[0, 1], [9, 10]]), 10).tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize(
    ("row", "expected"),
    [((3, 90), (0, 93)), ((90, 3), (93, 0)), ((0, 90), (0, 90)), ((10, 90), (10, 90))],
)
def test_a_small_cell_is_added_to_the_other_cell_of_its_row(row, expected):
    table = np.array([(50, 50), row])
    assert suppressed_counts(table, 10).tolist() == [[50, 50], list(expected)]


@given(
    table=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=3),
    smallest=st.integers(1, 20),
)
def test_suppression_keeps_totals_and_rows_of_two_small_cells(table, smallest):
    before = np.array(table)
    after = suppressed_counts(before, smallest)
    assert (after.sum(1) == before.sum(1)).all()
    both = small_cells(before, smallest).all(1)
    assert (after[both] == before[both]).all()
    for row in after[~both]:
        # A small cell next to a zero stays small.
        assert not small_cells(row, smallest).any() or row.sum() < smallest


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


part = st.tuples(st.floats(-1, 1), st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 1))


@given(parts=st.lists(part, min_size=1, max_size=5), spread=st.floats(0.1, 3))
def test_the_interval_covers_every_length_that_its_parts_allow(parts, spread):
    ends = [(middle - below, middle + above) for middle, below, above, _ in parts]
    length, (low, high) = category_length([middle for middle, *_ in parts], ends, spread)
    assert length == pytest.approx(math.hypot(*(middle for middle, *_ in parts)) / spread)
    inside = [a + position * (b - a) for (a, b), (*_, position) in zip(ends, parts, strict=True)]
    for value in (length, math.hypot(*inside) / spread):
        assert low - 1e-9 <= value <= high + 1e-9


def test_the_interval_is_no_wider_than_its_parts():
    length, ends = category_length([0.3, -0.4], [(0.1, 0.5), (-0.6, 0.2)], 0.5)
    assert length == pytest.approx(1.0)
    assert ends == pytest.approx((0.2, 2 * math.hypot(0.5, 0.6)))


def test_two_categories_have_the_size_of_a_binary():
    table = np.array([[30, 70], [250, 150]])
    size, interval = standardised_shares(table, 0.95, signed=True)
    length, ends = standardised_shares(table, 0.95, signed=False)
    both = np.repeat([0, 1, 0, 1], table.ravel())
    assert size == pytest.approx((0.7 - 0.375) / both.std())
    assert length == pytest.approx(size)
    assert ends == pytest.approx(interval)


def test_one_category_has_no_difference():
    assert standardised_shares(np.array([[9, 0], [5, 0]]), 0.95, signed=True) == (None, None)
