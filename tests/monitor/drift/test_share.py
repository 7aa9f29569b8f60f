"""The band of a flip share equals its formula, and has its coverage at every step."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from monitor.drift.share import ShareSums, directions, log_evidence, sums_of, usable_sums
from tests.oracle import drift as oracle

DRAWS = {
    "zeros and ones": lambda rng, mean, size: (rng.random(size) < mean).astype(float),
    "fractions": lambda rng, mean, size: rng.beta(mean * 2, (1 - mean) * 2, size),
}


@pytest.mark.parametrize("alpha", [0.01, 0.2])
@pytest.mark.parametrize("n", [1, 7, 60, 900])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_band_equals_that_of_a_grid_search(draw, n, alpha):
    values = DRAWS[draw](np.random.default_rng(n), 0.3, n)
    band = ShareSums.of(values).band(alpha)
    low, high = oracle.share_band(values.tolist(), alpha)
    assert band.low == pytest.approx(low, abs=1 / 20_000)
    assert band.high == pytest.approx(high, abs=1 / 20_000)


@pytest.mark.parametrize("values", [[0.0] * 500, [1.0] * 500, []])
def test_a_band_of_extremes_stays_within_zero_and_one(values):
    band = ShareSums.of(np.array(values)).band(0.05)
    mean = sum(values) / max(len(values), 1)
    assert 0 <= band.low <= mean <= band.high <= 1
    assert (band.high - band.low < 0.05) == bool(values)


def test_a_share_without_values_is_unknown():
    assert ShareSums.of(np.array([])).share is None


def test_invalid_shares_are_ignored_and_rounding_errors_are_accepted():
    clean, with_invalid = [0.25, 1.0, 0.5], [0.25, math.nan, 1.0, -0.5, 2.0, math.inf, 0.5]
    assert sums_of(with_invalid, 1.0, 0.5) == sums_of(clean, 1.0, 0.5)
    assert sums_of([1 + 1e-7, -1e-7], 1.0, 0.5)[0] == 2


@pytest.mark.parametrize("n", [0, 1, 30, 3_000])
@pytest.mark.parametrize("least", [-9e-6, 1.0, 0.3])
def test_only_possible_sums_of_shares_are_usable(n, least):
    values = np.random.default_rng(n).uniform(least, 1 + 9e-6, n)
    sums = np.array(sums_of(values.tolist(), 1.0, 0.5))
    assert usable_sums(sums)
    wrong = [[0.5, 0, 0], [-n - 1, 0, 0], [0, n + 1, 0], [0, -n - 1, 0], [0, 0, n + 1]]
    assert not usable_sums(sums + np.array([*wrong, [0, 0, -n - 1], [0, math.nan, 0]])).any()


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("mean", [0.02, 0.1, 0.4])
def test_at_ten_thousand_a_band_is_at_most_twice_as_wide_as_for_a_fixed_sample(draw, mean):
    values = DRAWS[draw](np.random.default_rng(5), mean, 10_000)
    variance = mean * (1 - mean) / (1 if draw == "zeros and ones" else 3)
    fixed = 2 * NormalDist().inv_cdf(0.995) * math.sqrt(variance / 10_000)
    band = ShareSums.of(values).band(0.01)
    assert fixed < band.high - band.low < 2 * fixed


def ever_missed(values, truth, alpha):
    """Which runs `[r, n]` have the true running average `[n]` outside their band at any step."""
    runs, n = values.shape
    steps, totals = np.arange(n), values.cumsum(1)
    guesses = (totals - values + 0.5) / (steps + 1)
    variation = ((values - guesses) ** 2).cumsum(1)
    above = np.zeros(runs, bool)
    for run in range(runs):
        up = np.stack([0 * totals[run], totals[run] - truth * (steps + 1), variation[run]], 1)
        for sums in (up, up * [1, -1, 1]):
            evidence = log_evidence(sums[None], directions(np.zeros(1)), -math.inf)
            assert evidence is not None
            above[run] |= evidence.max() >= math.log(2 / alpha)
    return above


@pytest.mark.parametrize("draw", DRAWS)
def test_a_band_covers_the_mean_at_every_step_at_the_stated_level(draw):
    alpha, runs = 0.2, 300
    values = DRAWS[draw](np.random.default_rng(6), 0.1, (runs, 2_000))
    missed = ever_missed(values, np.full(2_000, 0.1), alpha).sum()
    # The band is conservative; without any miss the test would be vacuous.
    assert 1 <= missed <= stats.binom.ppf(0.999, runs, alpha)


def test_a_band_covers_the_running_average_of_a_changing_mean():
    alpha, runs, n = 0.2, 300, 2_000
    means = 0.1 + 0.3 * (np.sin(np.arange(n) / 200) > 0)
    values = (np.random.default_rng(7).random((runs, n)) < means).astype(float)
    missed = ever_missed(values, means.cumsum() / np.arange(1, n + 1), alpha).sum()
    assert missed <= stats.binom.ppf(0.999, runs, alpha)
    # The band is about the running average, not the mean of the first part.
    assert ever_missed(values, np.full(n, 0.1), alpha).all()


def test_an_interval_for_a_fixed_sample_fails_the_same_check():
    """The known-bad variant: a normal interval, evaluated after every prediction."""
    alpha, runs, n = 0.2, 300, 2_000
    values = (np.random.default_rng(6).random((runs, n)) < 0.1).astype(float)
    means = values.cumsum(1) / np.arange(1, n + 1)
    half = NormalDist().inv_cdf(1 - alpha / 2) * np.sqrt(0.09 / np.arange(1, n + 1))
    missed = (np.abs(means - 0.1) > half)[:, 100:].any(1).sum()
    assert missed > stats.binom.ppf(0.999, runs, alpha)
