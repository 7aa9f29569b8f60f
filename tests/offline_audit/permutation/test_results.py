"""Who is compared with whom, and how results read."""

from __future__ import annotations

import json

import numpy as np
import pytest

from offline_audit.group_counts import Cell, GroupCounts
from offline_audit.permutation import (
    METRICS,
    Comparisons,
    ScoreCounts,
    TableCounts,
    correlation_test,
    permutation_test,
    selection_table,
)
from offline_audit.permutation.intervals import rate_ratio_interval, wilson
from offline_audit.score_histogram import ScoreBars, ScoreHistogram


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
    return permutation_test(list(METRICS), **rows, draws=99)


def versus(found: Comparisons) -> list[str]:
    return [each.versus for each in found]


def test_each_group_is_compared_with_the_rest_and_two_with_each_other(rows):
    found = permutation_test("selection_rate", groups=rows["groups"], decisions=rows["decisions"])
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


def test_a_reference_is_what_all_others_are_compared_with(rows):
    found = permutation_test(
        "selection_rate", groups=rows["groups"], decisions=rows["decisions"], reference="White"
    )
    assert versus(found) == [
        "female against male",
        "Asian against White",
        "Black against White",
    ]
    by_attribute = permutation_test(
        "selection_rate",
        groups=rows["groups"],
        decisions=rows["decisions"],
        reference={"sex": "female"},
    )
    assert versus(by_attribute)[0] == "male against female"
    assert by_attribute[0].effect == pytest.approx(-found[0].effect)  # type: ignore[operator]


def test_intersections_cross_attributes(rows):
    found = permutation_test(
        "selection_rate",
        groups=rows["groups"],
        decisions=rows["decisions"],
        intersections=[("sex", "race")],
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
            "tpr", groups=rows["groups"]["sex"], labels=rows["labels"],
            decisions=rows["decisions"], alternative=side,
        )[0].p_value
        for side in ("greater", "less")
    ]  # fmt: skip
    assert sum(ps) == pytest.approx(1)  # type: ignore[arg-type]


def test_a_comparison_carries_what_surrounds_a_p_value(found):
    each = found.of("auc", "female")
    assert each.monte_carlo_error == pytest.approx(np.sqrt(each.p_value * (1 - each.p_value) / 99))
    assert each.smallest_detectable > 0
    assert each.smallest_cell >= each.least_cell == 5
    assert each.draws == 99
    exact = found.of("tpr", "female")
    assert exact.exact
    assert exact.draws is None
    assert exact.monte_carlo_error == 0


def test_a_difference_of_the_smallest_detectable_size_is_found_in_four_of_five_samples():
    rng = np.random.default_rng(0)
    n = 400
    counts = TableCounts.from_mapping({g: {(None, 1): 120, (None, 0): 280} for g in ("a", "b")})
    shift = permutation_test("selection_rate", counts=counts)[0].smallest_detectable
    hits = rng.binomial(n, [[0.3 - shift / 2, 0.3 + shift / 2]] * 400)  # type: ignore[operator]
    ps = [
        permutation_test(
            "selection_rate",
            counts=TableCounts.from_mapping(
                {g: {(None, 1): x, (None, 0): n - x} for g, x in zip("ab", pair, strict=True)}
            ),
        )[0].p_value
        for pair in hits.tolist()
    ]
    # Four standard errors of 400 samples.
    assert np.mean([p <= 0.05 for p in ps if p is not None]) == pytest.approx(0.8, abs=0.08)


def test_results_print_as_tables(found):
    text = str(found)
    assert text.startswith("Permutation tests: 40 comparisons")
    assert "calibration_gap" in text
    assert max(map(len, text.splitlines())) < 130
    one = str(found[0])
    assert "Newcombe" in one
    assert "all rearrangements of the rows that count" in one
    assert "rearrangements of rows with the same label" in str(found.of("auc", "female"))


def test_results_are_html_that_escapes_names():
    counts = TableCounts.from_mapping(
        {"<b>": {(1, 1): 50, (1, 0): 40}, "other": {(1, 1): 30, (1, 0): 70}}
    )
    found = permutation_test("tpr", counts=counts)
    for shown in (found._repr_html_(), found[0]._repr_html_()):
        assert "<b>" not in shown
        assert "&lt;b&gt;" in shown
        assert "<table>" in shown


