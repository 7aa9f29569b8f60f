"""A segment: an append-only file of batches of predictions or outcomes.

    header   magic, size, JSON that describes the records, checksum; written twice
    record   magic, kind, payload size, rows, number of the first row, time, two checksums; payload

A record is written by one write. The reader takes every record with a valid checksum and skips
others; rows are numbered, so the number of skipped rows is known. A truncated end is skipped too. A
record of kind `lost` holds the number of rows that were not written, by cause, and since when.
"""

from __future__ import annotations

import datetime as dt
import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from monitor.errors import TrafficError

__all__ = [
    "Cause",
    "Record",
    "Records",
    "Segment",
    "header_bytes",
    "holds_records",
    "lost_bytes",
    "read_segment",
    "record_bytes",
    "rows_in",
    "segment_begun",
]

# Why rows are not in the log: a slow write was pending; the disk failed; the disk quota was
# reached; a crash truncated them (their responses may not have been sent); bytes changed on the
# disk; the encoder failed.
Cause = Literal["slow", "disk", "full", "torn", "damaged", "fault"]

_FILE_MAGIC, _MAGIC = b"EVHSEG01", b"EVHR"
_FILE_HEAD = struct.Struct("<8sI")
# Magic, kind, payload size, rows, number of the first row, nanoseconds since 1970; then checksums
# of that, and of that with the payload.
_HEAD = struct.Struct("<4sBIIQq")
_SUMS = struct.Struct("<II")
_HEAD_SIZE = _HEAD.size + _SUMS.size
_DATA, _LOST = 1, 2


class Record(NamedTuple):
    """A batch of rows.

    Attributes:
        time: Nanoseconds since 1970.
        rows: Number of rows.
        payload: Encoded rows.
    """

    time: int
    rows: int
    payload: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Many records as columns; one object per record would slow down garbage collection.

    Attributes:
        data: Bytes of the segment.
        times: Nanoseconds since 1970.
        rows: Number of rows per record.
        starts: Offset of each payload.
        stops: Offset of the end of each payload.
    """

    data: bytes
    times: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Record]:
        view = memoryview(self.data)
        for time, rows, start, stop in zip(
            self.times, self.rows, self.starts, self.stops, strict=True
        ):
            yield Record(time, rows, view[start:stop])

    def append(self, time: int, rows: int, start: int, stop: int) -> None:
        """Add a record."""
        self.times.append(time)
        self.rows.append(rows)
        self.starts.append(start)
        self.stops.append(stop)

    def select(self, indices: Iterable[int]) -> Records:
        """The records at some indices."""
        records = Records(data=self.data)
        for i in indices:
            records.append(self.times[i], self.rows[i], self.starts[i], self.stops[i])
        return records


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The readable content of a segment.

    Attributes:
        about: The header's JSON.
        records: Records in the order of writing.
        lost: Number of lost rows, by cause.
        lost_since: Time of the first reported loss, in nanoseconds since 1970.
    """

    about: Mapping[str, Any]
    records: Records
    lost: Counter[Cause] = field(default_factory=Counter)
    lost_since: int | None = None

    @property
    def rows(self) -> int:
        """Number of rows that could be read."""
        return sum(self.records.rows)


def header_bytes(about: Mapping[str, Any]) -> bytes:
    """Header of a segment."""
    text = json.dumps(about).encode()
    return 2 * (_FILE_HEAD.pack(_FILE_MAGIC, len(text)) + text + _crc(text))


def record_bytes(payload: bytes, *, rows: int, first_row: int, time: int) -> bytes:
    """A record of rows."""
    return _record(_DATA, payload, rows, first_row, time)


def lost_bytes(lost: Mapping[Cause, int], *, since: int, first_row: int) -> bytes:
    """A record of lost rows, the first of them lost at `since`."""
    return _record(_LOST, json.dumps(lost).encode(), sum(lost.values()), first_row, since)


