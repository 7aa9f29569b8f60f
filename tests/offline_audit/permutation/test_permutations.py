"""Random permutations and their p-values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from offline_audit.permutation.permutations import (
    PermutationOptions,
    draw_counts,
    draw_subsets,
    p_value_from_resamples,
    permuted_sums,
)


def test_counts_of_types_follow_the_multivariate_hypergeometric():
    types, size, draws = np.array([3, 0, 2, 4]), 4, 40_000
    drawn = draw_counts(np.random.default_rng(0), types, size, draws)
    assert np.all(drawn.sum(axis=1) == size)
    assert np.all(drawn <= types)
    rows, times = np.unique(drawn, axis=0, return_counts=True)
    expected = stats.multivariate_hypergeom(types[[0, 2, 3]], size).pmf(rows[:, [0, 2, 3]]) * draws
    assert expected.sum() == pytest.approx(draws)
    assert stats.chisquare(times, expected * times.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("share", [1e-9, 1e-3, 0.4])
def test_counts_above_the_limit_of_numpy_have_the_right_mean_and_deviation(share):
    total, size, draws = 5_000_000_000, 2_000_000_000, 4_000
    rare = round(total * share)
    drawn = draw_counts(np.random.default_rng(0), np.array([rare, total - rare]), size, draws)
    assert np.all(drawn.sum(axis=1) == size)
    spread = np.sqrt(rare * 0.4 * 0.6 * (1 - share))
    assert drawn[:, 0].mean() == pytest.approx(rare * 0.4, abs=5 * spread / np.sqrt(draws))
    assert drawn[:, 0].std() == pytest.approx(spread, rel=5 / np.sqrt(2 * draws))


@pytest.mark.parametrize("n", [6, 30_000])
def test_subsets_have_their_size_and_are_uniform(n):
    size, draws = n // 3, 3_000 if n < 100 else 200
    drawn = draw_subsets(np.random.default_rng(0), n, size, draws)
    assert np.all(drawn.sum(axis=1) == size)
    # In six blocks, since a single unit of many is drawn too rarely to test.
    blocks = drawn.reshape(draws, 6, -1).sum(axis=2).mean(axis=0)
    spread = np.sqrt(n / 6 * (1 / 3) * (2 / 3) / draws)
    assert np.all(np.abs(blocks - n / 18) < 5 * spread)


def test_every_subset_of_few_units_is_equally_likely():
    drawn = draw_subsets(np.random.default_rng(1), 5, 2, 20_000)
    _, times = np.unique(drawn, axis=0, return_counts=True)
    assert len(times) == 10
    assert stats.chisquare(times).pvalue > 1e-3


@pytest.mark.parametrize(("alternative", "beyond"), [("two-sided", 3), ("greater", 2), ("less", 4)])
def test_larger_statistics_count_fully_ties_half_and_undefined_ones_as_extreme(alternative, beyond):
    drawn = np.array([2.0, -2.0, 1.0, 1.0 + 1e-12, 0.5, -0.3, np.nan])
    result = p_value_from_resamples(1.0, drawn, alternative)
    # The two ties count as one; the observed statistic counts too.
    assert result.p_value == pytest.approx((1 + beyond + 1) / 8)
    assert result.degenerate == 1


def test_bins_preserve_the_variance_of_few_large_units():
    rng = np.random.default_rng(0)
    n = 20_000
    rare = np.arange(n) < 20
    a = np.where(rare, 0.9 + 0.05 * rng.random(n), 0.002 * rng.random(n))
    terms = np.stack([np.ones(n), np.ones(n), a - a.mean()], axis=1)
    group = (rng.random(n) < 0.3).astype(np.int64)
    spreads = []
    for bins in (0, 256):
        fewer = PermutationOptions(alternative="two-sided", n_resamples=400, seed=1, bins=bins)
        strata = np.zeros(n, dtype=np.int64)
        drawn = np.concatenate(list(permuted_sums(terms, strata, group, 1 - group, fewer)))
        spreads.append(drawn.sum(axis=1)[:, 2].std())
    # Four standard errors of a standard deviation of 400 draws.
    assert spreads[1] == pytest.approx(spreads[0], rel=4 * np.sqrt(2 / 800))
