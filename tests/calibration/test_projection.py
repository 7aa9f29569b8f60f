"""The projection test errs as often as it says; the kernel law, where distances tie, does not."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from tests.calibration.projection_designs import People, tried

SIMULATIONS = 400
# Sizes of 4% and 6% stay within these counts in all but one of ten thousand runs of the test.
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
def test_a_fair_classifier_is_rejected_about_five_times_in_a_hundred(people, criterion):
    found = tried(people, criterion, SIMULATIONS, seed=11)
    assert FEWEST <= found.rejected <= MOST
    assert found.refused == 0


def test_a_planted_gap_is_found_as_often_as_by_wald():
    people = People(rows=1_000, shape="heavy", gap=0.13)
    found = tried(people, "equalized_odds", 300, seed=12)
    assert found.rejected > 0.5
    assert abs(found.rejected - found.rivals["Wald"]) < 0.04


def test_where_distances_tie_the_kernel_law_fails_the_check_that_ours_passes():
    found = tried(People(rows=1_000, shape="steps"), "equalized_odds", SIMULATIONS, seed=13)
    assert FEWEST <= found.rejected <= MOST
    assert found.rivals["kernel"] > MOST


def test_without_units_duplicated_rows_fail_the_check():
    people = People(rows=500, shares=(0.7, 0.3), copies=5)
    found = tried(people, "statistical_parity", SIMULATIONS, seed=14, ignore_units=True)
    assert found.rejected > MOST


def test_small_groups_are_refused_and_the_rest_is_not_over_rejected():
    people = People(rows=400, shares=(0.95, 0.05), rates=(0.7, 0.2))
    found = tried(people, "equal_opportunity", SIMULATIONS, seed=15)
    assert found.refused > SIMULATIONS / 2
    assert found.rejected <= MOST
