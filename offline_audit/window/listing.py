"""A span of one log: what its ledger promises, and what is there."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyarrow import fs

from monitor.traffic import TrafficError
from monitor.traffic.ledger import Kind, LedgerFile, SegmentEntry, read_ledger
from monitor.traffic.store import Store, StoredFile
from offline_audit.errors import LogNotFoundError, LogUnreadableError, ModelChoiceError
from offline_audit.window.files import (
    FlawedFile,
    Partition,
    ReadFile,
    RemovedFile,
    check_files,
    partition_of,
)
from offline_audit.window.segments import LeftSegments
from offline_audit.window.span import Span

__all__ = ["LogListing", "LogReading"]

_DAY = dt.timedelta(days=1)


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
        waiting: Segments in the store that began before the span's end and are no files yet.
        set_aside: Paths of segments of its time that nothing could be made of.
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
    set_aside: tuple[str, ...] = ()

    @property
    def unlisted(self) -> tuple[ReadFile, ...]:
        """Files that are read although the ledger does not know them."""
        return tuple(file for file in self.files if file.sha256 is None)

    @property
    def pseudonyms(self) -> set[str | None]:
        """Fingerprints of the keys that request ids were made with; None for ids as they are."""
        return {file.key for file in self.files}


class LogListing:
    """Every file of a log, and what its ledger says of a span, as of one moment.

    Attributes:
        store: Where the log is.
        kind: Which log it is.
        span: The span.
        found: Whether there is anything at that place.
        left: Segments in the store.
        strays: Parquet files that are not laid out as the log's.

    Raises:
        LogUnreadableError: The address cannot be used, or the files cannot be listed.
    """

    def __init__(self, place: str | Path, kind: Kind, span: Span | None = None) -> None:
        self.kind, self.span = kind, span or Span()
        try:
            self.store = Store.open(place)
            info = self.store.filesystem.get_file_info(self.store.root)
            self.found = info.type == fs.FileType.Directory
            # A segment becomes files, then an entry, and then goes away. They are looked for the
            # other way round, so that none is missing, or missed, that is compacted meanwhile.
            self.left = LeftSegments.listed(self.store)
            entries, self._unreadable = self._ledger(self.span)
            files = self.store.files() if self.found else []
            self._entries = self._looked_at_again(entries, {file.path for file in files})
        except TrafficError as error:
            raise LogUnreadableError(str(error)) from None
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

    def whole(self) -> LogListing:
        """The log without a span, listed anew.

        Raises:
            LogUnreadableError: It cannot be listed any more.
        """
        return LogListing(self.store.location, self.kind)

    def require(self) -> None:
        """Refuse to go on without a log.

        Raises:
            LogNotFoundError: Nothing is there.
        """
        if not self.found:
            raise LogNotFoundError(f"{self.store.location}: there is no log")

    @cached_property
    def versions(self) -> dict[str, tuple[str, ...]]:
        """Versions by model: of files that are there, and of segments in the ledger.

        Raises:
            LogUnreadableError: The ledger cannot be listed any more.
        """
        found = {(p.model, p.version) for _, p in self._partitions.values()}
        try:
            entries = self._entries if self.span == Span() else self._ledger(Span())[0]
        except TrafficError as error:
            raise LogUnreadableError(str(error)) from None
        return _by_model(found | {(entry.model, entry.version) for entry in entries})

    def chosen_model(self, model: str | None, version: str | None) -> str | None:
        """The model that is meant; any will do in a log that holds none yet.

        Raises:
            ModelChoiceError: It is left open, or it is not there, or not in this version.
        """
        place = self.store.location
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

    def read(self, model: str | None, version: str | None, *, verify: bool) -> LogReading:
        """Choose a model's files of the span by path and by ledger, and look at each."""
        span, left = self.span, self.left.of(self.span)
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

        gone = {p: f for p, f in listed.items() if chosen(p) and f.removed is not None}
        there = [
            f for path, (f, _) in self._partitions.items() if chosen(path) and path not in gone
        ]
        checked = check_files(self.store, self.kind, there, listed, verify=verify)
        files = [file for file in checked if isinstance(file, ReadFile)]
        absent = {p: f for p, f in listed.items() if chosen(p) and p not in gone}
        return LogReading(
            place=self.store.location,
            found=self.found,
            files=tuple(sorted(files, key=lambda file: (file.partition.since, file.path))),
            missing=_missing(absent, self._partitions),
            corrupt=tuple(file for file in checked if isinstance(file, FlawedFile)),
            removed=tuple(
                RemovedFile(path=path, rows=file.rows, why=str(file.removed), erased=file.erased)
                for path, file in sorted(gone.items())
            ),
            strays=self.strays,
            unreadable_entries=tuple(self._unreadable),
            lost=_lost(entries, version if self.kind == "traffic" else None, span),
            waiting=len(left.waiting),
            set_aside=left.set_aside,
        )

    def _ledger(self, span: Span) -> tuple[list[SegmentEntry], list[str]]:
        """With entries of files that hold an hour, or a day, which the span has only a part of."""
        since, until = span.since, span.until
        start = since and since.replace(hour=0, minute=0, second=0, microsecond=0)
        return read_ledger(self.store, start, until and until + _DAY)

    def _looked_at_again(self, entries: list[SegmentEntry], there: set[str]) -> list[SegmentEntry]:
        """The same entries, with files that were taken away on purpose since they were read."""
        listed = (file for entry in entries for file in entry.files)
        if all(file.removed or file.path in there for file in listed):
            return entries
        again = {entry.segment: entry for entry in self._ledger(self.span)[0]}
        return [again.get(entry.segment, entry) for entry in entries]


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
