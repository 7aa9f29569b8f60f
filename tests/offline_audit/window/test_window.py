"""Rows of a window by time, model and version; errors of `Window.read`."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from offline_audit import Engine, OfflineAuditError, Window
from offline_audit.errors import (
    EngineError,
    LogNotFoundError,
    LogUnreadableError,
    ModelChoiceError,
    SpanError,
)
from tests.traffic_logs import MODEL, START, traffic_rows, write_traffic

HOUR = dt.timedelta(hours=1)


@pytest.mark.parametrize(
    ("since", "until"),
    [
        (None, None),
        (START + HOUR / 3, None),
        (None, START + 2 * HOUR),
        (START + HOUR / 2, START + 3 * HOUR + HOUR / 7),
    ],
)
def test_the_start_is_in_the_window_and_the_end_is_not(known, since, until):
    times = known.traffic["time"].to_pylist()
    since = since and next(t for t in times if t >= since)
    until = until and next(t for t in times if t >= until)
    expected = [t for t in times if (not since or t >= since) and (not until or t < until)]
    with Window.read(known.log, since=since, until=until) as window:
        rows = window.provenance.rows
    assert (rows.rows, rows.first, rows.last) == (len(expected), expected[0], expected[-1])


def test_only_files_of_the_span_are_opened(known):
    with Window.read(known.log, since=START + HOUR, until=START + 2 * HOUR) as window:
        (file,) = window.provenance.log.files
    assert file.path.endswith("date=2026-03-01/hour=23/s1.parquet")


def test_times_may_have_any_time_zone(known):
    zone = dt.timezone(dt.timedelta(hours=-7))
    with (
        Window.read(known.log, since=START + HOUR) as one,
        Window.read(known.log, since=(START + HOUR).astimezone(zone)) as other,
    ):
        assert one.counts() == other.counts()


@pytest.mark.parametrize("name", ["since", "until"])
def test_a_time_without_a_time_zone_is_an_error(known, name):
    times: dict[str, Any] = {name: START.replace(tzinfo=None)}
    with pytest.raises(SpanError, match=f"{name}: .* has no time zone"):
        Window.read(known.log, **times)


def test_an_end_that_is_not_after_the_start_is_an_error(known):
    with pytest.raises(SpanError, match="is not after"):
        Window.read(known.log, since=START, until=START)


def test_a_missing_log_is_an_error_that_names_the_path(tmp_path):
    with pytest.raises(LogNotFoundError, match="nowhere: no traffic log at this path"):
        Window.read(tmp_path / "nowhere")
    assert issubclass(LogNotFoundError, OfflineAuditError)


@pytest.mark.parametrize("address", ["carrier://pigeon/log", "s3://key:secret@bucket/log"])
def test_an_invalid_address_is_an_error_without_its_secrets(known, address):
    for locations in ((address,), (known.log, address)):
        with pytest.raises(LogUnreadableError) as error:
            Window.read(*locations)
        assert "secret" not in str(error.value)


def test_a_ledger_that_cannot_be_listed_is_an_error(tmp_path):
    write_traffic(tmp_path, traffic_rows(10), listed=False)
    (tmp_path / "_ledger").write_text("no folder")
    with pytest.raises(LogUnreadableError, match="ledger cannot be listed"):
        Window.read(tmp_path)


@pytest.fixture
def two_models(tmp_path):
    for model, version in (("credit", "1"), ("credit", "2"), ("fraud", "1")):
        rows = traffic_rows(10, seed=int(version))
        write_traffic(tmp_path, rows, segment=model + version, model=model, version=version)
    return tmp_path


def test_the_model_is_required_if_the_log_has_several(two_models):
    with pytest.raises(ModelChoiceError, match="several models; choose one of credit, fraud"):
        Window.read(two_models)


def test_an_unknown_model_or_version_is_an_error_that_lists_the_known_ones(two_models):
    with pytest.raises(ModelChoiceError, match="no model loans; choose one of credit, fraud"):
        Window.read(two_models, model="loans")
    with pytest.raises(ModelChoiceError, match="no version 3 of credit; choose one of 1, 2"):
        Window.read(two_models, model="credit", version="3")


@pytest.mark.parametrize(("version", "rows"), [(None, 20), ("2", 10)])
def test_a_window_has_one_version_or_all(two_models, version, rows):
    with Window.read(two_models, model="credit", version=version) as window:
        assert window.provenance.rows.rows == rows


def test_an_empty_window_has_no_rows_and_a_warning(known):
    with Window.read(known.log, known.outcomes, since=START + 100 * HOUR) as window:
        assert window.counts().rows == 0
        assert window.score_histogram("sex").bars == ()
        assert window.sample(3, ("sex",)).num_rows == 0
        assert window.sample(3).num_rows == 0
        assert list(window.batches()) == []
        assert "The window has no predictions." in window.provenance.warnings
        assert window.provenance.label_share is None
        assert "0 rows" in str(window.provenance)


def test_a_log_of_segments_only_is_an_empty_window_without_a_model(tmp_path):
    (tmp_path / "_segments").mkdir()
    (tmp_path / "_segments/now.segment").write_bytes(b"rows")
    with Window.read(tmp_path) as window:
        assert window.model is None
        assert "1 segment" in str(window.provenance)
        assert window.verdicts().actions == {}


def test_a_model_without_files_is_known_from_the_ledger(tmp_path):
    entry = write_traffic(tmp_path, traffic_rows(10))
    for file in entry.files:
        (tmp_path / file.path).unlink()
    with Window.read(tmp_path) as window:
        assert window.model == MODEL
        assert len(window.provenance.log.missing) == len(entry.files)


@pytest.mark.parametrize("folder", ["it's", "a[b]", "a*", "ünïcode {x}"])
def test_the_path_of_a_log_may_contain_any_character(tmp_path, folder):
    write_traffic(tmp_path / folder, traffic_rows(10))
    write_traffic(tmp_path / "ab", traffic_rows(20))
    with Window.read(tmp_path / folder) as window:
        assert window.counts("sex").rows == 10
        assert sum(batch.num_rows for batch in window.batches(["logit"])) == 10


def test_a_window_closes_its_own_engine_and_not_the_callers(known):
    with Engine.duckdb(memory="1GB", threads=1) as engine:
        for _ in range(2):
            with Window.read(known.log, engine=engine) as window:
                assert window.counts("sex").rows == 2_000
    with Window.read(known.log) as window:
        pass
    with pytest.raises(EngineError):
        window.counts("sex")


def test_a_file_that_is_deleted_after_the_window_was_opened_is_an_error(tmp_path):
    entry = write_traffic(tmp_path, traffic_rows(10, hours=1))
    with Window.read(tmp_path) as window:
        (tmp_path / entry.files[0].path).unlink()
        with pytest.raises(EngineError, match="failed"):
            window.counts("sex")
