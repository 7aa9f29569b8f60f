"""Alarms persist, and their cause is determined by the documented rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitor.drift.alarms import PATIENCE, SETTLE, Alarms
from monitor.drift.reference import DetectorId, Layout

CHANGE, SHARE = DetectorId("change", "sex"), DetectorId("share", "sex")
MARGIN, STATUS = DetectorId("margin"), DetectorId("status", "sex")
LAYOUT = Layout(groups={"sex": 2, "age": 3})
INDICES = {watcher: index for index, watcher in enumerate(LAYOUT.detectors)}


def cause_of_alarm(watcher, intervals, *, n=3_000, at=500, sizes=(32,), rose=None):
    """Cause of an alarm at prediction `at` when detectors are raised in intervals [from, to).

    `rose` is the prediction that shows that the flip share of sex rose since the alarm.
    """
    raised = np.zeros((len(INDICES), n), bool)
    for detector, (start, stop) in intervals.items():
        raised[INDICES[detector], start - 1 : stop - 1] = True
    alarms, start, turn = Alarms(LAYOUT), 0, 0
    while start < n:
        stop = min(start + sizes[turn % len(sizes)], n)
        if start < at <= stop:
            alarms.latch(watcher, at, 14.0)
        part = raised[:, start:stop]
        shown = {} if rose is None or rose > stop else {"sex": max(rose, start + 1)}
        alarms.decide_causes(start + 1, stop - start, part if part.any() else None, shown)
        start, turn = stop, turn + 1
    return alarms.latched[watcher].cause


RULE = [
    ({}, None),
    ({CHANGE: (490, 3_000)}, None),
    ({STATUS: (400, 3_000)}, "covariates"),
    ({STATUS: (900, 905)}, "covariates"),
    ({DetectorId("status", "age"): (900, 905)}, "covariates"),
    ({STATUS: (300, 500)}, None),
    ({STATUS: (300, 501)}, "covariates"),
    ({STATUS: (500 + PATIENCE, 3_000)}, None),
    ({STATUS: (500 + PATIENCE - 1, 3_000)}, "covariates"),
    ({CHANGE: (490, 3_000), MARGIN: (480, 3_000)}, "covariates"),
    ({CHANGE: (480, 3_000), MARGIN: (490, 3_000)}, None),
    ({CHANGE: (480, 3_000), MARGIN: (480, 3_000)}, None),
    ({MARGIN: (480, 3_000)}, "covariates"),
]
SIZES = [(1,), (32,), (7, 32, 2)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("watcher", "otherwise"), [(CHANGE, "model"), (SHARE, "treatment")])
@pytest.mark.parametrize(("intervals", "cause"), RULE)
def test_causes_follow_the_rule_for_any_batch_sizes(watcher, otherwise, intervals, cause, sizes):
    assert cause_of_alarm(watcher, intervals, sizes=sizes) == (cause or otherwise)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(
    ("rose", "intervals", "cause"),
    [
        (510, {}, "treatment"),
        (1_400, {}, "treatment"),
        (2_500, {}, "treatment"),
        (510, {STATUS: (500 + SETTLE, 3_000)}, "covariates"),
        (510, {STATUS: (500 + SETTLE + 1, 3_000)}, "treatment"),
        (900, {STATUS: (900, 905)}, "covariates"),
        (900, {STATUS: (901, 905)}, "treatment"),
        (2_500, {STATUS: (900, 905)}, "covariates"),
        (2_500, {STATUS: (2_000, 3_000)}, "treatment"),
    ],
)
def test_a_change_is_attributed_to_treatment_only_by_the_flip_share(rose, intervals, cause, sizes):
    assert cause_of_alarm(CHANGE, intervals, rose=rose, sizes=sizes) == cause


@pytest.mark.parametrize("sizes", SIZES)
def test_the_flip_share_attributes_a_change_after_the_settling_time(sizes):
    settled = 500 + SETTLE
    assert cause_of_alarm(CHANGE, {}, rose=510, n=settled - 1, sizes=sizes) == "unclear"
    assert cause_of_alarm(CHANGE, {}, rose=510, n=settled, sizes=sizes) == "treatment"
    assert cause_of_alarm(CHANGE, {}, rose=800, n=799, sizes=sizes) == "unclear"
    assert cause_of_alarm(CHANGE, {}, rose=800, n=800, sizes=sizes) == "treatment"


def test_a_flip_share_that_rises_later_turns_model_into_treatment():
    assert cause_of_alarm(CHANGE, {}, rose=2_000, n=1_999) == "model"
    assert cause_of_alarm(CHANGE, {}, rose=2_000, n=2_000) == "treatment"


def test_the_flip_share_of_another_attribute_attributes_nothing():
    assert cause_of_alarm(DetectorId("change", "age"), {}, rose=510) == "model"


def test_only_a_share_and_a_change_of_treatment_page():
    alarms = Alarms(LAYOUT)
    for watcher in (CHANGE, SHARE, MARGIN, STATUS):
        alarms.latch(watcher, 1, 14.0)
    assert {w.kind for w, alarm in alarms.latched.items() if alarm.pages} == {"share"}
    alarms.decide_causes(PATIENCE, 100, None)
    assert alarms.latched[CHANGE].cause == "model"
    assert {w.kind for w, alarm in alarms.latched.items() if alarm.pages} == {"share"}
    alarms.decide_causes(PATIENCE + 100, 1, None, {"sex": PATIENCE + 100})
    assert {w.kind for w, alarm in alarms.latched.items() if alarm.pages} == {"share", "change"}


def test_a_cause_is_unclear_until_the_waiting_time_has_passed():
    assert cause_of_alarm(CHANGE, {}, n=500 + PATIENCE - 1) == "unclear"
    assert cause_of_alarm(CHANGE, {}, n=500 + PATIENCE) == "model"


def test_a_determined_cause_does_not_change():
    assert cause_of_alarm(CHANGE, {STATUS: (700, 720)}, n=5_000, rose=800) == "covariates"
    assert cause_of_alarm(CHANGE, {STATUS: (2_000, 5_000)}, n=5_000, rose=800) == "treatment"


def decided(cause, *, at):
    """Alarms of a replica whose change alarm has a cause."""
    alarms = Alarms(LAYOUT)
    alarms.latch(CHANGE, at, 14.0)
    alarms.latched[CHANGE] = replace(alarms.latched[CHANGE], cause=cause)
    return alarms


@pytest.mark.parametrize(
    ("one", "two", "kept"),
    [
        ("treatment", "covariates", "treatment"),
        ("covariates", "treatment", "treatment"),
        ("model", "treatment", "treatment"),
        ("unclear", "model", "model"),
        ("covariates", "unclear", "covariates"),
        ("covariates", "model", "covariates"),
        ("model", "covariates", "model"),
    ],
)
def test_merging_keeps_the_alarm_that_is_farther_decided(one, two, kept):
    alarms = decided(one, at=10)
    taken = alarms.merge(decided(two, at=20), seen=100, other_seen=100)
    assert alarms.latched[CHANGE].cause == kept
    assert taken == ([CHANGE] if kept == two else [])


def test_a_margin_alarm_has_a_cause_only_after_a_status_detector_is_raised():
    assert cause_of_alarm(MARGIN, {MARGIN: (400, 3_000)}) == "unclear"
    assert cause_of_alarm(MARGIN, {MARGIN: (400, 3_000), STATUS: (2_000, 2_010)}) == "covariates"


def test_the_cause_of_a_status_alarm_is_covariates():
    assert cause_of_alarm(STATUS, {}) == "covariates"


def test_a_second_alarm_of_a_watcher_does_not_replace_the_first():
    alarms = Alarms(LAYOUT)
    alarms.latch(CHANGE, 10, 14.0)
    alarms.latch(CHANGE, 20, 15.0)
    assert alarms.latched[CHANGE].at == 10
