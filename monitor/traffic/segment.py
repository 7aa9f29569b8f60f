"""A segment: what was answered, batch by batch, in the order in which it was written down.

    header   magic, size, JSON that says what the records hold, checksum; twice
    record   magic, kind, payload size, rows, number of the first row, time, two checksums; payload

A record is written in one piece. The reader takes every record whose checksum is right. One that is
not is skipped, and since rows are numbered, it is known how many were in it; an end that was cut
off is left out. A record of kind `lost` holds how many rows were not written, by cause, and since
when.
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

# Why rows are not in the log: the write took too long; the disk refused it; there was no room left
# and writing was to stop; a crash cut them off (they may never have been answered); bytes changed
# on the disk; the encoder failed on them.
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
        rows: How many.
        payload: What is known of them.
    """

    time: int
    rows: int
    payload: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Many records, by columns: an object for each would keep the garbage collector busy.

    Attributes:
        data: What their payloads are parts of.
        times: Nanoseconds since 1970.
        rows: How many rows each has.
        starts: Where its payload begins.
        stops: Where it ends.
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
        """Take in one more."""
        self.times.append(time)
        self.rows.append(rows)
        self.starts.append(start)
        self.stops.append(stop)

    def chosen(self, places: Iterable[int]) -> Records:
        """Some of them, by their places."""
        found = Records(data=self.data)
        for place in places:
            found.append(
                *(self.times[place], self.rows[place], self.starts[place], self.stops[place])
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What could be read of a segment.

    Attributes:
        about: The header's JSON.
        records: In the order in which they were written.
        lost: Rows that are not among them, by cause.
        lost_since: When the first of those was lost that it tells of, in nanoseconds since 1970.
    """

    about: Mapping[str, Any]
    records: Records
    lost: Counter[Cause] = field(default_factory=Counter)
    lost_since: int | None = None

    @property
    def rows(self) -> int:
        """How many could be read."""
        return sum(self.records.rows)


def header_bytes(about: Mapping[str, Any]) -> bytes:
    """The start of a segment's file."""
    text = json.dumps(about).encode()
    return 2 * (_FILE_HEAD.pack(_FILE_MAGIC, len(text)) + text + _crc(text))


def record_bytes(payload: bytes, *, rows: int, first_row: int, time: int) -> bytes:
    """A record of rows."""
    return _record(_DATA, payload, rows, first_row, time)


def lost_bytes(lost: Mapping[Cause, int], *, since: int, first_row: int) -> bytes:
    """A record of rows that were not written, the first of them at that time."""
    return _record(_LOST, json.dumps(lost).encode(), sum(lost.values()), first_row, since)


def read_segment(data: bytes) -> Segment:
    """Everything good in a segment's bytes.

    Raises:
        TrafficError: Not even its header can be read.
    """
    about, place = _header(data)
    view, size = memoryview(data), len(data)
    records, lost = Records(data=data), Counter[Cause]()
    lost_since: int | None = None
    expected, keep = 0, records.append
    unpack, unpack_sums, crc32 = _HEAD.unpack_from, _SUMS.unpack_from, zlib.crc32
    while place + _HEAD_SIZE <= size:
        magic, kind, length, rows, first_row, time = unpack(data, place)
        start, stop = place + _HEAD_SIZE, place + _HEAD_SIZE + length
        head_sum, whole_sum = unpack_sums(data, place + _HEAD.size)
        sum_so_far = crc32(view[place : place + _HEAD.size])
        if magic != _MAGIC or head_sum != sum_so_far:
            place = _next_record(data, place + 1)
            if place == size:
                # With the head went how many rows there were: one at least.
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
        expected, place = first_row + (rows if kind == _DATA else 0), stop
    if place < size:
        # The end of a head is missing.
        lost["torn"] += 1
    return Segment(about=about, records=records, lost=lost, lost_since=lost_since)


def _record(kind: int, payload: bytes, rows: int, first_row: int, time: int) -> bytes:
    head = _HEAD.pack(_MAGIC, kind, len(payload), rows, first_row, time)
    head_sum = zlib.crc32(head)
    return b"".join((head, _SUMS.pack(head_sum, zlib.crc32(payload, head_sum)), payload))


def _header(data: bytes) -> tuple[Mapping[str, Any], int]:
    """What the records hold, and where they begin. The header stands there twice."""
    half = data.find(_FILE_MAGIC, 1)
    for start in (0, half):
        if start < 0 or len(data) < start + _FILE_HEAD.size:
            continue
        magic, length = _FILE_HEAD.unpack_from(data, start)
        text = data[start + _FILE_HEAD.size : start + _FILE_HEAD.size + length]
        behind = start + _FILE_HEAD.size + length + 4
        if magic == _FILE_MAGIC and data[behind - 4 : behind] == _crc(text):
            return json.loads(text), behind if start else 2 * behind
    raise TrafficError("the header of the segment cannot be read")


def _next_record(data: bytes, place: int) -> int:
    """Where the next record begins whose head is whole; the end if there is none."""
    found = data.find(_MAGIC, place)
    while 0 <= found <= len(data) - _HEAD_SIZE:
        (head_sum, _) = _SUMS.unpack_from(data, found + _HEAD.size)
        if head_sum == zlib.crc32(data[found : found + _HEAD.size]):
            return found
        found = data.find(_MAGIC, found + 1)
    return len(data)


def _crc(data: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(data))


def segment_begun(name: str) -> int | None:
    """When a segment was begun, by the name of its file, in nanoseconds since 1970."""
    try:
        moment = dt.datetime.strptime(name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000_000


def holds_records(data: bytes) -> bool:
    """Whether any record was ever begun in a segment; none was in one that a crash cut short."""
    return _MAGIC in data


def rows_in(data: bytes) -> int:
    """How many rows a segment holds whose header cannot be read, by the heads of its records."""
    rows, place = 0, _next_record(data, 0)
    while place < len(data):
        _, kind, length, count, _, _ = _HEAD.unpack_from(data, place)
        rows += count if kind == _DATA else 0
        place = _next_record(data, place + _HEAD_SIZE + length)
    return rows
