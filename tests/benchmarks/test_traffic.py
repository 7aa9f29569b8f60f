"""Synthetic logs of the traffic benchmark are reproducible and as the sidecar writes them."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.__main__ import _scripts
from benchmarks.kernel_subjects import Shape
from benchmarks.traffic_compaction import time_compaction
from benchmarks.traffic_count_run import KINDS, Query
from benchmarks.traffic_log import write_hour
from benchmarks.traffic_rows import COLUMNS, hour_of_outcomes, hour_of_traffic, moment
from benchmarks.traffic_segments import synthetic_features, synthetic_spec, write_segment
from monitor.traffic.compaction import compact
from monitor.traffic.ledger import read_ledger
from monitor.traffic.segment import read_segment
from monitor.traffic.store import Store

_SHAPE = Shape(widths=(8, 4, 1), numeric=2, integer=1, binary=2, one_hot=(1, 3))
_ROWS = 4_000


def test_the_benchmark_runs_in_smoke_and_full_runs():
    assert "traffic" in _scripts()


def test_an_hour_of_the_log_is_reproducible_and_differs_from_the_next():
    assert hour_of_traffic(3, _ROWS).equals(hour_of_traffic(3, _ROWS))
    assert not hour_of_traffic(3, _ROWS)["logit"].equals(hour_of_traffic(4, _ROWS)["logit"])


def test_request_id_and_row_are_unique():
    hours = [hour_of_traffic(hour, _ROWS) for hour in (0, 1, 23, 24)]
    names = [f"{i}/{r}" for t in hours for i, r in zip(*_keys(t), strict=True)]
    assert len(set(names)) == len(hours) * _ROWS


def test_rows_are_sorted_and_within_their_hour():
    times = hour_of_traffic(5, _ROWS)["time"]
    assert moment(5) <= times[0].as_py()
    assert times[-1].as_py() < moment(6)
    assert pc.all(pc.greater_equal(times[1:], times[:-1])).as_py()


def test_outcomes_have_the_requested_shares_of_labels_and_groups():
    traffic = set(zip(*_keys(hour_of_traffic(2, _ROWS)), strict=True))
    first, repeated = hour_of_outcomes(2, _ROWS)
    assert set(zip(*_keys(first), strict=True)) <= traffic
    assert set(zip(*_keys(repeated), strict=True)) <= set(zip(*_keys(first), strict=True))
    for column, share in (("label", 0.7), ("group_sex", 0.6), ("group_ethnicity", 0.6)):
        known = first.num_rows - first[column].null_count
        # Six standard errors of a binomial share.
        assert known / _ROWS == pytest.approx(share, abs=6 * np.sqrt(share * (1 - share) / _ROWS))
    assert 0 < repeated.num_rows < 0.03 * _ROWS


def test_an_hour_has_the_paths_and_ledger_of_the_sidecar(tmp_path):
    write_hour(tmp_path, _ROWS, 3)
    store = Store.open(tmp_path / "traffic")
    (entry,), unreadable = read_ledger(store)
    (file,) = entry.files
    assert not unreadable
    assert file.path.startswith("model=judged/version=1/date=2026-03-01/hour=03/")
    assert file.sha256 == store.sha256(file.path)
    with store.open_file(file.path) as source:
        table = pq.read_table(source)
    assert table.equals(hour_of_traffic(3, _ROWS))
    entries, _ = read_ledger(Store.open(tmp_path / "outcomes"))
    entries = sorted(entries, key=lambda entry: entry.since)
    days = [entry.files[0].path.split("/")[1] for entry in entries]
    assert days == ["date=2026-03-02", "date=2026-03-03"]


@pytest.mark.parametrize("batch", [1, 16])
def test_compaction_keeps_every_row(tmp_path, batch):
    path = tmp_path / "synthetic.segment"
    features = synthetic_features(_SHAPE, 100, np.random.default_rng(0))
    write_segment(path, synthetic_spec(_SHAPE), features, batch=batch)
    assert len(read_segment(path.read_bytes()).records) == -(-100 // batch)
    store = Store.open(tmp_path / "log")
    entry = compact(path, store, tmp_path / "draft")
    assert entry.rows == 100
    assert not entry.lost
    (file,) = entry.files
    with store.open_file(file.path) as source:
        table = pq.read_table(source)
    names = [column.name for column in COLUMNS.features]
    assert np.array_equal(np.stack([table[name].to_numpy() for name in names], 1), features)


def test_compaction_and_the_peer_are_timed_on_the_same_rows():
    timing = time_compaction(_SHAPE, 500, 16, rounds=2)
    assert len(timing.ours) == len(timing.peer) == 2
    ratios = [peer[0] / ours[0] for ours, peer in zip(timing.ours, timing.peer, strict=True)]
    assert timing.speed.ratios == pytest.approx(ratios)


@pytest.mark.parametrize("joined", [False, True])
def test_sql_by_hand_and_a_window_have_the_same_counts(tmp_path, joined):
    for hour in range(2):
        write_hour(tmp_path, _ROWS, hour)
    outcomes = tmp_path / "outcomes" if joined else None
    query = Query(since=moment(0), until=moment(1), log=tmp_path / "traffic", outcomes=outcomes)
    counts = KINDS["window"](query)
    assert KINDS["sql"](query) == counts
    assert sum(cell[-1] for cell in counts) == _ROWS


def _keys(table):
    return table["request_id"].to_pylist(), table["row"].to_pylist()
