"""Predictions are encoded as records and decoded as columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.policy import Verdict
from monitor.scoring.scores import FIRST_OF_REASON, Reason
from monitor.traffic.columns import FeatureColumn, TrafficColumns, Treatment
from monitor.traffic.privacy import FeatureGuard, Pseudonyms
from monitor.traffic.records import TrafficEncoder, hours, traffic_table
from monitor.traffic.settings import FeatureTreatment
from tests.spooling import (
    COLUMNS,
    SCORES,
    LoggedRequest,
    encoder,
    join_records,
    moment,
    payload,
    scored_batch,
)

HOUR = 3_600_000_000_000
ids = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)
values = st.floats(width=32, allow_nan=False, allow_infinity=False)
batches = st.lists(st.tuples(ids, st.lists(values, min_size=1, max_size=4)), min_size=1, max_size=5)


def record(data: bytes, rows: int, time: int = 1_000_000) -> tuple[int, int, bytes]:
    return time, rows, data


@settings(deadline=None)
@given(st.lists(batches, min_size=1, max_size=4))
def test_every_row_of_every_request_is_decoded(lots):
    records = [
        record(payload(*batch), sum(len(rows) for _, rows in batch), 1_000_000 * index)
        for index, batch in enumerate(lots)
    ]
    table = traffic_table(join_records(*records), COLUMNS)
    expected = [
        (name, row, 1000 * index, value)
        for index, batch in enumerate(lots)
        for name, rows in batch
        for row, value in enumerate(rows)
    ]
    decoded = zip(
        *(table[name].to_pylist() for name in ("request_id", "row")),
        *(table["time"].cast("int64").to_pylist(), table["x"].to_pylist()),
        strict=True,
    )
    assert list(decoded) == expected
    assert table["logit"].to_pylist() == [value for *_, value in expected]
    assert table["decision"].to_pylist() == [int(value >= 0) for *_, value in expected]


def test_rows_of_a_split_request_are_numbered_from_its_first_row():
    rows = np.arange(5, dtype=np.float32).reshape(-1, 1)
    batch: Any = [LoggedRequest("a", 256, rows[:3]), LoggedRequest("b", 0, rows[3:])]
    data = encoder().payload(batch, rows, scored_batch(rows[:, 0]))
    table = traffic_table(join_records(record(data, 5)), COLUMNS)
    assert table["request_id"].to_pylist() == ["a", "a", "a", "b", "b"]
    assert table["row"].to_pylist() == [256, 257, 258, 0, 1]


def test_scores_verdicts_and_actions_are_in_their_columns():
    logits = np.array([2.0, -1.0, 0.0], np.float32)
    result = scored_batch(
        logits,
        p_values=np.array([[0.25], [np.nan], [1.0]]),
        likely_flip=np.array([[True], [False], [False]]),
        verdicts=np.array([[Verdict.ABOVE], [Verdict.UNKNOWN], [Verdict.WITHIN]], np.int8),
        actions=np.array([2, 0, 4], np.int8),
    )
    own = SCORES.attributes["sex"]
    used = [SCORES.boundary_distance, own.log_prediction_sensitivity, own.flip_probability]
    used += [own.expected_change, SCORES.unlike]
    code = Reason.RANGE * FIRST_OF_REASON + 3
    result.scores[:, used] = [
        [7, 0, 0.5, 0.75, 0],
        [*[np.nan] * 4, code],
        [0, np.log(3), 1, 2, 0],
    ]
    batch: Any = [LoggedRequest("r", 0, logits.reshape(-1, 1))]
    data = encoder().payload(batch, logits.reshape(-1, 1), result)
    decoded = traffic_table(join_records(record(data, 3)), COLUMNS).to_pydict()
    assert decoded["score"] == pytest.approx([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(1)), 0.5])
    assert decoded["decision"] == [1, 0, 1]
    assert decoded["boundary_distance"] == [7, None, 0]
    assert decoded["unknown_reason"] == [None, "range", None]
    assert decoded["prediction_sensitivity_sex"] == pytest.approx([1, None, 3])
    assert decoded["flip_probability_sex"] == [0.5, None, 1]
    assert decoded["expected_change_sex"] == [0.75, None, 2]
    assert decoded["p_value_sex"] == [0.25, None, 1]
    assert decoded["likely_flip_sex"] == [True, None, False]
    assert decoded["unusual_sex"] == [False, None, False]
    assert decoded["verdict_sex"] == ["above", "unknown", "within"]
    assert decoded["action"] == ["flag", "none", "review"]


def test_a_prediction_without_scores_has_only_logit_score_and_decision():
    rows = np.array([[2.0], [np.nan]], np.float32)
    scorer = SimpleNamespace(logits=lambda output: output, margins=lambda output: output)
    bare = scored_batch(
        rows[:, 0],
        **dict.fromkeys(("scores", "p_values", "likely_flip", "unusual", "verdicts", "actions")),
    )
    batch: Any = [LoggedRequest("r", 0, rows)]
    data = encoder(scorer=scorer).payload(batch, rows, bare)
    decoded = traffic_table(join_records(record(data, 2)), COLUMNS).to_pydict()
    assert decoded["logit"] == [2, None]
    assert decoded["score"] == [pytest.approx(1 / (1 + np.exp(-2))), None]
    assert decoded["decision"] == [1, None]
    assert decoded["action"] == ["none", "none"]
    for name in (
        "boundary_distance",
        "unknown_reason",
        "p_value_sex",
        "verdict_sex",
        "expected_change_sex",
    ):
        assert decoded[name] == [None, None]


def test_extreme_logits_raise_no_warning():
    rows = np.array([[1e30], [-1e30], [800.0], [-800.0]], np.float32)
    data = payload(("r", rows[:, 0].tolist()))
    assert traffic_table(join_records(record(data, 4)), COLUMNS)["score"].to_pylist() == [
        1,
        0,
        1,
        0,
    ]


def test_features_are_written_by_their_treatment():
    written: dict[str, tuple[int, Treatment]] = {
        "age": (0, "bucket"),
        "city": (1, "hash"),
        "income": (3, "keep"),
    }
    columns = TrafficColumns(
        features=tuple(
            FeatureColumn(name=name, feature=name, index=index, kind="numeric", treatment=treatment)
            for name, (index, treatment) in written.items()
        ),
        attributes=("sex",),
    )
    names = Pseudonyms(b"a key of sixteen bytes or more")
    configured = {"age": FeatureTreatment(treatment="bucket", width=10)}
    guard = FeatureGuard(columns, configured, names)
    made = TrafficEncoder(columns, SCORES, guard, names, None)  # type: ignore[arg-type]
    rows = np.array([[47, 3, 99, 1200], [50, 4, 99, 800], [9, 3, 99, 0]], np.float32)
    batch: Any = [LoggedRequest("r1", 0, rows[:1]), LoggedRequest("r2", 0, rows[1:])]
    data = made.payload(batch, rows, scored_batch(rows[:, 0]))
    table = traffic_table(join_records(record(data, 3)), columns)
    assert table.schema.names[3:6] == ["age", "city", "income"]
    assert table["age"].to_pylist() == [40, 50, 0]
    assert table["income"].to_pylist() == [1200, 800, 0]
    first, second, third = table["city"].to_pylist()
    assert first == third != second
    assert table["request_id"].to_pylist() == [names.of("r1"), names.of("r2"), names.of("r2")]
    assert b"r1" not in data[: data.index(names.of("r2").encode())]


@given(st.lists(st.integers(-3 * HOUR, 30 * HOUR), max_size=20))
def test_records_are_split_by_hour_in_order(times):
    records = [record(b"", n, time) for n, time in enumerate(times)]
    by_hour = hours(join_records(*records))
    assert [hour for hour, _ in by_hour] == sorted({time // HOUR for time in times})
    for hour, lot in by_hour:
        in_hour = [(time, rows) for time, rows, _ in records if time // HOUR == hour]
        assert [(r.time, r.rows) for r in lot] == in_hour


def test_an_hour_ends_at_the_full_hour():
    times = [moment(2026, 3, 1, 23, 59, 59), moment(2026, 3, 2, 0)]
    assert len(hours(join_records(*(record(b"", 1, time) for time in times)))) == 2
