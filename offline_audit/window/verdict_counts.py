"""Counts of the sidecar's verdicts and actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["VerdictCounts", "verdicts_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCounts:
    """What the sidecar found and did in a window; None stands for a prediction without one.

    Attributes:
        verdicts: Rows by verdict, of each protected attribute.
        actions: Rows by action.
    """

    verdicts: Mapping[str, Mapping[str | None, int]]
    actions: Mapping[str | None, int]


def verdicts_of(counted: pa.Table, columns: Mapping[str, str]) -> VerdictCounts:
    """Marginal counts.

    Args:
        counted: Columns of verdicts, `action` and `rows`.
        columns: Names of the columns of verdicts, by attribute.
    """
    return VerdictCounts(
        verdicts={a: _marginal(counted, column) for a, column in columns.items()},
        actions=_marginal(counted, "action"),
    )


def _marginal(counted: pa.Table, column: str) -> dict[str | None, int]:
    total: Counter[str | None] = Counter()
    for word, rows in zip(counted[column].to_pylist(), counted["rows"].to_pylist(), strict=True):
        total[word] += rows
    return dict(sorted(total.items(), key=lambda item: (item[0] is None, item[0] or "")))
