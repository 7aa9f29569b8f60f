"""Permutation tests, the correlation test and the selection table."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from offline_audit import (
    METRICS,
    GroupRows,
    ScoreCounts,
    TableCounts,
    correlation_test,
    permutation_test,
    scoring_table,
    selection_table,
)
from offline_audit.window.counts import ScoreBars, ScoreHistogram
from tests.snapshots.case import case


@functools.cache
def permuted_rows() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    n = 400
    labels = rng.integers(0, 2, n)
    scores = np.clip(0.3 * labels + 0.6 * rng.random(n), 0, 1)
    races = np.array(["Asian", "Black", "White", None])
    return {
        "groups": {
            "sex": rng.choice(["female", "male"], n),
            "race": rng.choice(races, n, p=[0.2, 0.3, 0.45, 0.05]),
        },
        "labels": labels,
        "scores": scores,
        "decisions": (scores > 0.5).astype(int),
    }


def _counts() -> TableCounts:
    return TableCounts.from_mapping(
        {
            "Hispanic": {(1, 1): 30, (1, 0): 20, (0, 1): 11, (0, 0): 60},
            "White": {(1, 1): 200, (1, 0): 70, (0, 1): 45, (0, 0): 160},
            "Native": {(1, 1): 3, (1, 0): 2, (0, 1): 1, (0, 0): 4},
            None: {(None, 1): 20, (None, 0): 15},
        },
        attribute="race",
    )


@case
def permutation_all_metrics() -> Any:
    return permutation_test(metrics=list(METRICS), **permuted_rows(), n_resamples=99)


@case
def permutation_one_comparison() -> Any:
    return permutation_test(metrics=list(METRICS), **permuted_rows(), n_resamples=99)[0]


@case
def permutation_one_auc() -> Any:
    result = permutation_test(
        metrics="auc", **permuted_rows(), n_resamples=99, reference="White", seed=3
    )
    return result.of("auc", "Black")


@case
def permutation_table_counts() -> Any:
    return permutation_test(
        metrics=["selection_rate", "tpr", "fpr", "ppv"], counts=_counts(), n_resamples=199
    )


@case
def permutation_score_counts() -> Any:
    rng = np.random.default_rng(1)
    shares = [0.4, 0.3, 0.2, 0.1]
    bars = tuple(
        ScoreBars(
            group=group,
            label=label,
            decision=None,
            counts=tuple(rng.multinomial(300, shares[:: 1 if label == 0 else -1]).tolist()),
            missing=2,
        )
        for group in ("female", "male", None)
        for label in (0, 1)
    )
    counts = ScoreCounts.from_histogram(ScoreHistogram(attribute="sex", bins=4, bars=bars))
    return permutation_test(metrics=["auc", "mean_score"], counts=counts, n_resamples=99)


@case
def permutation_custom_function() -> Any:
    def spread(rows: GroupRows) -> float:
        assert rows.scores is not None
        return float(np.std(rows.scores))

    columns = {"groups": permuted_rows()["groups"]["sex"], "scores": permuted_rows()["scores"]}
    return permutation_test(metrics=spread, **columns, n_resamples=99)


@case
def permutation_intersections() -> Any:
    rows = {name: permuted_rows()[name] for name in ("groups", "decisions")}
    return permutation_test(metrics="selection_rate", **rows, by="pairs", n_resamples=99)


@case
def permutation_units_one_sided() -> Any:
    rng = np.random.default_rng(5)
    people = np.repeat(np.arange(120), 3)
    return permutation_test(
        metrics=["selection_rate", "tpr"],
        groups=np.array(["a", "b"])[people % 2],
        decisions=rng.integers(0, 2, len(people)),
        labels=rng.integers(0, 2, len(people)),
        units=people,
        alternative="greater",
        n_resamples=199,
    )


@case
def permutation_plain_within_outcome() -> Any:
    rows = {name: permuted_rows()[name] for name in ("groups", "decisions", "labels")}
    return permutation_test(
        metrics="ppv",
        **rows,
        exchange="within outcome",
        studentized=False,
        n_resamples=99,
        confidence_level=0.9,
    )


@case
def permutation_not_enough_data() -> Any:
    return permutation_test(
        metrics=["selection_rate", "tpr"],
        groups=["a"] * 20 + ["b"] * 3,
        decisions=[0, 1] * 10 + [1, 0, 1],
        labels=[1, 1, 0, 0] * 5 + [1, 0, 0],
        n_resamples=99,
    )


@case
def permutation_selective_labels() -> Any:
    rows = permuted_rows()
    labels = np.where(rows["decisions"] == 1, rows["labels"], np.nan)
    return permutation_test(
        metrics=["selection_rate", "tpr", "ppv"],
        groups=rows["groups"]["sex"],
        decisions=rows["decisions"],
        labels=labels,
        n_resamples=99,
    )


@case
def correlation() -> Any:
    rng = np.random.default_rng(2)
    age = rng.uniform(18, 70, 150)
    return correlation_test(
        age, 0.01 * age + rng.normal(size=150), attribute="age", of="score", n_resamples=199
    )


@case
def correlation_not_enough_data() -> Any:
    return correlation_test(np.arange(6.0), np.arange(6.0) % 4, n_resamples=99)


@case
def selection_from_counts() -> Any:
    return selection_table(counts=_counts())


@case
def selection_from_rows() -> Any:
    rows = {name: permuted_rows()[name] for name in ("groups", "decisions")}
    return selection_table(**rows, by="pairs", confidence_level=0.9)


@case
def scoring_from_rows() -> Any:
    rows = {name: permuted_rows()[name] for name in ("groups", "scores")}
    return scoring_table(**rows, by="pairs")
