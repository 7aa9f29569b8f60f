"""Where data do not tell, there is a reason and the count that decided; bins keep the level."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit.permutation import TableCounts, correlation_test, permutation_test
from offline_audit.permutation.rearranged_sums import Rearranging, rearranged_sums


def test_bins_keep_the_spread_that_few_units_make_up():
    rng = np.random.default_rng(0)
    n = 20_000
    rare = np.arange(n) < 20
    a = np.where(rare, 0.9 + 0.05 * rng.random(n), 0.002 * rng.random(n))
    terms = np.stack([np.ones(n), np.ones(n), a - a.mean()], axis=1)
    group = (rng.random(n) < 0.3).astype(np.int64)
    spreads = []
    for bins in (0, 256):
        how = Rearranging(alternative="two-sided", draws=400, seed=1, bins=bins)
        strata = np.zeros(n, dtype=np.int64)
        drawn = np.concatenate(list(rearranged_sums(terms, strata, group, 1 - group, how)))
        spreads.append(drawn[:, 2].std())
    # Four standard errors of a standard deviation of 400 draws.
    assert spreads[1] == pytest.approx(spreads[0], rel=4 * np.sqrt(2 / 800))


def test_rare_large_scores_are_rejected_no_more_often_when_binned():
    rng = np.random.default_rng(2)
    ps = []
    for seed in range(60):
        u, rare = rng.random((2, 20_000))
        scores = np.where(rare < 0.001, 0.9 + 0.05 * u, 0.002 * u)
        groups = np.where(rng.random(20_000) < 0.3, "a", "b")
        found = permutation_test(
            "mean_score", groups=groups, scores=scores, bins=256, draws=99, seed=seed
        )[0]
        ps.append(found.p_value)
    # One in ten thousand at 5%: 11 of 60.
    assert sum(p is not None and p <= 0.05 for p in ps) <= 11


def calibrated(seed: int, sizes: tuple[int, int], rates: tuple[float, float]):
    rng = np.random.default_rng(seed)
    parts = [rng.beta(8 * p, 8 - 8 * p, n) for n, p in zip(sizes, rates, strict=True)]
    scores = np.concatenate(parts)
    labels = (rng.random(len(scores)) < scores).astype(int)
    return {"groups": np.repeat(["a", "b"], sizes), "scores": scores, "labels": labels}


def test_a_calibration_gap_needs_enough_of_either_label():
    few = permutation_test("calibration_gap", **calibrated(0, (60, 1_940), (0.03, 0.2)))[0]
    assert few.p_value is None
    assert "the smallest count of rows with label 1, or with label 0" in str(few.reason)
    assert few.smallest_cell is not None
    assert few.smallest_cell < few.least_cell == 8
    ones = permutation_test("calibration_gap", **calibrated(0, (60, 1_940), (0.97, 0.2)))[0]
    assert ones.p_value is None
    enough = permutation_test(
        "calibration_gap", **calibrated(0, (200, 1_800), (0.1, 0.2)), draws=99
    )[0]
    assert enough.enough_data


def test_a_mean_of_rare_values_needs_some_of_them_in_either_group():
    rng = np.random.default_rng(0)
    scores = (rng.random(660) < 0.03) * 0.9 + 0.001 * rng.random(660)
    # The small group happens to hold none, and looks calm.
    scores[:60] = np.minimum(scores[:60], 0.01)
    groups = np.repeat(["a", "b"], [60, 600])
    found = permutation_test("mean_score", groups=groups, scores=scores)[0]
    assert found.p_value is None
    assert "so skewed" in str(found.reason)
    assert found.smallest_cell is not None
    assert found.smallest_cell < found.least_cell == 3
    calm = permutation_test("mean_score", groups=groups, scores=rng.beta(1, 4, 660), draws=99)[0]
    assert calm.enough_data


def test_units_with_very_unequal_rows_count_as_fewer():
    rng = np.random.default_rng(0)
    rows = np.concatenate([[400], np.full(24, 4), np.full(300, 4)])
    units = np.repeat(np.arange(325), rows)
    groups = np.where(units < 25, "a", "b")
    decisions = rng.integers(0, 2, len(units))
    found = permutation_test("selection_rate", groups=groups, decisions=decisions, units=units)[0]
    assert found.p_value is None
    assert "worth 1.5 units of equal size" in str(found.reason)
    assert found.smallest_cell == pytest.approx(496**2 / 160_384)
    assert found.least_cell == 20


def test_within_outcome_finds_a_group_that_is_worse_off_in_both_outcomes():
    counts = TableCounts.from_mapping(
        {
            "a": {(1, 1): 480, (1, 0): 320, (0, 1): 20, (0, 0): 180},
            "b": {(1, 1): 160, (1, 0): 40, (0, 1): 240, (0, 0): 560},
        }
    )
    found, greater, less = (
        permutation_test(
            "selection_rate",
            counts=counts,
            exchange="within outcome",
            alternative=side,
            draws=999,
        )[0].p_value
        for side in ("two-sided", "greater", "less")
    )
    # a is selected more often over all, and 20 points less often given either label.
    assert found == pytest.approx(0.002)
    assert less == pytest.approx(0.001)
    assert greater == 1.0


def test_labels_of_one_decision_in_one_group_alone_are_noticed():
    counts = TableCounts.from_mapping(
        {
            "a": {(1, 1): 40, (0, 1): 30, (None, 0): 60},
            "b": {(1, 1): 400, (1, 0): 90, (0, 1): 80, (0, 0): 300},
        }
    )
    for metric in ("tpr", "fpr", "accuracy"):
        found = permutation_test(metric, counts=counts)[0]
        assert found.p_value is None
        assert found.effect is None
        assert "only for rows of a that were selected" in str(found.reason)
    assert permutation_test("ppv", counts=counts)[0].enough_data


def test_a_correlation_that_few_far_rows_decide_says_so():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(300)
    y = (rng.chisquare(1, 300) - 1) * np.exp(x)
    assert "far values of income" in correlation_test(x, y, of="income", draws=99).warnings[0]
    assert not correlation_test(x, rng.standard_normal(300), draws=99).warnings
