"""The reader of segments uses all valid records and counts the others."""

from __future__ import annotations

import zlib
from itertools import accumulate, pairwise
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.errors import TrafficError
from monitor.traffic.segment import (
    header_bytes,
    lost_bytes,
    read_segment,
    record_bytes,
    rows_in,
)

ABOUT = {"model": "lending", "segment": "s1"}
HEADER = header_bytes(ABOUT)
# Magic, kind, sizes, numbers and time, and two checksums.
HEAD = 37

Written = list[tuple[int, bytes]]
records = st.lists(
    st.tuples(st.integers(1, 9), st.binary(max_size=60) | st.just(b"EVHR" * 10)), max_size=8
)


def pieces(written: Written) -> list[bytes]:
    """The bytes of each record, of rows and a payload."""
    first = accumulate((rows for rows, _ in written), initial=0)
    return [
        record_bytes(payload, rows=rows, first_row=start, time=1000 + index)
        for index, ((rows, payload), start) in enumerate(zip(written, first, strict=False))
    ]


def decoded(data: bytes) -> Written:
    return [(record.rows, bytes(record.payload)) for record in read_segment(data).records]


@given(records)
def test_records_are_read_in_the_order_of_writing(written):
    segment = read_segment(HEADER + b"".join(pieces(written)))
    assert segment.about == ABOUT
    assert [(r.rows, bytes(r.payload)) for r in segment.records] == written
    assert [record.time for record in segment.records] == [1000 + n for n in range(len(written))]
    assert segment.rows == sum(rows for rows, _ in written)
    assert not segment.lost


@given(records, st.dictionaries(st.sampled_from(["slow", "disk", "full"]), st.integers(1, 99)))
def test_losses_are_reported_by_cause(written, lost):
    loss_record = lost_bytes(lost, since=1, first_row=0)
    segment = read_segment(HEADER + loss_record + b"".join(pieces(written)) + loss_record)
    assert segment.lost == {cause: 2 * rows for cause, rows in lost.items()}
    assert segment.rows == sum(rows for rows, _ in written)


WRITTEN: Written = [(3, b"three rows"), (1, b""), (5, b"EVHR within"), (2, b"the last two")]
PIECES = pieces(WRITTEN)
WHOLE = HEADER + b"".join(PIECES)
EDGES = list(accumulate((len(piece) for piece in PIECES), initial=len(HEADER)))


@pytest.mark.parametrize("size", range(len(WHOLE) + 1))
def test_a_segment_truncated_anywhere_gives_all_complete_records(size):
    """After a cut within a head the number of its rows is unknown: at least one."""
    data = WHOLE[:size]
    if size < len(HEADER) // 2:
        with pytest.raises(TrafficError, match="header"):
            read_segment(data)
        return
    segment = read_segment(data)
    whole = sum(edge <= size for edge in EDGES[1:])
    assert decoded(data) == WRITTEN[:whole]
    behind = size - EDGES[whole]
    torn = 0 if behind <= 0 else 1 if behind < HEAD else WRITTEN[whole][0]
    assert segment.lost.total() == torn
    assert set(segment.lost) <= {"torn"}


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_loses_only_its_own_record(bit):
    for offset in range(len(WHOLE)):
        data = bytearray(WHOLE)
        data[offset] ^= 1 << bit
        segment = read_segment(bytes(data))
        assert segment.about == ABOUT
        damaged_record = next(
            (n for n, (a, b) in enumerate(pairwise(EDGES)) if a <= offset < b), None
        )
        if damaged_record is None:
            assert decoded(bytes(data)) == WRITTEN, offset
            assert not segment.lost, offset
            continue
        assert decoded(bytes(data)) == WRITTEN[:damaged_record] + WRITTEN[damaged_record + 1 :], (
            offset
        )
        in_last_head = damaged_record == len(WRITTEN) - 1 and offset < EDGES[damaged_record] + HEAD
        least = 1 if in_last_head else WRITTEN[damaged_record][0]
        assert least <= segment.lost.total() <= WRITTEN[damaged_record][0], offset


@given(st.data(), records.filter(bool))
def test_undamaged_records_are_read_next_to_damaged_ones(data, written):
    parts = [bytearray(piece) for piece in pieces(written)]
    damage = data.draw(st.lists(st.sampled_from(["", "head", "payload"]), min_size=len(parts)))
    damaged = [
        bool(how) and (how == "head" or len(part) > HEAD)
        for how, part in zip(damage, parts, strict=False)
    ]
    for how, part, is_damaged in zip(damage, parts, damaged, strict=False):
        if is_damaged:
            part[HEAD if how == "payload" else data.draw(st.integers(0, HEAD - 1))] ^= 0x10
    segment = read_segment(HEADER + b"".join(parts))
    assert [(r.rows, bytes(r.payload)) for r in segment.records] == [
        record for record, is_damaged in zip(written, damaged, strict=True) if not is_damaged
    ]
    missing = sum(
        rows for (rows, _), is_damaged in zip(written, damaged, strict=True) if is_damaged
    )
    if damaged[-1] and damage[len(parts) - 1] == "head":
        # The number of rows in the last records is unknown, but at least one.
        assert 1 <= segment.lost.total() <= missing
    else:
        assert segment.lost.total() == missing


@given(st.binary(max_size=300))
def test_bytes_that_are_not_a_segment_are_rejected(data):
    with pytest.raises(TrafficError):
        read_segment(data)


def test_either_copy_of_the_header_is_sufficient():
    half = len(HEADER) // 2
    for start in (0, half):
        data = WHOLE[:start] + bytes(half) + WHOLE[start + half :]
        assert decoded(data) == WRITTEN
        assert not read_segment(data).lost


@given(records)
def test_rows_can_be_counted_without_a_header(written):
    data = bytes(len(HEADER)) + b"".join(pieces(written))
    with pytest.raises(TrafficError):
        read_segment(data)
    assert rows_in(data) == sum(rows for rows, _ in written)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_counting_rows_never_fails(data):
    assert rows_in(data) == 0


def test_counting_rows_reads_the_head_of_each_record_once():
    """Counting a segment of 64 MiB would otherwise block predictions."""
    count = 30_000
    data = HEADER + b"".join(pieces([(1, b"x" * 300)] * count))
    with mock.patch("monitor.traffic.segment.zlib.crc32", wraps=zlib.crc32) as checksum:
        assert rows_in(data) == count
    assert checksum.call_count == count
    assert max(len(call.args[0]) for call in checksum.call_args_list) < HEAD
