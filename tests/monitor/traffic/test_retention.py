"""Old files are deleted, by their age or when the disk quota is reached; the ledger records it."""

from __future__ import annotations

import datetime as dt
import shutil

import pytest

from monitor.traffic.ledger import LedgerFile, SegmentEntry, read_ledger, write_entry
from monitor.traffic.retention import evict_oldest_file, expire, used_bytes
from monitor.traffic.store import Store
from tests.commands import evenhand
from tests.spooling import entries

TODAY = dt.datetime.now(dt.UTC).date()


def aged(logged, days: int) -> Store:
    """The log with a second file, `days` older."""
    store = Store.open(logged.log)
    (entry,), _ = read_ledger(store)
    old = TODAY - dt.timedelta(days=days)
    (file,) = entry.files
    path = file.path.replace(entry.segment, "old").replace(
        f"date={entry.since:%Y-%m-%d}", f"date={old}"
    )
    store.put(path, store.read(file.path))
    since = entry.since - dt.timedelta(days=days)
    moved = entry.model_copy(
        update={
            "segment": "old",
            "since": since,
            "until": since,
            "files": (file.model_copy(update={"path": path}),),
        }
    )
    store.put(moved.path, moved.model_dump_json().encode())
    return store


def test_old_files_and_their_entries_are_deleted(logged):
    store = aged(logged, 40)
    expired = expire(store, TODAY - dt.timedelta(days=30))
    assert (expired.files, expired.rows) == (1, 120)
    assert len(store.files(suffix=".parquet")) == 1
    (entry,), unreadable = read_ledger(store)
    assert entry.segment != "old"
    assert not unreadable


def test_the_day_of_the_limit_is_kept(logged):
    store = aged(logged, 30)
    assert expire(store, TODAY - dt.timedelta(days=30)).files == 0
    assert expire(store, TODAY - dt.timedelta(days=29)).files == 1


def test_a_dry_run_deletes_nothing(logged):
    store = aged(logged, 40)
    before = store.files()
    assert expire(store, TODAY, dry_run=True).files == 1
    assert store.files() == before


def test_an_entry_over_two_days_stays_and_marks_the_deleted_file(logged):
    store = aged(logged, 40)
    entries, _ = read_ledger(store)
    old = next(entry for entry in entries if entry.segment == "old")
    new = next(entry for entry in entries if entry.segment != "old")
    both = old.model_copy(
        update={"files": (*old.files, *new.files), "until": dt.datetime.now(dt.UTC)}
    )
    store.put(both.path, both.model_dump_json().encode())
    expire(store, TODAY)
    entry = next(entry for entry in read_ledger(store)[0] if entry.segment == "old")
    assert [file.removed for file in entry.files] == ["expired", None]


def test_the_command_applies_one_retention_per_kind_of_file(logged, tmp_path):
    store = aged(logged, 40)
    findings = tmp_path / "findings" / f"date={TODAY - dt.timedelta(days=400)}"
    findings.mkdir(parents=True)
    (findings / "finding.json").write_text("{}")
    shutil.copytree(findings, tmp_path / "findings" / f"date={TODAY}")
    result = evenhand(
        *("log", "expire", "--log", logged.log, "--outcomes", logged.outcomes),
        *("--findings", tmp_path / "findings"),
        *("--traffic-days", 30, "--outcomes-days", 30, "--findings-days", 365),
    )
    assert result.exit_code == 0
    assert "traffic: deleted 1 files, 120 rows" in result.stdout
    assert "outcomes: deleted 0 files" in result.stdout
    assert "findings: deleted 1 files" in result.stdout
    assert len(store.files(suffix=".parquet")) == 1
    assert len(list((tmp_path / "findings").rglob("*.json"))) == 1


def test_the_command_reads_the_config(logged, tmp_path):
    aged(logged, 40)
    config = tmp_path / "config.yaml"
    config.write_text(f"traffic: {{path: {logged.log}}}\nretention: {{traffic_days: 10}}\n")
    assert "1 files" in evenhand("log", "expire", "--config", config).stdout
    nothing = evenhand("log", "expire", "--log", logged.log)
    assert nothing.exit_code == 2
    assert "its retention" in nothing.stderr.replace("\n", " ")


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
