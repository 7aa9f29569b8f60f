"""What a window must find, by loops over rows."""

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
    "last_words",
    "sampled",
]

Row = dict[str, Any]


def last_words(told: Sequence[Row], fields: Sequence[str]) -> dict[tuple[str, int], Row]:
    """Of each prediction, for each field on its own, the latest word."""
    held: dict[tuple[str, int], Row] = defaultdict(lambda: dict.fromkeys(fields))
    for field in fields:
        said = [row for row in told if row[field] is not None]
        for row in sorted(said, key=lambda r: (r["observed_at"], r["received_at"], r[field])):
            held[row["request_id"], row["row"]][field] = row[field]
    return held


def conflicts(told: Sequence[Row], field: str) -> int:
    """Predictions that are said different things of."""
    said = defaultdict(set)
    for row in told:
        if row[field] is not None:
            said[row["request_id"], row["row"]].add(row[field])
    return sum(len(values) > 1 for values in said.values())


def joined_rows(
    traffic: pa.Table,
    told: pa.Table,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
) -> list[Row]:
    """Rows of the window, each with the last words."""
    fields = [n for n in told.schema.names if n == "label" or n.startswith("group_")]
    held = last_words(told.to_pylist(), fields)
    return [
        row | held[row["request_id"], row["row"]]
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
    """Keys of the n rows of each stratum whose digests come first."""

    def digest(row: Row) -> str:
        text = f"{row['request_id']}:{row['row']}:{seed}"
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

    strata = defaultdict(list)
    for row in rows:
        strata[tuple(row[name] for name in by)].append(row)
    chosen = (row for found in strata.values() for row in sorted(found, key=digest)[:n])
    return {(row["request_id"], row["row"]) for row in chosen}
