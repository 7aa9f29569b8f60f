"""Requirements on the data for rates and means, and Welch's interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from offline_audit import TableCounts, permutation_test

N = 200
SCORES = np.linspace(0, 1, N)


def calibrated(seed: int, sizes: tuple[int, int], rates: tuple[float, float]):
    rng = np.random.default_rng(seed)
    parts = [rng.beta(8 * p, 8 - 8 * p, n) for n, p in zip(sizes, rates, strict=True)]
    scores = np.concatenate(parts)
    labels = (rng.random(len(scores)) < scores).astype(int)
    return {"groups": np.repeat(["a", "b"], sizes), "scores": scores, "labels": labels}


def test_a_mean_needs_thirty_units():
    groups = np.array(["a"] * 29 + ["b"] * 171)
    result = permutation_test(metrics="mean_score", groups=groups, scores=SCORES)[0]
    assert result.reason == "the smaller group has 29 units; at least 30 are needed"
    assert result.interval is None


def test_a_rate_is_tested_from_the_required_count_on():
    def smallest(hits: int):
        counts = TableCounts.from_mapping(
            {"a": {(None, 1): hits, (None, 0): 100 - hits}, "b": {(None, 1): 2, (None, 0): 98}}
        )
        return permutation_test(metrics="selection_rate", counts=counts)[0]

    assert smallest(1).smallest_count == 1.5
    assert not smallest(1).determined
    assert smallest(2).smallest_count == 2 == smallest(2).required_count
    assert smallest(2).determined


def test_a_calibration_gap_needs_enough_rows_of_each_label():
    few = permutation_test(metrics="calibration_gap", **calibrated(0, (60, 1_940), (0.03, 0.2)))[0]
    assert few.p_value is None
    assert "the smallest expected count of rows with label 1, or with label 0" in str(few.reason)
    assert few.smallest_count is not None
    assert few.smallest_count < few.required_count == 8
    ones = permutation_test(metrics="calibration_gap", **calibrated(0, (60, 1_940), (0.97, 0.2)))[0]
    assert ones.p_value is None
    enough = permutation_test(
        metrics="calibration_gap", **calibrated(0, (200, 1_800), (0.1, 0.2)), n_resamples=99
    )[0]
    assert enough.determined


def test_a_mean_of_rare_values_needs_some_of_them_in_each_group():
    rng = np.random.default_rng(0)
    scores = (rng.random(660) < 0.03) * 0.9 + 0.001 * rng.random(660)
    # The small group has none of them by chance, so its variance is small; else it is wider.
    scores[:60] = np.minimum(scores[:60], 0.01) * 5
    groups = np.repeat(["a", "b"], [60, 600])
    result = permutation_test(metrics="mean_score", groups=groups, scores=scores)[0]
    assert result.p_value is None
    assert result.interval is None
    assert "heavy tails" in str(result.reason)
    assert result.smallest_count is not None
    assert result.smallest_count < result.required_count == 5
    without_rare_values = permutation_test(
        metrics="mean_score", groups=groups, scores=rng.beta(1, 4, 660), n_resamples=99
    )[0]
    assert without_rare_values.determined


def test_units_with_very_unequal_rows_have_a_smaller_effective_number():
    rng = np.random.default_rng(0)
    rows = np.concatenate([[400], np.full(24, 4), np.full(300, 4)])
    units = np.repeat(np.arange(325), rows)
    groups = np.where(units < 25, "a", "b")
    decisions = rng.integers(0, 2, len(units))
    result = permutation_test(
        metrics="selection_rate", groups=groups, decisions=decisions, units=units
    )[0]
    assert result.p_value is None
    assert "the effective number of units in a group is 1.5" in str(result.reason)
    assert result.smallest_count == pytest.approx(496**2 / 160_384)
    assert result.required_count == 20


def test_a_mean_without_skewness_has_welchs_statistic():
    one, two = np.array([0.1, 0.2, 0.4, 0.5]), np.array([0.2, 0.3, 0.6, 0.7])
    scores = np.concatenate([np.tile(one, 20), np.tile(two, 10)])
    groups = np.repeat(["a", "b"], [80, 40])
    result = permutation_test(metrics="mean_score", groups=groups, scores=scores, n_resamples=99)[0]
    welch = stats.ttest_ind(scores[:80], scores[80:], equal_var=False)
    assert result.statistic == pytest.approx(welch.statistic)
    result = permutation_test(metrics="mean_score", groups=groups, scores=scores)[0]
    low, high = welch.confidence_interval()
    # A tenth of a standard error, about the Monte Carlo error of 10,000 permutations.
    assert result.interval == pytest.approx((low, high), abs=0.025 * (high - low))


def heavy(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    if kind == "t(3)":
        return rng.standard_t(3, n)
    if kind == "lognormal(1.5)":
        return rng.lognormal(0, 1.5, n)
    return rng.normal(size=n) + 20 * (rng.random(n) < 0.01)


@pytest.mark.parametrize("kind", ["t(3)", "lognormal(1.5)", "1% outliers"])
def test_the_interval_of_a_mean_contains_0_if_and_only_if_the_test_does_not_reject(kind):
    rng = np.random.default_rng(11)
    groups = np.repeat(["a", "b"], [50, 150])
    rejected = []
    for seed in range(40):
        scores = heavy(rng, kind, 200) + (groups == "a") * seed / 40
        result = permutation_test(
            metrics="mean_score",
            groups=groups,
            scores=scores,
            score_limits=None,
            n_resamples=199,
            seed=seed,
            confidence_level=0.9,
            alpha=0.1,
        )[0]
        if result.interval is None:
            continue
        low, high = result.interval
        assert result.effect is not None
        assert low <= result.effect <= high
        assert (low <= 0 <= high) != result.rejected
        assert result.disagreement is None
        rejected.append(result.rejected)
    assert len(rejected) > 25
    assert 0 < sum(rejected) < len(rejected)


def test_groups_of_one_shape_are_tested_whatever_their_tails():
    """Which values are rare does not matter, since every permutation is equally likely."""
    rng = np.random.default_rng(3)
    groups = np.repeat(["a", "b"], [60, 600])
    spikes = (np.arange(660) % 33 == 0) * 0.9 + 0.001 * rng.random(660)
    same = permutation_test(metrics="mean_score", groups=groups, scores=spikes, n_resamples=99)[0]
    assert same.determined
    wider = np.where(groups == "a", 5 * (spikes % 0.9) + spikes // 0.9 * 0.9, spikes)
    other = permutation_test(metrics="mean_score", groups=groups, scores=wider, n_resamples=99)[0]
    assert other.reason is not None
    assert other.reason.startswith("heavy tails: the groups differ in shape")


def test_without_enough_permutations_the_interval_is_welchs():
    """P is at least 1%, so no difference is rejected at 99.5%."""
    groups = np.repeat(["a", "b"], N // 2)
    result = permutation_test(
        metrics="mean_score", groups=groups, scores=SCORES, n_resamples=99, confidence_level=0.995
    )[0]
    assert result.interval_method == "Welch with skewness correction"
    assert result.interval is not None
