"""Rates: exact p-values, intervals, and what is counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from offline_audit.permutation import TableCounts, permutation_test
from offline_audit.permutation.ratio import (
    moments_of,
    powers,
    rate_statistic,
    studentized_statistic,
)
from offline_audit.permutation.ratio_test import judged_by_draws, ratio_test
from offline_audit.permutation.rearranged_sums import Alternative, Rearranging
from offline_audit.permutation.tally import Exchange
from tests.oracle.permutation import agresti_caffo, p_value

TYPES = np.array([[1.0, 1.0], [0.0, 1.0]])
ONE_STRATUM = np.zeros(2, dtype=np.int64)


def how(alternative: Alternative = "two-sided", draws: int = 10_000) -> Rearranging:
    return Rearranging(alternative=alternative, draws=draws, seed=0)


def judged(hits, misses, other_hits, other_misses, alternative: Alternative = "two-sided"):
    group, other = np.array([hits, misses]), np.array([other_hits, other_misses])
    return ratio_test(TYPES, ONE_STRATUM, group, other, rates=True, how=how(alternative))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.booleans(), min_size=3, max_size=7), st.lists(st.booleans(), min_size=3, max_size=7)
)
def test_the_p_value_of_rates_is_that_of_all_rearrangements(group, other):
    hits = [*group, *other]
    if len(set(hits)) == 1:
        return
    rows = list(range(len(hits)))
    expected = p_value(agresti_caffo(hits), rows[: len(group)], rows[len(group) :])
    found = judged(sum(group), len(group) - sum(group), sum(other), len(other) - sum(other))
    assert found.draws is None
    assert found.p_value == pytest.approx(expected, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 400), st.integers(1, 400), st.integers(1, 2_000), st.integers(1, 2_000),
    st.sampled_from(["greater", "less"]),
)  # fmt: skip
def test_one_sided_p_values_are_tails_of_the_hypergeometric_with_ties_halved(a, b, c, d, side):
    chance = stats.hypergeom(a + b + c + d, a + c, a + b)
    beyond = chance.sf(a) if side == "greater" else chance.cdf(a - 1)
    found = judged(a, b, c, d, side)
    assert found.p_value == pytest.approx(
        max(beyond + chance.pmf(a) / 2, 1e-16), rel=1e-6, abs=1e-13
    )


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_the_statistic_of_rates_grows_with_the_hits_of_the_group(n, other_n, data):
    hits = data.draw(st.integers(0, n + other_n))
    possible = range(max(0, hits - other_n), min(n, hits) + 1)
    found = [rate_statistic(x, n, hits - x, other_n) for x in possible]
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_the_short_statistic_of_rates_is_the_general_one():
    added = powers(np.array([[1.0, 1.0], [0.0, 1.0]])).sum(axis=0)
    sides = [
        moments_of(np.array(c) @ powers(TYPES) + added, rates=True) for c in ([7, 12], [30, 81])
    ]
    general = studentized_statistic(*sides, skewed=False)
    assert rate_statistic(7, 19, 30, 111) == pytest.approx(float(general), rel=1e-12)


def test_drawn_rearrangements_agree_with_enumerated_ones():
    """All rows change groups where every row counts, so both are the same test."""
    counts = TableCounts.from_mapping(
        {"a": {(0, 0): 40, (1, 1): 25}, "b": {(0, 0): 90, (1, 1): 31}}
    )
    exact = permutation_test("selection_rate", counts=counts)[0]
    # Two strata of which one is empty cannot be enumerated here, so they are drawn.
    strata = np.array([0, 0, 1])
    types = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    drawn = ratio_test(
        types, strata, np.array([25, 40, 0]), np.array([31, 90, 0]), rates=True, how=how()
    )
    assert exact.p_value is not None
    assert drawn.p_value == pytest.approx(exact.p_value, abs=4 * 0.005)
    assert drawn.statistic == pytest.approx(exact.statistic, rel=1e-12)


def test_a_thousand_million_rows_are_judged_exactly():
    found = judged(200_000_000, 300_000_000, 200_030_000, 299_970_000)
    z = 30_000 / np.sqrt(2 * 500_000_000 * 0.4 * 0.6)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(z), rel=1e-3)


@pytest.mark.parametrize(
    ("metric", "hits", "counted"),
    [
        ("selection_rate", 20 + 4, 100),
        ("tpr", 20, 30),
        ("fnr", 10, 30),
        ("fpr", 4, 70),
        ("ppv", 20, 24),
        ("npv", 66, 76),
        ("accuracy", 86, 100),
    ],
)
def test_a_rate_counts_what_its_name_says(metric, hits, counted):
    table = {(1, 1): 20, (1, 0): 10, (0, 1): 4, (0, 0): 66}
    unlabelled: dict[tuple[int | None, int | None], int] = {(None, 1): 6, (None, 0): 3}
    counts = TableCounts.from_mapping({"a": table | unlabelled, "b": table})
    found = permutation_test(metric, counts=counts)[0]
    extra = (6, 9) if metric == "selection_rate" else (0, 0)
    assert (found.group.hits, found.group.counted) == (hits + extra[0], counted + extra[1])
    assert found.other is not None
    assert (found.other.hits, found.other.counted) == (hits, counted)
    assert found.effect == pytest.approx((hits + extra[0]) / (counted + extra[1]) - hits / counted)


def test_arrays_and_counts_say_the_same():
    rng = np.random.default_rng(3)
    labels, decisions = rng.integers(0, 2, 500), rng.integers(0, 2, 500)
    groups = rng.choice(["a", "b"], 500, p=[0.3, 0.7])
    cells = {
        g: {
            (y, d): int(((groups == g) & (labels == y) & (decisions == d)).sum())
            for y in (0, 1)
            for d in (0, 1)
        }
        for g in ("a", "b")
    }
    metrics = ["selection_rate", "tpr", "npv"]
    by_rows = permutation_test(metrics, groups=groups, labels=labels, decisions=decisions)
    by_counts = permutation_test(metrics, counts=TableCounts.from_mapping(cells))
    assert by_rows.to_dict() == by_counts.to_dict()


def test_within_outcome_keeps_each_groups_labels_and_all_does_not():
    rng = np.random.default_rng(0)
    labels = np.concatenate([rng.random(300) < 0.8, rng.random(300) < 0.2]).astype(int)
    decisions = np.where(rng.random(600) < 0.9, labels, 1 - labels)
    groups = np.repeat(["a", "b"], 300)
    exchanges: tuple[Exchange, Exchange] = ("all", "within outcome")
    found = {
        exchange: permutation_test(
            "selection_rate", groups=groups, labels=labels, decisions=decisions, exchange=exchange
        )[0].p_value
        or 0.0
        for exchange in exchanges
    }
    # Selection differs because labels do; among people with the same label it hardly does.
    assert found["all"] < 1e-10
    assert found["within outcome"] > 0.01


def test_draws_that_leave_a_group_without_counted_rows_are_counted_as_extreme():
    counts = TableCounts.from_mapping(
        {"a": {(1, 1): 6, (1, 0): 6, (0, 0): 10}, "b": {(1, 1): 8, (1, 0): 4, (0, 0): 4_000}}
    )
    found = permutation_test("tpr", counts=counts, exchange="all", draws=999)[0]
    assert found.degenerate_draws > 800
    assert found.p_value is not None
    assert found.p_value > 0.8


def test_the_same_seed_gives_the_same_p_value_and_another_seed_another():
    rng = np.random.default_rng(1)
    scores, groups = rng.random(200), rng.choice(["a", "b"], 200)
    ps = [
        permutation_test("mean_score", groups=groups, scores=scores, seed=seed)[0].p_value
        for seed in (0, 0, 1)
    ]
    assert ps[0] == ps[1]
    assert ps[0] != ps[2]


@pytest.mark.parametrize(("alternative", "beyond"), [("two-sided", 3), ("greater", 2), ("less", 4)])
def test_drawn_statistics_beyond_count_whole_ties_half_and_none_as_extreme(alternative, beyond):
    drawn = np.array([2.0, -2.0, 1.0, 1.0 + 1e-12, 0.5, -0.3, np.nan])
    found = judged_by_draws(1.0, drawn, alternative)
    # The two that equal it count as one; the one that was seen counts too.
    assert found.p_value == pytest.approx((1 + beyond + 1) / 8)
    assert found.degenerate == 1
