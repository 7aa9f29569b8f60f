"""The files, ledger entries and segments of one log within a span of time."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from pyarrow import fs

from monitor.traffic import TrafficError
from monitor.traffic.ledger import Kind, LedgerFile, SegmentEntry, read_ledger
from monitor.traffic.segment import segment_begun
from monitor.traffic.store import Store, StoredFile
from offline_audit.errors import LogNotFoundError, LogUnreadableError, ModelChoiceError
from offline_audit.window.copies import CopiedFile, without_copies
from offline_audit.window.files import (
    FlawedFile,
    Partition,
    ReadFile,
    RemovedFile,
    Span,
    check_files,
    partition_of,
)

__all__ = ["LogListing", "LogReading", "Segments"]

_DAY = dt.timedelta(days=1)
_SEGMENTS = "_segments"
_EARLIEST = dt.datetime.min.replace(tzinfo=dt.UTC)
# The config limits a segment to one day; the second day allows for clock skew and late rows.
_LONGEST_SEGMENT = dt.timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """Files of a log that are read for a span, and everything that is not.

    Attributes:
        address: Path or address of the log.
        exists: Whether there is a log at the address.
        files: Files that are read, the oldest first.
        missing: Files that the ledger lists and that do not exist.
        corrupt: Files that exist and failed a check.
        copies: Files that are not read, because another file has the same rows.
        removed: Files that were deleted on purpose.
        unrecognized: Parquet files that do not follow the log's layout; they are not read.
        unreadable_entries: Ledger entries that cannot be read.
        lost_rows: Number of rows that the sidecar reported lost, by cause, in segments that overlap
            the span.
        pending_segments: Number of segments in the store that began before the end of the span and
            are not compacted yet.
        quarantined_segments: Paths of segments of the span that could not be read.
    """

    address: str
    exists: bool
    files: tuple[ReadFile, ...] = ()
    missing: tuple[FlawedFile, ...] = ()
    corrupt: tuple[FlawedFile, ...] = ()
    copies: tuple[CopiedFile, ...] = ()
    removed: tuple[RemovedFile, ...] = ()
    unrecognized: tuple[str, ...] = ()
    unreadable_entries: tuple[str, ...] = ()
    lost_rows: Mapping[str, int]
    pending_segments: int = 0
    quarantined_segments: tuple[str, ...] = ()

    @property
    def unlisted(self) -> tuple[ReadFile, ...]:
        """Files that are read although the ledger does not list them."""
        return tuple(file for file in self.files if file.sha256 is None)

    @property
    def pseudonym_keys(self) -> set[str | None]:
        """Fingerprints of the pseudonym keys of request ids; None for plain ids."""
        return {file.key for file in self.files}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Segments in the store's own folder; those of sidecars elsewhere cannot be seen.

    Attributes:
        pending: Paths of segments that are not compacted yet.
        quarantined: Paths of segments that could not be read.
    """

    pending: tuple[str, ...]
    quarantined: tuple[str, ...]

    @classmethod
    def listed(cls, store: Store) -> Self:
        """All segments in a store.

        Raises:
            OSError: They cannot be listed.
        """
        paths = [file.path for file in store.files(_SEGMENTS)]
        return cls(
            pending=tuple(path for path in paths if path.endswith(".segment")),
            quarantined=tuple(path for path in paths if path.endswith(".unreadable")),
        )

    def of(self, span: Span) -> Segments:
        """Segments that may hold rows of a span.

        Pending segments count if they began before the end of the span: a window is complete only
        if nothing older is left to compact. Quarantined segments, which stay, count if their time
        overlaps the span.
        """
        return Segments(
            pending=tuple(
                path for path in self.pending if span.until is None or _begun(path) < span.until
            ),
            quarantined=tuple(path for path in self.quarantined if _may_hold(path, span)),
        )


def _may_hold(path: str, span: Span) -> bool:
    begun = _begun(path)
    return begun == _EARLIEST or span.overlaps(begun, begun + _LONGEST_SEGMENT)


def _begun(path: str) -> dt.datetime:
    """Start of a segment by its name; the earliest possible time if the name has none."""
    nanoseconds = segment_begun(path.rpartition("/")[2])
    return (
        _EARLIEST if nanoseconds is None else dt.datetime.fromtimestamp(nanoseconds / 1e9, dt.UTC)
    )


