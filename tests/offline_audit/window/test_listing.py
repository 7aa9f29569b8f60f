"""A log may be compacted, or lose files to its quota, while it is listed."""

from __future__ import annotations

import datetime as dt

import pytest

from monitor.traffic.ledger import mark_removed
from monitor.traffic.store import Store
from offline_audit import Window
from tests.traffic_logs import START, traffic_rows, write_traffic

# A listing reads the segments, the ledger and all files, one after the other.
MOMENTS = range(4)


@pytest.fixture
def log(tmp_path):
    write_traffic(tmp_path, traffic_rows(100, hours=1))
    return tmp_path


@pytest.fixture
def run_during_listing(monkeypatch):
    """Run an action once, right before the store is listed for the nth time."""

    def plan(listing, action):
        calls, listed = iter(range(100)), Store.files

        def files(self, *args):
            if next(calls) == listing:
                action()
            return listed(self, *args)

        monkeypatch.setattr(Store, "files", files)

    return plan


@pytest.mark.parametrize("listing", MOMENTS)
def test_a_segment_that_is_compacted_during_the_listing_is_not_missing(
    log, run_during_listing, listing
):
    run_during_listing(
        listing, lambda: write_traffic(log, traffic_rows(20, seed=2, hours=1), segment="s2")
    )
    with Window.read(log) as window:
        provenance = window.provenance
        assert provenance.log.missing == provenance.log.corrupt == ()
        assert provenance.rows.rows in (100, 120)


@pytest.mark.parametrize("listing", MOMENTS)
def test_a_window_that_misses_a_segment_compacted_during_the_listing_is_not_complete(
    log, run_during_listing, listing
):
    segment = log / "_segments" / f"{START:%Y%m%dT%H%M%SZ}-0a1b-00001.segment"
    segment.parent.mkdir()
    segment.write_bytes(b"rows")

    def compact():
        write_traffic(log, traffic_rows(20, seed=2, hours=1), segment="s2", lost={"torn": 1})
        segment.unlink()

    run_during_listing(listing, compact)
    with Window.read(log, until=START + dt.timedelta(hours=1)) as window:
        assert not window.provenance.complete


@pytest.mark.parametrize("listing", MOMENTS)
def test_a_file_that_is_evicted_during_the_listing_is_not_missing(log, run_during_listing, listing):
    second = write_traffic(log, traffic_rows(20, seed=2, hours=1), segment="s2")

    def evict():
        store = Store.open(log)
        mark_removed(store, second, {second.files[0].path}, "quota")
        store.remove(second.files[0].path)

    run_during_listing(listing, evict)
    with Window.read(log) as window:
        assert window.provenance.log.missing == ()
        if window.provenance.rows.rows == 100:
            assert [file.why for file in window.provenance.log.removed] == ["quota"]
