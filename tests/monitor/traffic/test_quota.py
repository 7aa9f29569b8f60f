"""The disk quota: all files count, and the oldest is evicted first, by its date and hour."""

from __future__ import annotations

import datetime as dt

import pytest

from monitor.traffic.ledger import LedgerFile, SegmentEntry, write_entry
from monitor.traffic.quota import evict_oldest_file, used_bytes
from monitor.traffic.store import Store
from tests.spooling import entries


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path)


def put(store: Store, segment: str, *partitions: str) -> None:
    """A segment's files in some partitions, and its entry."""
    files = []
    for partition in partitions:
        path = f"model=m/version=1/{partition}/{segment}.parquet"
        store.put(path, b"x" * 100)
        files.append(LedgerFile(path=path, rows=7, bytes=100, sha256="0" * 64))
    moment = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    about = {"kind": "traffic", "model": "m", "version": "1", "since": moment, "until": moment}
    write_entry(store, SegmentEntry(segment=segment, rows=7, files=tuple(files), **about))


def test_all_files_count_including_hidden_ones(store, tmp_path):
    assert used_bytes(store) == 0
    store.put("a/b/.draft", b"12345")
    store.put("_segments/s1.segment", b"123")
    assert used_bytes(store) == 8


def test_the_oldest_file_is_evicted_whatever_its_name(store, tmp_path):
    put(store, "b", "date=2026-03-01/hour=10")
    put(store, "a", "date=2026-03-02/hour=09", "date=2026-03-01/hour=09")
    order = []
    while dropped := evict_oldest_file(store):
        assert (dropped.rows, dropped.bytes) == (7, 100)
        order.append(dropped.path.split("/")[2:4])
    assert order == [
        ["date=2026-03-01", "hour=09"],
        ["date=2026-03-01", "hour=10"],
        ["date=2026-03-02", "hour=09"],
    ]
    assert {f.removed for entry in entries(store) for f in entry.files} == {"quota"}
    assert not (tmp_path / "model=m").exists()


def test_the_ledger_marks_only_the_evicted_file(store):
    put(store, "a", "date=2026-03-02/hour=09", "date=2026-03-01/hour=09")
    evict_oldest_file(store)
    (entry,) = entries(store)
    assert [file.removed for file in entry.files] == [None, "quota"]


def test_a_file_that_the_ledger_does_not_list_is_evicted_too(store):
    store.put("model=m/version=1/date=2026-03-01/hour=09/s.parquet", b"12345")
    dropped = evict_oldest_file(store)
    assert dropped is not None
    assert (dropped.rows, dropped.bytes) == (0, 5)
    assert evict_oldest_file(store) is None
