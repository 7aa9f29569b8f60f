"""The table of selection rates and its intervals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from offline_audit import TableCounts, selection_table
from offline_audit.intervals import rate_ratio_interval, wilson


def test_the_selection_table_is_that_of_a_bias_audit():
    counts = TableCounts.from_mapping(
        {
            "Hispanic": {(None, 1): 30, (None, 0): 70},
            "White": {(None, 1): 400, (None, 0): 600},
            "Native": {(None, 1): 9, (None, 0): 6},
            "Black": {(None, 1): 100, (None, 0): 150},
            None: {(None, 1): 20, (None, 0): 15},
        },
        attribute="race",
    )
    table = selection_table(counts=counts)
    assert [row.group for row in table.table] == ["Black", "Hispanic", "Native", "White", None]
    hispanic, white, native = (table.of(name) for name in ("Hispanic", "White", "Native"))
    # The higher rate of the small group is not the reference rate.
    assert native.small
    assert native.impact_ratio == pytest.approx(1.5)
    assert white.impact_ratio == 1
    assert white.impact_interval is None
    assert hispanic.impact_ratio == pytest.approx(0.75)
    assert hispanic.below_four_fifths
    assert not hispanic.surely_below
    assert table.of(None).impact_ratio is None
    text = str(table)
    assert "race: Hispanic is selected 0.75 times as often as White (30.0% against 40.0%;" in text
    assert "Native is selected" not in text
    assert "(unknown)" in text
    assert "Local Law 144" in text
    assert json.loads(json.dumps(table.to_dict()))["table"][1]["below_four_fifths"] is True
    assert "<table>" in table._repr_html_()
    assert len(table.plot().axes[0].get_yticklabels()) == 4


def test_nobody_selected_gives_rates_and_no_ratios():
    table = selection_table(groups=["a", "b"] * 20, decisions=[0] * 40)
    assert [row.rate for row in table.table] == [0, 0]
    assert [row.impact_ratio for row in table.table] == [None, None]


def test_the_wilson_interval_equals_that_of_scipy():
    from scipy.stats import binomtest

    for hits, n in [(0, 10), (3, 17), (40, 40)]:
        expected = binomtest(hits, n).proportion_ci(method="wilson")
        assert wilson(hits / n, n, 0.95) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_interval_of_a_ratio_has_its_coverage():
    rng = np.random.default_rng(0)
    hits = rng.binomial([60, 500], [0.2, 0.3], (1_500, 2))
    covered = 0
    for one, two in hits.tolist():
        low, high = rate_ratio_interval(one, 60, two, 500, 0.95)  # type: ignore[misc]
        covered += low <= 0.2 / 0.3 <= high
    assert 0.93 < covered / 1_500 < 0.975
