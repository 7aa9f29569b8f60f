"""The latest value of each field is used, however outcomes repeat, arrive or conflict."""

from __future__ import annotations

import datetime as dt
from unittest import mock

import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_audit import Engine, Window, audit_window
from offline_audit.window.join import latest, outcomes_per_prediction
from tests.oracle.window import conflicts, joined_rows, latest_values
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

# Few distinct values, so that repetitions, ties and conflicts are common.
OUTCOME = st.fixed_dictionaries(
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
    with Engine.duckdb() as duckdb:
        yield duckdb


def as_table(engine, outcomes):
    values = {name: [outcome[name] for outcome in outcomes] for name in outcomes[0]}
    values["label"] = pa.array(values["label"], pa.int8())
    for name in ("group_sex", "group_ethnicity"):
        values[name] = pa.array(values[name], pa.string())
    return engine._dataset(pa.dataset.dataset(outcome_table(values)))


@pytest.mark.parametrize("most", [64, 0], ids=["ordered by a number", "ordered by a struct"])
@settings(max_examples=60, deadline=None)
@given(outcomes=st.lists(OUTCOME, min_size=1, max_size=12))
def test_the_latest_value_is_used_whatever_the_order(engine, most, outcomes):
    table = as_table(engine, outcomes)
    words = {f: sorted({o[f] for o in outcomes} - {None}) for f in FIELDS[1:]}
    with mock.patch("offline_audit.window.engine._MOST_WORDS", most):
        rows = engine.fetch(latest(engine, table, {"label": None, **words})).to_pylist()
    expected = latest_values(outcomes, FIELDS)
    assert len(rows) == len({(o["request_id"], o["row"]) for o in outcomes})
    for row in rows:
        assert {name: row[name] for name in FIELDS} == expected[row["request_id"], row["row"]]


@settings(max_examples=40, deadline=None)
@given(outcomes=st.lists(OUTCOME, min_size=1, max_size=12))
def test_conflicts_and_repetitions_are_counted_per_prediction(engine, outcomes):
    by_prediction = outcomes_per_prediction(as_table(engine, outcomes), FIELDS)
    rows = engine.fetch(by_prediction).to_pylist()
    for index, field in enumerate(FIELDS):
        assert sum(row[f"conflict_{index}"] for row in rows) == conflicts(outcomes, field)
    assert sum(row["times"] for row in rows) == len(outcomes)


def test_outcomes_long_after_the_window_are_joined_and_those_long_before_are_not_read(tmp_path):
    traffic = traffic_rows(10)
    write_traffic(tmp_path / "log", traffic)
    keys = {name: traffic[name] for name in ("request_id", "row")}
    for segment, days, label in (("late", 200, 1), ("early", -3, 0)):
        times = [START + dt.timedelta(days=days)] * 10
        values = {"label": [label] * 10, "observed_at": times, "received_at": times}
        write_outcomes(tmp_path / "outcomes", outcome_table({**keys, **values}), segment=segment)
    until = START + dt.timedelta(hours=5)
    with Window.read(tmp_path / "log", tmp_path / "outcomes", START, until) as window:
        assert {cell.label for cell in window.counts("sex").cells} == {1}
        facts = window.provenance.outcome_facts
    assert facts is not None
    assert (facts.rows, facts.late) == (10, 10)
    assert facts.median_delay is not None
    assert facts.longest_delay is not None
    assert 199 * 86_400 < facts.median_delay <= facts.longest_delay <= 200 * 86_400


def test_facts_about_outcomes_match_a_loop_over_them(known, window):
    facts = window.provenance.outcome_facts
    outcomes = known.outcome_rows.to_pylist()
    keys = [(o["request_id"], o["row"]) for o in outcomes]
    times = {(r["request_id"], r["row"]): r["time"] for r in known.rows}
    matched = [o for o, key in zip(outcomes, keys, strict=True) if key in times]
    end = window.span.until
    assert facts.rows == len(outcomes)
    assert facts.predictions == len(set(keys))
    assert facts.repeated == sum(keys.count(key) > 1 for key in set(keys))
    assert facts.conflicts == {field: conflicts(outcomes, field) for field in FIELDS}
    assert facts.values == {f: sum(o[f] is not None for o in outcomes) for f in FIELDS}
    assert sum(facts.sources.values()) == len(outcomes)
    assert facts.without_prediction == 0
    assert facts.in_window == len(matched)
    assert facts.late == sum(o["received_at"] >= end for o in matched)
    delays = [
        o["received_at"].replace(microsecond=0)
        - times[o["request_id"], o["row"]].replace(microsecond=0)
        for o in matched
    ]
    assert facts.longest_delay == max(delays).total_seconds()


def test_outcomes_of_predictions_outside_the_window_do_not_count_as_unmatched(known, tmp_path):
    unmatched = outcome_rows(traffic_rows(30, seed=99), share=1, again=0)
    write_outcomes(tmp_path / "outcomes", known.outcome_rows)
    write_outcomes(tmp_path / "outcomes", unmatched, segment="o2")
    with Window.read(known.log, tmp_path / "outcomes", START + dt.timedelta(hours=2)) as window:
        facts = window.provenance.outcome_facts
        assert facts is not None
        assert facts.without_prediction == 30
        assert any("30 predictions have no matching row" in w for w in window.provenance.warnings)
        assert facts.in_window < facts.rows - 30


def test_a_prediction_that_is_logged_twice_counts_twice_with_the_same_outcome(tmp_path):
    traffic = traffic_rows(50)
    outcomes = outcome_rows(traffic, share=1)
    write_traffic(tmp_path / "log", traffic)
    write_traffic(tmp_path / "log", traffic.slice(0, 7), segment="s2")
    write_outcomes(tmp_path / "outcomes", outcomes)
    with Window.read(tmp_path / "log", tmp_path / "outcomes") as window:
        facts, warnings = window.provenance.rows, window.provenance.warnings
        counted = window.counts("sex").rows
        sample = window.sample(100)
    assert (facts.rows, facts.duplicated, facts.surplus, counted) == (57, 7, 7, 57)
    assert any("7 predictions are logged more than once" in w for w in warnings)
    twice = pa.concat_tables([traffic, traffic.slice(0, 7)])
    expected = sorted(
        (r["request_id"], r["row"], r["label"] or 0) for r in joined_rows(twice, outcomes)
    )
    assert (
        sorted((r["request_id"], r["row"], r["label"] or 0) for r in sample.to_pylist()) == expected
    )


def test_a_duplicate_does_not_enlarge_a_sample(tmp_path):
    traffic = traffic_rows(40)
    write_traffic(tmp_path / "log", traffic)
    write_traffic(tmp_path / "log", traffic, segment="s2")
    with Window.read(tmp_path / "log") as window:
        assert window.sample(9, ("decision",)).num_rows == 18


@pytest.mark.parametrize("only", [0, 1])
def test_labels_of_one_decision_only_give_a_warning(known, tmp_path, only):
    decided = {(r["request_id"], r["row"]): r["decision"] for r in known.traffic.to_pylist()}
    outcomes = known.outcome_rows
    selected = [o for o in outcomes.to_pylist() if decided[o["request_id"], o["row"]] == only]
    write_outcomes(tmp_path / "outcomes", pa.Table.from_pylist(selected, schema=outcomes.schema))
    with Window.read(known.log, tmp_path / "outcomes") as window:
        provenance = window.provenance
    assert provenance.selective_labels
    assert provenance.label_share_by_decision[1 - only] == 0
    assert any(f"Labels exist for decision {only} only" in w for w in provenance.warnings)


def test_labels_of_both_decisions_are_not_selective(window):
    assert not window.provenance.selective_labels


@pytest.mark.parametrize(
    ("log_key", "outcome_key", "joins"),
    [("k1", "k2", False), (None, "k2", False), ("k", "k", True)],
)
def test_logs_with_different_pseudonym_keys_cannot_be_joined(tmp_path, log_key, outcome_key, joins):
    traffic = traffic_rows(10)
    write_traffic(tmp_path / "log", traffic, pseudonyms=log_key)
    write_outcomes(tmp_path / "outcomes", outcome_rows(traffic), pseudonyms=outcome_key)
    with Window.read(tmp_path / "log", tmp_path / "outcomes") as window:
        provenance = window.provenance
    assert provenance.joinable == joins
    assert any("different pseudonym keys" in w for w in provenance.warnings) == (not joins)


def test_groups_that_only_outcomes_name_are_compared(tmp_path):
    traffic = traffic_rows(400)
    write_traffic(tmp_path / "log", traffic)
    values = {name: traffic[name] for name in ("request_id", "row")}
    values |= {"group_sex": ["island", "male"] * 200, "observed_at": [START] * 400}
    table = outcome_table(values | {"received_at": [START] * 400})
    write_outcomes(tmp_path / "outcomes", table, attributes={"sex": ["island"]})
    with Window.read(tmp_path / "log", tmp_path / "outcomes") as window:
        assert window.attributes["sex"] == ("female", "male", "island")
        audits = {"permutation": {"metrics": "selection_rate"}, "projection": {}}
        findings = audit_window(window, audits, "sex")
    assert {finding.groups for finding in findings if finding.groups} == {("island", "male")}
