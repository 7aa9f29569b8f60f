"""Small counts are merged, limits are rounded, and intervals of shares are conservative."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_audit.fliptest.counts import (
    category_length,
    member_counts,
    merged_categories,
    round_to,
    small_cells,
    standardised_shares,
)


def test_members_and_others_are_counted_by_code():
    codes = np.array([0, 2, 2, 2, 0])
    members = np.array([True, True, False, False, False])
    assert member_counts(codes, 4, members).tolist() == [[1, 0, 1, 0], [1, 0, 2, 0]]


def test_small_cells_are_above_zero_and_below_the_limit():
    assert small_cells(np.array([[0, 1], [9, 10]]), 10).tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize(
    ("table", "names", "expected"),
    [
        # Nothing to merge.
        ([[10, 0, 90], [50, 60, 0]], "a b c", {"a": (10, 50), "b": (0, 60), "c": (90, 0)}),
        # The small one and the smallest of the others.
        ([[3, 40, 50], [70, 60, 500]], "a b c", {"c": (50, 500), "the rest": (43, 130)}),
        # Categories without small cells stay where the small one is the largest.
        ([[50, 60, 3], [30, 12, 5_000]], "a b c", {"a": (50, 30), "the rest": (63, 5_012)}),
        # Two small ones are enough if their sum is.
        ([[6, 7, 50], [90, 90, 500]], "a b c", {"c": (50, 500), "the rest": (13, 180)}),
        # An empty category hides nothing.
        (
            [[0, 3, 40, 50], [0, 70, 60, 500]],
            "a b c d",
            {"a": (0, 0), "d": (50, 500), "the rest": (43, 130)},
        ),
        # Two categories: nothing to merge with.
        ([[3, 90], [50, 50]], "a b", None),
        ([[3, 90, 0], [50, 50, 0]], "a b c", None),
    ],
)
def test_small_cells_are_merged_until_none_is_small(table, names, expected):
    merged = merged_categories(np.array(table), names.split(), 10)
    if expected is None:
        assert merged is None
        return
    assert merged is not None
    counts, shown = merged
    assert dict(zip(shown, map(tuple, counts.T.tolist()), strict=True)) == expected


@given(
    table=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 90)), min_size=1, max_size=7),
    smallest=st.integers(1, 20),
)
def test_merged_tables_have_no_small_cell_and_hide_every_one(table, smallest):
    counts = np.array(table).T
    names = [str(code) for code in range(len(table))]
    merged = merged_categories(counts, names, smallest)
    if merged is None:
        assert small_cells(counts, smallest).any()
        return
    published, shown = merged
    assert not small_cells(published, smallest).any()
    assert (published.sum(1) == counts.sum(1)).all()
    hidden = [names.index(name) for name in names if name not in shown]
    for name, column in zip(shown, published.T, strict=True):
        expected = counts[:, hidden].sum(1) if name == "the rest" else counts[:, int(name)]
        assert (column == expected).all()
    assert len(hidden) != 1
    if hidden:
        # Another category is left to compare with.
        assert published[:, :-1].any()


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
