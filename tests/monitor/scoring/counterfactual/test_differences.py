"""Which features differ: the same answers as scipy's tests, one split after another."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from monitor.scoring.counterfactual import FeatureDifferences

LEVEL = 0.05


def people(seed: int, n: int = 400) -> np.ndarray:
    """Two numeric columns, one integer, one binary, and a category of three columns."""
    rng = np.random.default_rng(seed)
    category = rng.integers(0, 4, n)[:, None] == np.arange(3)
    columns = [
        rng.normal(size=n),
        # Half of the people share one value.
        np.maximum(rng.normal(size=n), 0),
        rng.poisson(3, n),
        rng.random(n) < 0.3,
        category,
    ]
    return np.column_stack(columns).astype(np.float32)


def by_scipy(features: np.ndarray, first: np.ndarray) -> list[bool]:
    """Kolmogorov–Smirnov, χ² or both, one column at a time."""
    here, there = features[first], features[~first]
    found = [stats.ks_2samp(here[:, c], there[:, c], method="asymp").pvalue < LEVEL for c in (0, 1)]
    for column in (2, 3):
        values, counts = np.unique(features[:, column], return_counts=True)
        kept = values[counts >= 10]
        table = np.array(
            [
                [
                    *(np.sum(part[:, column] == v) for v in kept),
                    np.sum(~np.isin(part[:, column], kept)),
                ]
                for part in (here, there)
            ]
        )
        table = table[:, table.sum(0) > 0]
        ks = stats.ks_2samp(here[:, column], there[:, column], method="asymp").pvalue
        found.append(
            ks < LEVEL / 2 or stats.chi2_contingency(table, correction=True).pvalue < LEVEL / 2
        )
    table = np.array(
        [[*part[:, 4:].sum(0), np.sum(part[:, 4:].sum(1) == 0)] for part in (here, there)]
    )
    return [*found, stats.chi2_contingency(table).pvalue < LEVEL]


@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_every_split_is_judged_as_scipy_judges_it(shift):
    called = 0
    for seed in range(60):
        features = people(seed)
        rng = np.random.default_rng(1000 + seed)
        first = rng.random(len(features)) < 0.4
        features[first, 0] += shift
        features[first, 2] += rng.random(first.sum()) < shift
        ready = FeatureDifferences(
            features, [0, 1, 2, 3], np.array([True, True, False, False]), [[4, 5, 6]]
        )
        ordered, groups = ready.between(first, LEVEL)
        expected = by_scipy(features, first)
        assert [*ordered, *groups] == expected
        called += sum(expected)
    # Both answers occur, or equality would say little.
    assert 0 < called < 60 * 5


def test_a_split_does_not_depend_on_earlier_ones():
    features = people(1)
    ready = FeatureDifferences(
        features, [0, 1, 2, 3], np.array([True, True, False, False]), [[4, 5, 6]]
    )
    masks = [np.random.default_rng(s).random(len(features)) < 0.5 for s in range(5)]
    once = [ready.between(mask, LEVEL) for mask in masks]
    again = [ready.between(mask, LEVEL) for mask in reversed(masks)][::-1]
    for one, other in zip(once, again, strict=True):
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])


def test_a_constant_feature_never_differs():
    features = np.ones((50, 2), np.float32)
    ready = FeatureDifferences(features, [0, 1], np.array([True, False]), [])
    ordered, _ = ready.between(np.arange(50) < 20, LEVEL)
    assert not ordered.any()
