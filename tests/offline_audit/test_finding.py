"""Corrections of p-values, against their definitions and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_audit import AuditInputError
from offline_audit.finding import adjusted_p_values, guarantee

p_lists = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


def holm(p: list[float]) -> list[float]:
    """Holm's definition: the maximum of all steps up to the p-value's own."""
    m = len(p)
    ranked = sorted(range(m), key=lambda i: p[i])
    return [
        min(1.0, max((m - k) * p[j] for k, j in enumerate(ranked[: ranked.index(i) + 1])))
        for i in range(m)
    ]


def benjamini_hochberg(p: list[float], level: float) -> set[int]:
    """Definition: reject up to the largest k whose p-value is at most k/m of the level."""
    m = len(p)
    ranked = sorted(range(m), key=lambda i: p[i])
    last = max((k for k in range(1, m + 1) if p[ranked[k - 1]] <= level * k / m), default=0)
    return set(ranked[:last])


@given(p_lists)
def test_holm_follows_its_definition(p):
    assert adjusted_p_values(p, "holm") == pytest.approx(holm(p))


@given(p_lists, st.sampled_from([0.01, 0.05, 0.2]))
def test_benjamini_hochberg_follows_its_definition(p, level):
    rejected = benjamini_hochberg(p, level)
    for index, adjusted in enumerate(adjusted_p_values(p, "bh")):
        assert adjusted is not None
        if abs(adjusted - level) > 1e-12:
            assert (adjusted <= level) == (index in rejected)


def test_a_missing_p_value_does_not_count_as_a_test():
    assert adjusted_p_values([0.01, None, 0.04], "holm") == [0.02, None, 0.04]
    assert adjusted_p_values([None], "bh") == [None]


def test_without_correction_p_values_do_not_change():
    assert adjusted_p_values([0.3, None, 0.01], "none") == [0.3, None, 0.01]


@pytest.mark.parametrize("method", ["bh", "by", "holm"])
def test_the_family_wise_error_under_the_null_is_at_most_alpha(method):
    """Under the null every rejection is false, so all methods control the family-wise error."""
    rng = np.random.default_rng(3)
    runs, level = 2_000, 0.05
    raw = rng.random((runs, 8))
    rejected = [
        min(p or 0 for p in adjusted_p_values(row.tolist(), method)) <= level for row in raw
    ]
    # Three standard errors.
    assert np.mean(rejected) <= level + 3 * np.sqrt(level * (1 - level) / runs)
    assert (raw.min(1) <= level).mean() > 0.3


def test_an_unknown_method_is_an_error():
    with pytest.raises(AuditInputError, match="unknown method 'bonferroni'; use one of bh, by"):
        adjusted_p_values([0.1], "bonferroni")  # type: ignore[arg-type]


def test_every_method_states_its_guarantee():
    for method in ("bh", "by", "holm", "none"):
        assert "at most α" in guarantee(method)
