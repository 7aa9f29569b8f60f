"""Erase a request from every file of a log and its outcomes, and say what was done.

Parquet files are rewritten without its rows; everything else in them stays as it is. What is still
in segments becomes Parquet first, and what is in segments elsewhere never does.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import hashlib
import json
import os
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

from monitor.traffic.columns import about_file, fresh_words
from monitor.traffic.compaction import compact, parquet_options
from monitor.traffic.erased import remember_erased
from monitor.traffic.ledger import LedgerFile, changing, entry_of, write_entry
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.spool import DRAFT, ROLL_REQUEST, SEGMENTS
from monitor.traffic.store import Store

__all__ = ["ErasedFile", "LogPlace", "Receipt", "erase"]

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Where a log is.

    Attributes:
        store: Its Parquet files and its ledger.
        home: The local folder of its segments, if it is on this machine.
    """

    store: Store
    home: Store | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedFile:
    """A file that held rows of the request.

    Attributes:
        place: The log that it is of.
        path: From the log's root.
        erased: Rows that were taken out.
        kept: Rows that are left; with none the file is deleted.
        sha256_before: Its digest.
        sha256_after: Its digest now; empty if it is deleted.
    """

    place: str
    path: str
    erased: int
    kept: int
    sha256_before: str
    sha256_after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an erasure did.

    Attributes:
        salt: Random, so that nobody can find the id by trying all.
        salted_sha256: Digest of the salt and the request's id, so that the receipt holds no id and
            can still be shown to belong to one.
        at: When it was done.
        searched: How many files were looked through.
        segments: Folders whose segments were looked through too. What a sidecar elsewhere has not
            yet turned into Parquet is left out when it does.
        files: Those that held the request.
        deleted: Files that nothing could be made of, and drafts that a crash had left.
        blanked: Files of reviews of which lines were overwritten.
        open: What could not be looked through or waited for, and why; empty if all is done.
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
        """Whether nothing of the request is left."""
        return not self.open

    @property
    def rows(self) -> int:
        """How many were erased."""
        return sum(file.erased for file in self.files)

    def __str__(self) -> str:
        found = f"erased {_count(self.rows, 'row')} from {_count(len(self.files), 'file')}"
        lines = [f"{found}; looked through {self.searched:,}"]
        lines += [f"  {f.path}: {_count(f.erased, 'row')}, {f.kept:,} left" for f in self.files]
        lines += [f"  {path}: lines overwritten" for path in self.blanked]
        lines += [f"  {path}: deleted, since nothing could be made of it" for path in self.deleted]
        lines += [f"not done: {words}" for words in self.open]
        done = "nothing of the request is left there"
        lines.append(done if self.complete else "erase again once that is mended")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For a file that is kept as evidence."""
        return {**asdict(self), "at": self.at.isoformat(), "complete": self.complete}


@dataclass(slots=True, kw_only=True)
class _Erasing:
    """An erasure under way."""

    names: frozenset[str]
    pseudonyms: Pseudonyms
    tell: Callable[[str], None]
    searched: int = 0
    files: list[ErasedFile] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    blanked: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    other_keys: Counter[tuple[str, str]] = field(default_factory=Counter)

    def by_other_keys(self) -> Iterator[str]:
        """What is open since other keys are needed for it."""
        for (place, fingerprint), files in sorted(self.other_keys.items()):
            yield (
                f"{place}: {files:,} files hold pseudonyms by another key ({fingerprint}); name "
                "that in traffic.key_path, and erase again"
            )

    @contextlib.contextmanager
    def of(self, place: str) -> Iterator[None]:
        """Whatever fails with a place leaves it open, and nothing else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a receipt is given in any case
            # Not its text, which may quote what was read.
            self.open.append(f"{place}: {type(error).__name__}, so it may still hold the request")


