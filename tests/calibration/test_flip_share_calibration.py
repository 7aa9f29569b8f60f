"""Coverage of the audit's interval of the share of flips, by simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from monitor.scoring.baseline import Baseline
from tests.monitor.fitting.shifted_group import TRUE_SHARE, draw, fitted, interval

SIMULATIONS, ROWS = 60, 600


def least_covered(intervals=SIMULATIONS):
    """Number of intervals that a level of 95% exceeds with probability 0.9999."""
    return stats.binom.ppf(1e-4, intervals, 0.95)


def sampling_only(features, groups):
    """Wilson's interval of one fit: maps of one half, flips of the other."""
    half = ROWS // 2
    scores = fitted(features[:half], groups[:half]).scores(torch.from_numpy(features[half:]))
    flips = scores.attributes["sex"].hard_flips.double().numpy()
    return Baseline.from_scores({"sex": {}}, {"sex": flips}).levels["sex"]


@pytest.fixture(scope="module")
def samples():
    return [draw(ROWS, seed=50_000 + number) for number in range(SIMULATIONS)]


@pytest.fixture(scope="module")
def results(samples):
    return [interval(*sample) for sample in samples]


def test_intervals_over_data_and_fit_cover_the_true_share(results):
    assert sum(r.low <= TRUE_SHARE <= r.high for r in results) >= least_covered()


@pytest.mark.parametrize(("source", "direction"), [("man", "gained"), ("woman", "lost")])
def test_intervals_of_pairs_and_directions_cover_the_true_share(results, source, direction):
    """A woman's logit is shifted upwards: as women men only gain, as men women only lose."""
    pairs = [pair for r in results for pair in r.pairs if pair.source == source]
    other = "lost" if direction == "gained" else "gained"
    for name, truth in {"changed": TRUE_SHARE, direction: TRUE_SHARE, other: 0.0}.items():
        shares = [getattr(pair, name) for pair in pairs]
        assert sum(s.low <= truth <= s.high for s in shares) >= least_covered()
    # Not by their width alone: without flips of any kind they would be excluded.
    assert sum(pair.changed.low > 0.05 for pair in pairs) >= least_covered()


def test_right_maps_are_rarely_said_to_miss_the_rate_of_decisions(results):
    missed = sum(any(pair.misses for pair in r.pairs) for r in results)
    assert missed <= stats.binom.isf(1e-4, SIMULATIONS, 0.05)
    assert not any(pair.unexplained for r in results for pair in r.pairs)


def test_standard_errors_equal_the_deviation_of_estimates(results):
    errors, shares = ([getattr(r, f) for r in results] for f in ("standard_error", "share"))
    # A standard deviation of 60 values has an error of 9%.
    assert np.mean(errors) == pytest.approx(np.std(shares, ddof=1), rel=4 * 0.09)


def test_intervals_over_sampling_only_fail_the_check(samples):
    levels = [sampling_only(*sample) for sample in samples]
    covered = sum(v.flip_share_low <= TRUE_SHARE <= v.flip_share_high for v in levels)
    assert covered < least_covered()


def test_estimates_of_other_seeds_are_in_each_others_intervals(samples):
    contained = []
    for sample in samples[:20]:
        one, other = (interval(*sample, seed=seed) for seed in (1, 2))
        contained.append(
            one.low <= other.share <= one.high and other.low <= one.share <= other.high
        )
    assert sum(contained) >= stats.binom.ppf(1e-4, 20, 0.95)
