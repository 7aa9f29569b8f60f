"""Of everything that was told, the latest word holds, for each field on its own."""

from __future__ import annotations

import datetime as dt
from unittest import mock

import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_audit import Engine, Window
from offline_audit.window.outcomes import latest, told_per_prediction
from tests.oracle.window import conflicts, joined_rows, last_words
from tests.traffic_logs import (
    START,
    outcome_rows,
    outcome_table,
    traffic_rows,
    write_outcomes,
    write_traffic,
)

FIELDS = ("label", "group_sex", "group_ethnicity")
TIMES = [START + dt.timedelta(hours=hours) for hours in range(3)]

# Few values of everything, so that repetitions, ties and contradictions are common.
WORD = st.fixed_dictionaries(
    {
        "request_id": st.sampled_from("ab"),
        "row": st.integers(0, 1),
        "label": st.none() | st.integers(0, 1),
        "group_sex": st.none() | st.sampled_from(("female", "male")),
        "group_ethnicity": st.none() | st.sampled_from(("a", "b", "ä", "Z")),
        "observed_at": st.sampled_from(TIMES),
        "received_at": st.sampled_from(TIMES),
        "source": st.just("rpc"),
    }
)


@pytest.fixture(scope="module")
def engine():
    with Engine.duckdb() as found:
        yield found


def as_table(engine, words):
    values = {name: [word[name] for word in words] for name in words[0]}
    values["label"] = pa.array(values["label"], pa.int8())
    for name in ("group_sex", "group_ethnicity"):
        values[name] = pa.array(values[name], pa.string())
    return engine._dataset(pa.dataset.dataset(outcome_table(values)))


@pytest.mark.parametrize("most", [64, 0], ids=["ordered by a number", "ordered by a struct"])
@settings(max_examples=60, deadline=None)
@given(words=st.lists(WORD, min_size=1, max_size=12))
def test_the_latest_word_holds_whatever_the_order(engine, most, words):
    told = as_table(engine, words)
    known = {f: sorted({w[f] for w in words} - {None}) for f in FIELDS[1:]}
    with mock.patch("offline_audit.window.engine._MOST_WORDS", most):
        found = engine.fetch(latest(engine, told, {"label": None, **known})).to_pylist()
    wanted = last_words(words, FIELDS)
    assert len(found) == len({(w["request_id"], w["row"]) for w in words})
    for row in found:
        held = wanted[row["request_id"], row["row"]]
        assert {name: row[name] for name in FIELDS} == held


@settings(max_examples=40, deadline=None)
@given(words=st.lists(WORD, min_size=1, max_size=12))
def test_contradictions_and_repetitions_are_counted_a_prediction(engine, words):
    each = told_per_prediction(as_table(engine, words), FIELDS)
    found = engine.fetch(each).to_pylist()
    for place, field in enumerate(FIELDS):
        assert sum(row[f"conflict_{place}"] for row in found) == conflicts(words, field)
    assert sum(row["times"] for row in found) == len(words)


def test_outcomes_long_after_the_window_are_joined_and_those_long_before_are_not_read(tmp_path):
    traffic = traffic_rows(10)
    write_traffic(tmp_path / "log", traffic)
    keys = {name: traffic[name] for name in ("request_id", "row")}
    for segment, days, label in (("late", 200, 1), ("early", -3, 0)):
        times = [START + dt.timedelta(days=days)] * 10
        said = {"label": [label] * 10, "observed_at": times, "received_at": times}
        write_outcomes(tmp_path / "outcomes", outcome_table({**keys, **said}), segment=segment)
    until = START + dt.timedelta(hours=5)
    with Window.read(tmp_path / "log", tmp_path / "outcomes", START, until) as window:
        assert {cell.label for cell in window.counts("sex").cells} == {1}
        told = window.provenance.told
    assert told is not None
    assert (told.rows, told.late) == (10, 10)
    assert told.median_delay is not None
    assert told.longest_delay is not None
    assert 199 * 86_400 < told.median_delay <= told.longest_delay <= 200 * 86_400


