"""The summary of a log, complete or damaged."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from offline_audit.errors import LogNotFoundError
from offline_audit.window.summary import summarise
from tests.traffic_logs import outcome_rows, traffic_rows, write_outcomes, write_traffic


@pytest.fixture
def folder(tmp_path):
    """Two models: one with outcomes and losses, one whose files are not in the ledger."""
    rows = traffic_rows(400)
    write_traffic(tmp_path / "log", rows, lost={"torn": 3})
    write_outcomes(tmp_path / "outcomes", outcome_rows(rows))
    fraud = traffic_rows(50, seed=4)
    write_traffic(tmp_path / "log", fraud, model="fraud", segment="f", listed=False)
    return tmp_path


def test_every_model_is_summarised(folder):
    summary = summarise(folder / "log", folder / "outcomes")
    assert [(m.model, m.provenance.rows.rows) for m in summary.models] == [
        ("credit", 400),
        ("fraud", 50),
    ]
    assert summary.rows == 450
    assert summary.bytes == sum(f.stat().st_size for f in (folder / "log").rglob("*.parquet"))
    assert summary.models[0].verdicts.actions == Counter(traffic_rows(400)["action"].to_pylist())


def test_the_text_has_span_rows_losses_and_outcomes_and_fits_a_terminal(folder):
    text = str(summarise(folder / "log", folder / "outcomes"))
    outcomes = outcome_rows(traffic_rows(400))
    for words in (
        "2026-03-01 22:00:00 UTC to 2026-03-02 01:59:24 UTC",
        "rows      400 (version 1: 400)",
        "lost      3 rows (partial write 3)",
        "4 not in the ledger",
        "sex: above",
        f"outcomes  {outcomes.num_rows}, of ",
        "without a prediction: 0",
        "predictions missing label",
        "after the prediction (median)",
    ):
        assert words in text, words
    assert all(len(line) <= 100 for line in text.splitlines()[1:])


def test_the_json_has_the_same_figures(folder):
    summary = json.loads(json.dumps(summarise(folder / "log", folder / "outcomes").to_dict()))
    assert summary["rows"] == 450
    assert summary["models"]["credit"]["rows"]["decision_counts"][0]["version"] == "1"
    assert summary["models"]["credit"]["verdicts"]["actions"]["none"] > 300
    assert summary["models"]["credit"]["log"]["lost_rows"] == {"torn": 3}


def test_the_summary_of_a_damaged_log_reports_the_damage(folder):
    first, second, *_ = sorted((folder / "log/model=credit").rglob("*.parquet"))
    first.unlink()
    second.write_bytes(b"not Parquet")
    next((folder / "log/_ledger").rglob("*.json")).with_name("bad.json").write_text("?")
    text = str(summarise(folder / "log", folder / "outcomes"))
    assert "2, " in text
    assert "1 missing, 1 corrupt" in text
    assert "cannot be read, so missing files" in text


def test_a_log_of_segments_only_has_no_predictions_yet(tmp_path):
    (tmp_path / "_segments").mkdir()
    (tmp_path / "_segments/now.segment").write_bytes(b"rows")
    text = str(summarise(tmp_path))
    assert "1 segment not compacted yet." in text
    assert "No predictions are in Parquet files yet." in text


def test_a_missing_log_is_an_error(tmp_path):
    with pytest.raises(LogNotFoundError):
        summarise(tmp_path / "nowhere")
