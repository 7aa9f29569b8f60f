"""Compaction converts a segment to Parquet files, with the same result when repeated."""

from __future__ import annotations

import datetime as dt
import json
from unittest import mock

import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from monitor.errors import TrafficError
from monitor.traffic.columns import METADATA_KEY, outcome_schema
from monitor.traffic.compaction import compact
from monitor.traffic.outcomes import Outcome
from monitor.traffic.outcomes import payload as outcome_payload
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.segment import header_bytes, lost_bytes, record_bytes
from monitor.traffic.store import Store
from tests.spooling import ABOUT, COLUMNS, entries, logged, moment, payload

BEGUN = "2026-03-01T23:50:00+00:00"
MIDNIGHT = moment(2026, 3, 2)
MINUTE = 60 * 10**9
LOST = MIDNIGHT - 4 * 60 * MINUTE


@pytest.fixture
def segment(tmp_path):
    """Rows from before and after midnight, and three that were lost."""
    records = [
        record_bytes(payload((f"r{n}", [n, n + 0.5])), rows=2, first_row=2 * n, time=time)
        for n, time in enumerate([MIDNIGHT - MINUTE, MIDNIGHT, MIDNIGHT + MINUTE])
    ]
    header = header_bytes({**ABOUT, "segment": "s1", "begun": BEGUN})
    path = tmp_path / "s1.segment"
    path.write_bytes(header + lost_bytes({"disk": 3}, since=LOST, first_row=0) + b"".join(records))
    return path


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "log")


def test_rows_are_partitioned_by_hour_and_listed_in_the_ledger(segment, store, tmp_path):
    entry = compact(segment, store, tmp_path / "draft")
    folder = "model=lending/version=1"
    assert [file.path for file in store.files(suffix=".parquet")] == [
        f"{folder}/date=2026-03-01/hour=23/s1.parquet",
        f"{folder}/date=2026-03-02/hour=00/s1.parquet",
    ]
    assert [(file.rows, store.sha256(file.path) == file.sha256) for file in entry.files] == [
        (2, True),
        (4, True),
    ]
    assert entries(store) == [entry]
    assert (entry.rows, entry.lost) == (6, {"disk": 3})
    # Three rows were lost before the segment was begun.
    assert entry.since == dt.datetime(2026, 3, 1, 20, tzinfo=dt.UTC)
    assert entry.until == dt.datetime(2026, 3, 2, 0, 1, tzinfo=dt.UTC)
    assert logged(store) == [(f"r{n}", row, n + row / 2) for n in range(3) for row in range(2)]
    assert segment.exists()
    assert not (tmp_path / "draft").exists()


def test_repeated_compaction_writes_the_same_bytes(segment, store, tmp_path):
    once = compact(segment, store, tmp_path / "draft")
    assert compact(segment, store, tmp_path / "draft") == once
    assert len(entries(store)) == 1


def test_files_have_metadata_that_describe_their_columns(segment, store, tmp_path):
    entry = compact(segment, store, tmp_path / "draft")
    file = pq.ParquetFile(store.path(entry.files[0].path))
    about = json.loads(file.schema_arrow.metadata[METADATA_KEY])
    assert about["model"] == "lending"
    assert about["columns"] == COLUMNS.to_json()
    assert file.schema_arrow.equals(COLUMNS.schema)


def test_engines_read_the_log_as_one_partitioned_table(segment, store, tmp_path):
    compact(segment, store, tmp_path / "draft")
    table = dataset.dataset(store.root, partitioning="hive").to_table()
    assert table.num_rows == 6
    assert set(table["date"].to_pylist()) == {"2026-03-01", "2026-03-02"}


def test_an_empty_segment_has_a_ledger_entry_and_no_file(store, tmp_path):
    path = tmp_path / "s1.segment"
    path.write_bytes(header_bytes({**ABOUT, "segment": "s1", "begun": BEGUN}))
    entry = compact(path, store, tmp_path / "draft")
    assert (entry.rows, entry.files) == (0, ())
    assert entries(store) == [entry]


def test_a_file_that_is_not_a_segment_is_rejected(store, tmp_path):
    (tmp_path / "s1.segment").write_bytes(b"something else")
    with pytest.raises(TrafficError):
        compact(tmp_path / "s1.segment", store, tmp_path / "draft")
    assert store.files() == []


def test_the_ledger_entry_is_written_after_all_files(segment, store, tmp_path):
    real, calls = store.put_file, []

    def put_file(inside, source):
        calls.append(inside)
        if len(calls) == 2:
            raise OSError("the second file fails")
        real(inside, source)

    with (
        mock.patch.object(store, "put_file", put_file),
        pytest.raises(OSError, match="second file"),
    ):
        compact(segment, store, tmp_path / "draft")
    assert entries(store) == []
    assert not (tmp_path / "draft").exists()
    compact(segment, store, tmp_path / "draft")
    assert len(logged(store)) == 6


def test_many_records_become_one_file(store, tmp_path):
    """More rows than are converted to a table at once."""
    count = 3000
    records = [
        record_bytes(payload((f"r{n}", [n] * 50)), rows=50, first_row=50 * n, time=MIDNIGHT)
        for n in range(count)
    ]
    path = tmp_path / "s1.segment"
    header = header_bytes({**ABOUT, "segment": "s1", "begun": BEGUN})
    path.write_bytes(header + b"".join(records))
    (file,) = compact(path, store, tmp_path / "draft").files
    assert file.rows == 50 * count
    rows = logged(store)
    assert rows[:: 50 * 100] == [(f"r{n}", 0, float(n)) for n in range(0, count, 100)]


def test_outcomes_are_partitioned_by_day(store, tmp_path):
    about = {**ABOUT, "kind": "outcomes", "attributes": {"sex": ["female", "male"]}}
    header = header_bytes({**about, "segment": "o1", "begun": BEGUN})
    now = dt.datetime.fromisoformat(BEGUN)
    lots = [
        outcome_payload([Outcome(request_id=f"r{n}", label=n % 2)], Pseudonyms(None), "rpc", now)
        for n in range(3)
    ]
    times = (MIDNIGHT - MINUTE, MIDNIGHT, MIDNIGHT + MINUTE)
    path = tmp_path / "o1.segment"
    path.write_bytes(
        header
        + b"".join(
            record_bytes(data, rows=1, first_row=n, time=time)
            for n, (data, time) in enumerate(zip(lots, times, strict=True))
        )
    )
    entry = compact(path, store, tmp_path / "draft")
    assert [(file.path, file.rows) for file in entry.files] == [
        ("model=lending/date=2026-03-01/o1.parquet", 1),
        ("model=lending/date=2026-03-02/o1.parquet", 2),
    ]
    table = pq.read_table(store.path(entry.files[1].path), partitioning=None)
    assert table["request_id"].to_pylist() == ["r1", "r2"]
    assert table.schema.equals(outcome_schema(("sex",)))
