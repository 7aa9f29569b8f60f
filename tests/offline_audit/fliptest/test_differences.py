"""Differences of shares as one figure, with an interval that holds every one they allow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_audit.fliptest.differences import category_length, standardised_shares

part = st.tuples(st.floats(-1, 1), st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 1))


@given(parts=st.lists(part, min_size=1, max_size=5), spread=st.floats(0.1, 3))
def test_the_interval_holds_the_length_of_all_that_its_parts_allow(parts, spread):
    ends = [(middle - below, middle + above) for middle, below, above, _ in parts]
    length, (low, high) = category_length([middle for middle, *_ in parts], ends, spread)
    assert length == pytest.approx(math.hypot(*(middle for middle, *_ in parts)) / spread)
    inside = [a + at * (b - a) for (a, b), (*_, at) in zip(ends, parts, strict=True)]
    for found in (length, math.hypot(*inside) / spread):
        assert low - 1e-9 <= found <= high + 1e-9


def test_the_interval_reaches_no_further_than_its_parts():
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


def test_one_category_has_no_size():
    assert standardised_shares(np.array([[9, 0], [5, 0]]), 0.95, signed=True) == (None, None)