class LogListing:
    """All files of a log, and the ledger entries of a span, as of one moment.

    Attributes:
        store: Store of the log.
        kind: Kind of the log.
        span: Span of time.
        exists: Whether there is a log at the address.
        segments: Segments in the store.
        unrecognized: Paths of Parquet files that do not follow the log's layout.

    Raises:
        LogUnreadableError: The address cannot be used, or the files cannot be listed.
    """

    def __init__(self, address: str | Path, kind: Kind, span: Span | None = None) -> None:
        self.kind, self.span = kind, span or Span()
        try:
            self.store = Store.open(address)
            info = self.store.filesystem.get_file_info(self.store.root)
            self.exists = info.type == fs.FileType.Directory
            # Compaction writes files, then a ledger entry, and then deletes the segment. Listing in
            # the opposite order misses no row of a segment that is compacted meanwhile.
            self.segments = Segments.listed(self.store)
            entries, self._unreadable = self._ledger(self.span)
            files = self.store.files() if self.exists else []
            self._entries = self._refreshed(entries, {file.path for file in files})
        except TrafficError as error:
            raise LogUnreadableError(str(error)) from None
        except OSError as error:
            raise LogUnreadableError(f"{address}: the files cannot be listed: {error}") from None
        self._partitions: dict[str, tuple[StoredFile, Partition]] = {}
        unrecognized = []
        for file in files:
            partition = partition_of(file.path, kind)
            if partition is not None:
                self._partitions[file.path] = (file, partition)
            elif file.path.endswith(".parquet"):
                unrecognized.append(file.path)
        self.unrecognized = tuple(unrecognized)

    def whole(self) -> LogListing:
        """A new listing of the log without a span.

        Raises:
            LogUnreadableError: The files can no longer be listed.
        """
        return LogListing(self.store.location, self.kind)

    def require(self) -> None:
        """Check that the log exists.

        Raises:
            LogNotFoundError: There is no log at the address.
        """
        if not self.exists:
            raise LogNotFoundError(f"{self.store.location}: no traffic log at this path or address")

    @cached_property
    def versions(self) -> dict[str, tuple[str, ...]]:
        """Versions by model, from the files and from the whole ledger.

        Raises:
            LogUnreadableError: The ledger can no longer be listed.
        """
        pairs = {(p.model, p.version) for _, p in self._partitions.values()}
        try:
            entries = self._entries if self.span == Span() else self._ledger(Span())[0]
        except TrafficError as error:
            raise LogUnreadableError(str(error)) from None
        return _by_model(pairs | {(entry.model, entry.version) for entry in entries})

    def chosen_model(self, model: str | None, version: str | None) -> str | None:
        """The requested model, or the only one of the log; None if the log is empty.

        Raises:
            ModelChoiceError: No model is named and the log has several, or there is no such model
                or version.
        """
        address = self.store.location
        known = _by_model({(p.model, p.version) for _, p in self._partitions.values()})
        if (model or next(iter(known), None)) not in known:
            # The whole ledger also lists models whose files are all deleted.
            known = self.versions
        if not known:
            return model
        if model is None and len(known) > 1:
            raise ModelChoiceError(
                f"model: {address} has several models; choose one of {', '.join(known)}"
            )
        chosen = next(iter(known)) if model is None else model
        if chosen not in known:
            raise ModelChoiceError(
                f"model: {address} has no model {chosen}; choose one of {', '.join(known)}"
            )
        if version is not None and version not in known[chosen]:
            raise ModelChoiceError(
                f"version: {address} has no version {version} of {chosen}; choose one of "
                f"{', '.join(known[chosen])}"
            )
        return chosen

    def read(self, model: str | None, version: str | None, *, verify: bool) -> LogReading:
        """Choose the files of a model within the span, by path and by ledger, and check each."""
        span, segments = self.span, self.segments.of(self.span)
        entries = [entry for entry in self._entries if entry.model == model]
        listed = {file.path: file for entry in entries for file in entry.files}

        def chosen(path: str) -> bool:
            p = partition_of(path, self.kind)
            return (
                p is not None
                and p.model == model
                and version in (None, p.version)
                and span.covers(p)
            )

        removed = {p: f for p, f in listed.items() if chosen(p) and f.removed is not None}
        present = [
            f for path, (f, _) in self._partitions.items() if chosen(path) and path not in removed
        ]
        checked = check_files(self.store, self.kind, present, listed, verify=verify)
        readable = [file for file in checked if isinstance(file, ReadFile)]
        files, copies = without_copies(self.store, self.kind, readable)
        expected = {p: f for p, f in listed.items() if chosen(p) and p not in removed}
        return LogReading(
            address=self.store.location,
            exists=self.exists,
            files=tuple(sorted(files, key=lambda file: (file.partition.since, file.path))),
            missing=_missing(expected, self._partitions),
            corrupt=tuple(file for file in checked if isinstance(file, FlawedFile)),
            copies=tuple(copies),
            removed=tuple(
                RemovedFile(path=path, rows=file.rows, why=str(file.removed), erased=file.erased)
                for path, file in sorted(removed.items())
            ),
            unrecognized=self.unrecognized,
            unreadable_entries=tuple(self._unreadable),
            lost_rows=_lost_rows(entries, version if self.kind == "traffic" else None, span),
            pending_segments=len(segments.pending),
            quarantined_segments=segments.quarantined,
        )

    def _ledger(self, span: Span) -> tuple[list[SegmentEntry], list[str]]:
        """Entries of a span, including those of hours or days that the span covers in part."""
        since, until = span.since, span.until
        start = since and since.replace(hour=0, minute=0, second=0, microsecond=0)
        return read_ledger(self.store, start, until and until + _DAY)

    def _refreshed(self, entries: list[SegmentEntry], present: set[str]) -> list[SegmentEntry]:
        """The same entries, read again if files were deleted on purpose since the first reading."""
        listed = (file for entry in entries for file in entry.files)
        if all(file.removed or file.path in present for file in listed):
            return entries
        again = {entry.segment: entry for entry in self._ledger(self.span)[0]}
        return [again.get(entry.segment, entry) for entry in entries]


def _by_model(pairs: set[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    by_model: dict[str, tuple[str, ...]] = {}
    for model, version in sorted(pairs):
        by_model[model] = (*by_model.get(model, ()), version)
    return by_model


def _missing(
    expected: Mapping[str, LedgerFile], present: Mapping[str, tuple[StoredFile, Partition]]
) -> tuple[FlawedFile, ...]:
    return tuple(
        FlawedFile(path=path, rows=file.rows, reason="listed in the ledger, but does not exist")
        for path, file in sorted(expected.items())
        if path not in present
    )


def _lost_rows(entries: list[SegmentEntry], version: str | None, span: Span) -> dict[str, int]:
    lost: Counter[str] = Counter()
    for entry in entries:
        if version in (None, entry.version) and span.overlaps(entry.since, entry.until):
            lost.update(entry.lost)
    return {cause: rows for cause, rows in sorted(lost.items()) if rows}
