"""Units: their rows, their number, and one group each."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import AuditInputError
from offline_audit.units import UnitRows, effective_rows, require_one_group, unit_count

UNITS = np.array([4, 0, 4, 2, 4, 0])


def test_rows_of_units_are_found_with_repetitions():
    owners = UnitRows.of(UNITS)
    assert len(owners) == 3
    assert owners.rows(np.array([2, 0, 2])).tolist() == [0, 2, 4, 1, 5, 0, 2, 4]


def test_one_row_of_each_unit_is_drawn_at_random():
    owners = UnitRows.of(UNITS)
    rng = np.random.default_rng(0)
    draws = np.array([owners.one_each(rng) for _ in range(60)])
    assert all(UNITS[draw].tolist() == [0, 2, 4] for draw in draws)
    assert set(draws[:, 2]) == {0, 2, 4}


def test_copies_do_not_add_effective_rows():
    assert effective_rows(np.repeat(np.arange(50), 4), 200) == 50
    assert effective_rows(None, 200) == 200
    assert effective_rows(UNITS, 6) == pytest.approx(36 / 14)
    assert unit_count(UNITS, 6) == 3
    assert unit_count(None, 6) == 6


def test_a_unit_in_two_groups_is_an_error_and_an_unknown_group_is_none():
    require_one_group(UNITS, np.array([1, 0, -1, -1, 1, 0]), "sex")
    with pytest.raises(AuditInputError, match=r"units: 1 unit with rows in more than one group"):
        require_one_group(UNITS, np.array([1, 0, 0, -1, 1, 0]), "sex")
