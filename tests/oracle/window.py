"""Expected results of a window, by loops over rows."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

__all__ = [
    "conflicts",
    "group_cells",
    "histogram",
    "joined_rows",
    "latest_values",
    "sampled",
]

Row = dict[str, Any]


def latest_values(outcomes: Sequence[Row], fields: Sequence[str]) -> dict[tuple[str, int], Row]:
    """The latest known value of each field, by prediction."""
    latest: dict[tuple[str, int], Row] = defaultdict(lambda: dict.fromkeys(fields))
    for field in fields:
        known = [row for row in outcomes if row[field] is not None]
        for row in sorted(known, key=lambda r: (r["observed_at"], r["received_at"], r[field])):
            latest[row["request_id"], row["row"]][field] = row[field]
    return latest


def conflicts(outcomes: Sequence[Row], field: str) -> int:
    """Number of predictions with contradictory values of a field."""
    values_by_key = defaultdict(set)
    for row in outcomes:
        if row[field] is not None:
            values_by_key[row["request_id"], row["row"]].add(row[field])
    return sum(len(values) > 1 for values in values_by_key.values())


def joined_rows(
    traffic: pa.Table,
    outcomes: pa.Table,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
) -> list[Row]:
    """Rows of the window, each with its latest outcome."""
    fields = [n for n in outcomes.schema.names if n == "label" or n.startswith("group_")]
    latest = latest_values(outcomes.to_pylist(), fields)
    return [
        row | latest[row["request_id"], row["row"]]
        for row in traffic.to_pylist()
        if (since is None or row["time"] >= since) and (until is None or row["time"] < until)
    ]


def group_cells(rows: Sequence[Row], attributes: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """Counts by groups, label and decision."""
    return Counter(
        (tuple(r[f"group_{a}"] for a in attributes), r["label"], r["decision"]) for r in rows
    )


def histogram(rows: Sequence[Row], attribute: str, bins: int) -> Counter[tuple[Any, ...]]:
    """Counts by group, label, decision and bin; the bin is None without a score."""
    return Counter(
        (
            r[f"group_{attribute}"],
            r["label"],
            r["decision"],
            None if r["score"] is None else min(int(r["score"] * bins), bins - 1),
        )
        for r in rows
    )


def sampled(rows: Sequence[Row], n: int, by: Sequence[str], seed: int) -> set[tuple[str, int]]:
    """Keys of the n rows of each stratum with the smallest digests."""

    def digest(row: Row) -> str:
        text = f"{row['request_id']}:{row['row']}:{seed}"
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

    strata = defaultdict(list)
    for row in rows:
        strata[tuple(row[name] for name in by)].append(row)
    chosen = (row for stratum in strata.values() for row in sorted(stratum, key=digest)[:n])
    return {(row["request_id"], row["row"]) for row in chosen}
