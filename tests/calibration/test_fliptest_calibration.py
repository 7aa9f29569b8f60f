"""FlipTest errs as often as it says: its p-values, what moves by chance, and its intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats

from offline_audit import Columns, map_method
from offline_audit.fliptest.flipset import DecidedRows, counterparts_of
from offline_audit.fliptest.resampling import bootstrap, null_sizes, share_interval
from offline_audit.maps.transport_map import SQUARED_L2

COLUMNS = Columns.numeric(["a", "b"])
LEVEL = 0.05
SIMULATIONS = 100
COVERED = 0.95


class Cut:
    def decide(self, features):
        return (features @ np.array([1.0, 0.7], np.float32) > 0.4).astype(np.int8)


def nothing():
    """After a refit."""


def group(rows):
    rows = rows.astype(np.float32)
    return DecidedRows.of(rows, Cut().decide(rows) == 1)


def bounds(simulations, rate):
    """Counts that hold all but two of ten thousand runs of the test."""
    return stats.binom.ppf([1e-4, 1 - 1e-4], simulations, rate)


@dataclass
class Held:
    """A method that never fits again: what a null must not be made of."""

    map: Any
    name: str = "held"
    cost: Any = SQUARED_L2
    quick: bool = True

    def fit(self, source, target, columns, *, seed=0, progress=None):
        return self.map


def as_it_is(method, first, second):
    return method


def a_map_of_everybody(method, first, second):
    everybody = np.concatenate([first.features, second.features])
    return Held(method.fit(everybody, everybody, COLUMNS))


def rejections(name, simulations, *, n, null=as_it_is):
    """How often two groups of people from one distribution are told apart, at five percent."""
    rng = np.random.default_rng(7)
    found = 0
    for number in range(simulations):
        first, second = (group(rows) for rows in rng.normal(size=(2, n, 2)))
        method = map_method(name)
        fitted = method.fit(first.features, second.features, COLUMNS, seed=number)
        flipset, _ = counterparts_of(first, fitted, Cut(), 8)
        sizes, _ = null_sizes(
            first,
            second,
            null(method, first, second),
            COLUMNS,
            Cut(),
            (flipset.gross, 0.0),
            n_resamples=19,
            seed=number,
            tick=nothing,
        )
        found += sizes.p_value <= LEVEL
    return found


def test_groups_that_do_not_differ_are_told_apart_one_time_in_twenty():
    low, high = bounds(300, LEVEL)
    assert low > 1
    assert low <= rejections("gaussian", 300, n=40) <= high


def test_a_null_without_the_noise_of_fitting_fails_the_check():
    """A map of everybody to everybody flips nobody, so that any flip would be beyond chance."""
    _, high = bounds(30, LEVEL)
    assert rejections("gaussian", 30, n=40, null=a_map_of_everybody) > high


def test_the_default_map_is_never_too_bold():
    """It leaves alone what does not differ, so that it rejects at most as often as it moves."""
    found = rejections("joint_quantile", 200, n=120)
    # Its own tests are at five percent for all features together, and Kolmogorov's are shy.
    assert 1 <= found <= bounds(200, LEVEL)[1]


def flipped(rng, n, m):
    """Two groups of which one is shifted and spread out, and what truly flips."""
    source = rng.multivariate_normal([0, 0], [[1, 0.4], [0.4, 1]], n)
    target = rng.multivariate_normal([0, 0], [[1, 0.4], [0.4, 1]], m) * (1.5, 1) + (0.8, 0)
    return group(source), group(target)


def truth():
    source, _ = flipped(np.random.default_rng(99), 400_000, 2)
    twins = source.features * np.array([1.5, 1], np.float32) + np.array([0.8, 0], np.float32)
    return float((source.decisions != (Cut().decide(twins) == 1)).mean())


@pytest.fixture(scope="module")
def trials():
    """Estimates, errors and truth over many worlds."""
    rng = np.random.default_rng(11)
    method, found = map_method("joint_quantile"), []
    for number in range(SIMULATIONS):
        first, second = flipped(rng, 450, 300)
        there = method.fit(first.features, second.features, COLUMNS, seed=number)
        back = method.fit(second.features, first.features, COLUMNS, seed=number)
        flipset, _ = counterparts_of(first, there, Cut(), 4)
        errors, _ = bootstrap(
            first,
            second,
            (there, back),
            method,
            COLUMNS,
            Cut(),
            n_bootstrap=12,
            seed=number,
            tick=nothing,
        )
        found.append((flipset.gross, errors.gross))
    return np.array(found), truth()


def covered(trials, errors):
    shares, true = trials[0][:, 0], trials[1]
    ends = [share_interval(s, e, 450, 0.95) for s, e in zip(shares, errors, strict=True)]
    return sum(low <= true <= high for low, high in ends)


def test_intervals_of_the_gross_share_cover_it(trials):
    low, high = bounds(SIMULATIONS, COVERED)
    assert low <= covered(trials, trials[0][:, 1]) <= high


def test_errors_are_as_large_as_estimates_scatter(trials):
    shares, errors = trials[0].T
    # Wider by a ninth, since there are twelve; a standard deviation from a hundred errs by 7%.
    wider = stats.t.ppf(0.975, 11) / stats.norm.ppf(0.975)
    assert errors.mean() == pytest.approx(wider * shares.std(ddof=1), rel=4 * 0.07)


def test_intervals_of_half_the_width_fail_the_check(trials):
    assert covered(trials, trials[0][:, 1] / 2) < bounds(SIMULATIONS, COVERED)[0]
