"""The ledger lists segments by time and by file."""

from __future__ import annotations

import datetime as dt

import pytest

from monitor.errors import TrafficError
from monitor.traffic.ledger import (
    LedgerFile,
    SegmentEntry,
    entry_of,
    mark_removed,
    read_ledger,
    write_entry,
)
from monitor.traffic.store import Store


def day(number: int, hour: int = 0) -> dt.datetime:
    return dt.datetime(2026, 3, number, hour, tzinfo=dt.UTC)


def entry(segment: str, since: dt.datetime, until: dt.datetime, *paths: str) -> SegmentEntry:
    files = tuple(LedgerFile(path=path, rows=5, bytes=100, sha256="0" * 64) for path in paths)
    about = {"kind": "traffic", "model": "lending", "version": "1"}
    return SegmentEntry(
        segment=segment, since=since, until=until, rows=9, lost={"slow": 2}, files=files, **about
    )


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path)


def test_an_entry_is_read_as_it_was_written(store):
    written = entry("s1", day(1), day(2), "a/s1.parquet")
    write_entry(store, written)
    assert read_ledger(store) == ([written], [])
    assert [file.path for file in store.files()] == ["_ledger/date=2026-03-01/s1.json"]


def test_writing_an_entry_again_replaces_it(store):
    write_entry(store, entry("s1", day(1), day(2)))
    again = entry("s1", day(1), day(2), "a/s1.parquet")
    write_entry(store, again)
    assert read_ledger(store)[0] == [again]


def test_entries_are_found_by_the_time_of_their_rows(store):
    for name, since, until in (("s1", 1, 2), ("s2", 2, 4), ("s3", 5, 5)):
        write_entry(store, entry(name, day(since), day(until, 12)))

    def segments(since: dt.datetime | None, until: dt.datetime | None) -> list[str]:
        return [item.segment for item in read_ledger(store, since, until)[0]]

    assert segments(None, None) == ["s1", "s2", "s3"]
    assert segments(day(3), None) == ["s2", "s3"]
    assert segments(None, day(2)) == ["s1"]
    assert segments(None, day(2, 1)) == ["s1", "s2"]
    assert segments(day(4, 13), day(5)) == []
    # The end of a segment is inclusive, the end of a span is exclusive.
    assert segments(day(4, 12), day(5)) == ["s2"]


def test_an_unreadable_entry_is_reported(store):
    write_entry(store, entry("s1", day(1), day(2)))
    store.put("_ledger/date=2026-03-01/s2.json", b'{"segment": "s2"')
    entries, unreadable = read_ledger(store)
    assert [item.segment for item in entries] == ["s1"]
    assert unreadable == ["_ledger/date=2026-03-01/s2.json"]


def test_a_missing_log_has_an_empty_ledger(tmp_path):
    assert read_ledger(Store.open(tmp_path / "nowhere")) == ([], [])


def test_a_ledger_that_cannot_be_listed_is_an_error_with_the_location(tmp_path):
    (tmp_path / "_ledger").write_text("a file where a folder should be")
    with pytest.raises(TrafficError, match=f"{tmp_path}: the ledger cannot be listed"):
        read_ledger(Store.open(tmp_path))


def test_the_entry_of_a_file_is_found(store):
    written = entry("s1", day(1), day(2), "a/s1.parquet", "b/s1.parquet")
    write_entry(store, written)
    write_entry(store, entry("s10", day(1), day(2), "a/s10.parquet"))
    assert entry_of(store, "b/s1.parquet") == written
    assert entry_of(store, "c/s1.parquet") is None
    assert entry_of(store, "a/s2.parquet") is None


def test_deliberate_deletions_are_recorded_with_a_reason(store):
    written = entry("s1", day(1), day(2), "a/s1.parquet", "b/s1.parquet")
    write_entry(store, written)
    changed = mark_removed(store, written, {"a/s1.parquet"}, "expired")
    assert [file.removed for file in changed.files] == ["expired", None]
    assert read_ledger(store)[0] == [changed]
