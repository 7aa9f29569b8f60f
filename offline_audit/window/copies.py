"""Files of a log that repeat the rows of another file, recognized by content and not by name.

A copy under another name, a backup that was restored next to the log, or a rewritten file has the
rows of a segment once more. Files are compared only if their footers suggest it: the same
segment and overlapping times, or the same number of rows, first and last time and request id. So a
log without copies costs nothing but its footers, which are read anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from monitor.traffic.columns import group_column
from monitor.traffic.ledger import Kind
from monitor.traffic.store import Store
from offline_audit.window.files import ReadFile

__all__ = ["CopiedFile", "without_copies"]

# Columns that identify a row and its values; group columns of outcomes are added.
_COMPARED: dict[Kind, tuple[str, ...]] = {
    "traffic": ("request_id", "row", "time", "decision", "score", "logit"),
    "outcomes": ("request_id", "row", "observed_at", "received_at", "label"),
}
# Stands for a missing number, which a join would not match.
_MISSING = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFile:
    """A file that is not read, because its rows are those of another file.

    Attributes:
        path: Path relative to the log's root.
        of: Path of the file that is read instead.
        rows: Number of rows.
    """

    path: str
    of: str
    rows: int


def without_copies(
    store: Store, kind: Kind, files: Sequence[ReadFile]
) -> tuple[list[ReadFile], list[CopiedFile]]:
    """Files that are not copies, and copies.

    Of several files with the same rows, one that the ledger lists is kept, then the one with most
    rows, then the first by path. A file is a copy, too, if one was taken before rows were erased.

    Args:
        store: Store of the log.
        kind: Kind of the log.
        files: Files that passed their checks.
    """
    kept: list[ReadFile] = []
    copies: list[CopiedFile] = []
    by_sign: dict[tuple[object, ...], list[ReadFile]] = {}
    for file in sorted(files, key=lambda file: (file.sha256 is None, -file.rows, file.path)):
        signs = list(_signs(file))
        similar = [o for sign in signs for o in by_sign.get(sign, ()) if _overlap(file, o)]
        original = next((other for other in similar if _same_rows(store, kind, file, other)), None)
        if original is not None:
            copies.append(CopiedFile(path=file.path, of=original.path, rows=file.rows))
            continue
        kept.append(file)
        for sign in signs:
            by_sign.setdefault(sign, []).append(file)
    return kept, sorted(copies, key=lambda copy: copy.path)


def _signs(file: ReadFile) -> Iterator[tuple[object, ...]]:
    """What files with the same rows have in common, by their footers."""
    if not file.rows:
        return
    # By the metadata, since a copy may be in the partition of another version.
    model = file.metadata.get("model", file.partition.model)
    version = file.metadata.get("version", file.partition.version)
    if "segment" in file.metadata:
        yield model, version, file.metadata["segment"]
    if file.times is not None and file.ids is not None:
        yield model, version, file.rows, *file.times, *file.ids


def _overlap(file: ReadFile, other: ReadFile) -> bool:
    """Whether the times of two files overlap; True if a footer does not state them."""
    if file.times is None or other.times is None:
        return True
    (first, last), (begin, end) = file.times, other.times
    return begin <= last and first <= end


def _same_rows(store: Store, kind: Kind, file: ReadFile, other: ReadFile) -> bool:
    """Whether the rows of one file are all in the other."""
    groups = [name for name in file.schema.names if name.startswith(group_column(""))]
    names = [
        name
        for name in (*_COMPARED[kind], *(groups if kind == "outcomes" else ()))
        if name in file.schema.names and name in other.schema.names
    ]
    smaller, larger = sorted((file, other), key=lambda one: one.rows)
    try:
        few, many = (_identities(store, one.path, names) for one in (smaller, larger))
        return bool(few.join(many, names, join_type="left anti").num_rows == 0)
    except (pa.ArrowException, OSError):
        # Deleted or replaced since its footer was read: rows are then read once, or not at all.
        return False


def _identities(store: Store, path: str, names: Sequence[str]) -> pa.Table:
    """Columns that identify rows, as whole numbers and text without missing values."""
    with store.open_file(path) as opened:
        table = pq.read_table(opened, columns=list(names))
    return pa.table([_identity(table[name]) for name in names], names=list(names))


def _identity(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_floating(column.type):
        # Equal bits, so that NaN equals itself and rounding does not matter.
        numbers = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
        return pa.chunked_array([pa.array(numbers.view(np.int64))])
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz="UTC"), safe=False)
    if pa.types.is_timestamp(column.type) or pa.types.is_integer(column.type):
        return pc.fill_null(column.cast(pa.int64()), int(_MISSING))
    return pc.fill_null(column.cast(pa.string()), "")
