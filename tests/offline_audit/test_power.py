"""Smallest detectable effects of rates have 80% power, by enumeration of all tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from offline_audit import TableCounts, permutation_test
from offline_audit.permutation.permutations import PermutationOptions
from offline_audit.permutation.power import detectable_rate
from offline_audit.power import normal_detectable_rates, possible
from offline_audit.projection.pair_power import detectable_gap

OPTIONS = PermutationOptions(alternative="two-sided", n_resamples=99, seed=0)


def p_value(x: int, n: int, y: int, m: int) -> float | None:
    counts = {"a": {(None, 1): x, (None, 0): n - x}, "b": {(None, 1): y, (None, 0): m - y}}
    counted = TableCounts.from_mapping(counts)
    return permutation_test(metrics="selection_rate", counts=counted)[0].p_value


def power(n: int, m: int, rate: float, effect: float) -> float:
    """Probability that the public test rejects, over all likely tables."""
    one, two = stats.binom(n, rate + effect), stats.binom(m, rate)
    total = 0.0
    for x in range(int(one.ppf(1e-3)), int(one.isf(1e-3)) + 1):
        for y in range(int(two.ppf(1e-3)), int(two.isf(1e-3)) + 1):
            p = p_value(x, n, y, m)
            total += one.pmf(x) * two.pmf(y) * (p is not None and p <= 0.05)
    return float(total)


@pytest.mark.parametrize(("n", "m", "rate"), [(30, 30, 0.5), (20, 60, 0.3)])
def test_the_enumerated_test_has_80_percent_power_at_the_stated_effects(n, m, rate):
    for effect in detectable_rate(n, m, rate, 2, OPTIONS):
        assert effect is not None
        # The tables that are left out have a probability of at most .4%.
        assert power(n, m, rate, effect) == pytest.approx(0.8, abs=0.025)


@pytest.mark.parametrize(
    ("n", "m", "rate"), [(60, 60, 0.05), (100, 900, 0.02), (100, 1_900, 0.015)]
)
def test_no_effect_downwards_is_stated_if_a_rate_of_zero_is_not_detected(n, m, rate):
    down, up = detectable_rate(n, m, rate, 2, OPTIONS)
    assert down is None
    assert up is not None
    # With a rate of 0, the test rejects in fewer than 80% of samples.
    chances = [
        stats.binom.pmf(y, m, rate) * ((p_value(0, n, y, m) or 1.0) <= 0.05)
        for y in range(int(stats.binom.ppf(1e-6, m, rate)), int(stats.binom.isf(1e-6, m, rate)) + 1)
    ]
    assert sum(chances) < 0.8


def test_an_effect_is_stated_although_a_larger_one_leaves_too_few_hits_to_test():
    """At a rate of 0 in the large group fewer than 2 hits are expected in the small one."""
    down, _ = detectable_rate(1_900, 100, 0.1, 2, OPTIONS)
    assert down is not None
    assert -0.08 < down < -0.06


def test_hits_and_misses_are_symmetric():
    down, up = detectable_rate(50, 450, 0.1, 2, OPTIONS)
    mirrored = detectable_rate(50, 450, 0.9, 2, OPTIONS)
    assert mirrored == (pytest.approx(-up), pytest.approx(-down))  # type: ignore[operator]


@pytest.mark.parametrize("function", ["permutation", "projection"])
def test_the_normal_law_continues_the_enumeration(function):
    def effects(n: int) -> Any:
        if function == "permutation":
            return detectable_rate(n, 4 * n, 0.2, 2, OPTIONS)
        return detectable_gap((n, 4 * n), 0.2, alpha=0.05)

    # 1,000 expected hits are enumerated, more are not.
    enumerated, normal = effects(5_000), effects(5_001)
    assert np.abs(enumerated) == pytest.approx(np.abs(normal), rel=0.02)


def test_the_effects_of_large_counts_are_the_textbook_ones():
    down, up = detectable_rate(10**9, 10**9, 0.3, 2, OPTIONS)
    error = np.sqrt(0.3 * 0.7 * 2e-9)
    assert up == pytest.approx(2.8016 * error, rel=1e-3)
    assert down == pytest.approx(-up, rel=1e-3)  # type: ignore[operator]


def test_impossible_values_have_no_effect():
    assert possible((-0.2, 0.2), 0.1, 0.0, 1.0) == (None, 0.2)
    assert possible((-0.2, 0.2), 0.9, 0.0, 1.0) == (-0.2, None)
    assert normal_detectable_rates(10, 10, 0.05, (2.8, 2.8))[0] is None


def test_a_favoured_group_is_tested_in_one_direction_with_its_tolerance():
    both = detectable_gap((500, 500), 0.3, alpha=0.05)
    one = detectable_gap((500, 500), 0.3, alpha=0.05, sides=(False, True))
    tolerant = detectable_gap((500, 500), 0.3, alpha=0.05, tolerance=0.05)
    assert one[0] is None
    assert one[1] < both[1] < tolerant[1]  # type: ignore[operator]
