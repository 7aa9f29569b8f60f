"""Copies in a log are noticed by content: whole files are read once, copies in part are refused."""

from __future__ import annotations

import datetime as dt
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from monitor.traffic.erasure import LogLocation, erase
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.store import Store
from offline_audit import AuditInputError, Window, audit_window
from offline_audit.window import copies
from offline_audit.window.files import ReadFile
from offline_audit.window.summary import summarise
from tests.traffic_logs import (
    MODEL,
    outcome_rows,
    traffic_rows,
    write_outcomes,
    write_traffic,
)

ROWS = traffic_rows(400)
HOUR = f"model={MODEL}/version=1/date=2026-03-01/hour=22"
NEXT = f"model={MODEL}/version=1/date=2026-03-01/hour=23"
V2 = f"model={MODEL}/version=2/date=2026-03-01/hour=22"


@pytest.fixture
def root(tmp_path):
    write_traffic(tmp_path / "log", ROWS)
    write_outcomes(tmp_path / "outcomes", outcome_rows(ROWS))
    return tmp_path


def seen(root):
    """Counts and provenance of the window, and its digest."""
    with Window.read(root / "log", root / "outcomes") as window:
        return window.counts("sex"), window.provenance, window.facts.sha256


def copied(root, target, log="log", **changes):
    """Write the first file of a log once more, byte by byte or changed."""
    source = root / log / HOUR / "s1.parquet"
    if log == "outcomes":
        source = sorted((root / log).rglob("*.parquet"))[0]
        target = source.parent.relative_to(root / log) / target
    path = root / log / target
    path.parent.mkdir(parents=True, exist_ok=True)
    if not changes:
        shutil.copy(source, path)
        return
    table = pq.read_table(source, partitioning=None)
    if not changes.pop("metadata", True):
        table = table.replace_schema_metadata(None)
    if changes.pop("reversed", False):
        table = table.take(np.arange(len(table))[::-1])
    pq.write_table(table, path, **changes)


@pytest.mark.parametrize("ledger", [True, False], ids=["with ledger", "without ledger"])
@pytest.mark.parametrize(
    ("target", "changes"),
    [
        (f"{HOUR}/copy.parquet", {}),
        (f"{HOUR}/a.parquet", {}),
        (f"{NEXT}/s1-copy.parquet", {}),
        (f"{V2}/s1.parquet", {}),
        (f"{HOUR}/copy.parquet", {"compression": "snappy", "row_group_size": 7}),
        (f"{HOUR}/copy.parquet", {"reversed": True}),
        (f"{HOUR}/copy.parquet", {"reversed": True, "write_statistics": False}),
    ],
    ids=["another name", "an earlier name", "hour", "version", "packed", "sorted", "no statistics"],
)
def test_a_file_that_is_there_twice_is_read_once(root, target, changes, ledger):
    if not ledger:
        shutil.rmtree(root / "log/_ledger")
    counts, _, digest = seen(root)
    copied(root, target, **changes)
    counted, provenance, same = seen(root)
    reading = provenance.log.reading
    assert (counted, provenance.rows.rows, provenance.rows.duplicated) == (counts, 400, 0)
    (copy,) = reading.copies
    assert {copy.path, copy.of} == {target, f"{HOUR}/s1.parquet"}
    if ledger:
        assert (copy.path, same) == (target, digest)
    assert provenance.complete
    (warning,) = [text for text in provenance.warnings if "the same rows are in another" in text]
    assert warning.startswith("1 file of the traffic log with 100 rows was not read")
    assert provenance.to_dict()["log"]["copies"][0]["rows"] == 100


def test_without_metadata_a_copy_is_noticed_by_rows_and_times(root):
    copied(root, f"{HOUR}/copy.parquet", metadata=False)
    counts, provenance, _ = seen(root)
    assert (counts.rows, len(provenance.log.copies)) == (400, 1)
    assert "1 with the rows of another" in str(summarise(root / "log"))


