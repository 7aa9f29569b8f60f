"""Outcomes are validated, encoded and decoded."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.traffic.outcomes import (
    Outcome,
    OutcomeCheck,
    ProtectedFeatures,
    days,
    outcome_table,
    payload,
)
from monitor.traffic.privacy import Pseudonyms
from tests.serving import NAMES, SPEC
from tests.spooling import LoggedRequest, join_records, moment

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
GROUPS = {"sex": ("female", "male"), "ethnicity": ("a", "b", "c")}
CHECK = OutcomeCheck(GROUPS)

outcomes = st.builds(
    Outcome,
    request_id=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=9),
    row=st.integers(0, 2**31 - 1),
    label=st.sampled_from([0, 1, None]),
    groups=st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(groups) for name, groups in GROUPS.items()}
    ),
    observed_at=st.none()
    | st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2026, 3, 2), timezones=st.just(dt.UTC)),  # noqa: DTZ001
)


def record(data: bytes, rows: int, time: int = 0) -> tuple[int, int, bytes]:
    return time, rows, data


@given(st.lists(outcomes, min_size=1, max_size=6))
def test_outcomes_are_decoded_as_they_were_encoded(sent):
    data = payload(sent, Pseudonyms(None), "rest", NOW)
    decoded = outcome_table(join_records(record(data, len(sent))), tuple(GROUPS)).to_pylist()
    assert decoded == [
        {
            "request_id": one.request_id,
            "row": one.row,
            "label": one.label,
            "group_sex": one.groups.get("sex"),
            "group_ethnicity": one.groups.get("ethnicity"),
            "observed_at": one.observed_at or NOW,
            "received_at": NOW,
            "source": "rest",
        }
        for one in sent
    ]


@given(outcomes)
def test_valid_outcomes_are_accepted(sent):
    flaw = CHECK.flaw(sent, NOW)
    assert (flaw is None) == (sent.label is not None or bool(sent.groups))


@pytest.mark.parametrize(
    ("parts", "flaw"),
    [
        ({"request_id": ""}, "request_id must be"),
        ({"request_id": "x" * 101}, "request_id must be"),
        ({"request_id": "secret\n"}, "request_id must be"),
        ({"row": -1}, "row must be"),
        ({"row": 2**31}, "row must be"),
        ({"label": None}, "label and groups are both missing"),
        ({"label": 2}, "label must be 0 or 1"),
        ({"observed_at": NOW + dt.timedelta(days=2)}, "in the future"),
        ({"observed_at": dt.datetime(1969, 1, 1, tzinfo=dt.UTC)}, "before 1970"),
        ({"groups": {"secret": "male"}}, "unknown protected attribute; known: ethnicity, sex"),
        ({"groups": {"sex": "secret"}}, "unknown group of sex; known: female, male"),
    ],
)
def test_the_reason_of_a_rejection_does_not_contain_values(parts, flaw):
    sent = Outcome(**{"request_id": "r", "label": 1, **parts})
    reason = CHECK.flaw(sent, NOW)
    assert reason is not None
    assert flaw in reason
    assert "secret" not in reason


def test_outcomes_are_split_by_the_day_of_writing():
    times = [moment(2026, 3, 2), moment(2026, 3, 1, 23, 59, 59), moment(2026, 3, 2, 5)]
    records = [record(b"", n, time) for n, time in enumerate(times)]
    assert [(day, [r.rows for r in lot]) for day, lot in days(join_records(*records))] == [
        ("2026-03-01", [1]),
        ("2026-03-02", [0, 2]),
    ]


def own(**features: str | None):
    """Groups that are read from these features."""
    attributes = tuple(
        a.model_copy(update={"feature": features.get(a.name)}) for a in SPEC.protected_attributes
    )
    spec: Any = SPEC.model_copy(update={"protected_attributes": attributes})
    return ProtectedFeatures(spec)


def test_groups_are_decoded_from_protected_features():
    binary = next(f.name for f in SPEC.features if f.kind == "binary")
    groups = own(sex=binary)
    first, second = SPEC.protected_attributes[0].groups
    rows = np.zeros((4, len(NAMES)), np.float32)
    rows[:, NAMES.index(binary)] = [0, 1, 0.5, np.nan]
    batch: Any = [LoggedRequest("a", 256, rows[:2]), LoggedRequest("b", 0, rows[2:])]
    # The group of a value other than 0 and 1 is unknown.
    assert groups.outcomes(batch, rows) == [
        Outcome(request_id="a", row=256, groups={"sex": first}),
        Outcome(request_id="a", row=257, groups={"sex": second}),
    ]


def test_without_protected_features_there_are_no_groups():
    assert not own()
    assert own(sex=NAMES[0])


def test_outcomes_may_name_groups_that_the_fit_left_out():
    sex, ethnicity = (a.attribute for a in SPEC.protected_attributes)
    island = ethnicity.model_copy(update={"excluded": ("island",)})
    spec: Any = SPEC.model_copy(update={"protected_attributes": (sex, island)})
    check = OutcomeCheck.of(spec)
    assert check.flaw(Outcome(request_id="a", groups={"ethnicity": "island"}), NOW) is None
    flaw = check.flaw(Outcome(request_id="a", groups={"ethnicity": "Island"}), NOW)
    assert flaw is not None
    assert flaw.startswith("unknown group of ethnicity; known: ")
    assert flaw.endswith("island") or "island, " in flaw
