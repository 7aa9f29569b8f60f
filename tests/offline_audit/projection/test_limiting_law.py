"""Tails of weighted sums of chi-squares agree with closed forms, far out too."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2

from offline_audit.projection.limiting_law import upper_tail


def two_by_angle(q: float, first: float, second: float) -> float:
    """P(first X² + second Y² ≥ q) by the angle of (X, Y): the radius is exponential."""

    def tail(angle: float) -> float:
        weight = first * math.cos(angle) ** 2 + second * math.sin(angle) ** 2
        return math.exp(-q / (2 * weight))

    return float(quad(tail, 0, math.pi / 2, epsabs=0, epsrel=1e-12)[0]) * 2 / math.pi


def pairs_of_exponentials(q: float, weights: list[float]) -> float:
    """Each weight twice: a sum of exponentials with different means."""
    rates = [1 / (2 * w) for w in weights]
    return sum(math.exp(-r * q) * math.prod(s / (s - r) for s in rates if s != r) for r in rates)


@pytest.mark.parametrize("q", [0.5, 3.0, 40.0, 700.0])
@pytest.mark.parametrize("second", [0.999, 0.3, 1e-3, 1e-6])
def test_two_weights_agree_with_numerical_integration(q, second):
    expected = two_by_angle(q, 1.0, second)
    assert upper_tail(q, np.array([1.0, second])) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("q", [1.0, 5.0, 60.0])
@pytest.mark.parametrize("weights", [[1.0, 0.5], [1.0, 0.5, 0.2], [3.0, 1.0, 0.3, 0.01]])
def test_pairs_of_equal_weights_agree_with_the_closed_form(q, weights):
    expected = pairs_of_exponentials(q, weights)
    assert upper_tail(q, np.repeat(weights, 2)) == pytest.approx(expected, rel=1e-9)


def test_equal_weights_are_a_chi_square_and_nearly_equal_ones_nearly():
    expected = chi2.sf(7.0, 3)
    assert upper_tail(14.0, np.array([2.0, 2.0, 2.0])) == pytest.approx(expected, rel=1e-12)
    assert upper_tail(14.0, np.array([2.0, 2.0, 1.999999])) == pytest.approx(expected, rel=1e-5)


def test_the_tail_probability_decreases_from_1_to_0():
    weights = np.array([1.0, 0.2, 0.05])
    result = [upper_tail(q, weights) for q in np.geomspace(0.05, 1_200, 60)]
    assert all(a > b for a, b in itertools.pairwise(result))
    assert upper_tail(5_000.0, weights) == 0.0
    assert upper_tail(0.0, weights) == 1.0
    assert upper_tail(math.inf, weights) == 0.0
