"""Alarms persist, and their cause is determined by the documented rule."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.drift.alarms import PATIENCE, Alarms
from monitor.drift.reference import DetectorId, Layout

CHANGE, SHARE = DetectorId("change", "sex"), DetectorId("share", "sex")
MARGIN, STATUS = DetectorId("margin"), DetectorId("status", "sex")
LAYOUT = Layout(groups={"sex": 2, "age": 3})
INDICES = {watcher: index for index, watcher in enumerate(LAYOUT.detectors)}


def cause_of_alarm(watcher, intervals, *, n=3_000, at=500, sizes=(32,)):
    """Cause of an alarm at prediction `at` when detectors are raised in intervals [from, to)."""
    raised = np.zeros((len(INDICES), n), bool)
    for detector, (start, stop) in intervals.items():
        raised[INDICES[detector], start - 1 : stop - 1] = True
    alarms, start, turn = Alarms(LAYOUT), 0, 0
    while start < n:
        stop = min(start + sizes[turn % len(sizes)], n)
        if start < at <= stop:
            alarms.latch(watcher, at, 14.0)
        part = raised[:, start:stop]
        alarms.decide_causes(start + 1, stop - start, part if part.any() else None)
        start, turn = stop, turn + 1
    return alarms.latched[watcher].cause


@pytest.mark.parametrize("sizes", [(1,), (32,), (7, 32, 2)])
@pytest.mark.parametrize("watcher", [CHANGE, SHARE])
@pytest.mark.parametrize(
    ("intervals", "cause"),
    [
        ({}, "treatment"),
        ({CHANGE: (490, 3_000)}, "treatment"),
        ({STATUS: (400, 3_000)}, "covariates"),
        ({STATUS: (900, 905)}, "covariates"),
        ({DetectorId("status", "age"): (900, 905)}, "covariates"),
        ({STATUS: (300, 500)}, "treatment"),
        ({STATUS: (300, 501)}, "covariates"),
        ({STATUS: (500 + PATIENCE, 3_000)}, "treatment"),
        ({STATUS: (500 + PATIENCE - 1, 3_000)}, "covariates"),
        ({CHANGE: (490, 3_000), MARGIN: (480, 3_000)}, "covariates"),
        ({CHANGE: (480, 3_000), MARGIN: (490, 3_000)}, "treatment"),
        ({CHANGE: (480, 3_000), MARGIN: (480, 3_000)}, "treatment"),
        ({MARGIN: (480, 3_000)}, "covariates"),
    ],
)
def test_causes_follow_the_rule_for_any_batch_sizes(watcher, intervals, cause, sizes):
    assert cause_of_alarm(watcher, intervals, sizes=sizes) == cause


def test_a_cause_is_unclear_until_the_waiting_time_has_passed():
    assert cause_of_alarm(CHANGE, {}, n=500 + PATIENCE - 1) == "unclear"
    assert cause_of_alarm(CHANGE, {}, n=500 + PATIENCE) == "treatment"


def test_a_determined_cause_does_not_change():
    assert cause_of_alarm(CHANGE, {STATUS: (700, 720)}, n=5_000) == "covariates"
    assert cause_of_alarm(CHANGE, {STATUS: (2_000, 5_000)}, n=5_000) == "treatment"


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
