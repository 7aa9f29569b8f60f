"""Tests of which features differ agree with scipy, and fitted maps move those features."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from monitor import Feature, OneHotGroup
from monitor.errors import FitError
from monitor.scoring.counterfactual import FeatureDifferences, fit_transport_maps

LEVEL = 0.05


def people(seed: int, n: int = 400) -> np.ndarray:
    """Two numeric columns, one integer, one binary, and a category of three columns."""
    rng = np.random.default_rng(seed)
    category = rng.integers(0, 4, n)[:, None] == np.arange(3)
    columns = [
        rng.normal(size=n),
        # Half of the rows share one value.
        np.maximum(rng.normal(size=n), 0),
        rng.poisson(3, n),
        rng.random(n) < 0.3,
        category,
    ]
    return np.column_stack(columns).astype(np.float32)


def by_scipy(features: np.ndarray, first: np.ndarray) -> list[bool]:
    """Kolmogorov–Smirnov, χ² or both, one column at a time."""
    here, there = features[first], features[~first]
    differing = [
        stats.ks_2samp(here[:, c], there[:, c], method="asymp").pvalue < LEVEL for c in (0, 1)
    ]
    for column in (2, 3):
        values, counts = np.unique(features[:, column], return_counts=True)
        frequent = values[counts >= 10]
        table = np.array(
            [
                [
                    *(np.sum(part[:, column] == v) for v in frequent),
                    np.sum(~np.isin(part[:, column], frequent)),
                ]
                for part in (here, there)
            ]
        )
        table = table[:, table.sum(0) > 0]
        ks = stats.ks_2samp(here[:, column], there[:, column], method="asymp").pvalue
        differing.append(
            ks < LEVEL / 2 or stats.chi2_contingency(table, correction=True).pvalue < LEVEL / 2
        )
    table = np.array(
        [[*part[:, 4:].sum(0), np.sum(part[:, 4:].sum(1) == 0)] for part in (here, there)]
    )
    return [*differing, stats.chi2_contingency(table).pvalue < LEVEL]


@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_every_split_agrees_with_scipy(shift):
    rejections = 0
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
        rejections += sum(expected)
    # Both results occur, so that the comparison is not vacuous.
    assert 0 < rejections < 60 * 5


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


KINDS = (
    Feature(name="n", kind="numeric"),
    Feature(name="i", kind="integer"),
    Feature(name="b", kind="binary"),
    Feature(name="c=1", kind="onehot"),
    Feature(name="c=2", kind="onehot"),
)
DROPPED = (OneHotGroup(name="c", features=("c=1", "c=2"), dropped="other"),)


@pytest.mark.parametrize(("here", "there"), [(0.01, 0.05), (0.02, 0.06), (0.05, 0.1)])
def test_a_rare_binary_feature_moves_where_its_share_differs(here, there):
    rng = np.random.default_rng(1)
    groups = np.repeat([0, 1], 1_000).astype(np.int8)
    rows = np.zeros((2_000, 5), np.float32)
    rows[:, 2] = rng.random(2_000) < np.where(groups == 1, there, here)
    assert fit_transport_maps(rows, groups, KINDS, DROPPED, 2).ordered_moves[0, 1, 2]


def test_equal_distributions_are_rejected_at_the_nominal_level():
    rng, moved = np.random.default_rng(2), 0
    for _ in range(150):
        rows = np.zeros((600, 5), np.float32)
        rows[:, 0], rows[:, 1], rows[:, 2] = (
            rng.normal(size=600),
            rng.poisson(2, 600),
            rng.random(600) < 0.1,
        )
        groups = rng.integers(2, size=600).astype(np.int8)
        moved += int(fit_transport_maps(rows, groups, KINDS, DROPPED, 2).ordered_moves[0, 1].sum())
    # 450 tests at 1%: 4.5 expected; 15 or more have a probability of one in ten thousand.
    assert moved < 15


def test_a_group_without_members_is_an_error():
    with pytest.raises(FitError, match="at least 2 members"):
        fit_transport_maps(np.zeros((9, 5), np.float32), np.zeros(9, np.int8), KINDS, DROPPED, 2)
