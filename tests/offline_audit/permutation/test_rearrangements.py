"""Rearrangements are drawn as chance would draw them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from offline_audit.permutation.rearrangements import chances, drawn_counts, drawn_subsets


def test_counts_of_types_follow_the_multivariate_hypergeometric():
    types, size, draws = np.array([3, 0, 2, 4]), 4, 40_000
    drawn = drawn_counts(np.random.default_rng(0), types, size, draws)
    assert np.all(drawn.sum(axis=1) == size)
    assert np.all(drawn <= types)
    rows, times = np.unique(drawn, axis=0, return_counts=True)
    expected = stats.multivariate_hypergeom(types[[0, 2, 3]], size).pmf(rows[:, [0, 2, 3]]) * draws
    assert expected.sum() == pytest.approx(draws)
    assert stats.chisquare(times, expected * times.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("share", [1e-9, 1e-3, 0.4])
def test_counts_beyond_what_numpy_takes_have_the_right_mean_and_spread(share):
    total, size, draws = 5_000_000_000, 2_000_000_000, 4_000
    here = round(total * share)
    drawn = drawn_counts(np.random.default_rng(0), np.array([here, total - here]), size, draws)
    assert np.all(drawn.sum(axis=1) == size)
    spread = np.sqrt(here * 0.4 * 0.6 * (1 - share))
    assert drawn[:, 0].mean() == pytest.approx(here * 0.4, abs=5 * spread / np.sqrt(draws))
    assert drawn[:, 0].std() == pytest.approx(spread, rel=5 / np.sqrt(2 * draws))


@pytest.mark.parametrize("n", [6, 30_000])
def test_subsets_have_their_size_and_favour_nobody(n):
    size, draws = n // 3, 3_000 if n < 100 else 200
    drawn = drawn_subsets(np.random.default_rng(0), n, size, draws)
    assert np.all(drawn.sum(axis=1) == size)
    # In six blocks, since single units of many are drawn too seldom to judge.
    blocks = drawn.reshape(draws, 6, -1).sum(axis=2).mean(axis=0)
    spread = np.sqrt(n / 6 * (1 / 3) * (2 / 3) / draws)
    assert np.all(np.abs(blocks - n / 18) < 5 * spread)


def test_every_subset_of_few_units_is_equally_likely():
    drawn = drawn_subsets(np.random.default_rng(1), 5, 2, 20_000)
    _, times = np.unique(drawn, axis=0, return_counts=True)
    assert len(times) == 10
    assert stats.chisquare(times).pvalue > 1e-3


@pytest.mark.parametrize(
    ("hits", "misses", "size"), [(3, 4, 2), (500, 700, 100), (10, 100_000, 900)]
)
def test_chances_are_those_of_the_hypergeometric(hits, misses, size):
    first, found = chances(hits, misses, size)
    expected = stats.hypergeom(hits + misses, hits, size).pmf(np.arange(first, first + len(found)))
    assert found == pytest.approx(expected, abs=1e-12)
    assert found.sum() == pytest.approx(1)
