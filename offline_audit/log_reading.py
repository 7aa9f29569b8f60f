"""A span of one log: what its ledger promises, and what is there."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from pyarrow import fs

from monitor.traffic.ledger import Kind, LedgerFile, SegmentEntry, read_ledger
from monitor.traffic.store import Store, StoredFile
from offline_audit.errors import (
    LogNotFoundError,
    LogUnreadableError,
    ModelChoiceError,
    SpanError,
)
from offline_audit.log_files import (
    FlawedFile,
    Partition,
    ReadFile,
    RemovedFile,
    check_files,
    partition_of,
)

__all__ = ["LogListing", "LogReading", "Span"]

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span of time in UTC, with its start and without its end; None is open."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None

    @classmethod
    def between(cls, since: dt.datetime | None, until: dt.datetime | None) -> Self:
        """From times of any zone.

        Raises:
            SpanError: A time has no zone, or the end is not after the start.
        """
        for name, time in (("since", since), ("until", until)):
            if time is not None and time.utcoffset() is None:
                raise SpanError(f"{name} has no time zone: {time.isoformat()}; give one, as +00:00")
        if since is not None and until is not None and until <= since:
            raise SpanError(f"{until.isoformat()} is not after {since.isoformat()}")
        start, end = (None if time is None else time.astimezone(dt.UTC) for time in (since, until))
        return cls(since=start, until=end)

    def meets(self, since: dt.datetime, until: dt.datetime) -> bool:
        """Whether another has a moment in common with it, that one's end included."""
        return (self.until is None or since < self.until) and (
            self.since is None or until >= self.since
        )

    def covers(self, partition: Partition) -> bool:
        """Whether a partition may hold a moment of it."""
        return (self.until is None or partition.since < self.until) and (
            self.since is None or partition.until > self.since
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """What was found of a span of a log.

    Attributes:
        place: Path or address of the log.
        found: Whether there is anything.
        files: That are read, the oldest first.
        missing: Files that the ledger lists and that are not there.
        corrupt: Files that are there and cannot be trusted or used.
        removed: Files that were taken away on purpose.
        strays: Parquet files that are not laid out as the log's; none is read.
        unreadable_entries: Ledger entries that cannot be read.
        lost: Rows that the sidecar reported lost, by cause, in segments that meet the span.
        waiting: Segments on this machine that are not compacted yet.
        settled: Whether a segment that began after the span is in the ledger already.
    """

    place: str
    found: bool
    files: tuple[ReadFile, ...] = ()
    missing: tuple[FlawedFile, ...] = ()
    corrupt: tuple[FlawedFile, ...] = ()
    removed: tuple[RemovedFile, ...] = ()
    strays: tuple[str, ...] = ()
    unreadable_entries: tuple[str, ...] = ()
    lost: Mapping[str, int]
    waiting: int = 0
    settled: bool = False

    @property
    def unlisted(self) -> tuple[ReadFile, ...]:
        """Files that are read although the ledger does not know them."""
        return tuple(file for file in self.files if file.sha256 is None)

    @property
    def pseudonyms(self) -> set[str | None]:
        """Fingerprints of the keys that request ids were made with; None for ids as they are."""
        return {file.about.get("pseudonyms") for file in self.files}


class LogListing:
    """Every file of a log, listed once.

    Attributes:
        store: Where the log is.
        kind: Which log it is.
        found: Whether there is anything at that place.
    """

    def __init__(self, place: str | Path, kind: Kind) -> None:
        self.store, self.kind = Store.open(place), kind
        try:
            info = self.store.filesystem.get_file_info(self.store.root)
            self.found = info.type == fs.FileType.Directory
            files = self.store.files() if self.found else []
        except OSError as error:
            raise LogUnreadableError(f"{place}: it cannot be listed: {error}") from None
        self._partitions: dict[str, tuple[StoredFile, Partition]] = {}
        strays = []
        for file in files:
            partition = partition_of(file.path, kind)
            if partition is not None:
                self._partitions[file.path] = (file, partition)
            elif file.path.endswith(".parquet"):
                strays.append(file.path)
        self.strays = tuple(strays)
        ours = [f for f in files if f.path.startswith("_segments/")]
        self.waiting = sum(f.path.endswith(".segment") for f in ours)

    def require(self) -> None:
        """Refuse to go on without a log.

        Raises:
            LogNotFoundError: Nothing is there.
        """
        if not self.found:
            raise LogNotFoundError(f"{self.store.place}: there is no log")

    @cached_property
    def versions(self) -> dict[str, tuple[str, ...]]:
        """Versions by model: of files that are there, and of segments in the ledger."""
        found = {(p.model, p.version) for _, p in self._partitions.values()}
        return _by_model(
            found | {(entry.model, entry.version) for entry in read_ledger(self.store)[0]}
        )

    def chosen_model(self, model: str | None, version: str | None) -> str | None:
        """The model that is meant; any will do in a log that holds none yet.

        Raises:
            ModelChoiceError: It is left open, or it is not there, or not in this version.
        """
        place = self.store.place
        there = _by_model({(p.model, p.version) for _, p in self._partitions.values()})
        if (model or next(iter(there), None)) not in there:
            # The whole ledger knows of models whose files are all gone.
            there = self.versions
        if not there:
            return model
        if model is None and len(there) > 1:
            raise ModelChoiceError(f"{place} holds several models, name one: {', '.join(there)}")
        chosen = next(iter(there)) if model is None else model
        if chosen not in there:
            raise ModelChoiceError(f"{place} holds no model {chosen}, but: {', '.join(there)}")
        if version is not None and version not in there[chosen]:
            versions = ", ".join(there[chosen])
            raise ModelChoiceError(f"{place}: {chosen} has no version {version}, but: {versions}")
        return chosen

    def read(
        self, model: str | None, version: str | None, span: Span, *, verify: bool
    ) -> LogReading:
        """Choose a model's files of a span by path and by ledger, and look at each."""
        everyone, unreadable = self._entries(span)
        entries = [entry for entry in everyone if entry.model == model]
        listed = {file.path: file for entry in entries for file in entry.files}

        def chosen(path: str) -> bool:
            p = partition_of(path, self.kind)
            return (
                p is not None
                and p.model == model
                and version in (None, p.version)
                and span.covers(p)
            )

        gone = {p: f for p, f in listed.items() if chosen(p) and f.removed is not None}
        there = [
            f for path, (f, _) in self._partitions.items() if chosen(path) and path not in gone
        ]
        checked = check_files(self.store, self.kind, there, listed, verify=verify)
        files = [file for file in checked if isinstance(file, ReadFile)]
        absent = {p: f for p, f in listed.items() if chosen(p) and p not in gone}
        return LogReading(
            place=self.store.place,
            found=self.found,
            files=tuple(sorted(files, key=lambda file: (file.partition.since, file.path))),
            missing=_missing(absent, self._partitions),
            corrupt=tuple(file for file in checked if isinstance(file, FlawedFile)),
            removed=tuple(
                RemovedFile(path=path, rows=file.rows, why=str(file.removed))
                for path, file in sorted(gone.items())
            ),
            strays=self.strays,
            unreadable_entries=tuple(unreadable),
            lost=_lost(entries, version if self.kind == "traffic" else None, span),
            waiting=self.waiting,
            settled=span.until is not None and any(e.since >= span.until for e in entries),
        )

    def _entries(self, span: Span) -> tuple[list[SegmentEntry], list[str]]:
        """Of the ledger, with those of the day after, which tell whether the span is settled."""
        since, until = span.since, span.until
        start = since and since.replace(hour=0, minute=0, second=0, microsecond=0)
        return read_ledger(self.store, start, until and until + _DAY)


def _by_model(found: set[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    by_model: dict[str, tuple[str, ...]] = {}
    for model, version in sorted(found):
        by_model[model] = (*by_model.get(model, ()), version)
    return by_model


def _missing(
    expected: Mapping[str, LedgerFile], there: Mapping[str, tuple[StoredFile, Partition]]
) -> tuple[FlawedFile, ...]:
    return tuple(
        FlawedFile(path=path, rows=file.rows, reason="the ledger lists it, and it is not there")
        for path, file in sorted(expected.items())
        if path not in there
    )


def _lost(entries: list[SegmentEntry], version: str | None, span: Span) -> dict[str, int]:
    lost: Counter[str] = Counter()
    for entry in entries:
        if version in (None, entry.version) and span.meets(entry.since, entry.until):
            lost.update(entry.lost)
    return {cause: rows for cause, rows in sorted(lost.items()) if rows}