def test_a_copy_from_before_an_erasure_is_not_read(root):
    copied(root, f"{HOUR}/copy.parquet")
    kept = root / "copy"
    shutil.move(root / "log" / HOUR / "copy.parquet", kept)
    location = LogLocation(store=Store.open(root / "log"))
    erase(ROWS["request_id"][0].as_py(), [location], Pseudonyms(None))
    counts, before, _ = seen(root)
    shutil.move(kept, root / "log" / HOUR / "copy.parquet")
    counted, provenance, _ = seen(root)
    assert (counted, provenance.rows.rows) == (counts, before.rows.rows)
    assert [copy.path for copy in provenance.log.copies] == [f"{HOUR}/copy.parquet"]


def test_outcomes_that_are_there_twice_are_read_once(root):
    _, before, digest = seen(root)
    copied(root, "again.parquet", log="outcomes")
    _, provenance, same = seen(root)
    assert (provenance.outcome_facts, same) == (before.outcome_facts, digest)
    assert len(provenance.outcomes.reading.copies) == 1
    assert any("1 file of the outcomes" in text for text in provenance.warnings)


def test_the_whole_log_restored_under_other_names_counts_once(root):
    shutil.rmtree(root / "log/_ledger")
    for path in (root / "log").rglob("*.parquet"):
        shutil.copy(path, path.with_name("restored.parquet"))
    counts, provenance, _ = seen(root)
    assert (counts.rows, len(provenance.log.copies)) == (400, 4)


@pytest.mark.parametrize("change", ["request_id", "decision", "time"])
def test_files_with_as_many_rows_at_the_same_times_but_other_content_are_not_copies(root, change):
    """Two sidecars, or two versions of a model, may log at the same times."""
    values = {
        "request_id": pc.utf8_reverse(ROWS["request_id"]).combine_chunks(),
        "decision": pc.subtract(pa.scalar(1, pa.int8()), ROWS["decision"]).combine_chunks(),
        "time": pc.add(ROWS["time"], pa.scalar(dt.timedelta(microseconds=1))).combine_chunks(),
    }
    other = ROWS.set_column(ROWS.schema.get_field_index(change), change, values[change])
    write_traffic(root / "log", other, segment="s2")
    counts, provenance, _ = seen(root)
    assert (counts.rows, provenance.rows.copied) == (800, 0)
    assert provenance.log.copies == ()
    assert provenance.rows.duplicated == (0 if change == "request_id" else 400)


def test_rows_are_compared_only_if_footers_suggest_a_copy(root, monkeypatch):
    """Logs of many sidecars with the same load must not be read twice."""
    ids = pc.utf8_reverse(ROWS["request_id"]).combine_chunks()
    other = ROWS.set_column(0, "request_id", ids)
    write_traffic(root / "log", other, segment="s2")
    compared: list[str] = []

    def record(store: Store, kind: str, file: ReadFile, other: ReadFile) -> bool:
        compared.append(file.path)
        return False

    monkeypatch.setattr(copies, "_same_rows", record)
    assert seen(root)[0].rows == 800
    assert compared == []
    copied(root, f"{HOUR}/copy.parquet")
    with Window.read(root / "log") as window:
        assert window.provenance.rows.copied == 100
    assert set(compared) == {f"{HOUR}/copy.parquet"}


def test_copies_in_part_are_counted_and_audits_refuse_the_window(root):
    write_traffic(root / "log", ROWS.slice(0, 40), segment="part", listed=False)
    with Window.read(root / "log", root / "outcomes") as window:
        provenance = window.provenance
        assert provenance.log.copies == ()
        assert (provenance.rows.rows, provenance.rows.copied) == (440, 40)
        assert any("40 rows are logged twice" in text for text in provenance.warnings)
        for audit in ("permutation", "projection"):
            with pytest.raises(
                AuditInputError, match=r"window: 40 rows of the log .*part\.parquet"
            ):
                audit_window(window, audit)


def test_a_request_that_was_sent_twice_is_not_a_copy(root):
    later = pc.add(ROWS["time"], pa.scalar(dt.timedelta(seconds=9)))
    again = ROWS.set_column(ROWS.schema.get_field_index("time"), "time", later).slice(0, 40)
    write_traffic(root / "log", again, segment="s2")
    counts, provenance, _ = seen(root)
    assert (counts.rows, provenance.rows.duplicated, provenance.rows.copied) == (440, 40, 0)
