"""The spool converts segments to Parquet once, retries on failure and evicts the oldest first."""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest import mock

import pytest

from monitor.errors import ServeError
from monitor.traffic.spool import ROLL_REQUEST, SEGMENTS
from monitor.traffic.store import Store
from tests.spooling import (
    entries,
    hidden_files,
    logged,
    lost_counts,
    moment,
    open_spool,
    payload,
    segments,
    spooling,
)


@pytest.fixture(autouse=True)
def _frequent_maintenance(monkeypatch):
    monkeypatch.setattr("monitor.traffic.spool._TICK", 0.01)


def until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def write(spool, first: int, count: int, rows: int = 1) -> list[tuple[str, int, float]]:
    """Write requests of some rows; return the rows expected in the log."""
    expected = []
    for n in range(first, first + count):
        assert spool.appender.write(payload((f"r{n}", [float(n)] * rows)), rows)
        expected += [(f"r{n}", row, float(n)) for row in range(rows)]
    return expected


def crashed(home: Path, count: int = 5) -> list[tuple[str, int, float]]:
    """A folder after its process was killed: one segment, and no lock."""
    with mock.patch("monitor.traffic.spool.Spool._run"):
        spool = open_spool(home)
        expected = write(spool, 0, count)
        os.close(spool._guard)
    return expected


def test_segments_are_converted_to_parquet_with_a_ledger_entry(tmp_path):
    with spooling(tmp_path, roll_bytes=2000) as spool:
        expected = write(spool, 0, 100, rows=2)
    assert sorted(logged(tmp_path)) == sorted(expected)
    assert segments(tmp_path) == []
    assert hidden_files(tmp_path) == []
    ledger_entries = entries(tmp_path)
    assert len(ledger_entries) == spool.compacted > 3
    assert sum(entry.rows for entry in ledger_entries) == 200
    store = Store.open(tmp_path)
    for file in [file for entry in ledger_entries for file in entry.files]:
        assert (Path(tmp_path / file.path).stat().st_size) == file.bytes
        assert store.sha256(file.path) == file.sha256
    assert spool.appender.used >= sum(
        file.bytes for entry in ledger_entries for file in entry.files
    )


def test_an_old_segment_is_converted(tmp_path):
    with spooling(tmp_path, roll_seconds=0.05) as spool:
        expected = write(spool, 0, 3)
        until(lambda: spool.compacted)
        assert logged(tmp_path) == expected


def test_a_request_file_converts_everything_written_so_far(tmp_path):
    with spooling(tmp_path) as spool:
        expected = write(spool, 0, 3)
        request = tmp_path / SEGMENTS / ROLL_REQUEST
        request.touch()
        until(lambda: not request.exists())
        assert logged(tmp_path) == expected


def test_segments_left_by_a_crash_are_recovered_once(tmp_path):
    expected = crashed(tmp_path)
    with spooling(tmp_path) as spool:
        assert spool.recovered == 1
        until(lambda: spool.compacted == 1)
    with spooling(tmp_path) as spool:
        assert spool.recovered == 0
    assert logged(tmp_path) == expected
    assert lost_counts(tmp_path) == {}


def test_a_truncated_record_is_skipped_and_counted(tmp_path):
    expected = crashed(tmp_path)
    (segment,) = segments(tmp_path)
    segment.write_bytes(segment.read_bytes()[:-3])
    with spooling(tmp_path) as spool:
        until(lambda: spool.compacted)
        assert spool.found_lost == {"torn": 1}
    assert logged(tmp_path) == expected[:-1]
    assert lost_counts(tmp_path) == {"torn": 1}


def test_a_segment_without_a_header_is_quarantined_and_its_rows_are_counted(tmp_path):
    crashed(tmp_path)
    (segment,) = segments(tmp_path)
    data = segment.read_bytes()
    begin = data.index(b"EVHR")
    spoiled = bytes(begin) + data[begin:]
    segment.write_bytes(spoiled)
    with spooling(tmp_path) as spool:
        until(lambda: spool.appender.lost)
        expected = write(spool, 10, 2)
    assert logged(tmp_path) == expected
    assert segment.with_suffix(".unreadable").read_bytes() == spoiled
    assert lost_counts(tmp_path) == {"damaged": 5}


