"""Deletes old files: by age (retention), and the oldest file when the disk quota is reached."""

from __future__ import annotations

import datetime as dt
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet as pq

from monitor.errors import TrafficError
from monitor.traffic.ledger import (
    LEDGER,
    LedgerFile,
    entry_of,
    lock_ledger,
    mark_removed,
    read_ledger,
    write_entry,
)
from monitor.traffic.store import Store

__all__ = ["Expired", "evict_oldest_file", "expire", "used_bytes"]

_DATE_AND_HOUR = re.compile(r"date=([0-9-]+)(?:/hour=(\d+))?/")
_DAY = re.compile(r"(?:^|/)date=(\d{4}-\d{2}-\d{2})/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What was deleted.

    Attributes:
        files: Number of files.
        bytes: Total size in bytes.
        rows: Number of rows, according to the ledger.
    """

    files: int
    bytes: int
    rows: int


def expire(store: Store, before: dt.date, *, dry_run: bool = False) -> Expired:
    """Delete all files of the days before a date, and record that in the ledger.

    Only files in `date=…` directories are deleted.

    Args:
        store: A log, its outcomes, or findings.
        before: First day that is kept.
        dry_run: Whether to delete nothing and only count.

    Raises:
        TrafficError: Files cannot be listed or deleted.
    """
    try:
        old = [
            file
            for file in store.files()
            if not file.path.startswith((f"{LEDGER}/", "_segments/"))
            and _is_before(file.path, before)
        ]
        if dry_run:
            rows = _note(store, {file.path for file in old}, before, dry_run=True)
        else:
            with lock_ledger(store):
                rows = _note(store, {file.path for file in old}, before, dry_run=False)
                for file in old:
                    store.remove(file.path)
            store.remove_old_drafts()
            _remove_unreadable(store, before)
    except OSError as error:
        raise TrafficError(f"{store.location}: {error}") from None
    return Expired(files=len(old), bytes=sum(file.bytes for file in old), rows=rows)


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
    with lock_ledger(store):
        entry = entry_of(store, oldest.path)
        if entry is None:
            rows = _rows(store, oldest.path)
        else:
            rows = next(file.rows for file in entry.files if file.path == oldest.path)
            mark_removed(store, entry, {oldest.path}, "quota")
        store.remove(oldest.path)
    return LedgerFile(path=oldest.path, rows=rows, bytes=oldest.bytes, sha256="0" * 64)


def _note(store: Store, paths: set[str], before: dt.date, *, dry_run: bool) -> int:
    """Record deletions in the ledger, and delete entries whose files are all gone."""
    rows = 0
    for entry in read_ledger(store)[0]:
        deleted = [file for file in entry.files if file.path in paths]
        rows += sum(file.rows for file in deleted)
        if dry_run:
            continue
        files = tuple(
            file.model_copy(update={"removed": "expired"}) if file.path in paths else file
            for file in entry.files
        )
        if entry.until.date() < before and all(file.removed for file in files):
            store.remove(entry.path)
        elif deleted:
            write_entry(store, entry.model_copy(update={"files": files}))
    return rows


def _remove_unreadable(store: Store, before: dt.date) -> None:
    """Delete quarantined segments, by the date in their names."""
    if store.is_local:
        for path in Path(store.path("_segments")).glob("*.unreadable"):
            if path.name[:8] < f"{before:%Y%m%d}":
                path.unlink()


def _is_before(path: str, day: dt.date) -> bool:
    match = _DAY.search(path)
    return match is not None and match[1] < day.isoformat()


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
