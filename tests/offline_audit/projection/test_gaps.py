"""Covariances agree with simulation, intervals cover, and power is as stated."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit.projection.gaps import gaps
from offline_audit.projection.partition import partition
from offline_audit.projection.sample import Sample
from tests.offline_audit.projection.projected import projected


def drawn(rng, n, rates, shares, units=1):
    groups = rng.choice(len(rates), n, p=shares)
    decisions = (rng.random(n) < np.array(rates)[groups]).astype(int)
    return [np.repeat(a, units) for a in (decisions, rng.exponential(size=n), groups)]


def test_the_gap_and_its_interval_are_newcombes():
    """Newcombe (1998), Table II, example (a): 56/70 against 48/80, method 10."""
    decisions = np.concatenate([np.repeat([1, 0], [56, 14]), np.repeat([1, 0], [48, 32])])
    groups = np.repeat(["a", "b"], [70, 80])
    effect = projected(decisions, np.ones(150), groups).effects[0]
    assert effect.gap == pytest.approx(0.2)
    assert effect.interval == pytest.approx((0.0524, 0.3339), abs=1e-4)


@pytest.mark.parametrize("units", [1, 3])
def test_intervals_cover_the_gap(units):
    rng = np.random.default_rng(0)
    runs, covered = 500, 0
    for _ in range(runs):
        rows = drawn(rng, 400, (0.3, 0.4), (0.7, 0.3), units)
        person = np.repeat(np.arange(400), units) if units > 1 else None
        low, high = projected(*rows, units=person).effects[0].interval
        covered += low <= -0.1 <= high
    # Within four standard errors of 95%.
    assert abs(covered / runs - 0.95) < 4 * np.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize("groups", [2, 3])
def test_a_gap_of_the_smallest_detectable_size_is_detected_with_80_percent_power(groups):
    rng = np.random.default_rng(1)
    shares = (0.6, 0.4) if groups == 2 else (0.5, 0.3, 0.2)
    fair = [projected(*drawn(rng, 3_000, (0.4,) * groups, shares)) for _ in range(20)]
    gap = float(np.mean([result.smallest_detectable_effect[0] for result in fair]))
    # The largest over the groups is that of the last, the smallest group; of two groups, the first
    # one differs.
    rates = (0.4 + gap, 0.4) if groups == 2 else (0.4, 0.4, 0.4 + gap)
    runs = 300
    rejected = sum(projected(*drawn(rng, 3_000, rates, shares)).rejected for _ in range(runs))
    assert abs(rejected / runs - 0.8) < 4 * np.sqrt(0.8 * 0.2 / runs) + 0.01


def test_the_covariance_of_overlapping_attributes_agrees_with_simulation():
    rng = np.random.default_rng(5)
    n = 600
    sex = rng.integers(0, 2, n)
    race = np.where(rng.random(n) < 0.7, sex, rng.integers(0, 2, n))
    drawn = []
    for _ in range(3_000):
        decisions = rng.random(n) < 0.3
        drawn.append(
            [
                decisions[sex == 1].mean() - decisions[sex == 0].mean(),
                decisions[race == 1].mean() - decisions[race == 0].mean(),
            ]
        )
    sample = Sample.read(
        groups={"sex": sex, "race": race}, decisions=rng.random(n) < 0.3, distances=np.ones(n)
    )
    strata = partition(sample, "statistical_parity", smallest_expected=5, all_distances=True).strata
    result = gaps(sample, strata).covariance
    simulated = np.cov(np.array(drawn).T)
    np.testing.assert_allclose(result, simulated, rtol=0.12)
