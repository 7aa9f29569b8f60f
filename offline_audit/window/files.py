"""Files of a log that a span of time covers, checked one by one against the ledger."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.traffic.columns import FORMAT, METADATA_KEY
from monitor.traffic.ledger import Kind, LedgerFile
from monitor.traffic.store import Store, StoredFile
from offline_audit.errors import SpanError

__all__ = [
    "FlawedFile",
    "Partition",
    "ReadFile",
    "RemovedFile",
    "Span",
    "check_files",
    "partition_of",
]

_DAY = dt.timedelta(days=1)
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)

_LAYOUT: dict[Kind, re.Pattern[str]] = {
    "traffic": re.compile(
        r"model=(?P<model>[^/]+)/version=(?P<version>[^/]+)/date=(?P<date>[\d-]{10})"
        r"/hour=(?P<hour>\d\d)/[^/]+\.parquet"
    ),
    "outcomes": re.compile(r"model=(?P<model>[^/]+)/date=(?P<date>[\d-]{10})/[^/]+\.parquet"),
}
_REQUIRED: dict[Kind, set[str]] = {
    "traffic": {"request_id", "row", "time", "decision"},
    "outcomes": {"request_id", "row", "observed_at", "received_at"},
}
# Column by whose time rows are put into files.
_CLOCKS: dict[Kind, str] = {"traffic": "time", "outcomes": "received_at"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The partition that a file's path names.

    Attributes:
        model: Name of the model.
        version: Version of the model; empty for outcomes.
        since: Start of the hour, or of the day for outcomes.
        until: End of the hour or day.
    """

    model: str
    version: str
    since: dt.datetime
    until: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A half-open span of time in UTC, `[since, until)`; None means unbounded."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None

    @classmethod
    def between(cls, since: dt.datetime | None, until: dt.datetime | None) -> Self:
        """Span between two times of any time zone.

        Raises:
            SpanError: A time has no time zone, or the end is not after the start.
        """
        for name, time in (("since", since), ("until", until)):
            if time is not None and time.utcoffset() is None:
                raise SpanError(
                    f"{name}: {time.isoformat()} has no time zone; add one, such as +00:00"
                )
        if since is not None and until is not None and until <= since:
            raise SpanError(
                f"until: must be after since; {until.isoformat()} is not after {since.isoformat()}"
            )
        start, end = (None if time is None else time.astimezone(dt.UTC) for time in (since, until))
        return cls(since=start, until=end)

    @property
    def of_outcomes(self) -> Span:
        """Span of the outcomes of its predictions.

        Unbounded above; starts one day early to allow for clock skew.
        """
        return Span(since=None if self.since is None else self.since - _DAY)

    def overlaps(self, since: dt.datetime, until: dt.datetime) -> bool:
        """Whether it overlaps the closed interval `[since, until]`."""
        return (self.until is None or since < self.until) and (
            self.since is None or until >= self.since
        )

    def covers(self, partition: Partition) -> bool:
        """Whether a partition, whose end is exclusive, may hold rows of the span."""
        return (self.until is None or partition.since < self.until) and (
            self.since is None or partition.until > self.since
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file that is read.

    Attributes:
        path: Path relative to the log's root.
        rows: Number of rows.
        bytes: Size in bytes.
        sha256: Digest in the ledger; None if the ledger does not list the file.
        verified: Whether the file was hashed and matches that digest.
        erased: Number of rows that were erased on request.
        times: Times of its first and last row, in microseconds since 1970, by its footer; None if
            the footer does not have them.
        ids: Smallest and largest request id, by its footer; None if the footer does not have them.
        partition: Partition of the file.
        schema: Schema, with dictionary columns as plain strings.
        metadata: Metadata that the sidecar wrote into the file.
    """

    path: str
    rows: int
    bytes: int
    sha256: str | None
    verified: bool
    erased: int
    times: tuple[int, int] | None = field(default=None, repr=False)
    ids: tuple[str, str] | None = field(default=None, repr=False)
    partition: Partition = field(repr=False)
    schema: pa.Schema = field(repr=False)
    metadata: Mapping[str, Any] = field(repr=False)

    @property
    def key(self) -> str | None:
        """Fingerprint of the pseudonym key of request ids; None if ids are not pseudonymized."""
        return self.metadata.get("pseudonyms")

    @property
    def treatments(self) -> dict[str, str]:
        """Treatment of each feature, by column; hashes by different keys differ."""
        return {
            name: f"hash by {'no key' if self.key is None else f'key {self.key}'}"
            if treatment == "hash"
            else treatment
            for name, treatment in _treatments(self.metadata).items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FlawedFile:
    """A file that is missing, or that exists and was not read.

    Attributes:
        path: Path relative to the log's root.
        rows: Number of rows in the ledger; None if the ledger does not list the file.
        reason: Reason in words.
    """

    path: str
    rows: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """A file that was deleted on purpose.

    Attributes:
        path: Path relative to the log's root.
        rows: Number of rows when it was deleted.
        why: Reason of the deletion: `expired`, `quota` or `erased`.
        erased: Number of rows that were erased on request.
    """

    path: str
    rows: int
    why: str
    erased: int = 0


def partition_of(path: str, kind: Kind) -> Partition | None:
    """Partition that a path names; None if the path does not follow the log's layout."""
    match = _LAYOUT[kind].fullmatch(path)
    if match is None:
        return None
    parts = match.groupdict()
    try:
        day = dt.datetime.fromisoformat(f"{parts['date']}T{parts.get('hour', '00')}:00:00+00:00")
    except ValueError:
        return None
    length = dt.timedelta(hours=1) if "hour" in parts else _DAY
    version = parts.get("version", "")
    return Partition(model=parts["model"], version=version, since=day, until=day + length)


def check_files(
    store: Store,
    kind: Kind,
    files: Sequence[StoredFile],
    listed: Mapping[str, LedgerFile],
    *,
    verify: bool,
) -> list[ReadFile | FlawedFile]:
    """Check the size, digest and footer of each file.

    Args:
        store: Store of the log.
        kind: Kind of the log.
        files: Files as the store lists them; their paths follow the log's layout.
        listed: Entries of the ledger, by path.
        verify: Whether to hash the files that the ledger lists, and to decode the others.
    """

    def check(file: StoredFile) -> ReadFile | FlawedFile:
        entry = listed.get(file.path)
        try:
            return _checked(store, kind, file, entry, verify=verify)
        except (_FlawError, pa.ArrowException, OSError, ValueError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            return FlawedFile(path=file.path, rows=entry.rows if entry else None, reason=first)

    # Hashing releases the GIL; more threads would take CPU from a sidecar on the same machine.
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(check, files))


class _FlawError(Exception):
    pass


def _checked(
    store: Store, kind: Kind, file: StoredFile, entry: LedgerFile | None, *, verify: bool
) -> ReadFile:
    if entry is not None and entry.bytes != file.bytes:
        raise _FlawError(f"{file.bytes:,} bytes; the ledger has {entry.bytes:,}")
    if entry is not None and verify and store.sha256(file.path) != entry.sha256:
        raise _FlawError("its digest differs from the ledger's; the file was changed")
    with store.open_file(file.path) as opened:
        try:
            parquet = pq.ParquetFile(opened)
            if entry is None and verify:
                for _ in parquet.iter_batches():
                    pass
        except (pa.ArrowException, OSError) as error:
            raise _FlawError(f"not readable as Parquet: {error}") from None
        rows, schema = parquet.metadata.num_rows, parquet.schema_arrow
    if entry is not None and entry.rows != rows:
        raise _FlawError(f"{rows:,} rows; the ledger has {entry.rows:,}")
    metadata = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
    _require_format(kind, schema, metadata)
    partition = partition_of(file.path, kind)
    assert partition is not None
    times = _ends(parquet.metadata, _CLOCKS[kind])
    return ReadFile(
        path=file.path,
        rows=rows,
        bytes=file.bytes,
        sha256=entry.sha256 if entry else None,
        verified=verify and entry is not None,
        erased=entry.erased if entry else 0,
        times=None if times is None else (_microseconds(times[0]), _microseconds(times[1])),
        ids=_ends(parquet.metadata, "request_id"),
        partition=partition,
        schema=pa.schema([(column.name, _plain(column.type)) for column in schema]),
        metadata=metadata,
    )


def _ends(footer: pq.FileMetaData, column: str) -> tuple[Any, Any] | None:
    """Smallest and largest value of a column; None if a row group does not state them."""
    index = footer.schema.names.index(column)
    ends: list[Any] = []
    for number in range(footer.num_row_groups):
        statistics = footer.row_group(number).column(index).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        ends += [statistics.min, statistics.max]
    return (min(ends), max(ends)) if ends else None


def _microseconds(time: Any) -> int:
    if isinstance(time, int):
        return time
    utc = time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)
    return int((utc - _EPOCH) // dt.timedelta(microseconds=1))


def _require_format(kind: Kind, schema: pa.Schema, metadata: Any) -> None:
    try:
        _treatments(metadata)
    except (AttributeError, KeyError, TypeError):
        raise _FlawError("its metadata is not that of a log file") from None
    if metadata.get("format", FORMAT) != FORMAT:
        raise _FlawError(
            f"format {metadata['format']}; this version of evenhand reads format {FORMAT}"
        )
    if metadata.get("kind", kind) != kind:
        raise _FlawError(f"contains {metadata['kind']}, not {kind}")
    if missing := sorted(_REQUIRED[kind] - set(schema.names)):
        raise _FlawError(f"columns are missing: {', '.join(missing)}")


def _treatments(metadata: Mapping[str, Any]) -> dict[str, str]:
    features = metadata.get("columns", {}).get("features", [])
    return {column["name"]: column["treatment"] for column in features}


def _plain(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(dtype):
        return _plain(dtype.value_type)
    return pa.string() if pa.types.is_large_string(dtype) else dtype
