"""Printed, HTML, JSON and plotted results."""

from __future__ import annotations

import dataclasses
import json
import warnings
from typing import Any

import numpy as np
import pytest

from offline_audit import METRICS, TableCounts, correlation_test, permutation_test
from offline_audit.permutation import Comparisons

N = 200
GROUPS = ["female", "male"] * (N // 2)
LABELS = np.array([0, 1, 1, 1, 0] * (N // 5))
SCORES = np.linspace(0, 1, N)
DECISIONS = np.array([0, 0, 1, 1] * (N // 4))


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
def results(rows) -> Comparisons:
    return permutation_test(metrics=list(METRICS), **rows, n_resamples=99)


def test_texts_describe_the_question_and_the_alternative():
    columns: dict[str, Any] = {
        "groups": GROUPS,
        "scores": SCORES,
        "labels": LABELS,
        "n_resamples": 99,
    }
    gap = permutation_test(metrics="calibration_gap", **columns)[0]
    assert gap.question.startswith("is the mean difference of label and score the same for")
    one_sided = str(permutation_test(metrics="mean_score", **columns, alternative="less")[0])
    assert "two-sided, unlike the test" in one_sided.replace("\n  ", " ")
    assert "none upwards (80% power at alpha = 0.05, approximate)" in one_sided
    by_units = permutation_test(metrics="auc", **columns, units=np.arange(N))[0]
    assert by_units.exchanged == "the counted units"


def test_figures_wrap_long_names_and_an_empty_figure_gives_no_warning():
    names = np.array(["a very long name of a group × another long name", "short"])
    results = permutation_test(
        metrics="selection_rate", groups=names[np.arange(N) % 2], decisions=DECISIONS
    )
    tick = results.plot().axes[0].get_yticklabels()[0].get_text()
    assert max(map(len, tick.splitlines())) <= 38
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = permutation_test(
            metrics="tpr", groups=GROUPS, decisions=DECISIONS, labels=np.zeros(N)
        )
        few.plot().canvas.draw()


def test_a_comparison_has_monte_carlo_error_power_and_counts(results):
    comparison = results.of("auc", "female")
    p = comparison.p_value
    assert comparison.monte_carlo_error == pytest.approx(np.sqrt(p * (1 - p) / 99))
    down, up = comparison.smallest_detectable_effect
    assert down < 0 < up
    assert comparison.smallest_count >= comparison.required_count == 5
    assert comparison.n_resamples == 99
    exact = results.of("tpr", "female")
    assert exact.exact
    assert exact.n_resamples is None
    assert exact.monte_carlo_error == 0


def with_effects(effects):
    counts = TableCounts.from_mapping({g: {(None, 1): 12, (None, 0): 88} for g in ("a", "b")})
    comparison = permutation_test(metrics="selection_rate", counts=counts)[0]
    return str(dataclasses.replace(comparison, smallest_detectable_effect=effects))


def test_the_smallest_detectable_effect_is_printed_for_each_direction():
    assert "smallest detectable effect -0.061 or +0.083 (80% power" in with_effects((-0.061, 0.083))
    assert "smallest detectable effect +0.083, none downwards (" in with_effects((None, 0.083))
    assert "smallest detectable effect -0.061, none upwards (" in with_effects((-0.061, None))
    assert "smallest detectable effect none in either direction" in with_effects((None, None))
    assert "smallest detectable" not in with_effects(None)


def test_a_one_sided_test_detects_nothing_in_the_other_direction():
    counts = TableCounts.from_mapping({g: {(None, 1): 60, (None, 0): 140} for g in ("a", "b")})
    sides: tuple[Any, ...] = ("greater", "less", "two-sided")
    effects: dict[str, Any] = {
        side: permutation_test(metrics="selection_rate", counts=counts, alternative=side)[
            0
        ].smallest_detectable_effect
        for side in sides
    }
    assert effects["greater"][0] is None
    assert effects["less"][1] is None
    # One side of 5% detects smaller effects than two sides of 2.5%.
    assert effects["greater"][1] < effects["two-sided"][1]
    assert effects["less"][0] > effects["two-sided"][0]


def test_results_print_as_tables(results):
    text = str(results)
    assert text.startswith("Permutation tests: 40 comparisons")
    assert "calibration_gap" in text
    assert max(map(len, text.splitlines())) < 130
    one = " ".join(str(results[0]).split())
    assert "Newcombe" in one
    assert "exact, all permutations of the counted rows" in one
    auc = " ".join(str(results.of("auc", "female")).split())
    assert "random permutations of rows with the same label" in auc


def test_results_are_html_that_escapes_names():
    counts = TableCounts.from_mapping(
        {"<b>": {(1, 1): 50, (1, 0): 40}, "other": {(1, 1): 30, (1, 0): 70}}
    )
    results = permutation_test(metrics="tpr", counts=counts)
    for text in (results._repr_html_(), results[0]._repr_html_()):
        assert "<b>" not in text
        assert "&lt;b&gt;" in text
        assert "<table>" in text


def test_results_are_json_ready(results):
    decoded = json.loads(json.dumps(results.to_dict(), allow_nan=False))
    assert len(decoded["comparisons"]) == len(results)
    first = decoded["comparisons"][0]
    assert first["group"]["name"] == "female"
    assert first["exact"] is True
    assert json.dumps(
        correlation_test(np.arange(40.0), np.arange(40.0) % 7, n_resamples=99).to_dict()
    )


def test_results_plot(results):
    figure = results.plot()
    assert sum(len(axes.get_yticklabels()) for axes in figure.axes) == len(results)
    assert results[0].plot().axes[0].get_xlabel().startswith("difference")


def test_a_result_says_which_to_believe_if_interval_and_p_value_disagree():
    counts = TableCounts.from_mapping(
        {"a": {(1, 1): 117, (1, 0): 69}, "b": {(1, 1): 497, (1, 0): 209}}
    )
    results = permutation_test(counts=counts, metrics="tpr")
    (result,) = results
    assert result.interval is not None
    assert result.interval[1] < 0
    assert not result.rejected
    text = "tpr of a against b: the interval excludes 0, but p = .056."
    for shown in (result, results):
        assert text in str(shown)
        assert "believe the p-value" in " ".join(str(shown).split())
    agreeing = dataclasses.replace(result, p_value=0.04)
    assert agreeing.disagreement is None
    one_sided = dataclasses.replace(result, alternative="less")
    assert one_sided.disagreement is None
