"""P-values agree with known tests where these apply, and with simulation elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency, norm

from offline_audit.projection.gaps import gaps
from offline_audit.projection.limiting_law import (
    curve_density,
    limiting_p_value,
    s_inverse,
    s_matrix,
)
from offline_audit.projection.partition import partition
from offline_audit.projection.sample import Sample
from tests.offline_audit.projection.projected import projected


def people(seed=0, n=2_000, shares=(0.7, 0.3), gap=0.0, rate=0.4):
    rng = np.random.default_rng(seed)
    groups = rng.choice(len(shares), n, p=shares)
    decisions = (rng.random(n) < rate + gap * (groups == 1)).astype(int)
    return decisions, rng.exponential(size=n), groups


def test_with_one_gap_p_is_that_of_the_pooled_z_test_with_permutation_variance():
    decisions, distances, groups = people(gap=0.05)
    rates = [decisions[groups == g].mean() for g in (0, 1)]
    n, pooled = len(decisions), decisions.mean()
    sizes = [np.sum(groups == g) for g in (0, 1)]
    spread = np.sqrt(pooled * (1 - pooled) * sum(1 / s for s in sizes) * n / (n - 1))
    expected = 2 * norm.sf(abs(rates[0] - rates[1]) / spread)
    assert projected(decisions, distances, groups).p_value == pytest.approx(expected, rel=1e-12)


def test_with_several_groups_p_is_pearsons_with_permutation_variance():
    decisions, distances, groups = people(1, shares=(0.5, 0.3, 0.2), gap=0.05)
    table = [[np.sum(decisions[groups == g] == c) for g in range(3)] for c in (0, 1)]
    n = len(decisions)
    statistic = chi2_contingency(table, correction=False).statistic * (n - 1) / n
    result = projected(decisions, distances, groups)
    assert result.p_value == pytest.approx(chi2.sf(statistic, 2), rel=1e-9)


def test_with_the_curve_law_p_is_nearly_pearsons_if_boundary_densities_are_equal():
    decisions, distances, groups = people(1, n=200_000, shares=(0.5, 0.3, 0.2), gap=0.005)
    by_cost = projected(decisions, distances, groups, law="curve")
    assert by_cost.p_value == pytest.approx(
        projected(decisions, distances, groups).p_value, rel=0.3
    )


def test_with_the_curve_law_a_gap_that_is_cheap_to_close_has_less_weight():
    decisions, distances, groups = people(1, shares=(0.4, 0.3, 0.3), gap=0.06)
    cheap = np.where(groups == 1, 0.01 * distances, distances)
    assert projected(decisions, cheap, groups, law="curve").p_value > 0.2
    assert projected(decisions, cheap, groups).p_value < 0.05


@pytest.mark.parametrize("criterion", ["equal_opportunity", "equalized_odds"])
def test_the_p_value_of_several_gaps_agrees_with_simulation(criterion):
    decisions, distances, groups = people(2, n=3_000, shares=(0.5, 0.3, 0.2), gap=0.03)
    labels = np.random.default_rng(3).integers(0, 2, len(decisions))
    sample = Sample.read(groups=groups, decisions=decisions, distances=distances, labels=labels)
    strata = partition(sample, criterion, smallest_expected=5, all_distances=False).strata
    result, density = gaps(sample, strata), curve_density(strata)
    s = s_matrix(result, density)
    inverse = s_inverse(result, s)
    draws = np.random.default_rng(4).multivariate_normal(
        np.zeros(len(result.values)), result.covariance, 100_000
    )
    costs = np.einsum("ni,ij,nj->n", draws, inverse, draws)
    share = np.mean(costs >= result.values @ inverse @ result.values)
    p = limiting_p_value(result, s, law="curve", statistic=0.0)
    assert abs(p - share) < 5 * np.sqrt(p * (1 - p) / 100_000)


def test_with_units_repeated_rows_do_not_lower_the_p_value():
    decisions, distances, groups = people(6, n=500, gap=0.08)
    once = projected(decisions, distances, groups).p_value
    tenfold = [np.repeat(a, 10) for a in (decisions, distances, groups)]
    without_units = projected(*tenfold).p_value
    with_units = projected(*tenfold, units=np.repeat(np.arange(500), 10)).p_value
    assert without_units < once / 20
    assert with_units == pytest.approx(once, rel=0.2)


def test_units_of_one_row_hardly_change_the_p_value():
    decisions, distances, groups = people(7, gap=0.04)
    plain = projected(decisions, distances, groups).p_value
    with_units = projected(decisions, distances, groups, units=np.arange(2_000)).p_value
    assert with_units == pytest.approx(plain, rel=0.1)


def test_p_increases_with_the_tolerance_and_is_one_sided_for_a_favoured_group():
    decisions, distances, groups = people(8, n=8_000, gap=0.10)
    p = {
        tolerance: projected(decisions, distances, groups, tolerance=tolerance).p_value
        for tolerance in (0.0, 0.05, 0.10, 0.30)
    }
    assert p[0.0] < p[0.05] < 0.01 < p[0.10]
    assert p[0.30] == 1.0
    ahead = projected(decisions, distances, groups, tolerance=0.05, favoured="1")
    behind = projected(decisions, distances, groups, tolerance=0.05, favoured="0")
    assert ahead.p_value == pytest.approx(p[0.05], rel=0.01)
    assert behind.p_value == 1.0
    assert behind.statistic == 0.0


def test_several_gaps_with_a_tolerance_agree_with_the_closed_form_of_one_gap():
    """A duplicated attribute adds a gap and changes p by simulation error only."""
    decisions, distances, groups = people(9, n=6_000, gap=0.06)
    one = projected(decisions, distances, groups, tolerance=0.02)
    labels = np.ones(len(decisions), dtype=int)
    within_label = projected(
        decisions, distances, groups, tolerance=0.02, criterion="equal_opportunity", labels=labels
    )
    assert within_label.p_value == pytest.approx(one.p_value, rel=1e-9)
    doubled = projected(decisions, distances, {"a": groups, "b": groups}, tolerance=0.02)
    assert abs(doubled.p_value - one.p_value) < 5 * doubled.monte_carlo_error + 1e-3


def test_a_duplicated_attribute_does_not_change_the_p_value():
    decisions, distances, groups = people(10, gap=0.05)
    once = projected(decisions, distances, groups)
    twice = projected(decisions, distances, {"a": groups, "b": groups})
    assert twice.p_value == pytest.approx(once.p_value, rel=1e-6)
    assert twice.statistic == pytest.approx(once.statistic, rel=1e-9)


def test_p_does_not_depend_on_the_order_of_rows_the_names_of_groups_or_the_unit_of_distance():
    decisions, distances, groups = people(11, shares=(0.5, 0.3, 0.2), gap=0.05)
    result = projected(decisions, distances, groups)
    order = np.random.default_rng(0).permutation(len(groups))
    shuffled = projected(
        decisions[order], 1_000 * distances[order], np.array(["z", "b", "k"])[groups[order]]
    )
    assert shuffled.p_value == pytest.approx(result.p_value, rel=1e-9)
    assert shuffled.statistic == pytest.approx(1_000 * result.statistic, rel=1e-9)
    assert shuffled.explanation.rows_moved == pytest.approx(result.explanation.rows_moved)


def test_the_kernel_law_is_the_papers_corollary():
    """σ² χ²/(2 f(0) …) of Corollary 1, for two groups, with a fixed bandwidth."""
    decisions, distances, groups = people(12, n=4_000, gap=0.02)
    h = 0.1
    result = projected(decisions, distances, groups, law="kernel", bandwidth=h, smallest_cell=1)
    n, sizes = len(groups), np.array([np.sum(groups == g) for g in (0, 1)])
    mu = sizes / n
    kernel = np.exp(-0.5 * (distances / h) ** 2) / (h * np.sqrt(2 * np.pi))
    at_zero = np.array([np.sum(kernel[groups == g]) / n for g in (0, 1)])  # f(0) E[U_g | d = 0]
    pooled = decisions.mean()
    variance = mu[0] * mu[1] * pooled * (1 - pooled)
    weight = variance / (2 * (mu[1] ** 2 * at_zero[0] + mu[0] ** 2 * at_zero[1]))
    assert result.p_value == pytest.approx(chi2.sf(result.statistic / weight, 1), rel=2e-3)
