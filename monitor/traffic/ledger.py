"""The ledger: for every segment, its Parquet files and the rows that were lost.

One JSON file per segment, `_ledger/date=…/<segment>.json`, next to the log's files. A window reads
it to report which files are there, which are missing and which rows were never written.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from monitor.bundle.manifest import Sha256
from monitor.errors import TrafficError
from monitor.traffic.segment import Cause, segment_begun
from monitor.traffic.store import Store

__all__ = [
    "LEDGER",
    "Kind",
    "LedgerFile",
    "SegmentEntry",
    "entry_of",
    "lock_ledger",
    "mark_removed",
    "read_ledger",
    "write_entry",
]

LEDGER = "_ledger"

Kind = Literal["traffic", "outcomes"]
Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class LedgerFile(_Part):
    """A file of the log.

    Attributes:
        path: Path relative to the log's root.
        rows: Number of rows.
        bytes: Size in bytes.
        sha256: SHA-256 digest.
        erased: Number of rows that were erased from it.
        removed: Reason of a deliberate deletion; None if it was not deleted.
    """

    path: str
    rows: Count
    bytes: Count
    sha256: Sha256
    erased: Count = 0
    removed: Literal["expired", "quota", "erased"] | None = None


class SegmentEntry(_Part):
    """The ledger's entry of one segment.

    Attributes:
        segment: Unique name of the segment.
        kind: Traffic or outcomes.
        model: Name of the model.
        version: Version of the model.
        since: Start of the segment, or time of the first loss that it reports, if earlier.
        until: Time of its last record.
        rows: Number of rows that could be read from it.
        lost: Number of rows that are not in the log, by cause.
        files: Parquet files that it was converted to.
    """

    format: Literal[1] = 1
    segment: str
    kind: Kind
    model: str
    version: str
    since: AwareDatetime
    until: AwareDatetime
    rows: Count
    lost: Mapping[Cause, Count] = {}
    files: tuple[LedgerFile, ...] = ()

    @property
    def path(self) -> str:
        """Path in the store, by the start date of the segment."""
        begun = segment_begun(self.segment)
        day = self.since if begun is None else dt.datetime.fromtimestamp(begun / 1e9, dt.UTC)
        return f"{LEDGER}/date={day:%Y-%m-%d}/{self.segment}.json"


def write_entry(store: Store, entry: SegmentEntry) -> None:
    """Write or replace an entry of the ledger.

    Raises:
        OSError: The entry cannot be written.
    """
    store.put(entry.path, entry.model_dump_json(indent=1).encode())


def read_ledger(
    store: Store, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> tuple[list[SegmentEntry], list[str]]:
    """Entries of segments that may hold rows of a time span, and paths of unreadable entries.

    A segment may report losses from before its start, so entries of later days are read too.

    Raises:
        TrafficError: The store cannot be listed.
    """
    try:
        files = store.files(LEDGER, ".json")
    except OSError as error:
        raise TrafficError(f"{store.location}: the ledger cannot be listed: {error}") from None
    entries, unreadable = [], []
    for file in files:
        if _day(file.path) < _first(since):
            continue
        try:
            entry = SegmentEntry.model_validate_json(store.read(file.path))
        except (OSError, ValidationError):
            unreadable.append(file.path)
            continue
        if (until is None or entry.since < until) and (since is None or entry.until >= since):
            entries.append(entry)
    return entries, unreadable


def _first(since: dt.datetime | None) -> str:
    """First day whose entries may reach into the span: a segment is open for at most a day."""
    return "" if since is None else (since.date() - 2 * dt.timedelta(days=1)).isoformat()


def _day(path: str) -> str:
    match = re.search(r"date=(\d{4}-\d{2}-\d{2})", path)
    return match[1] if match else ""


@contextlib.contextmanager
def lock_ledger(store: Store) -> Iterator[None]:
    """Lock the ledger and its files against changes by other processes; local stores only.

    Raises:
        OSError: The lock file cannot be created.
    """
    if not store.is_local:
        yield
        return
    path = store.make_folder(LEDGER) / ".lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, store.file_mode)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def entry_of(store: Store, path: str) -> SegmentEntry | None:
    """Entry that lists a file; None if no readable entry does."""
    name = path.rpartition("/")[2].removesuffix(".parquet")
    for file in store.files(LEDGER, f"/{name}.json"):
        try:
            entry = SegmentEntry.model_validate_json(store.read(file.path))
        except (OSError, ValidationError):
            continue
        if any(listed.path == path for listed in entry.files):
            return entry
    return None


def mark_removed(
    store: Store,
    entry: SegmentEntry,
    paths: set[str],
    reason: Literal["expired", "quota", "erased"],
) -> SegmentEntry:
    """Record in the ledger that files were deleted deliberately.

    Raises:
        OSError: The entry cannot be written.
    """
    files = tuple(
        file.model_copy(update={"removed": reason}) if file.path in paths else file
        for file in entry.files
    )
    changed = entry.model_copy(update={"files": files})
    write_entry(store, changed)
    return changed
