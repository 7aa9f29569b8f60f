"""Size and power of the projection test by simulation; known-bad variants fail the same check."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from tests.calibration.projection_designs import People, count_rejections

SIMULATIONS = 400
# Binomial quantiles of 1 in 10,000 for sizes of 4% and 6%.
FEWEST = binom.ppf(1e-4, SIMULATIONS, 0.04) / SIMULATIONS
MOST = binom.ppf(1 - 1e-4, SIMULATIONS, 0.06) / SIMULATIONS

FOUR = People(
    rows=1_500,
    shares=(0.5, 0.3, 0.15, 0.05),
    base=(0.5, 0.5, 0.5, 0.5),
    spreads=(1.0, 3.0, 0.3, 1.0),
)


@pytest.mark.parametrize(
    ("people", "criterion"),
    [
        (People(rows=1_000, shares=(0.8, 0.2), spreads=(1.0, 5.0)), "statistical_parity"),
        (People(rows=1_500, base=(0.8, 0.2), rates=(0.8, 0.2)), "equalized_odds"),
        (People(rows=800, shares=(0.7, 0.3), copies=5), "equal_opportunity"),
        (FOUR, "predictive_equality"),
        (People(rows=1_200, shares=(0.7, 0.3), overlapping=True), "equal_opportunity"),
    ],
)
def test_a_fair_classifier_is_rejected_in_five_percent_of_simulations(people, criterion):
    result = count_rejections(people, criterion, SIMULATIONS, seed=11)
    assert FEWEST <= result.rejected <= MOST
    assert result.refused == 0


def test_power_is_about_that_of_the_wald_test():
    people = People(rows=1_000, shape="heavy", gap=0.13)
    result = count_rejections(people, "equalized_odds", 300, seed=12)
    assert result.rejected > 0.5
    assert abs(result.rejected - result.rivals["Wald"]) < 0.04


def test_with_tied_distances_the_kernel_law_fails_the_check_and_ours_passes():
    result = count_rejections(
        People(rows=1_000, shape="steps"), "equalized_odds", SIMULATIONS, seed=13
    )
    assert FEWEST <= result.rejected <= MOST
    assert result.rivals["kernel"] > MOST


def test_without_units_duplicated_rows_fail_the_check():
    people = People(rows=500, shares=(0.7, 0.3), copies=5)
    result = count_rejections(people, "statistical_parity", SIMULATIONS, seed=14, ignore_units=True)
    assert result.rejected > MOST


def test_small_groups_have_no_p_value_and_others_keep_the_size():
    people = People(rows=400, shares=(0.95, 0.05), rates=(0.7, 0.2))
    result = count_rejections(people, "equal_opportunity", SIMULATIONS, seed=15)
    assert result.refused > SIMULATIONS / 2
    assert result.rejected <= MOST
