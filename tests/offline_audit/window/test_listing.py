"""A window of a log that is written, or thinned out, while it is read."""

from __future__ import annotations

import datetime as dt

import pytest

from monitor.traffic.ledger import mark_removed
from monitor.traffic.store import Store
from offline_audit import Window
from tests.traffic_logs import START, traffic_rows, write_traffic

# A listing asks for segments, for the ledger and for all files.
MOMENTS = range(4)


@pytest.fixture
def log(tmp_path):
    write_traffic(tmp_path, traffic_rows(100, hours=1))
    return tmp_path


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something once, right before the store is listed for the nth time."""

    def plan(place, what):
        calls, listed = iter(range(100)), Store.files

        def files(self, *args):
            if next(calls) == place:
                what()
            return listed(self, *args)

        monkeypatch.setattr(Store, "files", files)

    return plan


@pytest.mark.parametrize("place", MOMENTS)
def test_a_segment_that_is_compacted_meanwhile_is_never_missing(log, meanwhile, place):
    meanwhile(place, lambda: write_traffic(log, traffic_rows(20, seed=2, hours=1), segment="s2"))
    with Window.read(log) as window:
        found = window.provenance
        assert found.log.missing == found.log.corrupt == ()
        assert found.rows.rows in (100, 120)


@pytest.mark.parametrize("place", MOMENTS)
def test_a_window_without_the_rows_of_a_segment_that_is_compacted_meanwhile_is_not_complete(
    log, meanwhile, place
):
    segment = log / "_segments" / f"{START:%Y%m%dT%H%M%SZ}-0a1b-00001.segment"
    segment.parent.mkdir()
    segment.write_bytes(b"rows")

    def compact():
        write_traffic(log, traffic_rows(20, seed=2, hours=1), segment="s2", lost={"torn": 1})
        segment.unlink()

    meanwhile(place, compact)
    with Window.read(log, until=START + dt.timedelta(hours=1)) as window:
        assert not window.provenance.complete


@pytest.mark.parametrize("place", MOMENTS)
def test_a_file_that_gives_way_meanwhile_is_not_missing(log, meanwhile, place):
    second = write_traffic(log, traffic_rows(20, seed=2, hours=1), segment="s2")

    def give_way():
        store = Store.open(log)
        mark_removed(store, second, {second.files[0].path}, "quota")
        store.remove(second.files[0].path)

    meanwhile(place, give_way)
    with Window.read(log) as window:
        assert window.provenance.log.missing == ()
        if window.provenance.rows.rows == 100:
            assert [file.why for file in window.provenance.log.removed] == ["quota"]
