"""Erase a request from all files of a log and its outcomes, and return a receipt.

Parquet files are rewritten without the rows of the request. Local segments are converted to Parquet
first; rows in segments on other machines are removed when those are converted.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet as pq

from monitor.traffic.columns import log_metadata, rebuild_dictionaries
from monitor.traffic.compaction import compact, parquet_options
from monitor.traffic.erased import record_erased
from monitor.traffic.ledger import LedgerFile, entry_of, lock_ledger, write_entry
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.spool import DRAFT, ROLL_REQUEST, SEGMENTS
from monitor.traffic.store import Store
from monitor.traffic.waiting import lock_segments

__all__ = ["ErasedFile", "LogLocation", "Receipt", "erase"]

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLocation:
    """Location of a log.

    Attributes:
        store: Store of its Parquet files and its ledger.
        home: Local directory of its segments; None if it is on another machine.
    """

    store: Store
    home: Store | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedFile:
    """A file that held rows of the request.

    Attributes:
        location: Path or address of the log.
        path: Path relative to the log's root.
        erased: Number of erased rows.
        remaining: Number of remaining rows; the file is deleted if there are none.
        sha256_before: Digest before the erasure.
        sha256_after: Digest after the erasure; empty if the file was deleted.
    """

    location: str
    path: str
    erased: int
    remaining: int
    sha256_before: str
    sha256_after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an erasure did.

    Attributes:
        salt: Random salt, so that the id cannot be found by trying all.
        salted_sha256: Digest of the salt and the request id: the receipt does not contain the id,
            but can be proven to belong to it.
        at: Time of the erasure.
        searched: Number of files that were searched.
        segments: Directories whose segments were searched too. Segments of other sidecars are
            converted to Parquet without the request.
        files: Files that held the request.
        deleted: Unreadable files, and temporary files of a crash.
        blanked: Review files in which lines were overwritten.
        open: What could not be searched, and why; empty if the erasure is complete.
    """

    salt: str
    salted_sha256: str
    at: dt.datetime
    searched: int
    segments: tuple[str, ...]
    files: tuple[ErasedFile, ...]
    deleted: tuple[str, ...] = ()
    blanked: tuple[str, ...] = ()
    open: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything could be searched."""
        return not self.open

    @property
    def found(self) -> bool:
        """Whether a row of the request was found."""
        return bool(self.rows or self.blanked)

    @property
    def rows(self) -> int:
        """Number of erased rows."""
        return sum(file.erased for file in self.files)

    def __str__(self) -> str:
        erased = f"erased {_count(self.rows, 'row')} from {_count(len(self.files), 'file')}"
        lines = [f"{erased}; searched {_count(self.searched, 'file')}"]
        lines += [
            f"  {f.path}: {_count(f.erased, 'row')}, {f.remaining:,} remain" for f in self.files
        ]
        lines += [f"  {path}: lines overwritten" for path in self.blanked]
        lines += [f"  {path}: deleted, because it could not be read" for path in self.deleted]
        lines += [f"incomplete: {reason}" for reason in self.open]
        done = "no rows of the request remain" if self.found else "the request was not found"
        lines.append(done if self.complete else "fix the above and erase again")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The receipt as a JSON-serializable dict."""
        return {**asdict(self), "at": self.at.isoformat(), "complete": self.complete}