def test_results_are_json_ready(found):
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(told["comparisons"]) == len(found)
    first = told["comparisons"][0]
    assert first["group"]["name"] == "female"
    assert first["exact"] is True
    assert json.dumps(correlation_test(np.arange(40.0), np.arange(40.0) % 7, draws=99).to_dict())


def test_results_plot(found):
    figure = found.plot()
    assert len(figure.axes[0].get_yticklabels()) == len(found)
    assert found[0].plot().axes[0].get_xlabel().startswith("difference")


def test_counts_come_from_the_cells_of_a_window():
    cells = [
        Cell(attributes=("sex",), groups=(group,), label=label, decision=decision, rows=rows)
        for group, label, decision, rows in [
            ("female", 1, 1, 30), ("female", 1, 0, 20), ("female", None, 0, 5),
            ("male", 1, 1, 45), ("male", 1, 0, 9), (None, 1, 1, 7), (None, None, None, 2),
        ]
    ]  # fmt: skip
    crossed = [
        Cell(attributes=("sex", "race"), groups=(s, r), label=1, decision=d, rows=20 + d)
        for s in ("female", "male")
        for r in ("Black", None)
        for d in (0, 1)
    ]
    counts = TableCounts.from_cells(GroupCounts(cells=(*cells, *crossed)).cells)
    found = permutation_test("tpr", counts=counts)
    assert [(f.attribute, f.versus) for f in found] == [
        ("sex", "female against male"),
        ("sex × race", "female × Black against male × Black"),
    ]
    assert (found[0].group.hits, found[0].group.counted, found[0].group.rows) == (30, 50, 55)
    table = selection_table(counts=counts)
    assert table.of(None, "sex").rows == 7
    assert table.undecided == 2


def test_histograms_come_from_a_window():
    rng = np.random.default_rng(1)
    bars = tuple(
        ScoreBars(
            group=group, label=label, decision=None,
            counts=tuple(rng.multinomial(300, [0.4, 0.3, 0.2, 0.1][:: 1 if label == 0 else -1])),
            missing=2,
        )
        for group in ("female", "male", None)
        for label in (0, 1)
    )  # fmt: skip
    counts = ScoreCounts.from_histogram(ScoreHistogram(attribute="sex", bins=4, bars=bars))
    assert counts.unscored == 12
    found = permutation_test(["auc", "mean_score"], counts=counts, draws=99)
    assert found[0].group.counted == 600
    assert found[0].group.estimate == pytest.approx(0.75, abs=0.06)
    assert found[1].binning_error == 0.25


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
    # The small group's higher rate is not the yardstick.
    assert native.small
    assert native.impact_ratio == pytest.approx(1.5)
    assert white.impact_ratio == 1
    assert white.impact_interval is None
    assert hispanic.impact_ratio == pytest.approx(0.75)
    assert hispanic.below_four_fifths
    assert not hispanic.surely_below
    assert table.of(None).impact_ratio is None
    text = str(table)
    assert "(unknown)" in text
    assert "Local Law 144" in text
    assert json.loads(json.dumps(table.to_dict()))["table"][1]["below_four_fifths"] is True
    assert "<table>" in table._repr_html_()
    assert len(table.plot().axes[0].get_yticklabels()) == 4


def test_nobody_selected_gives_rates_and_no_ratios():
    table = selection_table(groups=["a", "b"] * 20, decisions=[0] * 40)
    assert [row.rate for row in table.table] == [0, 0]
    assert [row.impact_ratio for row in table.table] == [None, None]


def test_wilsons_interval_is_scipys():
    from scipy.stats import binomtest

    for hits, n in [(0, 10), (3, 17), (40, 40)]:
        expected = binomtest(hits, n).proportion_ci(method="wilson")
        assert wilson(hits / n, n, 0.95) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_interval_of_a_ratio_covers_it():
    rng = np.random.default_rng(0)
    hits = rng.binomial([60, 500], [0.2, 0.3], (1_500, 2))
    covered = 0
    for one, two in hits.tolist():
        low, high = rate_ratio_interval(one, 60, two, 500, 0.95)  # type: ignore[misc]
        covered += low <= 0.2 / 0.3 <= high
    assert 0.93 < covered / 1_500 < 0.975
