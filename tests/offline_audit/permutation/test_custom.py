"""Functions of rows as metrics."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import AuditInputError, GroupRows, permutation_test


def sample(n: int, seed: int, *, decimals: int | None = None, share: float = 0.3):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(int)
    scores = np.clip(0.25 * labels + 0.6 * rng.beta(2, 3, n), 0, 1)
    if decimals is not None:
        scores = np.round(scores, decimals)
    groups = np.where(rng.random(n) < share, "a", "b")
    return groups, labels, scores


def test_a_function_of_rows_is_compared_as_the_metric_it_computes():
    groups, _, scores = sample(400, 10, share=0.5)
    calls = []

    def mean_of_scores(rows: GroupRows) -> float:
        assert rows.scores is not None
        return float(scores[rows.index].mean())

    result = permutation_test(
        metrics=mean_of_scores,
        groups=groups,
        scores=scores,
        n_resamples=999,
        progress=lambda what, done, total: calls.append((what, done, total)),
    )[0]
    built_in = permutation_test(metrics="mean_score", groups=groups, scores=scores)[0]
    assert result.metric == "mean_of_scores"
    assert result.effect == pytest.approx(built_in.effect)
    assert result.p_value == pytest.approx(built_in.p_value, abs=0.1)
    assert result.interval == pytest.approx(built_in.interval, abs=0.01)
    assert calls[-1] == ("mean_of_scores of a and b", 999, 999)


def test_a_function_of_rows_permutes_whole_units():
    groups, _, scores = sample(200, 11, share=0.5)
    rows = np.repeat(np.arange(200), 4)

    def mean(part: GroupRows) -> float:
        return float(scores[rows[part.index]].mean())

    once = permutation_test(metrics="mean_score", groups=groups, scores=scores, n_resamples=999)[0]
    copied = permutation_test(metrics=mean, groups=groups[rows], units=rows, n_resamples=499)[0]
    assert copied.interval == pytest.approx(once.interval, abs=0.01)


def test_a_function_that_returns_no_number_is_an_error():
    with pytest.raises(AuditInputError, match="must return a number"):
        permutation_test(metrics=lambda _: "high", groups=["a", "b"] * 40)  # type: ignore[arg-type,return-value]
