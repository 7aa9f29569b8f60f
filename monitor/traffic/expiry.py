"""Delete what is older than it may be kept."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path

from monitor.errors import TrafficError
from monitor.traffic.ledger import LEDGER, changing, read_ledger, write_entry
from monitor.traffic.store import Store

__all__ = ["Expired", "expire"]

_DAY = re.compile(r"(?:^|/)date=(\d{4}-\d{2}-\d{2})/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What was deleted.

    Attributes:
        files: How many files.
        bytes: How large they were.
        rows: How many rows the ledger says they held.
    """

    files: int
    bytes: int
    rows: int


def expire(store: Store, before: dt.date, *, dry_run: bool = False) -> Expired:
    """Delete every file of a day before that one; the ledger says so.

    Files of other days are not touched, nor anything outside of folders that name a day.

    Args:
        store: A log, its outcomes, or findings.
        before: The first day that is kept.
        dry_run: Whether only to say what would be deleted.

    Raises:
        TrafficError: Something cannot be listed or deleted.
    """
    try:
        old = [
            file
            for file in store.files()
            if not file.path.startswith((f"{LEDGER}/", "_segments/"))
            and _is_before(file.path, before)
        ]
        if dry_run:
            rows = _note(store, {file.path for file in old}, before, dry_run=True)
        else:
            with changing(store):
                rows = _note(store, {file.path for file in old}, before, dry_run=False)
                for file in old:
                    store.remove(file.path)
            store.remove_old_drafts()
            _remove_unreadable(store, before)
    except OSError as error:
        raise TrafficError(f"{store.place}: {error}") from None
    return Expired(files=len(old), bytes=sum(file.bytes for file in old), rows=rows)


def _note(store: Store, paths: set[str], before: dt.date, *, dry_run: bool) -> int:
    """Say in the ledger what is deleted; entries of which nothing is left go too."""
    rows = 0
    for entry in read_ledger(store)[0]:
        gone = [file for file in entry.files if file.path in paths]
        rows += sum(file.rows for file in gone)
        if dry_run:
            continue
        files = tuple(
            file.model_copy(update={"removed": "expired"}) if file.path in paths else file
            for file in entry.files
        )
        if entry.until.date() < before and all(file.removed for file in files):
            store.remove(entry.path)
        elif gone:
            write_entry(store, entry.model_copy(update={"files": files}))
    return rows


def _remove_unreadable(store: Store, before: dt.date) -> None:
    """Segments that nothing could be made of are as old as their names say."""
    if store.is_local:
        for path in Path(store.path("_segments")).glob("*.unreadable"):
            if path.name[:8] < f"{before:%Y%m%d}":
                path.unlink()


def _is_before(path: str, day: dt.date) -> bool:
    found = _DAY.search(path)
    return found is not None and found[1] < day.isoformat()