def erase(
    request_id: str,
    places: Sequence[LogPlace],
    pseudonyms: Pseudonyms,
    *,
    review: Path | None = None,
    patience: float = 60.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Receipt:
    """Take every row of a request out of logs.

    Args:
        request_id: As the sidecar returned it.
        places: The logs.
        pseudonyms: With the key that the logs were written with, if they were written with one.
        review: The folder of what was sent to a person, if there is one.
        patience: How long a running sidecar may take to turn its segments into Parquet, in seconds.
        tell: Is told the path of every file that is looked through.
    """
    doing = _Erasing(
        names=frozenset({request_id, pseudonyms.of(request_id)}), pseudonyms=pseudonyms, tell=tell
    )
    for place in places:
        with doing.of(place.store.place):
            if place.home is not None:
                _empty_segments(place.home, place.store, patience, doing)
            # From now on no segment, wherever it is, brings the request back.
            remember_erased(place.store, doing.names)
            _erase_from_store(place.store, doing)
    if review is not None:
        with doing.of(str(review)):
            _blank_lines(review, doing)
    salt = secrets.token_hex(16)
    return Receipt(
        salt=salt,
        salted_sha256=hashlib.sha256(f"{salt}{request_id}".encode()).hexdigest(),
        at=dt.datetime.now(dt.UTC),
        searched=doing.searched,
        segments=tuple(place.home.place for place in places if place.home is not None),
        files=tuple(doing.files),
        deleted=tuple(doing.deleted),
        blanked=tuple(doing.blanked),
        open=(*doing.open, *doing.by_other_keys()),
    )


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _empty_segments(home: Store, store: Store, patience: float, doing: _Erasing) -> None:
    """Turn segments into Parquet, by the sidecar if one runs."""
    folder = Path(home.path(SEGMENTS))
    if not folder.is_dir():
        return
    with _lock(folder / "lock") as free:
        if free:
            _compact_left(folder, store, doing)
            (folder / DRAFT).unlink(missing_ok=True)
        elif not _sidecar_rolled(folder, patience):
            doing.open.append(
                f"{folder}: a sidecar runs and has not turned its segments into Parquet within "
                f"{patience:g} s"
            )
    for path in sorted(folder.glob("*.unreadable")):
        # Nothing can be made of it, so nothing can be taken out of it; its rows count as lost.
        doing.searched += 1
        path.unlink()
        doing.deleted.append(str(path))


def _compact_left(folder: Path, store: Store, doing: _Erasing) -> None:
    for path in sorted(folder.glob("*.segment")):
        with doing.of(f"{path} (a sidecar that starts there sets it aside)"):
            compact(path, store, folder / DRAFT)
            path.unlink()


def _sidecar_rolled(folder: Path, patience: float) -> bool:
    request = folder / f"{ROLL_REQUEST}{secrets.token_hex(8)}"
    request.touch()
    end = time.monotonic() + patience
    try:
        while request.exists():
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_SECONDS)
    finally:
        request.unlink(missing_ok=True)
    return True


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Whether no sidecar writes there; if so, none does until the end."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _erase_from_store(store: Store, doing: _Erasing) -> None:
    doing.deleted += store.remove_old_drafts()
    for file in store.files(suffix=".parquet"):
        doing.tell(file.path)
        doing.searched += 1
        with doing.of(f"{store.place}: {file.path}"), changing(store):
            _erase_from_file(store, file.path, doing)


def _erase_from_file(store: Store, path: str, doing: _Erasing) -> None:
    wanted = pa.array(sorted(doing.names))
    with store.open_file(path) as source:
        parquet = pq.ParquetFile(source)
        fingerprint = about_file(parquet.schema_arrow).get("pseudonyms")
        if fingerprint is not None and fingerprint != doing.pseudonyms.fingerprint:
            doing.other_keys[store.place, fingerprint] += 1
            return
        if "request_id" not in parquet.schema_arrow.names:
            doing.open.append(f"{store.place}: {path} is no file of a log")
            return
        found = sum(
            pc.sum(pc.is_in(batch.column(0), wanted)).as_py() or 0
            for batch in parquet.iter_batches(columns=["request_id"])
        )
        if found:
            doing.files.append(_rewrite(store, path, parquet, wanted, found))


def _rewrite(
    store: Store, path: str, parquet: pq.ParquetFile, wanted: pa.Array, found: int
) -> ErasedFile:
    """A file without some rows. The ledger comes first: doing it again then mends a crash."""
    before, kept, after = store.sha256(path), parquet.metadata.num_rows - found, ""
    if kept:
        with store.draft() as draft:
            schema = parquet.schema_arrow
            with pq.ParquetWriter(draft, schema, **parquet_options(schema)) as writer:
                for group in range(parquet.num_row_groups):
                    table = parquet.read_row_group(group)
                    rest = table.filter(pc.invert(pc.is_in(table["request_id"], wanted)))
                    writer.write_table(fresh_words(rest))
            with draft.open("rb") as file:
                after = hashlib.file_digest(file, "sha256").hexdigest()
            size = draft.stat().st_size
            _note(store, LedgerFile(path=path, rows=kept, bytes=size, sha256=after))
            store.put_file(path, draft)
    else:
        _note(store, LedgerFile(path=path, rows=0, bytes=0, sha256=before, removed="erased"))
        store.remove(path)
    return ErasedFile(
        place=store.place,
        path=path,
        erased=found,
        kept=kept,
        sha256_before=before,
        sha256_after=after,
    )


def _note(store: Store, now: LedgerFile) -> None:
    """Say in the ledger what a file is about to be; saying it twice changes nothing."""
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


def _blank_lines(folder: Path, doing: _Erasing) -> None:
    """Overwrite the request's lines with spaces: a sidecar may be adding lines at the end."""
    wanted = [b'"request_id": ' + json.dumps(name).encode() for name in doing.names]
    for path in sorted(folder.glob("*.jsonl")):
        doing.searched += 1
        with path.open("r+b") as file:
            place, changed = 0, False
            for line in file.read().splitlines(keepends=True):
                if any(name in line for name in wanted):
                    file.seek(place)
                    file.write(b" " * (len(line) - 1))
                    changed = True
                place += len(line)
        if changed:
            doing.blanked.append(str(path))