def test_facts_about_outcomes_are_those_of_the_rows(known, window):
    told = window.provenance.told
    words = known.told.to_pylist()
    keys = [(w["request_id"], w["row"]) for w in words]
    inside = {(r["request_id"], r["row"]): r["time"] for r in known.rows}
    met = [w for w, key in zip(words, keys, strict=True) if key in inside]
    end = window.span.until
    assert told.rows == len(words)
    assert told.predictions == len(set(keys))
    assert told.repeated == sum(keys.count(key) > 1 for key in set(keys))
    assert told.conflicts == {field: conflicts(words, field) for field in FIELDS}
    assert told.told == {f: sum(w[f] is not None for w in words) for f in FIELDS}
    assert sum(told.sources.values()) == len(words)
    assert told.without_prediction == 0
    assert told.of_window == len(met)
    assert told.late == sum(w["received_at"] >= end for w in met)
    delays = [
        w["received_at"].replace(microsecond=0)
        - inside[w["request_id"], w["row"]].replace(microsecond=0)
        for w in met
    ]
    assert told.longest_delay == max(delays).total_seconds()


def test_outcomes_of_predictions_outside_the_window_are_not_strangers(known, tmp_path):
    strange = outcome_rows(traffic_rows(30, seed=99), share=1, again=0)
    write_outcomes(tmp_path / "outcomes", known.told)
    write_outcomes(tmp_path / "outcomes", strange, segment="o2")
    with Window.read(known.log, tmp_path / "outcomes", START + dt.timedelta(hours=2)) as window:
        told = window.provenance.told
        assert told is not None
        assert told.without_prediction == 30
        assert any("30 predictions belong to none" in w for w in window.provenance.warnings)
        assert told.of_window < told.rows - 30


def test_a_prediction_that_was_logged_twice_has_its_outcome_twice_and_is_counted(tmp_path):
    traffic = traffic_rows(50)
    told = outcome_rows(traffic, share=1)
    write_traffic(tmp_path / "log", traffic)
    write_traffic(tmp_path / "log", traffic.slice(0, 7), segment="s2")
    write_outcomes(tmp_path / "outcomes", told)
    with Window.read(tmp_path / "log", tmp_path / "outcomes") as window:
        facts, warnings = window.provenance.rows, window.provenance.warnings
        counted = window.counts("sex").rows
        sample = window.sample(100)
    assert (facts.rows, facts.duplicated, facts.surplus, counted) == (57, 7, 7, 57)
    assert any("7 predictions stand in the log more than once" in w for w in warnings)
    twice = pa.concat_tables([traffic, traffic.slice(0, 7)])
    wanted = sorted((r["request_id"], r["row"], r["label"] or 0) for r in joined_rows(twice, told))
    assert (
        sorted((r["request_id"], r["row"], r["label"] or 0) for r in sample.to_pylist()) == wanted
    )


def test_a_duplicate_does_not_enlarge_a_sample(tmp_path):
    traffic = traffic_rows(40)
    write_traffic(tmp_path / "log", traffic)
    write_traffic(tmp_path / "log", traffic, segment="s2")
    with Window.read(tmp_path / "log") as window:
        assert window.sample(9, ("decision",)).num_rows == 18


@pytest.mark.parametrize("only", [0, 1])
def test_labels_of_one_decision_only_are_told(known, tmp_path, only):
    decided = {(r["request_id"], r["row"]): r["decision"] for r in known.traffic.to_pylist()}
    words = [w for w in known.told.to_pylist() if decided[w["request_id"], w["row"]] == only]
    write_outcomes(tmp_path / "outcomes", pa.Table.from_pylist(words, schema=known.told.schema))
    with Window.read(known.log, tmp_path / "outcomes") as window:
        found = window.provenance
    assert found.selective_labels
    assert found.label_share_by_decision[1 - only] == 0
    assert any(f"Labels exist for decision {only} only" in w for w in found.warnings)


def test_labels_of_both_decisions_are_not_selective(window):
    assert not window.provenance.selective_labels


@pytest.mark.parametrize(
    ("log_key", "outcome_key", "joins"),
    [("k1", "k2", False), (None, "k2", False), ("k", "k", True)],
)
def test_requests_under_different_pseudonyms_cannot_be_joined(
    tmp_path, log_key, outcome_key, joins
):
    traffic = traffic_rows(10)
    write_traffic(tmp_path / "log", traffic, pseudonyms=log_key)
    write_outcomes(tmp_path / "outcomes", outcome_rows(traffic), pseudonyms=outcome_key)
    with Window.read(tmp_path / "log", tmp_path / "outcomes") as window:
        found = window.provenance
    assert found.joinable == joins
    assert any("different pseudonym keys" in w for w in found.warnings) == (not joins)
