"""A log at a glance, also a damaged one."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from offline_audit.errors import LogNotFoundError
from offline_audit.window.summary import summarise
from tests.traffic_logs import outcome_rows, traffic_rows, write_outcomes, write_traffic


@pytest.fixture
def place(tmp_path):
    """Two models: one with outcomes and losses, one whose files are not in the ledger."""
    rows = traffic_rows(400)
    write_traffic(tmp_path / "log", rows, lost={"torn": 3})
    write_outcomes(tmp_path / "outcomes", outcome_rows(rows))
    fraud = traffic_rows(50, seed=4)
    write_traffic(tmp_path / "log", fraud, model="fraud", segment="f", listed=False)
    return tmp_path


def test_every_model_is_summed_up(place):
    found = summarise(place / "log", place / "outcomes")
    assert [(m.model, m.provenance.rows.rows) for m in found.models] == [
        ("credit", 400),
        ("fraud", 50),
    ]
    assert found.rows == 450
    assert found.bytes == sum(f.stat().st_size for f in (place / "log").rglob("*.parquet"))
    assert found.models[0].verdicts.actions == Counter(traffic_rows(400)["action"].to_pylist())


def test_the_text_tells_what_an_operator_asks_and_fits_a_terminal(place):
    text = str(summarise(place / "log", place / "outcomes"))
    told = outcome_rows(traffic_rows(400))
    for words in (
        "2026-03-01 22:00:00 UTC to 2026-03-02 01:59:24 UTC",
        "rows      400 (version 1: 400)",
        "lost      3 rows (torn 3)",
        "4 not in the ledger",
        "sex: typical",
        f"outcomes  {told.num_rows}, on ",
        "without a prediction: 0",
        "predictions without: label",
        "after the prediction (median)",
    ):
        assert words in text, words
    assert all(len(line) <= 100 for line in text.splitlines()[1:])


def test_the_json_holds_the_same(place):
    found = json.loads(json.dumps(summarise(place / "log", place / "outcomes").to_dict()))
    assert found["rows"] == 450
    assert found["models"]["credit"]["rows"]["shares"][0]["version"] == "1"
    assert found["models"]["credit"]["verdicts"]["actions"]["none"] > 300
    assert found["models"]["credit"]["log"]["lost"] == {"torn": 3}


def test_a_damaged_log_is_summed_up_with_its_damage(place):
    first, second, *_ = sorted((place / "log/model=credit").rglob("*.parquet"))
    first.unlink()
    second.write_bytes(b"not Parquet")
    next((place / "log/_ledger").rglob("*.json")).with_name("bad.json").write_text("?")
    text = str(summarise(place / "log", place / "outcomes"))
    assert "2, " in text
    assert "1 missing, 1 corrupt" in text
    assert "cannot be read, so files may be missing unnoticed" in text


def test_a_log_of_segments_only_says_that_nothing_is_in_it_yet(tmp_path):
    (tmp_path / "_segments").mkdir()
    (tmp_path / "_segments/now.segment").write_bytes(b"rows")
    text = str(summarise(tmp_path))
    assert "1 segment not compacted yet." in text
    assert "No predictions are in it yet." in text


def test_a_log_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(LogNotFoundError):
        summarise(tmp_path / "nowhere")