def read_segment(data: bytes, name: str = "segment") -> Segment:
    """Read all valid records of a segment.

    Args:
        data: Contents of the file.
        name: Name of the file, for the message of an error.

    Raises:
        TrafficError: The header cannot be read.
    """
    about, offset = _header(data, name)
    view, size = memoryview(data), len(data)
    records, lost = Records(data=data), Counter[Cause]()
    lost_since: int | None = None
    expected, keep = 0, records.append
    unpack, unpack_sums, crc32 = _HEAD.unpack_from, _SUMS.unpack_from, zlib.crc32
    while offset + _HEAD_SIZE <= size:
        magic, kind, length, rows, first_row, time = unpack(data, offset)
        start, stop = offset + _HEAD_SIZE, offset + _HEAD_SIZE + length
        head_sum, whole_sum = unpack_sums(data, offset + _HEAD.size)
        sum_so_far = crc32(view[offset : offset + _HEAD.size])
        if magic != _MAGIC or head_sum != sum_so_far:
            offset = _next_record(data, offset + 1)
            if offset == size:
                # The number of rows was in the damaged head: at least one.
                lost["torn"] += 1
            continue
        if first_row > expected:
            lost["damaged"] += first_row - expected
        if stop > size or crc32(view[start:stop], sum_so_far) != whole_sum:
            lost["torn" if stop >= size else "damaged"] += rows
        elif kind == _LOST:
            lost.update(json.loads(data[start:stop]))
            lost_since = time if lost_since is None else min(time, lost_since)
        else:
            keep(time, rows, start, stop)
        expected, offset = first_row + (rows if kind == _DATA else 0), stop
    if offset < size:
        # Truncated within a head.
        lost["torn"] += 1
    return Segment(about=about, records=records, lost=lost, lost_since=lost_since)


def _record(kind: int, payload: bytes, rows: int, first_row: int, time: int) -> bytes:
    head = _HEAD.pack(_MAGIC, kind, len(payload), rows, first_row, time)
    head_sum = zlib.crc32(head)
    return b"".join((head, _SUMS.pack(head_sum, zlib.crc32(payload, head_sum)), payload))


def _header(data: bytes, name: str) -> tuple[Mapping[str, Any], int]:
    """The header's JSON, from the first intact copy, and the offset of the first record."""
    half = data.find(_FILE_MAGIC, 1)
    for start in (0, half):
        if start < 0 or len(data) < start + _FILE_HEAD.size:
            continue
        magic, length = _FILE_HEAD.unpack_from(data, start)
        text = data[start + _FILE_HEAD.size : start + _FILE_HEAD.size + length]
        behind = start + _FILE_HEAD.size + length + 4
        if magic == _FILE_MAGIC and data[behind - 4 : behind] == _crc(text):
            return json.loads(text), behind if start else 2 * behind
    raise TrafficError(f"{name}: the header is damaged, or the file is not a segment")


def _next_record(data: bytes, offset: int) -> int:
    """Offset of the next record with an intact head; the end of the data if there is none."""
    candidate = data.find(_MAGIC, offset)
    while 0 <= candidate <= len(data) - _HEAD_SIZE:
        (head_sum, _) = _SUMS.unpack_from(data, candidate + _HEAD.size)
        if head_sum == zlib.crc32(data[candidate : candidate + _HEAD.size]):
            return candidate
        candidate = data.find(_MAGIC, candidate + 1)
    return len(data)


def _crc(data: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(data))


def segment_begun(name: str) -> int | None:
    """Start time of a segment, from its file name, in nanoseconds since 1970."""
    try:
        moment = dt.datetime.strptime(name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000_000


def holds_records(data: bytes) -> bool:
    """Whether a segment contains any record, complete or not."""
    return _MAGIC in data


def rows_in(data: bytes) -> int:
    """Number of rows of a segment with an unreadable header, from the heads of its records."""
    rows, offset = 0, _next_record(data, 0)
    while offset < len(data):
        _, kind, length, count, _, _ = _HEAD.unpack_from(data, offset)
        rows += count if kind == _DATA else 0
        offset = _next_record(data, offset + _HEAD_SIZE + length)
    return rows
