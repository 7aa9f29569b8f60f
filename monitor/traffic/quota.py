"""The disk quota of a log: how many bytes it uses, and eviction of the oldest file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet as pq

from monitor.traffic.ledger import LedgerFile, changing, entry_of, mark_removed
from monitor.traffic.store import Store

__all__ = ["evict_oldest_file", "used_bytes"]

_DATE_AND_HOUR = re.compile(r"date=([0-9-]+)(?:/hour=(\d+))?/")


def used_bytes(store: Store) -> int:
    """Total size of all files of a local store, in bytes."""
    total = 0
    for folder, _, names in os.walk(store.root):
        for name in names:
            try:
                total += (Path(folder) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def evict_oldest_file(store: Store) -> LedgerFile | None:
    """Delete the oldest Parquet file and record it in the ledger.

    Returns:
        The deleted file; None if the store has no Parquet file.

    Raises:
        OSError: The file cannot be deleted.
    """
    files = store.files(suffix=".parquet")
    if not files:
        return None
    oldest = min(files, key=lambda file: (_date_and_hour(file.path), file.path))
    with changing(store):
        entry = entry_of(store, oldest.path)
        if entry is None:
            rows = _rows(store, oldest.path)
        else:
            rows = next(file.rows for file in entry.files if file.path == oldest.path)
            mark_removed(store, entry, {oldest.path}, "quota")
        store.remove(oldest.path)
    return LedgerFile(path=oldest.path, rows=rows, bytes=oldest.bytes, sha256="0" * 64)


def _rows(store: Store, path: str) -> int:
    """Number of rows of a file; 0 if it is damaged."""
    try:
        with store.open_file(path) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)
    except (OSError, pa.ArrowException):
        return 0


def _date_and_hour(path: str) -> tuple[str, str]:
    match = _DATE_AND_HOUR.search(path)
    return (match[1], match[2] or "") if match else ("", "")
