"""Correlations with a continuous attribute."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from scipy import stats

from offline_audit import AuditInputError, correlation_test


def test_a_correlation_with_a_constant_has_a_reason():
    result = correlation_test(np.full(50, 3.0), np.arange(50.0), attribute="age")
    assert result.p_value is None
    assert "age has the same value in every row" in str(result.reason)
    few = correlation_test(np.arange(10.0), np.arange(10.0) ** 2)
    assert few.reason == "10 rows; at least 30 are needed"
    with pytest.raises(AuditInputError, match="1 value missing"):
        correlation_test([1.0, np.nan], [1.0, 2.0])


def test_dates_are_rejected():
    with pytest.raises(AuditInputError, match="not all values are numbers"):
        correlation_test([dt.date(2020, 1, 1)] * 3, [1.0, 2.0, 3.0])


def test_a_correlation_that_outliers_determine_has_a_warning():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(300)
    y = (rng.chisquare(1, 300) - 1) * np.exp(x)
    assert (
        "outlying values of income"
        in correlation_test(x, y, of="income", n_resamples=99).warnings[0]
    )
    assert not correlation_test(x, rng.standard_normal(300), n_resamples=99).warnings


@pytest.mark.parametrize(
    "options",
    [
        {"alternative": "up"},
        {"n_resamples": 9},
        {"n_resamples": 99.5},
        {"confidence_level": 95},
        {"seed": -1},
    ],
)
def test_a_correlation_checks_its_options(options):
    with pytest.raises(AuditInputError, match=next(iter(options))):
        correlation_test(np.arange(50.0), np.arange(50.0) % 7, **options)


def test_a_correlation_is_studentized_for_unequal_variances():
    rng = np.random.default_rng(2)
    x = rng.standard_normal(500)
    y = 0.2 * x + rng.standard_normal(500)
    result = correlation_test(x, y, attribute="age", of="score", n_resamples=999)
    assert result.effect == pytest.approx(stats.pearsonr(x, y).statistic)
    assert result.p_value == pytest.approx(0.001, abs=0.001)
    assert result.interval is not None
    low, high = result.interval
    assert low < 0.2 / np.sqrt(1.04) < high
    u, v = stats.zscore(x), stats.zscore(y)
    tau = np.sqrt(np.mean(u**2 * v**2))
    assert result.statistic == pytest.approx(np.sqrt(500) * np.mean(u * v) / tau)


def test_the_plain_correlation_agrees_with_scipys():
    rng = np.random.default_rng(1)
    x, y = rng.random(40), rng.random(40)
    result = correlation_test(x, y, studentized=False)
    method = stats.PermutationMethod(n_resamples=10_000, rng=np.random.default_rng(0))
    assert result.p_value == pytest.approx(stats.pearsonr(x, y, method=method).pvalue, abs=0.03)
