"""Converts a closed segment to partitioned Parquet files and an entry of the ledger.

The files are named after the segment, so a retry after a crash overwrites them and never duplicates
a row. The segment is deleted once all files and the entry are written.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq

from monitor.traffic.columns import TrafficColumns, log_metadata, outcome_schema, with_metadata
from monitor.traffic.erased import Erased, read_erased
from monitor.traffic.ledger import LedgerFile, SegmentEntry, write_entry
from monitor.traffic.outcomes import days, outcome_table
from monitor.traffic.records import hours, traffic_table
from monitor.traffic.segment import Records, Segment, read_segment
from monitor.traffic.store import Store

__all__ = ["compact", "parquet_options", "write_table"]

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_ROW_GROUP = 131_072
_LOT_ROWS = 65_536


def compact(path: Path, store: Store, draft: Path) -> SegmentEntry:
    """Convert a segment to Parquet files of a store, without deleting it.

    Args:
        path: Path of the segment.
        store: Store of the files.
        draft: Path of a local temporary file.

    Raises:
        TrafficError: The file is not a segment.
        OSError: A file cannot be read or written; the conversion can be retried.
    """
    segment = read_segment(path.read_bytes(), path.name)
    about = segment.about
    name, times = about["segment"], list(segment.records.times)
    if segment.lost_since is not None:
        times.append(segment.lost_since)
    files = _files(segment, store, draft, read_erased(store))
    begun = dt.datetime.fromisoformat(about["begun"])
    entry = SegmentEntry(
        segment=name,
        kind=about["kind"],
        model=about["model"],
        version=about["version"],
        since=min(begun, _moment(min(times))) if times else begun,
        until=max(begun, _moment(max(times))) if times else begun,
        rows=segment.rows,
        lost=dict(segment.lost),
        files=tuple(files),
    )
    write_entry(store, entry)
    return entry


def _files(segment: Segment, store: Store, draft: Path, erased: Erased) -> list[LedgerFile]:
    """Write the files of a segment without erased requests; again if one is erased meanwhile."""
    name = segment.about["segment"]
    files = [
        _write(store, f"{folder}/{name}.parquet", schema, tables, draft, erased)
        for folder, schema, tables in _partitions(segment)
    ]
    current = read_erased(store)
    return files if current == erased else _files(segment, store, draft, current)


def write_table(store: Store, path: str, table: pa.Table, draft: Path) -> LedgerFile:
    """Write one file of a store.

    Raises:
        OSError: The file cannot be written.
    """
    return _write(store, path, table.schema, iter((table,)), draft, read_erased(store))


def _partitions(segment: Segment) -> Iterator[tuple[str, pa.Schema, Iterator[pa.Table]]]:
    """Directory, schema and tables of each file of a segment."""
    about = segment.about
    if about["kind"] == "traffic":
        columns = TrafficColumns.from_json(about["columns"])
        schema = with_metadata(columns.schema, about)
        for hour, records in hours(segment.records):
            when = _moment(hour * 3_600_000_000_000)
            folder = (
                f"model={about['model']}/version={about['version']}"
                f"/date={when:%Y-%m-%d}/hour={when:%H}"
            )
            tables = (traffic_table(lot, columns) for lot in _lots(records))
            yield folder, schema, tables
    else:
        attributes = tuple(about["attributes"])
        subjects = about.get("subjects", False)
        schema = with_metadata(outcome_schema(attributes, subjects=subjects), about)
        for day, records in days(segment.records):
            table = outcome_table(records, attributes, subjects=subjects)
            yield f"model={about['model']}/date={day}", schema, iter((table,))


def _lots(records: Records) -> Iterator[Records]:
    """Records in lots of about `_LOT_ROWS` rows."""
    lot = np.cumsum(records.rows) // _LOT_ROWS
    cuts = [0, *(np.flatnonzero(np.diff(lot)) + 1).tolist(), len(records)]
    for start, stop in pairwise(cuts):
        yield records if stop - start == len(records) else records.select(range(start, stop))


def _write(
    store: Store,
    path: str,
    schema: pa.Schema,
    tables: Iterator[pa.Table],
    draft: Path,
    erased: Erased,
) -> LedgerFile:
    rows = omitted = 0
    try:
        draft.touch(store.file_mode)
        with pq.ParquetWriter(draft, schema, **parquet_options(schema)) as writer:
            for table in tables:
                remaining = erased.without(table)
                writer.write_table(remaining.cast(schema), row_group_size=_ROW_GROUP)
                rows += len(remaining)
                omitted += len(table) - len(remaining)
        with draft.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = draft.stat().st_size
        store.put_file(path, draft)
    finally:
        draft.unlink(missing_ok=True)
    return LedgerFile(path=path, rows=rows, bytes=size, sha256=digest, erased=omitted)


def parquet_options(schema: pa.Schema) -> Mapping[str, Any]:
    """Options of the Parquet writer.

    Dictionary encoding is used for strings and features with few distinct values only; for
    continuous values it would be larger than the values. Request ids share prefixes.
    """
    types = pa.types
    words = [f.name for f in schema if types.is_dictionary(f.type) or types.is_integer(f.type)]
    columns = log_metadata(schema).get("columns", {"features": []})["features"]
    few = [
        c["name"]
        for c in columns
        if c["kind"] not in ("numeric", "number") or c["treatment"] == "bucket"
    ]
    return {
        "compression": "zstd",
        "use_dictionary": [*words, *few],
        "column_encoding": {"request_id": "DELTA_BYTE_ARRAY"},
        "write_page_checksum": True,
        "coerce_timestamps": "us",
    }


def _moment(nanoseconds: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=nanoseconds // 1000)
