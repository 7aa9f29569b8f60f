"""The ledger: of every segment, which files it became, and what of it was lost.

A JSON file a segment, `_ledger/date=…/<segment>.json` beside the log's files. A window reads it to
say what is there, what is missing and what was never written down.
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
    "changing",
    "entry_of",
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
        path: From the log's root.
        rows: How many it holds.
        bytes: Its size.
        sha256: Its digest.
        erased: Rows of people who were erased from it since.
        removed: Why it is no longer there, if it was taken away on purpose.
    """

    path: str
    rows: Count
    bytes: Count
    sha256: Sha256
    erased: Count = 0
    removed: Literal["expired", "room", "erased"] | None = None


class SegmentEntry(_Part):
    """What became of a segment.

    Attributes:
        segment: Its name, which no other has.
        kind: Which log it is of.
        model: Whose predictions.
        version: Of the model.
        since: When it was begun, or the first row was lost that it tells of, whichever came first.
        until: When its last record was written.
        rows: That were found good in it.
        lost: Rows that are not in the log, by cause.
        files: What it became.
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
        """Where it stands in the store: by the day that the segment was begun on."""
        begun = segment_begun(self.segment)
        day = self.since if begun is None else dt.datetime.fromtimestamp(begun / 1e9, dt.UTC)
        return f"{LEDGER}/date={day:%Y-%m-%d}/{self.segment}.json"


def write_entry(store: Store, entry: SegmentEntry) -> None:
    """Put an entry into the ledger, or in place of what it said before.

    Raises:
        OSError: It cannot be written.
    """
    store.put(entry.path, entry.model_dump_json(indent=1).encode())


def read_ledger(
    store: Store, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> tuple[list[SegmentEntry], list[str]]:
    """Entries of segments that may hold rows of a span of time, and paths of unreadable ones.

    A segment tells of losses before its time, so those of later days are read too.

    Raises:
        TrafficError: The store cannot be listed.
    """
    try:
        files = store.files(LEDGER, ".json")
    except OSError as error:
        raise TrafficError(f"{store.place}: the ledger cannot be listed: {error}") from None
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
    """The first day whose entries may reach into the span: a segment lives for a day at most."""
    return "" if since is None else (since.date() - 2 * dt.timedelta(days=1)).isoformat()


def _day(path: str) -> str:
    found = re.search(r"date=(\d{4}-\d{2}-\d{2})", path)
    return found[1] if found else ""


@contextlib.contextmanager
def changing(store: Store) -> Iterator[None]:
    """Nobody else changes files and what is said of them meanwhile; on local disks only.

    Raises:
        OSError: There can be no lock.
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
    """The entry that lists a file, if there is one that can be read."""
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
    store: Store, entry: SegmentEntry, paths: set[str], reason: Literal["expired", "room", "erased"]
) -> SegmentEntry:
    """Say in the ledger that files were taken away on purpose.

    Raises:
        OSError: It cannot be written.
    """
    files = tuple(
        file.model_copy(update={"removed": reason}) if file.path in paths else file
        for file in entry.files
    )
    changed = entry.model_copy(update={"files": files})
    write_entry(store, changed)
    return changed
