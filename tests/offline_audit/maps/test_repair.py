"""Tests of pairs: χ² as in scipy, at its stated level."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from offline_audit import Columns
from offline_audit.maps.repair import BinnedRows
from tests.offline_audit.maps.two_groups import MIXED, mixed_people

RARE = 10


def contingency_table(people, columns, one, other, first):
    """The 2 × cells table of a pair, with cells of fewer than ten rows pooled."""
    binned = BinnedRows.of(people, columns)
    codes = [binned.indicators[:, binned.owner == variable].argmax(1) for variable in (one, other)]
    cells = np.unique(codes[0] * 1_000 + codes[1], return_inverse=True)[1]
    table = np.array(
        [np.bincount(cells[part], minlength=cells.max() + 1) for part in (first, ~first)]
    )
    rare = table.sum(0) < RARE
    pooled = table[:, rare].sum(1, keepdims=True)
    return np.column_stack([table[:, ~rare], pooled]) if rare.any() else table


@pytest.mark.parametrize("seed", range(4))
def test_pairs_agree_with_scipys_test(seed):
    rng = np.random.default_rng(seed)
    people = np.concatenate([mixed_people(150, 0, rng), mixed_people(250, 1, rng)])
    first = np.arange(400) < 150
    binned = BinnedRows.of(people, MIXED)
    p_values = {
        (i, j): stats.chi2_contingency(
            contingency_table(people, MIXED, i, j, first), correction=False
        ).pvalue
        for i in range(5)
        for j in range(i + 1, 5)
    }
    # At levels between any two neighbouring p-values.
    sorted_p_values = sorted(p_values.values())
    assert sorted_p_values[0] < 1e-6
    for level in [*(np.array(sorted_p_values[1:]) + np.array(sorted_p_values[:-1])) / 2, 0.01]:
        expected = [pair for pair, p in p_values.items() if p < level]
        assert binned.differing(first, level * len(p_values)) == expected


def test_the_family_level_of_all_pairs_holds():
    """500 random splits of rows with strong dependence, at 5% for all pairs together."""
    rng = np.random.default_rng(1)
    people = np.concatenate([mixed_people(300, 0, rng), mixed_people(300, 1, rng)])
    binned = BinnedRows.of(people, MIXED)
    splits = [rng.permutation(600) < 250 for _ in range(500)]
    rejections = sum(bool(binned.differing(first, 0.05)) for first in splits)
    assert stats.binom.ppf(1e-4, 500, 0.01) <= rejections <= stats.binom.ppf(1 - 1e-4, 500, 0.06)


def test_a_correlation_that_differs_is_detected():
    rng = np.random.default_rng(2)
    people = np.concatenate(
        [rng.multivariate_normal([0, 0], [[1, r], [r, 1]], 1_000) for r in (0.0, 0.4)]
    ).astype(np.float32)
    binned = BinnedRows.of(people, Columns.numeric(["a", "b"]))
    assert binned.differing(np.arange(2_000) < 1_000, 0.01) == [(0, 1)]


def test_bins_have_about_equal_counts_and_a_constant_has_one():
    rng = np.random.default_rng(3)
    people = np.column_stack([rng.gamma(1, size=1_000), np.full(1_000, 7.0)]).astype(np.float32)
    binned = BinnedRows.of(people, Columns.numeric(["a", "b"]))
    assert binned.owner.tolist() == [0] * 5 + [1]
    np.testing.assert_allclose(binned.indicators.sum(0), [200] * 5 + [1_000], atol=1)
    assert binned.differing(np.arange(1_000) < 400, 0.01) == []


def test_a_single_variable_has_no_pairs():
    people = np.random.default_rng(4).normal(size=(50, 1)).astype(np.float32)
    binned = BinnedRows.of(people, Columns.numeric(["a"]))
    assert binned.differing(np.arange(50) < 20, 0.05) == []
