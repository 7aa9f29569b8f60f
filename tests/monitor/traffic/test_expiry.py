"""What is older than it may be kept is deleted, the rest stays, and the ledger says so."""

from __future__ import annotations

import datetime as dt
import shutil

from monitor.traffic.expiry import expire
from monitor.traffic.ledger import read_ledger
from monitor.traffic.store import Store
from tests.commands import evenhand

TODAY = dt.datetime.now(dt.UTC).date()


def aged(logged, days: int) -> Store:
    """The log with a second day, which is older."""
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


def test_old_files_and_their_entries_go_and_the_rest_stays(logged):
    store = aged(logged, 40)
    found = expire(store, TODAY - dt.timedelta(days=30))
    assert (found.files, found.rows) == (1, 120)
    assert len(store.files(suffix=".parquet")) == 1
    (entry,), unreadable = read_ledger(store)
    assert entry.segment != "old"
    assert not unreadable


def test_the_first_day_that_is_kept_is_kept(logged):
    store = aged(logged, 30)
    assert expire(store, TODAY - dt.timedelta(days=30)).files == 0
    assert expire(store, TODAY - dt.timedelta(days=29)).files == 1


def test_a_dry_run_deletes_nothing(logged):
    store = aged(logged, 40)
    before = store.files()
    assert expire(store, TODAY, dry_run=True).files == 1
    assert store.files() == before


def test_a_segment_over_two_days_keeps_its_entry_and_says_what_went(logged):
    store = aged(logged, 40)
    entries, _ = read_ledger(store)
    old = next(entry for entry in entries if entry.segment == "old")
    new = next(entry for entry in entries if entry.segment != "old")
    both = old.model_copy(
        update={"files": (*old.files, *new.files), "until": dt.datetime.now(dt.UTC)}
    )
    store.put(both.path, both.model_dump_json().encode())
    expire(store, TODAY)
    kept = next(entry for entry in read_ledger(store)[0] if entry.segment == "old")
    assert [file.removed for file in kept.files] == ["expired", None]


def test_the_command_goes_by_class(logged, tmp_path):
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
