"""Segments that are not yet converted to Parquet: how many rows wait, and their conversion.

A sidecar that runs converts its own segments; those that another left behind are converted here.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from monitor.errors import TrafficError
from monitor.traffic.compaction import compact
from monitor.traffic.segment import read_segment, rows_in
from monitor.traffic.spool import DRAFT, SEGMENTS
from monitor.traffic.store import Store

__all__ = ["Compacted", "WaitingRows", "compact_waiting", "lock_segments", "waiting_rows"]

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRows:
    """Rows in segments of one directory.

    Attributes:
        segments: Number of segments.
        rows: Number of their rows.
        since: Time of the first row; None if there is no row.
        running: Whether a sidecar writes to the directory.
    """

    segments: int
    rows: int
    since: dt.datetime | None
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a conversion did.

    Attributes:
        segments: Number of converted segments.
        rows: Number of their rows.
        unreadable: Names of files that are not valid segments; they were left.
        running: Whether a sidecar writes to the directory; its segments were left.
    """

    segments: int = 0
    rows: int = 0
    unreadable: tuple[str, ...] = ()
    running: bool = False


def waiting_rows(home: Store) -> WaitingRows:
    """Count the rows in the segments of a local directory.

    Raises:
        OSError: The directory cannot be read.
    """
    folder = Path(home.path(SEGMENTS))
    segments, rows, times = 0, 0, list[int]()
    for path in sorted(folder.glob("*.segment")):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            # Converted by its sidecar in the meantime.
            continue
        segments += 1
        try:
            segment = read_segment(data, path.name)
        except TrafficError:
            rows += rows_in(data)
        else:
            rows += segment.rows
            times += segment.records.times
    since = _EPOCH + dt.timedelta(microseconds=min(times) // 1000) if times else None
    running = False
    if (folder / "lock").exists():
        with lock_segments(folder) as free:
            running = not free
    return WaitingRows(segments=segments, rows=rows, since=since, running=running)


def compact_waiting(home: Store, store: Store) -> Compacted:
    """Convert the segments of a local directory to Parquet, unless a sidecar writes to it.

    Args:
        home: Local directory of the segments.
        store: Store of the Parquet files.

    Raises:
        OSError: A file cannot be read or written; the conversion can be repeated.
    """
    folder = Path(home.path(SEGMENTS))
    if not folder.is_dir():
        return Compacted()
    with lock_segments(folder) as free:
        if not free:
            return Compacted(running=True)
        segments, rows, unreadable = 0, 0, list[str]()
        for path in sorted(folder.glob("*.segment")):
            try:
                entry = compact(path, store, folder / DRAFT)
            except TrafficError:
                unreadable.append(path.name)
                continue
            path.unlink()
            segments, rows = segments + 1, rows + entry.rows
        return Compacted(segments=segments, rows=rows, unreadable=tuple(unreadable))


@contextlib.contextmanager
def lock_segments(folder: Path) -> Iterator[bool]:
    """Try to lock a directory of segments; False if a sidecar holds the lock."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
