"""A flip share above the baseline's is found, soon after a long clean past too; others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from monitor.drift.separation import Separation
from monitor.drift.share import ShareSums

OPTIONS: dict[str, Any] = {"alpha": 0.1, "run_length": 1e6, "window": 10_000}


def flips(rng, share, n):
    return (rng.random(n) < share).astype(float)


def separation(rng, *, share=0.1, rows=5_000, **options) -> Separation:
    return Separation([ShareSums.of(flips(rng, share, rows))], **(OPTIONS | options))


def first_alarm(watched, values):
    return next((at for at, _, _ in watched.update([values.tolist()])), None)


@pytest.mark.parametrize("seed", range(5))
def test_a_risen_share_is_found_soon_after_a_long_clean_past(seed):
    rng = np.random.default_rng(seed)
    watched = separation(rng)
    assert first_alarm(watched, flips(rng, 0.1, 100_000)) is None
    at = first_alarm(watched, flips(rng, 0.2, 5_000))
    assert 100_000 < at <= 102_000
    # The average over all time would still be within its band.
    assert watched.all_time(0).band(0.1).low < 0.1


def test_without_a_past_the_all_time_band_separates():
    rng = np.random.default_rng(1)
    watched = separation(rng, run_length=1e15)
    at = first_alarm(watched, flips(rng, 0.2, 3_000))
    assert at < 2_000


def test_a_fallen_share_is_no_alarm():
    rng = np.random.default_rng(2)
    assert first_alarm(separation(rng), flips(rng, 0.02, 30_000)) is None


def test_null_runs_alarm_no_more_often_than_stated():
    """P(alarm by T) ≤ α + (T + block)/c, over new baselines."""
    rng, runs, steps = np.random.default_rng(3), 150, 4_000
    options = {"alpha": 0.1, "run_length": 6e4, "window": 1_000}
    alarms = sum(
        first_alarm(separation(rng, rows=1_000, **options), flips(rng, 0.1, steps)) is not None
        for _ in range(runs)
    )
    assert alarms <= stats.binom.ppf(0.999, runs, 0.1 + (steps + 50) / 6e4)


def test_comparing_plain_means_would_fail_the_same_check():
    """The known-bad variant: a one-sided normal test against the baseline, at every check."""
    rng, runs, steps = np.random.default_rng(3), 150, 4_000
    alarms, counts = 0, np.arange(1, steps + 1)
    for _ in range(runs):
        baseline = flips(rng, 0.1, 1_000).mean()
        means = flips(rng, 0.1, steps).cumsum() / counts
        error = np.sqrt(0.09 / 1_000 + 0.09 / counts)
        alarms += (means - baseline > 1.28 * error)[100:].any()
    assert alarms > stats.binom.ppf(0.999, runs, 0.1 + (steps + 50) / 6e4)


def test_a_rolling_window_holds_the_last_twenty_blocks():
    rng = np.random.default_rng(4)
    watched, values = separation(rng, window=1_000), flips(rng, 0.1, 3_333)
    list(watched.update([values.tolist()]))
    rolling = watched.rolling(0)
    assert rolling.count == 19 * 50 + 33
    assert rolling.total == values[-983:].sum()
    assert watched.all_time(0).total == values.sum()


def test_a_restart_forgets_one_attribute_only():
    rng = np.random.default_rng(5)
    sums = ShareSums.of(flips(rng, 0.1, 1_000))
    watched = Separation([sums, sums], **(OPTIONS | {"window": 1_000}))
    list(watched.update([flips(rng, 0.1, 1_200).tolist()] * 2))
    watched.restart(0)
    assert watched.all_time(0) == watched.rolling(0) == ShareSums(count=0, total=0, variation=0)
    assert watched.all_time(1).count == 1_200