def test_an_empty_segment_is_deleted(tmp_path):
    (tmp_path / SEGMENTS).mkdir()
    (tmp_path / SEGMENTS / "20260101T000000Z-00000000-00001.segment").write_bytes(b"EVHSEG01\x20")
    with spooling(tmp_path) as spool:
        until(lambda: not spool.waiting)
    assert segments(tmp_path) == []
    assert lost_counts(tmp_path) == {}


def test_a_deleted_segment_does_not_block_others(tmp_path):
    expected = crashed(tmp_path)
    (tmp_path / SEGMENTS / "00000000T000000Z-00000000-00001.segment").symlink_to("nowhere")
    with spooling(tmp_path) as spool:
        assert spool.recovered == 2
        until(lambda: spool.compacted == 1, seconds=3)
        # The spool does not wait for it, and a request to convert everything completes.
        until(lambda: not spool.waiting, seconds=3)
    assert logged(tmp_path) == expected


def test_a_second_process_is_rejected_and_the_first_continues(tmp_path):
    with spooling(tmp_path) as spool:
        with pytest.raises(
            ServeError, match=rf"{tmp_path}: another process writes to this directory; use"
        ):
            open_spool(tmp_path)
        expected = write(spool, 0, 3)
    assert logged(tmp_path) == expected
    with spooling(tmp_path):
        pass


def test_an_unusable_directory_is_rejected_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ServeError, match=r"file: (Not a directory|File exists)"):
        open_spool(tmp_path / "file")


def blocked(store_path: Path) -> Store:
    """A store that fails until the file at its path is deleted."""
    store_path.write_text("")
    return Store.open(store_path)


def test_segments_wait_while_the_store_fails_and_are_stored_once(tmp_path):
    home, store_path = tmp_path / "home", tmp_path / "store"
    with spooling(home, blocked(store_path), roll_bytes=1000) as spool:
        expected = write(spool, 0, 60)
        until(lambda: spool.failed)
        assert len(segments(home)) >= spool.waiting > 3
        store_path.unlink()
        until(lambda: not spool.waiting)
    assert sorted(logged(store_path)) == sorted(expected)
    assert logged(home) == []
    assert not segments(home)
    assert lost_counts(store_path) == {}


def test_segments_of_a_failing_store_are_converted_at_the_next_start(tmp_path):
    home, store_path = tmp_path / "home", tmp_path / "store"
    with spooling(home, blocked(store_path), roll_bytes=1000) as spool:
        expected = write(spool, 0, 60)
    store_path.unlink()
    assert len(segments(home)) == spool.waiting
    with spooling(home, Store.open(store_path)) as spool:
        assert spool.recovered > 3
    assert sorted(logged(store_path)) == sorted(expected)


def test_waiting_segments_are_evicted_oldest_first_at_the_quota(tmp_path):
    home, store_path = tmp_path / "home", tmp_path / "store"
    quota = 20_000
    with spooling(home, blocked(store_path), roll_bytes=4000, max_bytes=quota) as spool:
        expected, dropped = [], 0
        for n in range(300):
            if spool.appender.write(payload((f"r{n}", [float(n)])), 1):
                expected.append((f"r{n}", 0, float(n)))
            else:
                dropped += 1
            if n % 10 == 0:
                time.sleep(0.01)
        assert spool.appender.used <= quota
        until(lambda: spool.appender.used <= 0.9 * quota)
        n_lost = spool.appender.lost.total()
        assert n_lost > dropped
        store_path.unlink()
    rows = sorted(logged(store_path), key=lambda row: int(row[0][1:]))
    # The newest of those that were written.
    assert rows == expected[-len(rows) :]
    assert 0 < len(rows) == 300 - n_lost
    assert lost_counts(store_path) == {"full": n_lost}


def test_the_oldest_segment_is_evicted_even_if_others_are_first_in_the_queue(tmp_path):
    home, store_path = tmp_path / "home", tmp_path / "store"
    with spooling(home, blocked(store_path), roll_bytes=4000) as spool:
        write(spool, 0, 200)
    left = segments(home)
    quota = sum(path.stat().st_size for path in left)
    assert len(left) > 4
    with spooling(home, Store.open(store_path), max_bytes=quota) as spool:
        until(lambda: spool.failed and spool.appender.lost)
        remaining = segments(home)
        store_path.unlink()
    assert remaining == left[-len(remaining) :]