@dataclass(slots=True, kw_only=True)
class _Erasure:
    """State of an erasure in progress."""

    names: frozenset[str]
    pseudonyms: Pseudonyms
    progress: Callable[[str], None]
    searched: int = 0
    files: list[ErasedFile] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    blanked: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    other_keys: Counter[tuple[str, str]] = field(default_factory=Counter)

    def by_other_keys(self) -> Iterator[str]:
        """Files that could not be searched because they were written with another key."""
        for (location, fingerprint), files in sorted(self.other_keys.items()):
            yield (
                f"{location}: {files:,} files have pseudonyms of another key ({fingerprint}); set "
                "traffic.key_path to that key and erase again"
            )

    @contextlib.contextmanager
    def of(self, location: str) -> Iterator[None]:
        """Add an error with a location to `open` instead of raising it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a receipt is returned in any case
            # Not the text of the error, which may quote personal data.
            name = type(error).__name__
            self.open.append(f"{location}: {name}; it may still contain the request")


def erase(
    request_id: str,
    locations: Sequence[LogLocation],
    pseudonyms: Pseudonyms,
    *,
    review: Path | None = None,
    timeout: float = 60.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Receipt:
    """Erase all rows of a request from logs.

    Args:
        request_id: Request id that the sidecar returned.
        locations: Locations of the logs.
        pseudonyms: Pseudonyms with the key of the logs, if they have one.
        review: Directory of predictions for human review, if there is one.
        timeout: Seconds to wait for a running sidecar to convert its segments to Parquet.
        progress: Function that is called with the path of every searched file.
    """
    erasure = _Erasure(
        names=frozenset({request_id, pseudonyms.of(request_id)}),
        pseudonyms=pseudonyms,
        progress=progress,
    )
    for log in locations:
        with erasure.of(log.store.location):
            if log.home is not None:
                _empty_segments(log.home, log.store, timeout, erasure)
            # From now on no segment on any machine can restore the request.
            record_erased(log.store, erasure.names)
            _erase_from_store(log.store, erasure)
    if review is not None:
        with erasure.of(str(review)):
            _blank_lines(review, erasure)
    salt = secrets.token_hex(16)
    return Receipt(
        salt=salt,
        salted_sha256=hashlib.sha256(f"{salt}{request_id}".encode()).hexdigest(),
        at=dt.datetime.now(dt.UTC),
        searched=erasure.searched,
        segments=tuple(log.home.location for log in locations if log.home is not None),
        files=tuple(erasure.files),
        deleted=tuple(erasure.deleted),
        blanked=tuple(erasure.blanked),
        open=(*erasure.open, *erasure.by_other_keys()),
    )


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _empty_segments(home: Store, store: Store, timeout: float, erasure: _Erasure) -> None:
    """Convert segments to Parquet, by the sidecar if one is running."""
    folder = Path(home.path(SEGMENTS))
    if not folder.is_dir():
        return
    with lock_segments(folder) as free:
        if free:
            _compact_left(folder, store, erasure)
            (folder / DRAFT).unlink(missing_ok=True)
        elif not _sidecar_rolled(folder, timeout):
            erasure.open.append(
                f"{folder}: a sidecar is running and did not convert its segments to Parquet "
                f"within {timeout:g} s"
            )
    for path in sorted(folder.glob("*.unreadable")):
        # Single rows cannot be erased from an unreadable file; its rows already count as lost.
        erasure.searched += 1
        path.unlink()
        erasure.deleted.append(str(path))


def _compact_left(folder: Path, store: Store, erasure: _Erasure) -> None:
    for path in sorted(folder.glob("*.segment")):
        with erasure.of(f"{path} (a sidecar that starts there quarantines it)"):
            compact(path, store, folder / DRAFT)
            path.unlink()


def _sidecar_rolled(folder: Path, timeout: float) -> bool:
    request = folder / f"{ROLL_REQUEST}{secrets.token_hex(8)}"
    request.touch()
    end = time.monotonic() + timeout
    try:
        while request.exists():
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_SECONDS)
    finally:
        request.unlink(missing_ok=True)
    return True


def _erase_from_store(store: Store, erasure: _Erasure) -> None:
    erasure.deleted += store.remove_old_drafts()
    for file in store.files(suffix=".parquet"):
        erasure.progress(file.path)
        erasure.searched += 1
        with erasure.of(f"{store.location}: {file.path}"), lock_ledger(store):
            _erase_from_file(store, file.path, erasure)


def _erase_from_file(store: Store, path: str, erasure: _Erasure) -> None:
    ids = pa.array(sorted(erasure.names))
    with store.open_file(path) as source:
        parquet = pq.ParquetFile(source)
        fingerprint = log_metadata(parquet.schema_arrow).get("pseudonyms")
        if fingerprint is not None and fingerprint != erasure.pseudonyms.fingerprint:
            erasure.other_keys[store.location, fingerprint] += 1
            return
        if "request_id" not in parquet.schema_arrow.names:
            erasure.open.append(f"{store.location}: {path} is not a file of a log")
            return
        rows = sum(
            pc.sum(pc.is_in(batch.column(0), ids)).as_py() or 0
            for batch in parquet.iter_batches(columns=["request_id"])
        )
        if rows:
            erasure.files.append(_rewrite(store, path, parquet, ids, rows))


def _rewrite(
    store: Store, path: str, parquet: pq.ParquetFile, ids: pa.Array, erased: int
) -> ErasedFile:
    """Rewrite a file. The ledger is written first, so that a repeated erasure repairs a crash."""
    before, remaining, after = store.sha256(path), parquet.metadata.num_rows - erased, ""
    if remaining:
        with store.draft() as draft:
            schema = parquet.schema_arrow
            with pq.ParquetWriter(draft, schema, **parquet_options(schema)) as writer:
                for group in range(parquet.num_row_groups):
                    table = parquet.read_row_group(group)
                    others = table.filter(pc.invert(pc.is_in(table["request_id"], ids)))
                    writer.write_table(rebuild_dictionaries(others))
            with draft.open("rb") as file:
                after = hashlib.file_digest(file, "sha256").hexdigest()
            size = draft.stat().st_size
            _note(store, LedgerFile(path=path, rows=remaining, bytes=size, sha256=after))
            store.put_file(path, draft)
    else:
        _note(store, LedgerFile(path=path, rows=0, bytes=0, sha256=before, removed="erased"))
        store.remove(path)
    return ErasedFile(
        location=store.location,
        path=path,
        erased=erased,
        remaining=remaining,
        sha256_before=before,
        sha256_after=after,
    )


def _note(store: Store, now: LedgerFile) -> None:
    """Record the new state of a file in the ledger; idempotent."""
    entry = entry_of(store, now.path)
    if entry is None:
        return
    files = tuple(
        now.model_copy(update={"erased": file.erased + file.rows - now.rows})
        if file.path == now.path
        else file
        for file in entry.files
    )
    write_entry(store, entry.model_copy(update={"files": files}))


def _blank_lines(folder: Path, erasure: _Erasure) -> None:
    """Overwrite the lines of the request with spaces, since a sidecar may be appending lines."""
    markers = [b'"request_id": ' + json.dumps(name).encode() for name in erasure.names]
    for path in sorted(folder.glob("*.jsonl")):
        erasure.searched += 1
        with path.open("r+b") as file:
            offset, changed = 0, False
            for line in file.read().splitlines(keepends=True):
                if any(name in line for name in markers):
                    file.seek(offset)
                    file.write(b" " * (len(line) - 1))
                    changed = True
                offset += len(line)
        if changed:
            erasure.blanked.append(str(path))
