"""Selective labels: whether a metric is identified if labels depend on the decision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offline_audit.groups import UNKNOWN, only_labelled_decision, uneven_labels
from offline_audit.permutation.metrics import UNKNOWN_INDEX, Metric

__all__ = ["label_warnings", "not_identified"]

Int = NDArray[np.int64]

_WORDS = {1: "selected", 0: "not selected"}


def not_identified(metric: Metric, table: Int, sides: Sequence[tuple[str, Int]]) -> str | None:
    """Why the metric is not identified, for all rows or for one side; None if it is.

    Args:
        metric: The metric.
        table: Rows by group, label and decision, `[groups + 1, 3, 3]`.
        sides: Name and group indices of each side of the comparison.
    """
    if not metric.needs_labels:
        return None
    of_all = _one_decision(metric, table, "")
    of_sides = (_one_decision(metric, table[members], f" of {name}") for name, members in sides)
    return of_all or next((reason for reason in of_sides if reason is not None), None)


def _one_decision(metric: Metric, table: Int, whose: str) -> str | None:
    decision = int(only_labelled_decision(*_by_decision(table)))
    if decision in {UNKNOWN, metric.given_decision}:
        return None
    return (
        f"labels exist only for rows{whose} that were {_WORDS[decision]}, so {metric.name} is not "
        "identified: the outcomes of the others are unknown"
    )


def label_warnings(metric: Metric, table: Int) -> list[str]:
    """Warnings about labels that one decision gets more often than the other."""
    if not metric.needs_labels or metric.given_decision is not None:
        return []
    rows, labelled = _by_decision(table)
    if labelled.min() == 0 or not uneven_labels(rows, labelled):
        return []
    shares = labelled / rows
    warning = (
        f"Labels are known for {100 * shares[1]:.0f}% of the selected rows and "
        f"{100 * shares[0]:.0f}% of the others; {metric.name} describes labelled rows only, which "
        "may differ from the rest."
    )
    return [warning]


def _by_decision(table: Int) -> tuple[Int, Int]:
    """Numbers of rows, and of rows with a label, for decisions 0 and 1, `[2]` each."""
    known_decisions = table.sum(axis=0)[:, :UNKNOWN_INDEX]
    return known_decisions.sum(axis=0), known_decisions[:UNKNOWN_INDEX].sum(axis=0)
