"""What the traffic benchmark measures is what the sidecar writes, and is the same every time."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.__main__ import _scripts
from benchmarks.kernel_subjects import Shape
from benchmarks.traffic_compaction import time_compaction
from benchmarks.traffic_count_run import KINDS, Asked
from benchmarks.traffic_log import write_hour
from benchmarks.traffic_rows import COLUMNS, hour_of_outcomes, hour_of_traffic, moment
from benchmarks.traffic_segments import made_up_features, made_up_spec, write_segment
from monitor.traffic.compaction import compact
from monitor.traffic.ledger import read_ledger
from monitor.traffic.segment import read_segment
from monitor.traffic.store import Store

_SHAPE = Shape(widths=(8, 4, 1), numeric=2, integer=1, binary=2, one_hot=(1, 3))
_ROWS = 4_000


def test_the_benchmark_is_among_those_that_are_run():
    assert "traffic" in _scripts()


def test_an_hour_of_the_log_is_the_same_every_time_and_unlike_the_next():
    assert hour_of_traffic(3, _ROWS).equals(hour_of_traffic(3, _ROWS))
    assert not hour_of_traffic(3, _ROWS)["logit"].equals(hour_of_traffic(4, _ROWS)["logit"])


def test_no_two_rows_have_a_request_and_row_in_common():
    hours = [hour_of_traffic(hour, _ROWS) for hour in (0, 1, 23, 24)]
    names = [f"{i}/{r}" for t in hours for i, r in zip(*_keys(t), strict=True)]
    assert len(set(names)) == len(hours) * _ROWS


def test_rows_lie_in_their_hour_in_order():
    times = hour_of_traffic(5, _ROWS)["time"]
    assert moment(5) <= times[0].as_py()
    assert times[-1].as_py() < moment(6)
    assert pc.all(pc.greater_equal(times[1:], times[:-1])).as_py()


def test_outcomes_tell_of_rows_in_the_shares_that_are_asked_for():
    traffic = set(zip(*_keys(hour_of_traffic(2, _ROWS)), strict=True))
    first, again = hour_of_outcomes(2, _ROWS)
    assert set(zip(*_keys(first), strict=True)) <= traffic
    assert set(zip(*_keys(again), strict=True)) <= set(zip(*_keys(first), strict=True))
    for column, share in (("label", 0.7), ("group_sex", 0.6), ("group_ethnicity", 0.6)):
        known = first.num_rows - first[column].null_count
        # Six standard errors of a binomial share.
        assert known / _ROWS == pytest.approx(share, abs=6 * np.sqrt(share * (1 - share) / _ROWS))
    assert 0 < again.num_rows < 0.03 * _ROWS


def test_an_hour_is_laid_out_and_listed_as_the_sidecar_does_it(tmp_path):
    write_hour(tmp_path, _ROWS, 3)
    store = Store.open(tmp_path / "traffic")
    (entry,), unreadable = read_ledger(store)
    (file,) = entry.files
    assert not unreadable
    assert file.path.startswith("model=judged/version=1/date=2026-03-01/hour=03/")
    assert file.sha256 == store.sha256(file.path)
    with store.open_file(file.path) as opened:
        found = pq.read_table(opened)
    assert found.equals(hour_of_traffic(3, _ROWS))
    told, _ = read_ledger(Store.open(tmp_path / "outcomes"))
    days = [one.files[0].path.split("/")[1] for one in sorted(told, key=lambda one: one.since)]
    assert days == ["date=2026-03-02", "date=2026-03-03"]


@pytest.mark.parametrize("batch", [1, 16])
def test_a_segment_becomes_a_file_with_every_row(tmp_path, batch):
    path = tmp_path / "made-up.segment"
    features = made_up_features(_SHAPE, 100, np.random.default_rng(0))
    write_segment(path, made_up_spec(_SHAPE), features, batch=batch)
    assert len(read_segment(path.read_bytes()).records) == -(-100 // batch)
    store = Store.open(tmp_path / "log")
    entry = compact(path, store, tmp_path / "draft")
    assert entry.rows == 100
    assert not entry.lost
    (file,) = entry.files
    with store.open_file(file.path) as opened:
        table = pq.read_table(opened)
    names = [column.name for column in COLUMNS.features]
    assert np.array_equal(np.stack([table[name].to_numpy() for name in names], 1), features)


def test_compaction_is_timed_in_pairs_of_the_same_rows():
    timing = time_compaction(_SHAPE, 500, 16, rounds=2)
    assert len(timing.ours) == len(timing.peer) == 2
    ratios = [peer[0] / ours[0] for ours, peer in zip(timing.ours, timing.peer, strict=True)]
    assert timing.speed.ratios == pytest.approx(ratios)


@pytest.mark.parametrize("joined", [False, True])
def test_sql_by_hand_means_what_a_window_counts(tmp_path, joined):
    for hour in range(2):
        write_hour(tmp_path, _ROWS, hour)
    outcomes = tmp_path / "outcomes" if joined else None
    asked = Asked(since=moment(0), until=moment(1), log=tmp_path / "traffic", outcomes=outcomes)
    counted = KINDS["window"](asked)
    assert KINDS["sql"](asked) == counted
    assert sum(cell[-1] for cell in counted) == _ROWS


def _keys(table):
    return table["request_id"].to_pylist(), table["row"].to_pylist()
