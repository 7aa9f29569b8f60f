"""Copies of rows: a warning if chance does not explain them, and none for ordinary data."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import correlation_test, flip_test, permutation_test, projection_test
from offline_audit.duplicates import duplicate_warning, joined_codes, surplus_copies

N = 600


def mixed_kinds(rng, n, dependence=0.5):
    """Ages, hours with a peak at 40, rounded amounts, categories and a flag, all dependent."""
    common = rng.normal(size=(1, n))
    latent = np.sqrt(dependence) * common + np.sqrt(1 - dependence) * rng.normal(size=(5, n))
    return [
        np.round(40 + 12 * latent[0]),
        np.where(rng.random(n) < 0.5, 40, np.round(38 + 8 * latent[1])),
        np.round(np.exp(3 + 0.8 * latent[2]) / 5) * 5,
        np.digitize(latent[3], [-1.5, -0.5, 0.3, 1, 2]),
        latent[4] > 0.5,
    ]


def categories(rng, n):
    """Six categories of five values that depend on one of four types."""
    types = rng.integers(4, size=n)
    shares = rng.dirichlet(np.full(5, 0.3), (4, 6))
    return [
        (rng.random((n, 1)) > shares[types, column].cumsum(1)[:, :-1]).sum(1) for column in range(6)
    ]


def integers(rng, n):
    return [rng.integers(20, size=n) for _ in range(4)]


def rounded_scores(rng, n):
    scores = np.round(rng.beta(2, 3, n), 2)
    return [scores, scores > 0.5, rng.random(n) < scores]


def continuous(rng, n):
    return list(rng.normal(size=(3, n)))


ORDINARY = [mixed_kinds, categories, integers, rounded_scores, continuous]


def with_groups(rng, columns):
    """The columns, and groups that depend on the first."""
    spread = (columns[0] - columns[0].mean()) / columns[0].std()
    return [*columns, rng.random(len(spread)) < 1 / (1 + np.exp(-spread))]


def repeated(rng, columns):
    """Every row three to five times, in random order."""
    n = len(columns[0])
    rows = rng.permutation(np.repeat(np.arange(n), rng.integers(3, 6, n)))
    return [column[rows] for column in columns]


@pytest.mark.parametrize("draw", ORDINARY)
@pytest.mark.parametrize("n", [100, 1_000])
def test_ordinary_rows_give_a_warning_in_at_most_one_percent(draw, n):
    rng, simulations = np.random.default_rng(3), 100
    warned = sum(
        duplicate_warning(with_groups(rng, draw(rng, n)), "") is not None
        for _ in range(simulations)
    )
    assert warned <= 0.01 * simulations


@pytest.mark.parametrize("draw", [mixed_kinds, integers, continuous])
def test_copies_of_rows_that_would_not_repeat_by_chance_give_a_warning(draw):
    rng = np.random.default_rng(4)
    for _ in range(10):
        warning = duplicate_warning(repeated(rng, with_groups(rng, draw(rng, 300))), "Do so.")
        assert warning is not None
        assert "100% of the rows are exact copies" in warning
        assert warning.endswith("Do so.")


def test_rows_of_few_categories_are_no_evidence():
    rng = np.random.default_rng(5)
    columns = [rng.integers(2, size=300) for _ in range(4)]
    assert duplicate_warning(repeated(rng, columns), "") is None


def test_the_surplus_is_the_number_of_identical_pairs_beyond_chance_per_row():
    rng = np.random.default_rng(6)
    rows = np.repeat(np.arange(N), 3)
    surplus, copies = surplus_copies([column[rows] for column in continuous(rng, N)])
    # Three pairs per three rows, less the allowance for few pairs.
    assert surplus == pytest.approx(1.0, abs=6 / N)
    assert copies == 1.0


def test_a_sample_of_the_rows_needs_fewer_copies():
    rng = np.random.default_rng(7)
    columns = repeated(rng, continuous(rng, 2_000))
    sampled = rng.choice(len(columns[0]), 400, replace=False)
    few = [column[sampled] for column in columns]
    share = 400 / len(columns[0])
    assert duplicate_warning(few, "", sampled=share) is not None


def test_joined_columns_agree_where_all_of_them_do():
    joined = joined_codes([np.array([0, 0, 1, 0]), np.array([1, 2, 1, 1])])
    assert joined[0] == joined[3]
    assert len(set(joined.tolist())) == 3


def test_every_audit_of_rows_warns_of_copies_unless_units_are_passed():
    rng = np.random.default_rng(8)
    score, hours, groups = rng.random(N), rng.integers(20, 60, N), rng.choice(["a", "b"], N)
    units = np.repeat(np.arange(N), 4)
    score, hours, groups = score[units], hours[units], groups[units]
    decisions = score > 0.5
    features = np.column_stack([score, hours])

    def warnings_with(owners):
        permutation = permutation_test(
            metrics="mean_score", groups=groups, scores=score, units=owners, n_resamples=99
        )
        projection = projection_test(
            groups=groups, decisions=decisions, distances=np.abs(score - 0.5), units=owners
        )
        flips = flip_test(
            lambda rows: rows[:, 0] > 0.5,
            features,
            groups,
            units=owners,
            n_resamples=0,
            n_bootstrap=0,
            explain=False,
            progress=False,
        )
        return [result.warnings for result in (permutation, projection, flips)]

    for warnings in warnings_with(None):
        assert any("exact copies" in text and "Pass `units`" in text for text in warnings)
    for warnings in warnings_with(units):
        assert not any("exact copies" in text for text in warnings)
    correlation = correlation_test(score, hours, n_resamples=99)
    assert any("Keep one row per person" in text for text in correlation.warnings)


def clipped_scores(rng, n):
    """Scores with an atom at 0 that only rows with label 0 can have."""
    woman, label = rng.random(n) < 0.3, rng.random(n) < 0.4
    score = np.clip(0.3 * label + 0.7 * rng.random(n) - 0.12 * woman, 0, 1)
    return [score, label, score >= 0.5, woman]


def test_a_value_that_many_rows_of_a_continuous_column_share_is_no_copy():
    samples = [clipped_scores(np.random.default_rng(seed), 2_000) for seed in range(20)]
    assert [duplicate_warning(columns, "") for columns in samples] == [None] * 20
    copied = [np.repeat(column[:500], 4) for column in samples[0]]
    assert duplicate_warning(copied, "") is not None
