"""Rows in segments are counted, and converted if no sidecar writes to their directory."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import pytest

from monitor.traffic.spool import SEGMENTS
from monitor.traffic.store import Store
from monitor.traffic.waiting import compact_waiting, waiting_rows
from tests.commands import evenhand
from tests.spooling import logged, open_spool, payload, segments, spooling

ROWS = [("a", 0, 1.0), ("a", 1, 2.0), ("b", 0, 3.0)]


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A log with the segments of a killed sidecar: three rows, and nothing in Parquet."""
    running, home = tmp_path / "running", tmp_path / "log"
    with spooling(running) as spool:
        spool.appender.write(payload(("a", [1.0, 2.0])), 2)
        spool.appender.write(payload(("b", [3.0])), 1)
        shutil.copytree(running, home)
    return home


def test_waiting_rows_are_counted_since_the_first(left):
    waiting = waiting_rows(Store.open(left))
    assert (waiting.segments, waiting.rows, waiting.running) == (1, 3, False)
    assert waiting.since is not None
    assert abs(dt.datetime.now(dt.UTC) - waiting.since) < dt.timedelta(minutes=5)


def test_inspect_says_how_many_rows_wait_and_what_to_do(left):
    result = evenhand("log", "inspect", "--log", left)
    assert result.exit_code == 0
    assert "3 rows in 1 segment wait for their conversion to Parquet since 20" in result.stdout
    assert "`evenhand log compact` converts them" in result.stdout
    waiting = json.loads(evenhand("log", "inspect", "--log", left, "--json").stdout)["waiting"]
    assert waiting[str(left)]["rows"] == 3


def test_compact_converts_every_row_once(left):
    result = evenhand("log", "compact", "--log", left)
    assert result.exit_code == 0
    assert "converted 1 segment, 3 rows" in result.stdout
    assert logged(left) == ROWS
    assert segments(left) == []
    assert "wait for" not in evenhand("log", "inspect", "--log", left).stdout
    assert "converted 0 segments, 0 rows" in evenhand("log", "compact", "--log", left).stdout
    assert logged(left) == ROWS


def test_segments_of_a_running_sidecar_are_left(tmp_path):
    spool = open_spool(tmp_path)
    try:
        spool.appender.write(payload(("a", [1.0])), 1)
        before = {path: path.read_bytes() for path in segments(tmp_path)}
        result = evenhand("log", "compact", "--log", tmp_path)
        assert result.exit_code == 0
        assert "a sidecar is running" in result.stdout
        assert {path: path.read_bytes() for path in segments(tmp_path)} == before
        shown = evenhand("log", "inspect", "--log", tmp_path).stdout
        assert "1 row in 1 segment wait for" in shown
        assert "a running sidecar converts them" in shown
    finally:
        spool.stop(30)
    assert logged(tmp_path) == [("a", 0, 1.0)]


def test_a_file_that_is_not_a_segment_is_left_and_named(left):
    wrong = left / SEGMENTS / "20260101T000000Z-x-00001.segment"
    wrong.write_bytes(b"wrong")
    result = evenhand("log", "compact", "--log", left)
    assert result.exit_code == 1
    assert f"{wrong.name} is not a valid segment and was left" in result.stderr
    assert wrong.exists()
    assert logged(left) == ROWS


def test_a_directory_without_segments_is_empty(tmp_path):
    store = Store.open(tmp_path)
    assert waiting_rows(store).segments == 0
    assert compact_waiting(store, store).segments == 0


def test_compact_requires_a_location():
    assert evenhand("log", "compact").exit_code == 2
