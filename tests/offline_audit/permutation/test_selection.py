"""The table of selection rates and its intervals."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from offline_audit import AuditInputError, TableCounts, scoring_table, selection_table
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
    assert white.best
    assert hispanic.impact_ratio == pytest.approx(0.75)
    assert hispanic.below_four_fifths
    assert not hispanic.surely_below
    assert hispanic.impact == "may be chance"
    assert table.of(None).impact_ratio is None
    text = str(table)
    sentence = (
        "race: Hispanic is selected 0.75 times as often as White (30.0% against 40.0%): impact"
    )
    assert sentence in text
    assert "below four fifths, which may be chance" in text
    assert "35 rows with an unknown group of race: assessed, but not included in the ratios" in text
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


def counted(rates: dict[str, tuple[int, int]]) -> TableCounts:
    return TableCounts.from_mapping(
        {name: {(None, 1): hits, (None, 0): n - hits} for name, (hits, n) in rates.items()}
    )


def test_a_mark_needs_an_interval_below_four_fifths():
    table = selection_table(counts=counted({"a": (100, 400), "b": (200, 400), "c": (150, 200)}))
    assert [row.impact for row in table.table] == ["below", "below", "not below"]
    lines = str(table).splitlines()
    assert [line.endswith(" !") for line in lines[3:6]] == [True, True, False]
    assert "! below four fifths by more than chance explains: the whole interval" in str(table)
    assert "may be chance" not in str(table)


def test_where_one_group_is_clearly_best_the_interval_is_that_of_two_rates():
    table = selection_table(counts=counted({"a": (100, 400), "b": (300, 400)}))
    low, high = rate_ratio_interval(100, 400, 300, 400, 0.95)  # type: ignore[misc]
    assert table.of("a").impact_interval == pytest.approx((low, high))
    assert table.of("b").impact_interval == (1, 1)


def test_where_two_groups_may_be_best_the_interval_allows_for_both():
    table = selection_table(counts=counted({"a": (20, 200), "b": (100, 200), "c": (98, 200)}))
    assert table.of("c").impact_interval[1] == 1  # type: ignore[index]
    best = table.of("b").impact_interval
    assert best is not None
    assert best[0] < 1 == best[1]
    low, high = table.of("a").impact_interval  # type: ignore[misc]
    pair_low, pair_high = rate_ratio_interval(20, 200, 100, 200, 0.95)  # type: ignore[misc]
    assert low == pytest.approx(pair_low)
    # The highest rate was picked, so the true one is rather lower and the ratio higher.
    assert high > pair_high


def test_a_group_that_is_never_selected_has_an_interval():
    table = selection_table(counts=counted({"a": (0, 100), "b": (60, 100)}))
    assert table.of("a").impact_ratio == 0
    low, high = table.of("a").impact_interval  # type: ignore[misc]
    assert low == 0
    assert 0 < high < 0.8
    assert table.of("a").impact == "below"


SCORING: dict[str, Any] = {
    "groups": {
        "sex": ["f", "f", "f", "f", "m", "m", "m", "m", "m", None],
        "race": ["A", "A", "B", "B", "A", "A", "B", "B", "B", "B"],
    },
    # Sorted: 1 2 3 4 | 5 6 7 8, so the median is 4.5; two have no score.
    "scores": [1, 2, 5, None, 3, 6, 7, 8, float("nan"), 4],
}


def test_the_scoring_table_counts_scores_above_the_median():
    table = scoring_table(**SCORING, by=["sex", ("sex", "race")])
    assert table.median == 4.5
    assert table.undecided == 2
    women, men, unknown = (table.of(name, "sex") for name in ("f", "m", None))
    assert (women.rows, women.selected) == (3, 1)
    assert women.rate == pytest.approx(1 / 3)
    assert (men.rows, men.selected, men.rate) == (4, 3, 0.75)
    assert (unknown.rows, unknown.selected) == (1, 0)
    assert women.impact_ratio == pytest.approx((1 / 3) / 0.75)
    rates = {r.group: (r.rows, r.selected) for r in table.table if r.attribute == "sex × race"}
    expected = {"f × A": (2, 0), "f × B": (1, 1), "m × A": (2, 1), "m × B": (2, 2), None: (1, 0)}
    assert rates == expected
    text = str(table)
    assert "Scoring rates (share above the median score, 4.5) and impact ratios" in text
    assert "1 row with an unknown group of sex: assessed, but not included in the ratios" in text
    assert "excluded: 2 rows without a score" in text
    assert table.to_dict()["median"] == 4.5
    assert "above the median" in table.plot()._suptitle.get_text()  # type: ignore[attr-defined]


def test_scores_that_equal_the_median_are_not_above_it():
    scores = [1, 2, 2, 2, 3] * 8
    table = scoring_table(["a", "b"] * 20, scores)
    assert table.median == 2
    assert sum(row.selected for row in table.table) == 8
    assert "20.0% of the scores are above the median instead of half" in str(table)
    assert scoring_table(["a", "b"] * 20, list(range(40))).warnings == ()


def test_a_scoring_table_needs_groups_and_scores():
    for arguments in ({"groups": ["a", "b"]}, {"scores": [1, 2]}):
        with pytest.raises(AuditInputError, match="groups, scores: pass both arrays"):
            scoring_table(**arguments)
    with pytest.raises(AuditInputError, match="at least one known score"):
        scoring_table(["a", "b"], [None, None])
