"""Tests of AUCs against enumeration."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from offline_audit import permutation_test
from offline_audit.permutation import auc_test as auc_module
from offline_audit.permutation.auc_test import auc_moments, auc_moments_of_units, auc_test
from offline_audit.permutation.permutations import PermutationOptions
from offline_audit.permutation.sources import RankedGroups
from tests.oracle.permutation import auc_with_delong, skew_corrected_delong

OPTIONS = PermutationOptions(alternative="two-sided", n_resamples=4_000, seed=0, bins=0)
MONTE_CARLO = 4 * 0.5 / np.sqrt(OPTIONS.n_resamples)


def ranked(groups, labels, scores) -> RankedGroups:
    level = np.unique(scores, return_inverse=True)[1]
    counts = np.zeros((2, 2, level.max() + 1), dtype=np.int64)
    np.add.at(counts, ((groups == "b").astype(int), labels, level), 1)
    return RankedGroups(counts=counts)


def sample(n: int, seed: int, *, decimals: int | None = None, share: float = 0.3):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(int)
    scores = np.clip(0.25 * labels + 0.6 * rng.beta(2, 3, n), 0, 1)
    if decimals is not None:
        scores = np.round(scores, decimals)
    groups = np.where(rng.random(n) < share, "a", "b")
    return groups, labels, scores


def test_the_p_value_of_an_auc_is_that_of_all_permutations_within_labels():
    rng = np.random.default_rng(0)
    labels = np.array([1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0])
    scores = np.round(rng.normal(0.8 * labels), 1)
    # Enough rows on either side that every permutation has a variance.
    groups = np.array(list("aaabbb" + "aaabbbb"))
    statistic = skew_corrected_delong(scores.tolist(), labels.tolist())
    sides = [np.flatnonzero(groups == group).tolist() for group in "ab"]
    observed = statistic(*sides)
    above = tied = total = 0.0
    for p in itertools.combinations(range(6), 3):
        for n in itertools.combinations(range(6, 13), 3):
            inside = [*p, *n]
            value = statistic(inside, [row for row in range(13) if row not in inside])
            total += 1
            if np.isclose(abs(value), abs(observed), rtol=1e-9):
                tied += 1
            else:
                above += abs(value) > abs(observed) or not np.isfinite(value)
    result = auc_test(ranked(groups, labels, scores), "counted", OPTIONS)
    assert result.statistic == pytest.approx(observed)
    assert result.p_value == pytest.approx((above + tied / 2) / total, abs=MONTE_CARLO)


@pytest.mark.parametrize("exchange", ["counted", "all"])
@pytest.mark.parametrize("decimals", [None, 1])
def test_permuting_by_level_and_by_row_gives_the_same_distribution(exchange, decimals):
    sides = ranked(*sample(300, 2, decimals=decimals))
    by_level = auc_module._permuted_by_level(sides, exchange, OPTIONS)
    by_row = auc_module._permuted_by_row(sides, exchange, OPTIONS)
    assert stats.ks_2samp(by_level, by_row).pvalue > 1e-3


def test_many_rows_do_not_overflow():
    sides = ranked(*sample(200_000, 3))
    fewer = dataclasses.replace(OPTIONS, n_resamples=40)
    drawn = auc_module._permuted_by_row(sides, "counted", fewer)
    assert np.abs(drawn).max() < 6
    binned = auc_module._permuted_by_level(
        sides.binned(256), "counted", dataclasses.replace(fewer, n_resamples=400)
    )
    assert binned.std() == pytest.approx(1, abs=5 / np.sqrt(800))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=12),
    st.lists(st.integers(0, 5), min_size=2, max_size=12),
)
def test_the_auc_and_its_variance_are_delongs(positives, negatives):
    scores = [*map(float, positives), *map(float, negatives)]
    labels = [1] * len(positives) + [0] * len(negatives)
    expected = auc_with_delong(scores, labels, list(range(len(scores))))
    counts = [np.bincount(levels, minlength=6).astype(float) for levels in (positives, negatives)]
    result = auc_moments(*counts)
    assert float(result.estimate) == pytest.approx(roc_auc_score(labels, scores))
    assert (float(result.estimate), float(result.variance), float(result.third)) == pytest.approx(
        expected, abs=1e-12
    )


def test_rows_that_are_their_own_units_have_nearly_delongs_variance():
    _, labels, scores = sample(400, 5)
    level = np.unique(scores, return_inverse=True)[1]
    counts = [np.bincount(level[labels == y]).astype(float) for y in (1, 0)]
    width = max(map(len, counts))
    plain = auc_moments(*(np.pad(part, (0, width - len(part))) for part in counts))
    by_unit = auc_moments_of_units(level, labels, np.arange(400))
    assert float(by_unit.estimate) == pytest.approx(float(plain.estimate))
    assert float(by_unit.variance) == pytest.approx(float(plain.variance), rel=0.01)


def test_the_interval_of_a_difference_of_aucs_agrees_with_the_test():
    rng = np.random.default_rng(8)
    groups = np.repeat(["a", "b"], [100, 200])
    rejected = []
    for seed in range(30):
        labels = rng.integers(0, 2, 300)
        scores = rng.normal(labels * (1 + seed / 30 * (groups == "a")))
        result = permutation_test(
            metrics="auc",
            groups=groups,
            labels=labels,
            scores=scores,
            score_limits=None,
            n_resamples=199,
            seed=seed,
        )[0]
        low, high = result.interval  # type: ignore[misc]
        assert result.effect is not None
        assert low <= result.effect <= high
        assert (low <= 0 <= high) != result.rejected
        rejected.append(result.rejected)
    assert 0 < sum(rejected) < len(rejected)
