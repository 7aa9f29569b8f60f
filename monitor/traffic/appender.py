"""Appends records to the open segment; the only writer of the log. Thread-safe.

Rows that cannot be written are counted by cause, and the counts are written with the next record.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monitor.traffic.segment import Cause, header_bytes, lost_bytes, record_bytes
from monitor.traffic.store import sync_folder

__all__ = ["Appender", "BoundedAppender", "ClosedSegment"]


class _PartialRecordError(OSError):
    """A partial record could not be removed from the end of its segment."""


class ClosedSegment:
    """A segment that is no longer written to.

    Attributes:
        path: Path of its file.
    """

    def __init__(self, path: Path, handle: int | None = None) -> None:
        self.path, self._handle = path, handle
        self._lock = threading.Lock()

    def sync(self) -> None:
        """Call fsync once; thread-safe.

        Raises:
            OSError: fsync failed.
        """
        with self._lock:
            if self._handle is not None:
                handle, self._handle = self._handle, None
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)


class Appender:
    """Writes one segment at a time in a directory.

    When a record is durable, that is, survives a power failure (`traffic.durability`):

    - `process`: once the kernel has written it; nothing calls fsync on an open segment.
    - `interval`: after the next call of `sync`, which the spool makes every `sync_seconds`.
    - `always` (`always_sync`): before `write` returns. If that fsync fails, the record may not be
      durable: the failure is counted in `sync_failures`, the segment is closed, and `write` still
      returns True, so the response is sent all the same.

    In all modes a record survives a kill of the process once `write` has returned True.

    Attributes:
        closed: Segments to be compacted, oldest first.
        rows: Number of rows that were written.
        lost: Number of rows that were not written, by cause.
        sync_failures: Number of failed fsyncs.
        used: Bytes in the directory: the last count of the spool, plus what was written since.
    """

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, Any],
        *,
        roll_bytes: int,
        max_bytes: int,
        always_sync: bool,
        file_mode: int,
    ) -> None:
        self._folder, self._about = folder, about
        self._roll_bytes, self._max_bytes = roll_bytes, max_bytes
        self._always_sync, self._file_mode = always_sync, file_mode
        self._run, self._count = secrets.token_hex(4), 0
        self._lock = threading.Lock()
        self._handle, self._path = -1, Path()
        self._size = self._first_row = 0
        self._opened_at = 0.0
        self._dirty = self._new = False
        self._unreported: Counter[Cause] = Counter()
        self._lost_since = 0
        self.closed: deque[ClosedSegment] = deque()
        self.rows = self.used = self.sync_failures = 0
        self.lost: Counter[Cause] = Counter()

    def write(self, payload: bytes, rows: int, *, can_be_sent_again: bool = False) -> bool:
        """Append rows; False if they were not written.

        Rows that were not written count as lost, unless the client can send them again.
        """
        with self._lock:
            cause: Cause = "full"
            if self.used + len(payload) <= self._max_bytes:
                try:
                    self._append(payload, rows)
                except _PartialRecordError:
                    # The reader of the segment counts the partial record.
                    return False
                except OSError:
                    cause = "disk"
                else:
                    return True
            if not can_be_sent_again:
                self._lose(cause, rows)
            return False

    def lose(self, cause: Cause, rows: int, since: int | None = None) -> None:
        """Count rows as lost, the first of them at time `since`, by default now."""
        with self._lock:
            self._lose(cause, rows, since)

    def report(self, lost: Mapping[Cause, int], since: int | None) -> None:
        """Report again the losses of a deleted segment."""
        with self._lock:
            for cause, rows in lost.items():
                self._add_unreported(cause, rows, since)

    def roll(self, *, older_than: float = 0.0) -> None:
        """Close the segment if it is older, in seconds; the next record starts another."""
        with self._lock:
            if self._handle >= 0 and time.monotonic() - self._opened_at >= older_than:
                self._close()

    def finish(self) -> None:
        """Write unreported losses, and close the segment."""
        with self._lock:
            if self._unreported:
                with contextlib.suppress(OSError):
                    self._append(b"", 0)
            if self._handle >= 0:
                self._close()

    def sync(self) -> None:
        """Call fsync on the open segment without blocking writers.

        Raises:
            OSError: fsync failed.
        """
        with self._lock:
            if self._handle < 0 or not self._dirty:
                return
            handle, self._dirty = os.dup(self._handle), False
            new, self._new = self._new, False
        try:
            os.fsync(handle)
            if new:
                sync_folder(self._folder)
        finally:
            os.close(handle)

    def _append(self, payload: bytes, rows: int) -> None:
        if self._handle < 0:
            self._begin()
        # After _begin, so that no row is older than the time in the segment's name.
        now = time.time_ns()
        data = (
            record_bytes(payload, rows=rows, first_row=self._first_row, time=now) if rows else b""
        )
        if self._unreported:
            lost = lost_bytes(self._unreported, since=self._lost_since, first_row=self._first_row)
            data = lost + data
        written = -1
        try:
            written = os.write(self._handle, data)
        finally:
            if written < len(data):
                self._truncate()
        if written < len(data):
            raise OSError("only a part of the record was written")
        self._unreported.clear()
        self._size += written
        self.used += written
        self._first_row += rows
        self.rows += rows
        self._dirty = True
        if self._always_sync:
            self._sync_now()
        if self._handle >= 0 and self._size >= self._roll_bytes:
            self._close()

    def _sync_now(self) -> None:
        """Call fsync; a failure closes the segment, so that nothing follows what may be lost."""
        try:
            os.fsync(self._handle)
            if self._new:
                sync_folder(self._folder)
            self._dirty = self._new = False
        except OSError:
            self.sync_failures += 1
            self._close()

    def _truncate(self) -> None:
        """Truncate a partial record, or close the segment if that fails."""
        try:
            os.ftruncate(self._handle, self._size)
        except OSError:
            self._close()
            raise _PartialRecordError("a partial record could not be truncated") from None

    def _begin(self) -> None:
        moment = dt.datetime.now(dt.UTC)
        self._count += 1
        name = f"{moment:%Y%m%dT%H%M%SZ}-{self._run}-{self._count:05d}"
        header = header_bytes({**self._about, "segment": name, "begun": moment.isoformat()})
        path = self._folder / f"{name}.segment"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        handle = os.open(path, flags, self._file_mode)
        written = 0
        try:
            written = os.write(handle, header)
        finally:
            if written < len(header):
                os.close(handle)
                path.unlink(missing_ok=True)
        if written < len(header):
            raise OSError("only a part of the header was written")
        self._handle, self._path, self._size, self._first_row = handle, path, len(header), 0
        self._opened_at, self._new = time.monotonic(), True
        self.used += len(header)

    def _close(self) -> None:
        self.closed.append(ClosedSegment(self._path, self._handle))
        self._handle = -1

    def _lose(self, cause: Cause, rows: int, since: int | None = None) -> None:
        self.lost[cause] += rows
        self._add_unreported(cause, rows, since)

    def _add_unreported(self, cause: Cause, rows: int, since: int | None) -> None:
        since = time.time_ns() if since is None else since
        self._lost_since = min(since, self._lost_since) if self._unreported else since
        self._unreported[cause] += rows


class BoundedAppender:
    """Writes in another thread, and waits for it for a limited time.

    Attributes:
        late: Number of writes that took longer.
    """

    def __init__(self, appender: Appender, seconds: float) -> None:
        self._appender, self._seconds = appender, seconds
        self._job: tuple[bytes, int, Mapping[Cause, int], int] | None = None
        # Counted here while the appender may be blocked; passed on with the next write.
        self._lost: Counter[Cause] = Counter()
        self._lost_since = 0
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._write_pending = False
        self._written = True
        self.late = 0
        self._thread = threading.Thread(target=self._run, name="traffic-writer", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> Counter[Cause]:
        """Rows that were not written, by cause."""
        return self._appender.lost + self._lost

    def write(self, payload: bytes, rows: int) -> bool:
        """Append rows; False if they are known to be lost.

        While an earlier write is pending, new rows are counted as lost.
        """
        if self._write_pending:
            if not self._done.acquire(blocking=False):
                self.lose("slow", rows)
                return False
            self._write_pending = False
        lost, self._lost = self._lost, Counter()
        self._job = (payload, rows, lost, self._lost_since)
        self._written = True
        self._go.release()
        if not self._done.acquire(timeout=self._seconds):
            self._write_pending = True
            self.late += 1
        return self._written

    def lose(self, cause: Cause, rows: int) -> None:
        """Count rows as lost."""
        if not self._lost:
            self._lost_since = time.time_ns()
        self._lost[cause] += rows

    def stop(self, seconds: float) -> None:
        """Stop the thread after its last write, or give up after a time limit."""
        if self._write_pending and not self._done.acquire(timeout=seconds):
            return
        for cause, rows in self._lost.items():
            self._appender.lose(cause, rows, self._lost_since)
        self._lost = Counter()
        self._job = None
        self._go.release()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            self._go.acquire()
            if self._job is None:
                return
            self._write(*self._job)
            self._done.release()

    def _write(self, payload: bytes, rows: int, lost: Mapping[Cause, int], since: int) -> None:
        for cause, count in lost.items():
            self._appender.lose(cause, count, since)
        try:
            self._written = self._appender.write(payload, rows)
        except Exception:  # noqa: BLE001 - the thread must not end
            self._written = False
            self._appender.lose("fault", rows)
