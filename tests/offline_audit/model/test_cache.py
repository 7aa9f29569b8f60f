"""Cached decisions are reused by this run and the next, and never by another model."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

from offline_audit import AuditedModel
from offline_audit.errors import DecisionCacheError
from offline_audit.model.cache import DecisionCache

ROWS = np.random.default_rng(4).normal(size=(1_000, 3)).astype(np.float32)
GRANTED = (ROWS[:, 0] >= 0).astype(np.int8)
HEADER, RECORD = 34, 17


class RecordingModel:
    """A function that records its rows, and may be interrupted after a number of calls."""

    def __init__(self, stops_after: int | None = None) -> None:
        self.rows, self.calls, self.stops_after = list[bytes](), 0, stops_after

    def __call__(self, rows):
        if self.calls == self.stops_after:
            raise KeyboardInterrupt
        self.calls += 1
        self.rows += [row.tobytes() for row in rows]
        if (rows[:, 1] > 10).any():
            raise ValueError
        return rows[:, 0] >= 0


def cached_model(function, path: Path, identity: str = "loans 3", **options) -> AuditedModel:
    return AuditedModel.from_function(
        function, identity=identity, cache=path, batch_rows=100, **options
    )


def test_the_next_run_reuses_all_decisions(tmp_path):
    first, second = RecordingModel(), RecordingModel()
    before = cached_model(first, tmp_path / "cache").decide(ROWS)
    after = cached_model(second, tmp_path / "cache").decide(ROWS)
    assert len(first.rows) == len(ROWS)
    assert second.calls == 0
    np.testing.assert_array_equal(before, after)


def test_an_interrupted_run_is_resumed(tmp_path):
    first, second = RecordingModel(stops_after=4), RecordingModel()
    with pytest.raises(KeyboardInterrupt):
        cached_model(first, tmp_path / "cache").decide(ROWS)
    assert first.calls == 4
    reports = []
    decisions = cached_model(second, tmp_path / "cache").decide(
        ROWS, progress=lambda *step: reports.append(step)
    )
    np.testing.assert_array_equal(decisions, GRANTED)
    assert len(second.rows) == 600
    assert not set(first.rows) & set(second.rows)
    assert reports[0] == (400, 1_000)
    assert reports[-1] == (1_000, 1_000)


def test_duplicate_rows_are_decided_once(tmp_path):
    rows = ROWS[np.random.default_rng(5).integers(50, size=1_000)]
    function = RecordingModel()
    decisions = cached_model(function, tmp_path / "cache").decide(rows)
    np.testing.assert_array_equal(decisions, rows[:, 0] >= 0)
    assert len(function.rows) == len(set(function.rows)) == 50


def test_zeros_of_different_sign_are_different_rows(tmp_path):
    """A model may distinguish them, so the cache must."""
    rows = np.array([[0.0], [-0.0]], np.float32)
    model = cached_model(lambda rows: np.signbit(rows[:, 0]), tmp_path / "cache")
    assert model.decide(rows).tolist() == [0, 1]


def test_rows_without_a_decision_are_tried_again_by_the_next_run_only(tmp_path):
    rows = ROWS.copy()
    rows[[7, 500], 1] = 20.0
    function = RecordingModel()
    model = cached_model(function, tmp_path / "cache")
    decisions = model.decide(rows)
    assert np.flatnonzero(decisions == -1).tolist() == [7, 500]
    function.rows.clear()
    np.testing.assert_array_equal(model.decide(rows), decisions)
    assert function.rows == []
    assert model.failures.errored == 4
    repeated = RecordingModel()
    cached_model(repeated, tmp_path / "cache").decide(rows)
    assert set(repeated.rows) == {rows[7].tobytes(), rows[500].tobytes()}


@pytest.mark.parametrize("n_bytes", range(1, RECORD))
def test_a_partial_record_is_dropped_and_rewritten(tmp_path, n_bytes):
    path = tmp_path / "cache"
    cached_model(RecordingModel(), path).decide(ROWS[:10])
    path.write_bytes(path.read_bytes()[: HEADER + 9 * RECORD + n_bytes])
    function = RecordingModel()
    np.testing.assert_array_equal(cached_model(function, path).decide(ROWS[:20]), GRANTED[:20])
    assert function.rows == [row.tobytes() for row in ROWS[9:20]]
    assert path.stat().st_size == HEADER + 20 * RECORD
    repeated = RecordingModel()
    cached_model(repeated, path).decide(ROWS[:20])
    assert repeated.calls == 0


@pytest.mark.parametrize("size", [0, 1, HEADER - 1])
def test_a_partial_header_is_rewritten(tmp_path, size):
    path = tmp_path / "cache"
    cached_model(RecordingModel(), path)
    path.write_bytes(path.read_bytes()[:size])
    cached_model(RecordingModel(), path).decide(ROWS)
    repeated = RecordingModel()
    cached_model(repeated, path).decide(ROWS)
    assert repeated.calls == 0


@pytest.mark.parametrize(
    "changes", [{"identity": "loans 4"}, {"threshold": 0.5}, {"favourable": 0}], ids=str
)
def test_the_cache_of_another_model_is_refused(tmp_path, changes):
    cached_model(RecordingModel(), tmp_path / "cache").decide(ROWS)
    with pytest.raises(DecisionCacheError, match="belongs to another model"):
        cached_model(RecordingModel(), tmp_path / "cache", **changes)


def test_digests_differ_between_models():
    """Records copied from the cache of another model would not match."""
    one, other = DecisionCache(["loans", "3"]), DecisionCache(["loan", "s3"])
    assert not set(one.digests(ROWS)) & set(other.digests(ROWS))
    assert len(set(one.digests(ROWS))) == len(ROWS)


def test_a_bundle_of_other_bytes_is_another_model(bundle_path, tmp_path):
    rows = np.zeros((3, 5), np.float32)
    AuditedModel.from_bundle(bundle_path, cache=tmp_path / "cache").decide(rows)
    AuditedModel.from_bundle(bundle_path, cache=tmp_path / "cache")
    manifest = bundle_path / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    with pytest.raises(DecisionCacheError, match="another model"):
        AuditedModel.from_bundle(bundle_path, cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"income,sex\n", "not a cache of decisions"),
        (b"income,sex\n" * 10, "not a cache of decisions"),
        (
            b"evenhand decided\x02\x00" + bytes(16),
            "has format 2; this version of evenhand reads format 1",
        ),
    ],
)
def test_a_file_that_is_not_a_cache_is_refused_unmodified(tmp_path, content, message):
    path = tmp_path / "cache"
    path.write_bytes(content)
    with pytest.raises(DecisionCacheError, match=message):
        cached_model(RecordingModel(), path)
    assert path.read_bytes() == content


def test_a_damaged_cache_is_refused(tmp_path):
    path = tmp_path / "cache"
    cached_model(RecordingModel(), path).decide(ROWS[:10])
    data = bytearray(path.read_bytes())
    data[HEADER + RECORD - 1] = 7
    path.write_bytes(data)
    with pytest.raises(DecisionCacheError, match="damaged"):
        cached_model(RecordingModel(), path)


def test_a_cache_is_readable_by_its_owner_only_and_contains_no_row(tmp_path):
    path = tmp_path / "new" / "cache"
    cached_model(RecordingModel(), path).decide(ROWS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    data = path.read_bytes()
    assert len(data) == HEADER + len(ROWS) * RECORD
    assert not [row for row in ROWS if row[:1].tobytes() + row[1:2].tobytes() in data]


def test_two_runs_may_share_a_cache_at_the_same_time(tmp_path):
    path = tmp_path / "cache"
    one, other = cached_model(RecordingModel(), path), cached_model(RecordingModel(), path)
    for start in range(0, 1_000, 100):
        one.decide(ROWS[start : start + 60])
        other.decide(ROWS[start + 40 : start + 100])
    repeated = RecordingModel()
    np.testing.assert_array_equal(cached_model(repeated, path).decide(ROWS), GRANTED)
    assert repeated.calls == 0


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(DecisionCacheError, match="cannot be used: Is a directory"):
        cached_model(RecordingModel(), tmp_path)
    model = cached_model(RecordingModel(), tmp_path / "cache")
    (tmp_path / "cache").unlink()
    with pytest.raises(DecisionCacheError, match="cannot be used: No such file"):
        model.decide(ROWS)
    (tmp_path / "cache").touch()
    with pytest.raises(DecisionCacheError, match="truncated by another process"):
        model.decide(ROWS + 1)
