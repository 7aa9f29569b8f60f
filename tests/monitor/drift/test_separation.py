"""A flip share above the baseline's is detected, also after a long stable period."""

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
def test_an_increased_share_is_detected_soon_after_a_long_stable_period(seed):
    rng = np.random.default_rng(seed)
    watched = separation(rng)
    assert first_alarm(watched, flips(rng, 0.1, 100_000)) is None
    at = first_alarm(watched, flips(rng, 0.2, 5_000))
    assert 100_000 < at <= 102_000
    # The average over all time would still be within its band.
    assert watched.all_time(0).band(0.1).low < 0.1


def test_without_a_stable_period_the_all_time_band_separates():
    rng = np.random.default_rng(1)
    watched = separation(rng, run_length=1e15)
    at = first_alarm(watched, flips(rng, 0.2, 3_000))
    assert at < 2_000


def test_a_decreased_share_raises_no_alarm():
    rng = np.random.default_rng(2)
    assert first_alarm(separation(rng), flips(rng, 0.02, 30_000)) is None


def test_an_increased_share_raises_an_alarm_although_its_average_was_never_above_the_baseline():
    """The bound of windows must not depend on the average over all time."""
    rng = np.random.default_rng(6)
    watched = separation(rng)
    assert first_alarm(watched, np.zeros(50_000)) is None
    assert first_alarm(watched, flips(rng, 0.2, 3_000)) is not None
    assert watched.all_time(0).total < 0.02 * watched.all_time(0).count
    assert watched.all_time(0).band(0.1).high < 0.1


def fed_after_clean_values(values) -> Separation:
    """A detector after 50,000 clean values and these; no alarm is raised."""
    watched = separation(np.random.default_rng(7))
    assert first_alarm(watched, np.tile([1.0] + [0.0] * 9, 5_000)) is None
    assert first_alarm(watched, values) is None
    return watched


def test_windows_of_replicas_are_merged_but_merging_raises_no_alarm():
    """If their evidence were added, it would exceed the bar that neither reaches alone."""
    increased = np.tile([1.0, 0.0, 0.0, 0.0, 0.0], 100)
    one, two = fed_after_clean_values(increased), fed_after_clean_values(increased)
    one.merge(two)
    assert (one.rolling(0).count, one.rolling(0).total) == (2 * 9_500, 2 * (900 + 100))
    assert list(one.separated()) == []
    one.tested = 20
    assert len(list(one.separated())) == 1


def test_windows_that_begin_after_merging_are_tested():
    rng = np.random.default_rng(8)
    one, two = fed_after_clean_values(np.zeros(0)), fed_after_clean_values(np.zeros(0))
    one.merge(two)
    assert first_alarm(one, flips(rng, 0.1, 20_000)) is None
    assert one.tested == 20
    at = first_alarm(one, flips(rng, 0.2, 5_000))
    assert 120_000 < at <= 122_000
    # After another merge, the first window to be tested begins with the next block.
    one.merge(two)
    block = one.seen - one.seen % 500 + 500
    assert block < first_alarm(one, flips(rng, 0.2, 5_000)) <= block + 2_000


def test_merged_shares_since_the_start_can_separate():
    rng = np.random.default_rng(9)
    one, two = separation(rng), separation(rng)
    increased = np.tile([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 107)
    for replica in (one, two):
        assert first_alarm(replica, increased) is None
    one.merge(two)
    assert [index for _, index, _ in one.separated()] == [0]


def test_the_false_alarm_rate_is_below_its_bound():
    """P(alarm by T) ≤ α + (T + block)/c, over new baselines."""
    rng, runs, steps = np.random.default_rng(3), 150, 4_000
    options = {"alpha": 0.1, "run_length": 6e4, "window": 1_000}
    alarms = sum(
        first_alarm(separation(rng, rows=1_000, **options), flips(rng, 0.1, steps)) is not None
        for _ in range(runs)
    )
    assert alarms <= stats.binom.ppf(0.999, runs, 0.1 + (steps + 50) / 6e4)


def test_comparing_plain_means_fails_the_same_check():
    """The known-bad variant: a one-sided normal test against the baseline, at every check."""
    rng, runs, steps = np.random.default_rng(3), 150, 4_000
    alarms, counts = 0, np.arange(1, steps + 1)
    for _ in range(runs):
        baseline = flips(rng, 0.1, 1_000).mean()
        means = flips(rng, 0.1, steps).cumsum() / counts
        error = np.sqrt(0.09 / 1_000 + 0.09 / counts)
        alarms += (means - baseline > 1.28 * error)[100:].any()
    assert alarms > stats.binom.ppf(0.999, runs, 0.1 + (steps + 50) / 6e4)


def test_a_rolling_window_contains_the_last_twenty_blocks():
    rng = np.random.default_rng(4)
    watched, values = separation(rng, window=1_000), flips(rng, 0.1, 3_333)
    list(watched.update([values.tolist()]))
    rolling = watched.rolling(0)
    assert rolling.count == 19 * 50 + 33
    assert rolling.total == values[-983:].sum()
    assert watched.all_time(0).total == values.sum()


def test_a_restart_resets_one_attribute_only():
    rng = np.random.default_rng(5)
    sums = ShareSums.of(flips(rng, 0.1, 1_000))
    watched = Separation([sums, sums], **(OPTIONS | {"window": 1_000}))
    list(watched.update([flips(rng, 0.1, 1_200).tolist()] * 2))
    watched.restart(0)
    assert watched.all_time(0) == watched.rolling(0) == ShareSums(count=0, total=0, variation=0)
    assert watched.all_time(1).count == 1_200
