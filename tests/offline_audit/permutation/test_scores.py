"""Means, AUCs, correlations and functions of rows, against slow obvious ones."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from offline_audit.errors import AuditInputError
from offline_audit.permutation import (
    GroupRows,
    ScoreCounts,
    correlation_test,
    permutation_test,
)
from offline_audit.permutation import auc_test as auc_module
from offline_audit.permutation.auc_test import RankedSides, auc_test
from offline_audit.permutation.ranks import auc_moments, auc_moments_of_units
from offline_audit.permutation.ratio_test import ratio_test
from offline_audit.permutation.rearranged_sums import Rearranging
from tests.oracle.permutation import auc_with_delong, bent_delong, bent_welch, p_value

HOW = Rearranging(alternative="two-sided", draws=4_000, seed=0, bins=0)
MONTE_CARLO = 4 * 0.5 / np.sqrt(HOW.draws)


def sample(n: int, seed: int, *, decimals: int | None = None, share: float = 0.3):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(int)
    scores = np.clip(0.25 * labels + 0.6 * rng.beta(2, 3, n), 0, 1)
    if decimals is not None:
        scores = np.round(scores, decimals)
    groups = np.where(rng.random(n) < share, "a", "b")
    return groups, labels, scores


def ranked(groups, labels, scores) -> RankedSides:
    level = np.unique(scores, return_inverse=True)[1]
    counts = np.zeros((2, 2, level.max() + 1), dtype=np.int64)
    np.add.at(counts, ((groups == "b").astype(int), labels, level), 1)
    return RankedSides(counts=counts)


def test_the_p_value_of_a_mean_is_that_of_all_rearrangements():
    rng = np.random.default_rng(4)
    scores = [*rng.beta(0.5, 3, 5), *rng.beta(2, 3, 8)]
    expected = p_value(bent_welch(scores), range(5), range(5, 13))
    values = np.stack([np.array(scores), np.ones(13)], axis=1)
    group = (np.arange(13) < 5).astype(np.int64)
    judged = ratio_test(
        values, np.zeros(13, dtype=np.int64), group, 1 - group, rates=False, how=HOW
    )
    assert judged.statistic == pytest.approx(bent_welch(scores)(list(range(5)), list(range(5, 13))))
    assert judged.p_value == pytest.approx(expected, abs=MONTE_CARLO)


def test_a_mean_without_skewness_has_welchs_statistic():
    one, two = np.array([0.1, 0.2, 0.4, 0.5]), np.array([0.2, 0.3, 0.6, 0.7])
    scores = np.concatenate([np.tile(one, 20), np.tile(two, 10)])
    groups = np.repeat(["a", "b"], [80, 40])
    found = permutation_test("mean_score", groups=groups, scores=scores, draws=99)[0]
    welch = stats.ttest_ind(scores[:80], scores[80:], equal_var=False)
    assert found.statistic == pytest.approx(welch.statistic)
    low, high = welch.confidence_interval()
    assert found.interval == pytest.approx((low, high))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=12),
    st.lists(st.integers(0, 5), min_size=2, max_size=12),
)
def test_the_auc_and_its_variance_are_delongs(positives, negatives):
    scores = [*map(float, positives), *map(float, negatives)]
    labels = [1] * len(positives) + [0] * len(negatives)
    expected = auc_with_delong(scores, labels, list(range(len(scores))))
    counts = [np.bincount(each, minlength=6).astype(float) for each in (positives, negatives)]
    found = auc_moments(*counts)
    assert float(found.auc) == pytest.approx(roc_auc_score(labels, scores))
    assert (float(found.auc), float(found.variance), float(found.third)) == pytest.approx(
        expected, abs=1e-12
    )


def test_the_p_value_of_an_auc_is_that_of_all_rearrangements_within_labels():
    rng = np.random.default_rng(0)
    labels = np.array([1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0])
    scores = np.round(rng.normal(0.8 * labels), 1)
    # Enough rows on either side that every rearrangement has a variance.
    groups = np.array(list("aaabbb" + "aaabbbb"))
    statistic = bent_delong(scores.tolist(), labels.tolist())
    seen = statistic(np.flatnonzero(groups == "a").tolist(), np.flatnonzero(groups == "b").tolist())
    above = tied = total = 0.0
    for p in itertools.combinations(range(6), 3):
        for n in itertools.combinations(range(6, 13), 3):
            inside = [*p, *n]
            value = statistic(inside, [row for row in range(13) if row not in inside])
            total += 1
            if np.isclose(abs(value), abs(seen), rtol=1e-9):
                tied += 1
            else:
                above += abs(value) > abs(seen) or not np.isfinite(value)
    judged = auc_test(ranked(groups, labels, scores), "counted", HOW)
    assert judged.statistic == pytest.approx(seen)
    assert judged.p_value == pytest.approx((above + tied / 2) / total, abs=MONTE_CARLO)


@pytest.mark.parametrize("exchange", ["counted", "all"])
@pytest.mark.parametrize("decimals", [None, 1])
def test_drawing_by_score_and_row_by_row_give_the_same_distribution(exchange, decimals):
    sides = ranked(*sample(300, 2, decimals=decimals))
    by_level = auc_module._by_level(sides, exchange, HOW)
    by_row = auc_module._row_by_row(sides, exchange, HOW)
    assert stats.ks_2samp(by_level, by_row).pvalue > 1e-3


def test_many_rows_do_not_overflow():
    sides = ranked(*sample(200_000, 3))
    how = dataclasses.replace(HOW, draws=40)
    drawn = auc_module._row_by_row(sides, "counted", how)
    assert np.abs(drawn).max() < 6
    binned = auc_module._by_level(sides.binned(256), "counted", dataclasses.replace(how, draws=400))
    assert binned.std() == pytest.approx(1, abs=5 / np.sqrt(800))


def test_rows_that_are_their_own_units_have_nearly_delongs_variance():
    _, labels, scores = sample(400, 5)
    level = np.unique(scores, return_inverse=True)[1]
    counts = [np.bincount(level[labels == y]).astype(float) for y in (1, 0)]
    width = max(map(len, counts))
    plain = auc_moments(*(np.pad(each, (0, width - len(each))) for each in counts))
    by_unit = auc_moments_of_units(level, labels, np.arange(400))
    assert float(by_unit.auc) == pytest.approx(float(plain.auc))
    assert float(by_unit.variance) == pytest.approx(float(plain.variance), rel=0.01)


def test_copies_of_every_row_leave_estimates_and_p_values_of_units_as_they_were():
    groups, labels, scores = sample(400, 6, share=0.5)
    decisions = (scores > 0.45).astype(int)
    metrics = ["selection_rate", "mean_score", "auc"]
    rows = np.repeat(np.arange(400), 3)
    columns = {"groups": groups, "labels": labels, "scores": scores, "decisions": decisions}
    copied = {name: each[rows] for name, each in columns.items()}
    once = permutation_test(metrics, **columns, units=np.arange(400), draws=999)
    thrice = permutation_test(metrics, **copied, units=rows, draws=999)
    for one, three in zip(once, thrice, strict=True):
        assert three.effect == pytest.approx(one.effect)
        assert three.group.units == one.group.units
        # One success and one failure added weigh less beside three times as many rows.
        assert three.statistic == pytest.approx(one.statistic, abs=0.05)
        assert three.p_value == pytest.approx(one.p_value, abs=0.06)
        assert three.interval == pytest.approx(one.interval, abs=0.01)


def test_most_rows_repeated_without_units_is_told():
    groups, labels, scores = sample(300, 6)
    rows = np.repeat(np.arange(300), 3)
    found = permutation_test(
        "auc", groups=groups[rows], labels=labels[rows], scores=scores[rows], draws=99
    )
    assert any("give `units`" in warning for warning in found.warnings)
    assert not permutation_test(
        "auc", groups=groups, labels=labels, scores=scores, draws=99
    ).warnings


def test_bins_move_effects_by_no_more_than_they_say():
    groups, labels, scores = sample(2_000, 7)
    metrics = ["auc", "mean_score", "calibration_gap"]
    exact = permutation_test(metrics, groups=groups, labels=labels, scores=scores, draws=99)
    for bins in (8, 64):
        counts = ScoreCounts.from_arrays(groups=groups, labels=labels, scores=scores, bins=bins)
        binned = permutation_test(metrics, counts=counts, draws=99)
        for one, other in zip(exact, binned, strict=True):
            assert 0 < other.binning_error < 3 / bins
            assert one.effect == pytest.approx(other.effect, abs=other.binning_error)


def test_bins_for_the_draws_leave_the_statistic_as_it_is():
    groups, labels, scores = sample(3_000, 8)
    exact, binned = (
        permutation_test(
            ["auc", "mean_score"], groups=groups, labels=labels, scores=scores, bins=bins
        )
        for bins in (0, 64)
    )
    for one, other in zip(exact, binned, strict=True):
        assert one.statistic == other.statistic
        assert one.p_value == pytest.approx(other.p_value, abs=4 * 0.005 * np.sqrt(2))


def test_scipys_permutation_test_agrees_where_it_does_the_same():
    groups, _, scores = sample(80, 9, share=0.5)
    one, two = scores[groups == "a"], scores[groups == "b"]
    found = permutation_test("mean_score", groups=groups, scores=scores, studentized=False)[0]
    rival = stats.permutation_test(
        (one, two),
        lambda x, y, axis: np.mean(x, axis=axis) - np.mean(y, axis=axis),
        n_resamples=10_000,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    assert found.statistic == pytest.approx(rival.statistic)
    assert found.p_value == pytest.approx(rival.pvalue, abs=4 * 0.005 * np.sqrt(2))


def test_a_correlation_is_studentized_for_unequal_spreads():
    rng = np.random.default_rng(2)
    x = rng.standard_normal(500)
    y = 0.2 * x + rng.standard_normal(500)
    found = correlation_test(x, y, attribute="age", of="score", draws=999)
    assert found.effect == pytest.approx(stats.pearsonr(x, y).statistic)
    assert found.p_value == pytest.approx(0.001, abs=0.001)
    assert found.interval is not None
    low, high = found.interval
    assert low < 0.2 / np.sqrt(1.04) < high
    u, v = stats.zscore(x), stats.zscore(y)
    tau = np.sqrt(np.mean(u**2 * v**2))
    assert found.statistic == pytest.approx(np.sqrt(500) * np.mean(u * v) / tau)


def test_the_plain_correlation_agrees_with_scipys():
    rng = np.random.default_rng(1)
    x, y = rng.random(40), rng.random(40)
    found = correlation_test(x, y, studentized=False)
    method = stats.PermutationMethod(n_resamples=10_000, rng=np.random.default_rng(0))
    assert found.p_value == pytest.approx(stats.pearsonr(x, y, method=method).pvalue, abs=0.03)


def test_a_function_of_rows_is_compared_as_the_metric_it_computes():
    groups, _, scores = sample(400, 10, share=0.5)
    calls = []

    def mean_of_scores(rows: GroupRows) -> float:
        assert rows.scores is not None
        return float(scores[rows.index].mean())

    found = permutation_test(
        mean_of_scores,
        groups=groups,
        scores=scores,
        draws=999,
        progress=lambda done, of: calls.append((done, of)),
    )[0]
    built_in = permutation_test("mean_score", groups=groups, scores=scores)[0]
    assert found.metric == "mean_of_scores"
    assert found.effect == pytest.approx(built_in.effect)
    assert found.p_value == pytest.approx(built_in.p_value, abs=0.1)
    assert found.interval == pytest.approx(built_in.interval, abs=0.01)
    assert calls[-1][1] == 999


def test_a_function_of_rows_draws_units_whole():
    groups, _, scores = sample(200, 11, share=0.5)
    rows = np.repeat(np.arange(200), 4)

    def mean(part: GroupRows) -> float:
        return float(scores[rows[part.index]].mean())

    once = permutation_test("mean_score", groups=groups, scores=scores, draws=999)[0]
    copied = permutation_test(mean, groups=groups[rows], units=rows, draws=499)[0]
    assert copied.interval == pytest.approx(once.interval, abs=0.01)


def test_a_function_that_gives_no_number_is_an_error():
    with pytest.raises(AuditInputError, match="gave no number"):
        permutation_test(lambda _: "high", groups=["a", "b"] * 40)  # type: ignore[arg-type,return-value]
