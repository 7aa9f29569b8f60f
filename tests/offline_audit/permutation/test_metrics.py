"""Definitions of the metrics."""

from __future__ import annotations

import pytest

from offline_audit import TableCounts, permutation_test


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
def test_a_rate_counts_the_rows_of_its_definition(metric, hits, counted):
    table = {(1, 1): 20, (1, 0): 10, (0, 1): 4, (0, 0): 66}
    unlabelled: dict[tuple[int | None, int | None], int] = {(None, 1): 6, (None, 0): 3}
    counts = TableCounts.from_mapping({"a": table | unlabelled, "b": table})
    found = permutation_test(metrics=metric, counts=counts)[0]
    extra = (6, 9) if metric == "selection_rate" else (0, 0)
    assert (found.group.hits, found.group.counted) == (hits + extra[0], counted + extra[1])
    assert found.other is not None
    assert (found.other.hits, found.other.counted) == (hits, counted)
    assert found.effect == pytest.approx((hits + extra[0]) / (counted + extra[1]) - hits / counted)
