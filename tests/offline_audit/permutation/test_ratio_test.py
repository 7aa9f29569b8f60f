"""Tests of rates and means against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from offline_audit import TableCounts, permutation_test
from offline_audit.permutation.permutations import (
    Alternative,
    PermutationOptions,
)
from offline_audit.permutation.ratio_test import (
    hypergeometric_probabilities,
    powers,
    rate_statistic,
    ratio_moments,
    ratio_test,
    studentized_statistic,
)
from tests.oracle.permutation import agresti_caffo, p_value, skew_corrected_welch

TYPES = np.array([[1.0, 1.0], [0.0, 1.0]])
ONE_STRATUM = np.zeros(2, dtype=np.int64)
OPTIONS = PermutationOptions(alternative="two-sided", n_resamples=4_000, seed=0, bins=0)
MONTE_CARLO = 4 * 0.5 / np.sqrt(OPTIONS.n_resamples)


def options(alternative: Alternative = "two-sided", draws: int = 10_000) -> PermutationOptions:
    return PermutationOptions(alternative=alternative, n_resamples=draws, seed=0)


def rate_test(hits, misses, other_hits, other_misses, alternative: Alternative = "two-sided"):
    group, other = np.array([hits, misses]), np.array([other_hits, other_misses])
    return ratio_test(TYPES, ONE_STRATUM, group, other, rates=True, options=options(alternative))


def test_bins_keep_the_level_for_rare_large_scores():
    rng = np.random.default_rng(2)
    ps = []
    for seed in range(60):
        u, rare = rng.random((2, 20_000))
        scores = np.where(rare < 0.001, 0.9 + 0.05 * u, 0.002 * u)
        groups = np.where(rng.random(20_000) < 0.3, "a", "b")
        result = permutation_test(
            metrics="mean_score", groups=groups, scores=scores, bins=256, n_resamples=99, seed=seed
        )[0]
        ps.append(result.p_value)
    # One in ten thousand at 5%: 11 of 60.
    assert sum(p is not None and p <= 0.05 for p in ps) <= 11


def test_within_outcome_detects_a_group_that_is_worse_off_in_both_outcomes():
    counts = TableCounts.from_mapping(
        {
            "a": {(1, 1): 480, (1, 0): 320, (0, 1): 20, (0, 0): 180},
            "b": {(1, 1): 160, (1, 0): 40, (0, 1): 240, (0, 0): 560},
        }
    )
    two_sided, greater, less = (
        permutation_test(
            metrics="selection_rate",
            counts=counts,
            exchange="within outcome",
            alternative=side,
            n_resamples=999,
        )[0].p_value
        for side in ("two-sided", "greater", "less")
    )
    # a is selected more often over all, and 20 points less often given either label.
    assert two_sided == pytest.approx(0.002)
    assert less == pytest.approx(0.001)
    assert greater == 1.0


@pytest.mark.parametrize(
    ("hits", "misses", "size"), [(3, 4, 2), (500, 700, 100), (10, 100_000, 900)]
)
def test_probabilities_are_hypergeometric(hits, misses, size):
    first, probabilities = hypergeometric_probabilities(hits, misses, size)
    hit_counts = np.arange(first, first + len(probabilities))
    expected = stats.hypergeom(hits + misses, hits, size).pmf(hit_counts)
    assert probabilities == pytest.approx(expected, abs=1e-12)
    assert probabilities.sum() == pytest.approx(1)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.booleans(), min_size=3, max_size=7), st.lists(st.booleans(), min_size=3, max_size=7)
)
def test_the_p_value_of_rates_is_that_of_all_permutations(group, other):
    hits = [*group, *other]
    if len(set(hits)) == 1:
        return
    rows = list(range(len(hits)))
    expected = p_value(agresti_caffo(hits), rows[: len(group)], rows[len(group) :])
    result = rate_test(sum(group), len(group) - sum(group), sum(other), len(other) - sum(other))
    assert result.n_resamples is None
    assert result.p_value == pytest.approx(expected, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 400), st.integers(1, 400), st.integers(1, 2_000), st.integers(1, 2_000),
    st.sampled_from(["greater", "less"]),
)  # fmt: skip
def test_one_sided_p_values_are_tails_of_the_hypergeometric_with_ties_halved(a, b, c, d, side):
    chance = stats.hypergeom(a + b + c + d, a + c, a + b)
    beyond = chance.sf(a) if side == "greater" else chance.cdf(a - 1)
    result = rate_test(a, b, c, d, side)
    assert result.p_value == pytest.approx(
        max(beyond + chance.pmf(a) / 2, 1e-16), rel=1e-6, abs=1e-13
    )


def test_random_permutations_agree_with_the_enumeration():
    """All rows change groups where every row counts, so both are the same test."""
    counts = TableCounts.from_mapping(
        {"a": {(0, 0): 40, (1, 1): 25}, "b": {(0, 0): 90, (1, 1): 31}}
    )
    exact = permutation_test(metrics="selection_rate", counts=counts)[0]
    # Two strata, one of them empty, are not enumerated, so permutations are drawn.
    strata = np.array([0, 0, 1])
    types = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    drawn = ratio_test(
        types, strata, np.array([25, 40, 0]), np.array([31, 90, 0]), rates=True, options=options()
    )
    assert exact.p_value is not None
    assert drawn.p_value == pytest.approx(exact.p_value, abs=4 * 0.005)
    assert drawn.statistic == pytest.approx(exact.statistic, rel=1e-12)


def test_a_billion_rows_are_tested_exactly():
    result = rate_test(200_000_000, 300_000_000, 200_030_000, 299_970_000)
    z = 30_000 / np.sqrt(2 * 500_000_000 * 0.4 * 0.6)
    assert result.p_value == pytest.approx(2 * stats.norm.sf(z), rel=1e-3)


def test_permutations_without_counted_rows_in_a_group_count_as_extreme():
    counts = TableCounts.from_mapping(
        {"a": {(1, 1): 6, (1, 0): 6, (0, 0): 10}, "b": {(1, 1): 8, (1, 0): 4, (0, 0): 4_000}}
    )
    result = permutation_test(metrics="tpr", counts=counts, exchange="all", n_resamples=999)[0]
    assert result.degenerate_resamples > 800
    assert result.p_value is not None
    assert result.p_value > 0.8


def test_the_p_value_of_a_mean_is_that_of_all_permutations():
    rng = np.random.default_rng(4)
    scores = [*rng.beta(0.5, 3, 5), *rng.beta(2, 3, 8)]
    expected = p_value(skew_corrected_welch(scores), range(5), range(5, 13))
    values = np.stack([np.array(scores), np.ones(13)], axis=1)
    group = (np.arange(13) < 5).astype(np.int64)
    result = ratio_test(
        values, np.zeros(13, dtype=np.int64), group, 1 - group, rates=False, options=OPTIONS
    )
    assert result.statistic == pytest.approx(
        skew_corrected_welch(scores)(list(range(5)), list(range(5, 13)))
    )
    assert result.p_value == pytest.approx(expected, abs=MONTE_CARLO)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_the_statistic_of_rates_increases_with_the_hits_of_the_group(n, other_n, data):
    hits = data.draw(st.integers(0, n + other_n))
    possible = range(max(0, hits - other_n), min(n, hits) + 1)
    statistics = [rate_statistic(x, n, hits - x, other_n) for x in possible]
    assert statistics == sorted(statistics)
    assert len(set(statistics)) == len(statistics)


def test_the_statistic_of_rates_equals_the_general_one():
    added = powers(np.array([[1.0, 1.0], [0.0, 1.0]])).sum(axis=0)
    sides = [
        ratio_moments(np.array(c) @ powers(TYPES) + added, rates=True) for c in ([7, 12], [30, 81])
    ]
    general = studentized_statistic(*sides, skewed=False)
    assert rate_statistic(7, 19, 30, 111) == pytest.approx(float(general), rel=1e-12)


@pytest.mark.parametrize("repeated", [False, True])
def test_differences_inside_the_interval_are_not_rejected_and_those_outside_are(repeated):
    """The same as subtracting the difference from the scores and testing again."""
    rng = np.random.default_rng(6)
    n = 240
    groups = np.repeat(["a", "b"], [80, 160])
    units = np.repeat(np.arange(n // 2), 2) if repeated else None
    scores = rng.exponential(size=n) + 0.3 * (groups == "a")

    def tested(difference: float):
        return permutation_test(
            metrics="mean_score",
            groups=groups,
            scores=scores - difference * (groups == "a"),
            units=units,
            score_limits=None,
            n_resamples=4_999,
            seed=2,
        )[0]

    low, high = tested(0.0).interval
    # Monte Carlo error: a shift changes the order of the scores, and so the permutations.
    margin = 0.05 * (high - low)
    inside = [tested(d).rejected for d in (low + margin, (low + high) / 2, high - margin)]
    outside = [tested(d).rejected for d in (low - margin, high + margin)]
    assert inside == [False] * 3
    assert outside == [True] * 2
