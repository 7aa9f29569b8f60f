"""Size of FlipTest's p-values and coverage of its intervals, by simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from offline_audit import Columns, flip_test, map_method
from offline_audit.fliptest.flipset import DecidedRows, counterparts_of
from offline_audit.fliptest.resampling import bootstrap, null_and_p_value, share_interval
from offline_audit.maps.transport_map import SQUARED_L2

COLUMNS = Columns.numeric(["a", "b"])
LEVEL = 0.05
SIMULATIONS = 100
COVERED = 0.95


class LinearRule:
    def decide(self, features):
        return (features @ np.array([1.0, 0.7], np.float32) > 0.4).astype(np.int8)


def no_progress():
    """Progress callback that does nothing."""


def group(rows, units=None):
    rows = rows.astype(np.float32)
    return DecidedRows.of(rows, LinearRule().decide(rows) == 1, units)


def bounds(simulations, rate):
    """Range of counts with probability 0.9998."""
    return stats.binom.ppf([1e-4, 1 - 1e-4], simulations, rate)


@dataclass
class Fixed:
    """A method that returns the same map instead of refitting: an invalid null distribution."""

    map: Any
    name: str = "fixed"
    cost: Any = SQUARED_L2
    quick: bool = True

    def fit(self, source, target, columns, *, seed=0, progress=None):
        return self.map


def unchanged(method, first, second):
    return method


def fixed_map(method, first, second):
    pooled = np.concatenate([first.features, second.features])
    return Fixed(method.fit(pooled, pooled, COLUMNS))


def single_rows(rng, n):
    """Two equal groups of n people with one row each."""
    return [group(rows) for rows in rng.normal(size=(2, n, 2))]


def copied_rows(rng, n, *, with_units):
    """Two equal groups of n people with three to five identical rows each."""
    groups = []
    for number, rows in enumerate(rng.normal(size=(2, n, 2))):
        units = np.repeat(np.arange(n), rng.integers(3, 6, n))
        groups.append(group(rows[units], units + number * n if with_units else None))
    return groups


def rejections(name, simulations, *, n, null=unchanged, draw=single_rows):
    """Number of simulations of equal groups that are rejected at 5%."""
    rng = np.random.default_rng(7)
    rejected = 0
    for number in range(simulations):
        first, second = draw(rng, n)
        method = map_method(name)
        fitted = method.fit(first.features, second.features, COLUMNS, seed=number)
        flipset, _ = counterparts_of(first, fitted, LinearRule(), 8)
        sizes, _ = null_and_p_value(
            first,
            second,
            null(method, first, second),
            COLUMNS,
            LinearRule(),
            (flipset.gross, 0.0),
            n_resamples=19,
            seed=number,
            tick=no_progress,
        )
        rejected += sizes.p_value <= LEVEL
    return rejected


def test_equal_groups_are_rejected_in_five_percent_of_simulations():
    low, high = bounds(300, LEVEL)
    assert low > 1
    assert low <= rejections("gaussian", 300, n=40) <= high


def test_a_null_without_the_noise_of_fitting_fails_the_check():
    """A map of the pooled rows to themselves flips nobody, so any flip would be significant."""
    _, high = bounds(30, LEVEL)
    assert rejections("gaussian", 30, n=40, null=fixed_map) > high


def test_the_default_map_does_not_reject_too_often():
    """It does not change features that do not differ, so it can only reject if it changes one."""
    rejected = rejections("joint_quantile", 200, n=120)
    # The map tests features at a joint level of 5%, and Kolmogorov's test is conservative.
    assert 1 <= rejected <= bounds(200, LEVEL)[1]


@pytest.mark.parametrize(("name", "simulations"), [("gaussian", 300), ("joint_quantile", 8)])
def test_copied_rows_are_rejected_in_five_percent_of_simulations_with_units(name, simulations):
    draw = partial(copied_rows, with_units=True)
    assert rejections(name, simulations, n=40, draw=draw) <= bounds(simulations, LEVEL)[1]


@pytest.mark.parametrize(("name", "simulations"), [("gaussian", 100), ("joint_quantile", 12)])
def test_copied_rows_without_units_are_rejected_too_often(name, simulations):
    draw = partial(copied_rows, with_units=False)
    assert rejections(name, simulations, n=40, draw=draw) > bounds(simulations, LEVEL)[1]


@pytest.mark.parametrize("draw", [single_rows, partial(copied_rows, with_units=True)])
def test_standard_errors_of_copied_rows_are_those_of_people(draw):
    """The deviation of estimates over simulations, within four of its standard errors."""
    rng, method, results = np.random.default_rng(13), map_method("gaussian"), []
    for number in range(60):
        first, second = draw(rng, 150)
        forward = method.fit(first.features, second.features, COLUMNS)
        backward = method.fit(second.features, first.features, COLUMNS)
        flipset, _ = counterparts_of(first, forward, LinearRule(), 1)
        errors, _ = bootstrap(
            first,
            second,
            (forward, backward),
            method,
            COLUMNS,
            LinearRule(),
            n_bootstrap=20,
            seed=number,
            tick=no_progress,
        )
        results.append((flipset.net, errors.net))
    shares, errors = np.array(results).T
    wider = stats.t.ppf(0.975, 19) / stats.norm.ppf(0.975)
    # The standard deviation of 60 values has an error of 9%.
    assert errors.mean() == pytest.approx(wider * shares.std(ddof=1), rel=4 * 0.09)


def flipped(rng, n, m):
    """Two groups; the second is shifted and has a larger variance."""
    source = rng.multivariate_normal([0, 0], [[1, 0.4], [0.4, 1]], n)
    target = rng.multivariate_normal([0, 0], [[1, 0.4], [0.4, 1]], m) * (1.5, 1) + (0.8, 0)
    return group(source), group(target)


def truth():
    source, _ = flipped(np.random.default_rng(99), 400_000, 2)
    twins = source.features * np.array([1.5, 1], np.float32) + np.array([0.8, 0], np.float32)
    return float((source.decisions != (LinearRule().decide(twins) == 1)).mean())


@pytest.fixture(scope="module")
def trials():
    """Estimates and standard errors of many simulations, and the true share."""
    rng = np.random.default_rng(11)
    method, results = map_method("joint_quantile"), []
    for number in range(SIMULATIONS):
        first, second = flipped(rng, 450, 300)
        forward = method.fit(first.features, second.features, COLUMNS, seed=number)
        backward = method.fit(second.features, first.features, COLUMNS, seed=number)
        flipset, _ = counterparts_of(first, forward, LinearRule(), 4)
        errors, _ = bootstrap(
            first,
            second,
            (forward, backward),
            method,
            COLUMNS,
            LinearRule(),
            n_bootstrap=12,
            seed=number,
            tick=no_progress,
        )
        results.append((flipset.gross, errors.gross))
    return np.array(results), truth()


def covered(trials, errors):
    shares, true = trials[0][:, 0], trials[1]
    ends = [share_interval(s, e, 450, 0.95) for s, e in zip(shares, errors, strict=True)]
    return sum(low <= true <= high for low, high in ends)


def test_intervals_of_the_gross_share_cover_it(trials):
    low, high = bounds(SIMULATIONS, COVERED)
    assert low <= covered(trials, trials[0][:, 1]) <= high


def test_standard_errors_equal_the_deviation_of_estimates(trials):
    shares, errors = trials[0].T
    # Twelve resamples widen by a t quantile; a standard deviation of 100 values has an error of 7%.
    wider = stats.t.ppf(0.975, 11) / stats.norm.ppf(0.975)
    assert errors.mean() == pytest.approx(wider * shares.std(ddof=1), rel=4 * 0.07)


def test_intervals_of_half_the_width_fail_the_check(trials):
    assert covered(trials, trials[0][:, 1] / 2) < bounds(SIMULATIONS, COVERED)[0]


def test_slow_maps_of_permuted_labels_flip_as_many_as_the_observed_one():
    """H0: both groups have the same features. All of these maps are fitted to a half of the rows.

    The share of flips by maps of all rows is .026 less, which is more than four standard errors.
    """
    excess = []
    for seed in range(40):
        rows = np.random.default_rng(seed).normal(size=(240, 2))
        result = flip_test(
            lambda features: features.sum(1) > 0, rows, np.repeat(["a", "b"], 120), map="exact",
            n_resamples=5, n_bootstrap=0, n_counterparts=1, explain=False, seed=seed,
            progress=False,
        )  # fmt: skip
        direction = result.directions[0]
        if direction.gross is not None and direction.null is not None:
            excess.append(direction.gross.value - direction.null.mean)
    assert len(excess) > 30
    assert np.mean(excess) == pytest.approx(0, abs=3 * np.std(excess) / np.sqrt(len(excess)))
