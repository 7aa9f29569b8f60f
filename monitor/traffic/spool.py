"""The segments of a log on the local disk, and the background threads that maintain them.

One process at a time writes to a directory. The maintenance thread closes segments that are large
or old enough, converts them to Parquet and enforces the disk quota; another thread calls fsync.
Segments that a crash left behind are compacted like any other. While the store fails, they wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from monitor.errors import ServeError, TrafficError, first_line
from monitor.logs import without_values
from monitor.traffic.appender import Appender, ClosedSegment
from monitor.traffic.compaction import compact
from monitor.traffic.retention import evict_oldest_file, used_bytes
from monitor.traffic.segment import Cause, holds_records, read_segment, rows_in, segment_begun
from monitor.traffic.store import Store

__all__ = ["ROLL_REQUEST", "SEGMENTS", "Spool"]

_LOG = logging.getLogger(__name__)

SEGMENTS = "_segments"
# A file with this prefix among the segments requests that everything written so far is converted to
# Parquet; the maintenance thread deletes it when that is done.
ROLL_REQUEST = "roll-"
DRAFT = ".draft"
_TICK = 0.5
_NICE = 10
_RECOUNT_SECONDS = 30.0
_LONGEST_PAUSE = 60.0
# Files are evicted before the quota is reached, so that writing does not have to stop.
_NEARLY_FULL = 0.9
_LEAST_SEGMENTS = 8
# Errors of reading a file that is not a valid segment.
_NOT_A_SEGMENT = (TrafficError, ValueError, KeyError, TypeError, IndexError, struct.error)


class Spool:
    """The segments of one log.

    Attributes:
        appender: Writer of the open segment.
        compacted: Number of segments that were converted to Parquet.
        failed: Number of failed conversions; each is retried.
        removed_rows: Rows of evicted files.
        found_lost: Rows that could not be read back from segments, by cause.
        recovered: Number of segments of an earlier process that were found at the start.
        max_bytes: Disk quota of the directory.

    Raises:
        ServeError: The directory cannot be used, or another process uses it.
    """

    def __init__(
        self,
        home: Store,
        target: Store,
        about: Mapping[str, Any],
        *,
        roll_bytes: int,
        roll_seconds: float,
        max_bytes: int,
        when_full: Literal["drop_oldest", "stop"],
        durability: Literal["process", "interval", "always"],
        sync_seconds: float,
    ) -> None:
        self._home, self._target = home, target
        setting = about["kind"]
        self._roll_seconds, self.max_bytes = roll_seconds, max_bytes
        self._drops = when_full == "drop_oldest"
        self._sync_seconds = sync_seconds if durability == "interval" else None
        try:
            self._folder = home.make_folder(SEGMENTS)
            self._guard = _locked(self._folder / "lock", setting)
        except OSError as error:
            raise _unusable(home, setting, error) from None
        try:
            self._check_writable()
        except OSError as error:
            os.close(self._guard)
            raise _unusable(home, setting, error) from None
        self.appender = Appender(
            self._folder,
            about,
            # So that there is always an older segment to evict.
            roll_bytes=min(roll_bytes, max_bytes // _LEAST_SEGMENTS),
            max_bytes=max_bytes,
            always_sync=durability == "always",
            file_mode=home.file_mode,
        )
        recovered = sorted(self._folder.glob("*.segment"))
        self.appender.closed.extend(ClosedSegment(path) for path in recovered)
        self.recovered = len(recovered)
        self.appender.used = used_bytes(home)
        self.compacted = self.failed = self.removed_rows = 0
        self.found_lost: Counter[Cause] = Counter()
        self._counted = time.monotonic()
        self._requests: dict[Path, set[Path]] = {}
        self._pause, self._next_try = 0.0, 0.0
        self._stopping = threading.Event()
        self._maintenance = threading.Thread(
            target=self._run, name="traffic-maintenance", daemon=True
        )
        self._maintenance.start()
        threading.Thread(target=self._sync_all, name="traffic-sync", daemon=True).start()

    @property
    def waiting(self) -> int:
        """Number of segments that are not yet converted to Parquet."""
        return len(self.appender.closed)

    def stop(self, seconds: float) -> None:
        """Convert segments to Parquet within a time limit; the rest waits for the next start."""
        self._stopping.set()
        self._maintenance.join(seconds)
        if self._maintenance.is_alive():
            # The lock stays held until the process ends.
            _LOG.warning("%d segments are left to convert at the next start", self.waiting)
        else:
            os.close(self._guard)

    def _run(self) -> None:
        # Linux has priorities per thread: serving predictions comes first.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while not self._stopping.wait(_TICK):
            self._try("maintain the segments", self._maintain)
        self.appender.finish()
        self._next_try = 0.0
        self._try("compact", self._compact_all)

    def _maintain(self) -> None:
        now = time.monotonic()
        requested = set(self._folder.glob(f"{ROLL_REQUEST}*")) - self._requests.keys()
        self.appender.roll(older_than=0.0 if requested else self._roll_seconds)
        segments = {segment.path for segment in self.appender.closed}
        self._requests.update(dict.fromkeys(requested, segments))
        self._try("compact", self._compact_all)
        self._finish_requests()
        if now - self._counted >= _RECOUNT_SECONDS:
            self._counted = now
            self.appender.used = used_bytes(self._home)
        if self._drops:
            self._try("enforce the disk quota", self._enforce_quota)

    def _finish_requests(self) -> None:
        """Delete requests for which everything written by then is converted to Parquet."""
        waiting = {segment.path for segment in self.appender.closed}
        for request, segments in list(self._requests.items()):
            if not segments & waiting:
                request.unlink(missing_ok=True)
                del self._requests[request]

    def _sync_all(self) -> None:
        """Call fsync, in its own thread since a slow store blocks the maintenance thread."""
        seconds = self._sync_seconds or _TICK
        while not self._stopping.wait(seconds):
            if self._sync_seconds is not None:
                self._try("call fsync", self._sync)
            for segment in list(self.appender.closed):
                self._try("call fsync", segment.sync)

    def _sync(self) -> None:
        try:
            self.appender.sync()
        except OSError:
            self.appender.sync_failures += 1
            raise

    def _try(self, action: str, step: Any) -> None:
        """Run one step; an error is logged and does not stop the thread."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - predictions do not depend on it
            _LOG.error("maintenance of the log: could not %s: %s", action, without_values(error))

    def _compact_all(self) -> None:
        while self.appender.closed and time.monotonic() >= self._next_try:
            segment = self.appender.closed[0]
            try:
                segment.sync()
                self._compact(segment.path)
            except Exception as error:  # noqa: BLE001 - other segments do not wait for this one
                self.failed += 1
                if not segment.path.exists():
                    # Deleted by another process: nothing is left to retry.
                    self.appender.closed.popleft()
                    _LOG.error("a segment was deleted before it was converted to Parquet")
                    continue
                # Try another segment next.
                self.appender.closed.rotate(-1)
                self._pause = min(max(2 * self._pause, 1.0), _LONGEST_PAUSE)
                self._next_try = time.monotonic() + self._pause
                _LOG.error(
                    "a segment could not be converted to Parquet in %s, next try in %g s: %s",
                    *(self._target.location, self._pause, _description(error)),
                )
                return
            self._pause = 0.0
            self.appender.closed.popleft()

    def _compact(self, path: Path) -> None:
        try:
            entry = compact(path, self._target, self._folder / DRAFT)
        except _NOT_A_SEGMENT:
            self._quarantine(path)
            return
        size = path.stat().st_size
        path.unlink()
        lost: dict[Cause, int] = {
            cause: rows for cause, rows in entry.lost.items() if cause in ("torn", "damaged")
        }
        if lost:
            self.found_lost.update(lost)
            _LOG.error("rows of a segment could not be read: %s", lost)
        self.appender.used -= size
        if self._target.root == self._home.root:
            self.appender.used += sum(file.bytes for file in entry.files)
        self.compacted += 1

    def _quarantine(self, path: Path) -> None:
        """Rename a segment that cannot be read, and count its rows as lost."""
        data = path.read_bytes()
        if not holds_records(data):
            path.unlink()
            return
        rows = max(rows_in(data), 1)
        path.rename(path.with_suffix(".unreadable"))
        self.appender.lose("damaged", rows, segment_begun(path.name))
        _LOG.error("a segment of %d rows cannot be read and was quarantined", rows)

    def _enforce_quota(self) -> None:
        while self.appender.used > _NEARLY_FULL * self.max_bytes:
            dropped = evict_oldest_file(self._home) if self._is_home else None
            if dropped is not None:
                self.appender.used -= dropped.bytes
                self.removed_rows += dropped.rows
                _LOG.warning(
                    "disk quota reached: the oldest file was deleted, %d rows", dropped.rows
                )
            elif self.appender.closed:
                # Segments whose conversion failed are at the end of the queue.
                oldest = min(self.appender.closed, key=lambda segment: segment.path.name)
                self.appender.closed.remove(oldest)
                self._drop_segment(oldest)
            else:
                return

    def _drop_segment(self, segment: ClosedSegment) -> None:
        data = segment.path.read_bytes()
        try:
            content = read_segment(data, segment.path.name)
            rows = content.rows
            since = min(content.records.times, default=None)
            self.appender.report(content.lost, content.lost_since)
        except TrafficError:
            rows, since = rows_in(data), None
        with contextlib.suppress(OSError):
            segment.sync()
        segment.path.unlink()
        self.appender.used -= len(data)
        self.appender.lose("full", rows, since)
        _LOG.warning("disk quota reached: the oldest segment was deleted, %d rows", rows)

    @property
    def _is_home(self) -> bool:
        return self._target.is_local and self._target.root == self._home.root

    def _check_writable(self) -> None:
        trial = self._folder / ".trial"
        trial.write_bytes(b"")
        trial.unlink()


def _description(error: Exception) -> str:
    """Text of an error; an OSError of a disk or a store holds no personal data, others may."""
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error.strerror or first_line(error)}"
    return without_values(error)


def _unusable(home: Store, setting: str, error: OSError) -> ServeError:
    return ServeError(f"{setting}.path: {home.location}: {error.strerror or error}")


def _locked(path: Path, setting: str) -> int:
    """Lock of the directory, held until the process ends.

    Raises:
        ServeError: Another process holds the lock.
        OSError: The lock file cannot be created.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ServeError(
            f"{setting}.path: {path.parent.parent}: another process writes to this directory; "
            f"use one directory per sidecar (they may share {setting}.store)"
        ) from None
    return handle
