"""Whether labels can tell a metric: they cannot where only one decision ever gets one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offline_audit.checked_arrays import MISSING
from offline_audit.permutation.metrics import Metric

__all__ = ["label_warnings", "not_identified"]

Int = NDArray[np.int64]

# Shares of labelled rows that differ by more than this between decisions ask for a word.
_MUCH = 0.1
_WORDS = {1: "selected", 0: "not selected"}


def not_identified(metric: Metric, table: Int, sides: Sequence[tuple[str, Int]]) -> str | None:
    """Why labels do not tell the metric, of all rows or of a side; None if they do.

    Args:
        metric: The metric.
        table: Rows by group, label and decision, `[groups + 1, 3, 3]`.
        sides: Names of what is compared, and places of its groups.
    """
    if not metric.needs_labels:
        return None
    of_all = _one_decision(metric, table, "")
    found = (_one_decision(metric, table[places], f" of {name}") for name, places in sides)
    return of_all or next((reason for reason in found if reason is not None), None)


def _one_decision(metric: Metric, table: Int, whose: str) -> str | None:
    rows, labelled = _by_decision(table)
    if min(rows) == 0 or max(labelled) == 0 or min(labelled) > 0:
        return None
    seen = int(np.argmax(labelled))
    if metric.given_decision == seen:
        return None
    return (
        f"labels exist only for rows{whose} that were {_WORDS[seen]}, so {metric.name} is not "
        "identified: what the others would have done is not known"
    )


def label_warnings(metric: Metric, table: Int) -> list[str]:
    """What to know of labels that some rows have and some have not."""
    if not metric.needs_labels or metric.given_decision is not None:
        return []
    rows, labelled = _by_decision(table)
    if min(rows) == 0 or min(labelled) == 0:
        return []
    shares = [found / n for found, n in zip(labelled, rows, strict=True)]
    if abs(shares[1] - shares[0]) <= _MUCH:
        return []
    warning = (
        f"Labels are known for {100 * shares[1]:.0f}% of the selected rows and "
        f"{100 * shares[0]:.0f}% of the others; {metric.name} describes labelled rows, which may "
        "not be like the rest."
    )
    return [warning]


def _by_decision(table: Int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows, and rows with a label, of decision 0 and decision 1."""
    whole = table.sum(axis=0)
    rows, labelled = whole.sum(axis=0), whole[:MISSING].sum(axis=0)
    return (int(rows[0]), int(rows[1])), (int(labelled[0]), int(labelled[1]))
