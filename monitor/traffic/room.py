"""Room on the local disk: how much a log takes, and which file gives way first."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet as pq

from monitor.traffic.ledger import LedgerFile, changing, entry_of, mark_removed
from monitor.traffic.store import Store

__all__ = ["drop_oldest_file", "used_bytes"]

_WHEN = re.compile(r"date=([0-9-]+)(?:/hour=(\d+))?/")


def used_bytes(store: Store) -> int:
    """Bytes of every file of a local store."""
    total = 0
    for folder, _, names in os.walk(store.root):
        for name in names:
            try:
                total += (Path(folder) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def drop_oldest_file(store: Store) -> LedgerFile | None:
    """Delete the oldest Parquet file, and say so in the ledger; None if there is none.

    Raises:
        OSError: It cannot be deleted.
    """
    files = store.files(suffix=".parquet")
    if not files:
        return None
    oldest = min(files, key=lambda file: (_when(file.path), file.path))
    with changing(store):
        entry = entry_of(store, oldest.path)
        if entry is None:
            rows = _rows(store, oldest.path)
        else:
            rows = next(file.rows for file in entry.files if file.path == oldest.path)
            mark_removed(store, entry, {oldest.path}, "room")
        store.remove(oldest.path)
    return LedgerFile(path=oldest.path, rows=rows, bytes=oldest.bytes, sha256="0" * 64)


def _rows(store: Store, path: str) -> int:
    """How many rows a file holds; none that can be read, if it is damaged."""
    try:
        with store.open_file(path) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)
    except (OSError, pa.ArrowException):
        return 0


def _when(path: str) -> tuple[str, str]:
    found = _WHEN.search(path)
    return (found[1], found[2] or "") if found else ("", "")
