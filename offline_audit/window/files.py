"""Which files of a log a window reads, and what is wrong with the others."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from monitor.traffic.columns import FORMAT, METADATA_KEY
from monitor.traffic.ledger import Kind, LedgerFile
from monitor.traffic.store import Store, StoredFile

__all__ = ["FlawedFile", "Partition", "ReadFile", "RemovedFile", "check_files", "partition_of"]

_LAYOUT: dict[Kind, re.Pattern[str]] = {
    "traffic": re.compile(
        r"model=(?P<model>[^/]+)/version=(?P<version>[^/]+)/date=(?P<date>[\d-]{10})"
        r"/hour=(?P<hour>\d\d)/[^/]+\.parquet"
    ),
    "outcomes": re.compile(r"model=(?P<model>[^/]+)/date=(?P<date>[\d-]{10})/[^/]+\.parquet"),
}
_NEEDED: dict[Kind, set[str]] = {
    "traffic": {"request_id", "row", "time", "decision"},
    "outcomes": {"request_id", "row", "observed_at", "received_at"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """What a file's path says of its rows.

    Attributes:
        model: Whose predictions.
        version: Of the model; empty for outcomes.
        since: When the hour, or the day, begins.
        until: When it ends.
    """

    model: str
    version: str
    since: dt.datetime
    until: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file that is read.

    Attributes:
        path: From the log's root.
        rows: How many it holds.
        bytes: Its size.
        sha256: Its digest as the ledger has it; None if the ledger does not list the file.
        verified: Whether the bytes were hashed and have that digest.
        erased: Rows of people who were erased from it.
        partition: What its path says.
        schema: Its columns, with words as plain strings.
        about: What its metadata says.
    """

    path: str
    rows: int
    bytes: int
    sha256: str | None
    verified: bool
    erased: int
    partition: Partition = field(repr=False)
    schema: pa.Schema = field(repr=False)
    about: Mapping[str, Any] = field(repr=False)

    @property
    def key(self) -> str | None:
        """Fingerprint of the key that request ids were made with; None for ids as they are."""
        return self.about.get("pseudonyms")

    @property
    def treatments(self) -> dict[str, str]:
        """What was written of the features, by column; a hash is no other key's."""
        return {
            name: f"hash by {'no key' if self.key is None else f'key {self.key}'}"
            if treatment == "hash"
            else treatment
            for name, treatment in _treatments(self.about).items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FlawedFile:
    """A file that is missing, or that is there and not read.

    Attributes:
        path: From the log's root.
        rows: That the ledger says it held; None if the ledger does not list it.
        reason: In words.
    """

    path: str
    rows: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """A file that was taken away on purpose.

    Attributes:
        path: From the log's root.
        rows: That it held when it was taken away.
        why: `expired`, `quota` or `erased`.
        erased: Rows of people who were erased from it.
    """

    path: str
    rows: int
    why: str
    erased: int = 0


def partition_of(path: str, kind: Kind) -> Partition | None:
    """What a path says, or None if it is not laid out as a log's."""
    found = _LAYOUT[kind].fullmatch(path)
    if found is None:
        return None
    parts = found.groupdict()
    try:
        day = dt.datetime.fromisoformat(f"{parts['date']}T{parts.get('hour', '00')}:00:00+00:00")
    except ValueError:
        return None
    span = dt.timedelta(hours=1) if "hour" in parts else dt.timedelta(days=1)
    version = parts.get("version", "")
    return Partition(model=parts["model"], version=version, since=day, until=day + span)


def check_files(
    store: Store,
    kind: Kind,
    files: Sequence[StoredFile],
    listed: Mapping[str, LedgerFile],
    *,
    verify: bool,
) -> list[ReadFile | FlawedFile]:
    """Look at files one by one: size, digest, footer.

    Args:
        store: Where they are.
        kind: Which log they are of; their paths are laid out as its.
        files: As the store lists them.
        listed: What the ledger says, by path.
        verify: Hash the bytes of listed files and decode those of unlisted ones.
    """

    def check(file: StoredFile) -> ReadFile | FlawedFile:
        entry = listed.get(file.path)
        try:
            return _checked(store, kind, file, entry, verify=verify)
        except (_FlawError, pa.ArrowException, OSError, ValueError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            return FlawedFile(path=file.path, rows=entry.rows if entry else None, reason=first)

    # Hashing lets go of the interpreter's lock; more threads would starve the sidecar beside it.
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(check, files))


class _FlawError(Exception):
    pass


def _checked(
    store: Store, kind: Kind, file: StoredFile, entry: LedgerFile | None, *, verify: bool
) -> ReadFile:
    if entry is not None and entry.bytes != file.bytes:
        raise _FlawError(f"it has {file.bytes:,} bytes, the ledger says {entry.bytes:,}")
    if entry is not None and verify and store.sha256(file.path) != entry.sha256:
        raise _FlawError("its bytes are not those that the ledger has the digest of")
    with store.open_file(file.path) as opened:
        try:
            parquet = pq.ParquetFile(opened)
            if entry is None and verify:
                for _ in parquet.iter_batches():
                    pass
        except (pa.ArrowException, OSError) as error:
            raise _FlawError(f"it cannot be read as Parquet: {error}") from None
        rows, schema = parquet.metadata.num_rows, parquet.schema_arrow
    if entry is not None and entry.rows != rows:
        raise _FlawError(f"it has {rows:,} rows, the ledger says {entry.rows:,}")
    about = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
    _suits(kind, schema, about)
    partition = partition_of(file.path, kind)
    assert partition is not None
    return ReadFile(
        path=file.path,
        rows=rows,
        bytes=file.bytes,
        sha256=entry.sha256 if entry else None,
        verified=verify and entry is not None,
        erased=entry.erased if entry else 0,
        partition=partition,
        schema=pa.schema([(column.name, _plain(column.type)) for column in schema]),
        about=about,
    )


def _suits(kind: Kind, schema: pa.Schema, about: Any) -> None:
    try:
        _treatments(about)
    except (AttributeError, KeyError, TypeError):
        raise _FlawError("its metadata is not what a log's file has") from None
    if about.get("format", FORMAT) != FORMAT:
        raise _FlawError(f"it has format {about['format']}, this evenhand reads {FORMAT}")
    if about.get("kind", kind) != kind:
        raise _FlawError(f"it holds {about['kind']}, not {kind}")
    if lacking := sorted(_NEEDED[kind] - set(schema.names)):
        raise _FlawError(f"it lacks {', '.join(lacking)}")


def _treatments(about: Mapping[str, Any]) -> dict[str, str]:
    features = about.get("columns", {}).get("features", [])
    return {column["name"]: column["treatment"] for column in features}


def _plain(found: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(found):
        return _plain(found.value_type)
    return pa.string() if pa.types.is_large_string(found) else found
