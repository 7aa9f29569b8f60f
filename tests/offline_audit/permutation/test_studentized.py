"""Studentized statistics against slow implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from offline_audit.permutation.studentized import (
    auc_moments,
    auc_moments_of_units,
    powers,
    rate_statistic,
    ratio_moments,
    studentized_statistic,
)
from tests.oracle.permutation import (
    auc_with_delong,
)

TYPES = np.array([[1.0, 1.0], [0.0, 1.0]])


def sample(n: int, seed: int, *, decimals: int | None = None, share: float = 0.3):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(int)
    scores = np.clip(0.25 * labels + 0.6 * rng.beta(2, 3, n), 0, 1)
    if decimals is not None:
        scores = np.round(scores, decimals)
    groups = np.where(rng.random(n) < share, "a", "b")
    return groups, labels, scores


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_the_statistic_of_rates_increases_with_the_hits_of_the_group(n, other_n, data):
    hits = data.draw(st.integers(0, n + other_n))
    possible = range(max(0, hits - other_n), min(n, hits) + 1)
    found = [rate_statistic(x, n, hits - x, other_n) for x in possible]
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_the_statistic_of_rates_equals_the_general_one():
    added = powers(np.array([[1.0, 1.0], [0.0, 1.0]])).sum(axis=0)
    sides = [
        ratio_moments(np.array(c) @ powers(TYPES) + added, rates=True) for c in ([7, 12], [30, 81])
    ]
    general = studentized_statistic(*sides, skewed=False)
    assert rate_statistic(7, 19, 30, 111) == pytest.approx(float(general), rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=12),
    st.lists(st.integers(0, 5), min_size=2, max_size=12),
)
def test_the_auc_and_its_variance_are_delongs(positives, negatives):
    scores = [*map(float, positives), *map(float, negatives)]
    labels = [1] * len(positives) + [0] * len(negatives)
    expected = auc_with_delong(scores, labels, list(range(len(scores))))
    counts = [np.bincount(each, minlength=6).astype(float) for each in (positives, negatives)]
    found = auc_moments(*counts)
    assert float(found.estimate) == pytest.approx(roc_auc_score(labels, scores))
    assert (float(found.estimate), float(found.variance), float(found.third)) == pytest.approx(
        expected, abs=1e-12
    )


def test_rows_that_are_their_own_units_have_nearly_delongs_variance():
    _, labels, scores = sample(400, 5)
    level = np.unique(scores, return_inverse=True)[1]
    counts = [np.bincount(level[labels == y]).astype(float) for y in (1, 0)]
    width = max(map(len, counts))
    plain = auc_moments(*(np.pad(each, (0, width - len(each))) for each in counts))
    by_unit = auc_moments_of_units(level, labels, np.arange(400))
    assert float(by_unit.estimate) == pytest.approx(float(plain.estimate))
    assert float(by_unit.variance) == pytest.approx(float(plain.variance), rel=0.01)
