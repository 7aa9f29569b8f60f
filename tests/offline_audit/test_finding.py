"""P-values of many tests, against the definitions and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_audit import AuditInputError
from offline_audit.finding import adjusted_p_values, guarantee

p_lists = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


def holm(p: list[float]) -> list[float]:
    """By the definition: the largest of all steps up to one's own, found one by one."""
    m = len(p)
    ranked = sorted(range(m), key=lambda i: p[i])
    return [
        min(1.0, max((m - k) * p[j] for k, j in enumerate(ranked[: ranked.index(i) + 1])))
        for i in range(m)
    ]


def benjamini_hochberg(p: list[float], level: float) -> set[int]:
    """By the definition: all up to the largest k whose p-value is at most k/m of the level."""
    m = len(p)
    ranked = sorted(range(m), key=lambda i: p[i])
    last = max((k for k in range(1, m + 1) if p[ranked[k - 1]] <= level * k / m), default=0)
    return set(ranked[:last])


@given(p_lists)
def test_holm_is_as_defined(p):
    assert adjusted_p_values(p, "holm") == pytest.approx(holm(p))


@given(p_lists, st.sampled_from([0.01, 0.05, 0.2]))
def test_benjamini_and_hochberg_call_what_the_definition_calls(p, level):
    called = benjamini_hochberg(p, level)
    found = adjusted_p_values(p, "bh")
    for place, adjusted in enumerate(found):
        assert adjusted is not None
        if abs(adjusted - level) > 1e-12:
            assert (adjusted <= level) == (place in called)


def test_what_was_not_tested_does_not_count_as_a_test():
    assert adjusted_p_values([0.01, None, 0.04], "holm") == [0.02, None, 0.04]
    assert adjusted_p_values([None], "bh") == [None]


def test_without_correction_p_values_stay():
    assert adjusted_p_values([0.3, None, 0.01], "none") == [0.3, None, 0.01]


@pytest.mark.parametrize("method", ["bh", "by", "holm"])
def test_no_more_is_called_of_nothing_than_was_promised(method):
    """All null: any call is a false one, and the correction holds it to the level."""
    rng = np.random.default_rng(3)
    runs, level = 2_000, 0.05
    raw = rng.random((runs, 8))
    called = [min(p or 0 for p in adjusted_p_values(row.tolist(), method)) <= level for row in raw]
    # Three standard errors.
    assert np.mean(called) <= level + 3 * np.sqrt(level * (1 - level) / runs)
    assert (raw.min(1) <= level).mean() > 0.3


def test_another_method_is_refused():
    with pytest.raises(AuditInputError, match="unknown method 'bonferroni'; use one of bh, by"):
        adjusted_p_values([0.1], "bonferroni")  # type: ignore[arg-type]


def test_every_method_says_what_it_promises():
    for method in ("bh", "by", "holm", "none"):
        assert "at most α" in guarantee(method)