def test_losses_recorded_in_an_evicted_segment_are_reported_again(tmp_path):
    home, store_path = tmp_path / "home", tmp_path / "store"
    with spooling(home, blocked(store_path), max_bytes=15_000) as spool:
        spool.appender.lose("slow", 11)
        rows = 0
        while spool.appender.used <= 0.95 * 15_000:
            write(spool, rows, 1)
            rows += 1
        spool.appender.roll()
        until(lambda: spool.appender.used <= 0.9 * 15_000)
        store_path.unlink()
    n_lost = spool.appender.lost["full"]
    assert lost_counts(store_path) == {"slow": 11, "full": n_lost}
    assert len(logged(store_path)) == rows - n_lost
    assert n_lost > 0


def test_the_oldest_files_are_evicted_and_the_ledger_gives_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("monitor.traffic.spool._RECOUNT_SECONDS", 0.05)
    quota = 60_000
    with spooling(tmp_path, roll_bytes=4000, max_bytes=quota) as spool:
        for n in range(0, 1000, 10):
            write(spool, n, 10)
            until(lambda: spool.appender.used <= 0.9 * quota)
        until(lambda: not spool.waiting)
    rows = logged(tmp_path)
    removed = [
        file for entry in entries(tmp_path) for file in entry.files if file.removed is not None
    ]
    assert {file.removed for file in removed} == {"quota"}
    assert len(rows) + sum(file.rows for file in removed) == 1000
    assert spool.removed_rows == sum(file.rows for file in removed) > 0
    remaining = sorted(int(row[0][1:]) for row in rows)
    assert remaining == list(range(1000 - len(remaining), 1000))
    assert not any((tmp_path / file.path).exists() for file in removed)
    assert lost_counts(tmp_path) == {}
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < quota


def test_with_stop_new_rows_are_dropped_and_no_file_is_evicted(tmp_path):
    with spooling(tmp_path, max_bytes=8000, when_full="stop") as spool:
        log, n = spool.appender, 0
        while log.write(payload((f"r{n}", [float(n)])), 1):
            n += 1
        assert not log.write(payload(("more", [1.0, 2.0])), 2)
        assert log.lost == {"full": 3}
    assert [row[0] for row in logged(tmp_path)] == [f"r{m}" for m in range(n)]
    assert lost_counts(tmp_path) == {"full": 3}


def test_a_clock_that_jumps_back_loses_no_rows(tmp_path, monkeypatch):
    times = iter([moment(2026, 3, 1, 12), moment(2026, 3, 1, 9), moment(2026, 2, 28, 23)] * 4)
    monkeypatch.setattr("time.time_ns", lambda: next(times))
    with spooling(tmp_path) as spool:
        expected = write(spool, 0, 12)
    assert sorted(logged(tmp_path)) == sorted(expected)
    folders = {Path(file.path).parent.name for file in Store.open(tmp_path).files(suffix="parquet")}
    assert folders == {"hour=12", "hour=09", "hour=23"}
    (entry,) = entries(tmp_path)
    assert f"{entry.since:%Y-%m-%d %H}" == "2026-02-28 23"


def test_drafts_left_by_a_crash_are_deleted(tmp_path):
    """A process that is killed within `os.replace` leaves a draft; the next one has another PID."""
    expected = crashed(tmp_path)
    with (
        mock.patch("pathlib.Path.replace", side_effect=KeyboardInterrupt),
        mock.patch("pathlib.Path.unlink"),
        mock.patch("os.getpid", return_value=1),
        mock.patch("threading.excepthook"),
    ):
        spool = open_spool(tmp_path)
        until(lambda: not spool._maintenance.is_alive())
    os.close(spool._guard)
    assert hidden_files(tmp_path)
    with spooling(tmp_path) as spool:
        until(lambda: spool.compacted)
    assert logged(tmp_path) == expected
    assert hidden_files(tmp_path) == []


def test_a_damaged_parquet_file_is_not_deleted(tmp_path):
    with spooling(tmp_path) as spool:
        write(spool, 0, 3)
    (file,) = entries(tmp_path)[0].files
    data = bytearray((tmp_path / file.path).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / file.path).write_bytes(data)
    with spooling(tmp_path) as spool:
        write(spool, 3, 3)
    assert (tmp_path / file.path).read_bytes() == bytes(data)
    store = Store.open(tmp_path)
    assert store.sha256(file.path) != file.sha256
