"""Conformal p-values are exact, and false alarms on exchangeable traffic have the stated rate."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from monitor.errors import BundleError, FitError
from monitor.scoring.baseline import SIGNALS, Baseline


def baseline(scores, flips=None) -> Baseline:
    scores = np.asarray(scores, float)
    flips = np.zeros(len(scores)) if flips is None else np.asarray(flips, float)
    return Baseline.from_scores({"sex": dict.fromkeys(SIGNALS, scores)}, {"sex": flips})


@settings(max_examples=200)
@given(
    reference=st.lists(st.integers(-5, 5), min_size=2, max_size=40),
    new=st.lists(st.integers(-7, 7), min_size=1, max_size=10),
)
def test_p_values_count_calibration_scores_that_are_at_least_as_large(reference, new):
    result = baseline(reference).p_values("sex", "expected_change", np.array(new, float))
    expected = [(1 + sum(r >= s for r in reference)) / (len(reference) + 1) for s in new]
    assert np.allclose(result, expected)


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_false_alarms_on_exchangeable_traffic_are_beta_binomial(alpha):
    """Alarm counts over many calibration sets follow the exact distribution."""
    rng = np.random.default_rng(7)
    n, traffic, outside = 1_999, 5_000, 0
    above = int(np.floor(alpha * (n + 1)))
    law = stats.betabinom(traffic, above, n + 1 - above)
    low, high = law.ppf(0.005), law.ppf(0.995)
    for _ in range(200):
        drawn = baseline(rng.gamma(2, size=n))
        p = drawn.p_values("sex", "expected_change", rng.gamma(2, size=traffic))
        outside += not low <= (p <= alpha).sum() <= high
    # 1% of 200 runs are outside; 8 or more have a probability of one in a thousand.
    assert outside < 8


def test_an_uncorrected_rank_fails_the_same_check():
    """The known-bad variant: #{≥}/n instead of (1 + #{≥})/(n + 1), on a small baseline."""
    rng = np.random.default_rng(8)
    n, traffic, alpha, rates = 100, 2_000, 0.01, []
    for _ in range(300):
        reference, new = rng.normal(size=n), rng.normal(size=traffic)
        p = np.array([(reference >= s).mean() for s in new])
        rates.append((p <= alpha).mean())
    assert np.mean(rates) > 1.5 * alpha


def test_a_nan_score_has_no_p_value():
    p = baseline(np.arange(100)).p_values("sex", "expected_change", np.array([1e9, 0, np.nan]))
    assert p[:2].tolist() == pytest.approx([1 / 101, 1.0])
    assert np.isnan(p[2])


def test_minus_infinity_ranks_lowest():
    mixed = baseline([-np.inf] * 50 + list(range(49)))
    p = mixed.p_values("sex", "prediction_sensitivity", np.array([-np.inf, 100.0]))
    assert np.allclose(p, [1.0, 0.01])


@pytest.mark.parametrize(("share", "n"), [(0.2, 500), (0.01, 300), (0.005, 200)])
def test_the_level_covers_the_true_share(share, n):
    rng = np.random.default_rng(9)
    covered = 0
    for _ in range(400):
        level = baseline(np.zeros(n), rng.random(n) < share).levels["sex"]
        covered += level.flip_share_low <= share <= level.flip_share_high
    # 95% of 400 are 380, standard deviation 4.4; Wilson's is conservative if flips are rare.
    assert 380 - 18 <= covered <= (397 if share > 0.05 else 400)


def test_without_observed_flips_the_interval_is_above_zero():
    level = baseline(np.zeros(80), np.zeros(80)).levels["sex"]
    assert level.flip_share == level.flip_share_low == 0
    assert 0.03 < level.flip_share_high < 0.06


def test_values_with_less_variance_than_binary_ones_give_a_narrower_interval():
    rng = np.random.default_rng(10)
    coins, shades = rng.random(1000) < 0.3, rng.beta(30, 70, 1000)
    wide, narrow = (baseline(np.zeros(1000), flips).levels["sex"] for flips in (coins, shades))
    assert (narrow.flip_share_high - narrow.flip_share_low) < 0.5 * (
        wide.flip_share_high - wide.flip_share_low
    )


def test_a_nan_calibration_score_is_rejected():
    with pytest.raises(FitError, match="not a number on some rows"):
        baseline([1.0, np.nan])


def test_the_level_has_mean_variance_and_outliers_of_the_sensitivity():
    values = np.log(np.r_[np.ones(999), 1000.0])
    level = baseline(values).levels["sex"]
    assert level.mean == pytest.approx(1.999)
    assert level.outliers == pytest.approx(0.001)


def test_a_baseline_is_read_as_it_was_written():
    before = baseline(np.random.default_rng(1).normal(size=300), np.arange(300) % 2)
    after = Baseline.from_npz(before.to_npz())
    assert after.levels == before.levels
    for signal in SIGNALS:
        assert np.array_equal(after.scores["sex"][signal], before.scores["sex"][signal])


def test_a_pickle_in_a_baseline_is_rejected():
    buffer = io.BytesIO()
    np.savez(buffer, levels=np.array([{"a": 1}], dtype=object))
    with pytest.raises(BundleError, match=r"baseline\.npz is damaged"):
        Baseline.from_npz(buffer.getvalue())
    for data in (b"not a file", b"", b"PK\x03\x04garbage"):
        with pytest.raises(BundleError):
            Baseline.from_npz(data)
