"""A log's segments on the local disk, and the thread that keeps them in order.

One process at a time writes to a folder. The keeper makes sure of the disk, closes segments that
are large or old enough, turns them into Parquet, and makes room. What a crash left is compacted
like any other segment. Where the store fails, segments wait.
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
from monitor.logs import told_without_values
from monitor.traffic.appender import Appender, ClosedSegment
from monitor.traffic.compaction import compact
from monitor.traffic.room import drop_oldest_file, used_bytes
from monitor.traffic.segment import Cause, holds_records, read_segment, rows_in, segment_begun
from monitor.traffic.store import Store

__all__ = ["ROLL_REQUEST", "SEGMENTS", "Spool"]

_LOG = logging.getLogger(__name__)

SEGMENTS = "_segments"
# Whoever puts a file of a name that begins so among the segments asks for all that is written to
# become Parquet; the keeper takes it away when that is done.
ROLL_REQUEST = "roll-"
DRAFT = ".draft"
_TICK = 0.5
_NICE = 10
_RECOUNT_SECONDS = 30.0
_LONGEST_PAUSE = 60.0
# Files give way before there is no room at all, so that writing need not stop.
_NEARLY_FULL = 0.9
_LEAST_SEGMENTS = 8
# What a file raises that is no segment, or says what no segment says.
_NO_SEGMENT = (TrafficError, ValueError, KeyError, TypeError, IndexError, struct.error)


class Spool:
    """The segments of one log.

    Attributes:
        appender: Writes to them.
        compacted: How many became Parquet.
        failed: How often that did not work; it is tried again.
        removed_rows: Rows of files that gave way to newer ones.
        found_lost: Rows that segments lost while they lay on the disk, by cause.
        recovered: Segments that were found at the start.
        max_bytes: Room in the folder.

    Raises:
        ServeError: The folder cannot be used, or another process uses it.
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
            # So that there is always something older to give way.
            roll_bytes=min(roll_bytes, max_bytes // _LEAST_SEGMENTS),
            max_bytes=max_bytes,
            always_sync=durability == "always",
            file_mode=home.file_mode,
        )
        left = sorted(self._folder.glob("*.segment"))
        self.appender.closed.extend(ClosedSegment(path) for path in left)
        self.recovered = len(left)
        self.appender.used = used_bytes(home)
        self.compacted = self.failed = self.removed_rows = 0
        self.found_lost: Counter[Cause] = Counter()
        self._counted = time.monotonic()
        self._asked: dict[Path, set[Path]] = {}
        self._pause, self._next_try = 0.0, 0.0
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="traffic-keeper", daemon=True)
        self._keeper.start()
        threading.Thread(target=self._make_sure, name="traffic-sync", daemon=True).start()

    @property
    def waiting(self) -> int:
        """Segments that are still to become Parquet."""
        return len(self.appender.closed)

    def stop(self, seconds: float) -> None:
        """Turn what is there into Parquet, for so long at most; the rest waits for a start."""
        self._stopping.set()
        self._keeper.join(seconds)
        if self._keeper.is_alive():
            # The folder stays ours until the process ends.
            _LOG.warning("%d segments are left for the next start", self.waiting)
        else:
            os.close(self._guard)

    def _keep(self) -> None:
        # Threads have priorities of their own on Linux. Predictions come first.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while not self._stopping.wait(_TICK):
            self._try("keep it in order", self._tidy)
        self.appender.finish()
        self._next_try = 0.0
        self._try("compact", self._compact_all)

    def _tidy(self) -> None:
        now = time.monotonic()
        asked = set(self._folder.glob(f"{ROLL_REQUEST}*")) - self._asked.keys()
        self.appender.roll(older_than=0.0 if asked else self._roll_seconds)
        left = {segment.path for segment in self.appender.closed}
        self._asked.update(dict.fromkeys(asked, left))
        self._try("compact", self._compact_all)
        self._answer()
        if now - self._counted >= _RECOUNT_SECONDS:
            self._counted = now
            self.appender.used = used_bytes(self._home)
        if self._drops:
            self._try("make room", self._make_room)

    def _answer(self) -> None:
        """Say to whoever asked that all which was written by then is Parquet."""
        left = {segment.path for segment in self.appender.closed}
        for request, wanted in list(self._asked.items()):
            if not wanted & left:
                request.unlink(missing_ok=True)
                del self._asked[request]

    def _make_sure(self) -> None:
        """In a thread of its own, since a store may keep the other one waiting."""
        seconds = self._sync_seconds or _TICK
        while not self._stopping.wait(seconds):
            if self._sync_seconds is not None:
                self._try("make sure of the disk", self._sync)
            for segment in list(self.appender.closed):
                self._try("make sure of the disk", segment.settle)

    def _sync(self) -> None:
        try:
            self.appender.sync()
        except OSError:
            self.appender.sync_failures += 1
            raise

    def _try(self, words: str, step: Any) -> None:
        """The keeper goes on whatever happens."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - predictions do not depend on it
            _LOG.error("the log's keeper could not %s: %s", words, told_without_values(error))

    def _compact_all(self) -> None:
        while self.appender.closed and time.monotonic() >= self._next_try:
            segment = self.appender.closed[0]
            try:
                segment.settle()
                self._compact(segment.path)
            except Exception as error:  # noqa: BLE001 - the others shall not wait for this one
                self.failed += 1
                if not segment.path.exists():
                    # Somebody took it away: nobody need wait for it.
                    self.appender.closed.popleft()
                    _LOG.error("a segment is gone that was to become Parquet")
                    continue
                # Another may fare better, and the next try is for that one.
                self.appender.closed.rotate(-1)
                self._pause = min(max(2 * self._pause, 1.0), _LONGEST_PAUSE)
                self._next_try = time.monotonic() + self._pause
                _LOG.error(
                    "a segment did not become Parquet in %s, tried again in %g s: %s",
                    *(self._target.place, self._pause, _words(error)),
                )
                return
            self._pause = 0.0
            self.appender.closed.popleft()

    def _compact(self, path: Path) -> None:
        try:
            entry = compact(path, self._target, self._folder / DRAFT)
        except _NO_SEGMENT:
            self._set_aside(path)
            return
        size = path.stat().st_size
        path.unlink()
        found: dict[Cause, int] = {
            cause: rows for cause, rows in entry.lost.items() if cause in ("torn", "damaged")
        }
        if found:
            self.found_lost.update(found)
            _LOG.error("rows of a segment could not be read: %s", found)
        self.appender.used -= size
        if self._target.root == self._home.root:
            self.appender.used += sum(file.bytes for file in entry.files)
        self.compacted += 1

    def _set_aside(self, path: Path) -> None:
        """A segment that nothing can be made of, but for the number of its rows."""
        data = path.read_bytes()
        if not holds_records(data):
            path.unlink()
            return
        rows = max(rows_in(data), 1)
        path.rename(path.with_suffix(".unreadable"))
        self.appender.lose("damaged", rows, segment_begun(path.name))
        _LOG.error("a segment of %d rows cannot be read and was set aside", rows)

    def _make_room(self) -> None:
        while self.appender.used > _NEARLY_FULL * self.max_bytes:
            dropped = drop_oldest_file(self._home) if self._is_home else None
            if dropped is not None:
                self.appender.used -= dropped.bytes
                self.removed_rows += dropped.rows
                _LOG.warning("no room: the oldest file gave way, %d rows", dropped.rows)
            elif self.appender.closed:
                # Those that failed stand behind the others.
                oldest = min(self.appender.closed, key=lambda segment: segment.path.name)
                self.appender.closed.remove(oldest)
                self._drop_segment(oldest)
            else:
                return

    def _drop_segment(self, segment: ClosedSegment) -> None:
        data = segment.path.read_bytes()
        try:
            found = read_segment(data)
            rows = found.rows
            since = min(found.records.times, default=None)
            self.appender.report(found.lost, found.lost_since)
        except TrafficError:
            rows, since = rows_in(data), None
        with contextlib.suppress(OSError):
            segment.settle()
        segment.path.unlink()
        self.appender.used -= len(data)
        self.appender.lose("full", rows, since)
        _LOG.warning("no room: the oldest segment gave way, %d rows", rows)

    @property
    def _is_home(self) -> bool:
        return self._target.is_local and self._target.root == self._home.root

    def _check_writable(self) -> None:
        trial = self._folder / ".trial"
        trial.write_bytes(b"")
        trial.unlink()


def _words(error: Exception) -> str:
    """What a disk or a store says of itself holds nothing of people; anything else may."""
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error.strerror or first_line(error)}"
    return told_without_values(error)


def _unusable(home: Store, setting: str, error: OSError) -> ServeError:
    return ServeError(f"{setting}.path: {home.place}: {error.strerror or error}")


def _locked(path: Path, setting: str) -> int:
    """The folder's lock, held until the process ends.

    Raises:
        ServeError: Another process holds it.
        OSError: There can be no lock.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ServeError(
            f"{setting}.path: {path.parent.parent}: another process writes there; give each "
            f"sidecar a folder of its own (they may share {setting}.store)"
        ) from None
    return handle
