"""The stream is counted and watched as if it came one prediction at a time."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest

from monitor.batching import Waiting
from monitor.bundle import Bundle
from monitor.drift import Drift, Watcher
from monitor.errors import UnknownModelError
from monitor.judge import Judge, watched
from monitor.judging import Judging
from monitor.metrics import ServingMetrics
from monitor.policy import Policy
from monitor.settings import PolicyConfig
from monitor.stream import Stream, watched_columns
from tests.serving import ATTRIBUTES, PEOPLE

ROWS = PEOPLE.features[:600].copy()


@pytest.fixture(scope="module")
def judge(lending) -> Judge:
    return Judge.load(Bundle.read(lending), warn=False)


@pytest.fixture(scope="module")
def judged(judge):
    return Judging(judge, Policy(PolicyConfig(alpha=0.1), ATTRIBUTES)).judge(ROWS)


def waiting(name: str, start: int, stop: int) -> Waiting:
    return Waiting(name, 0, ROWS[start:stop], 0.0, asyncio.get_running_loop().create_future())


def new_drift(judge: Judge) -> Drift:
    return Drift.start(judge.drift, bundle_digest="d", rng=np.random.default_rng(4))


def feed(judge: Judge, judged, drift, metrics, size: int, *, settle=True, shown_as=str) -> Stream:
    async def run() -> Stream:
        columns = judge.sensitivity.columns
        stream = Stream(
            columns, drift, metrics, has_gradient=True, exemplars=True, shown_as=shown_as
        )
        for start in range(0, 600, size):
            stop = min(start + size, 600)
            stream.take([waiting(f"r{start}", start, stop)], judged.rows(start, stop))
        if settle:
            stream.settle()
        return stream

    return asyncio.run(run())


def test_columns_are_watched_as_scores_are(judge, judged):
    ours = watched_columns(judged.scores, judge.sensitivity.columns)
    theirs = watched(judge.scores(torch.from_numpy(ROWS)))
    assert np.array_equal(ours.margin, theirs.margin)
    for name in ATTRIBUTES:
        for field in ("hard_flips", "expected_change", "posterior"):
            found = getattr(ours.attributes[name], field)
            assert np.array_equal(found, getattr(theirs.attributes[name], field))


@pytest.mark.parametrize("size", [1, 7, 600])
def test_batches_make_no_difference(judge, judged, size):
    metrics = ServingMetrics(CollectorRegistry(), ATTRIBUTES)
    drift, direct = new_drift(judge), new_drift(judge)
    feed(judge, judged, drift, metrics, size)
    direct.update(watched_columns(judged.scores, judge.sensitivity.columns))
    assert drift.seen == 600
    assert drift.share("sex") == direct.share("sex")
    value = metrics.registry.get_sample_value
    for place, name in enumerate(ATTRIBUTES):
        for code, verdict in enumerate(("within", "above", "unknown")):
            counted = value("evenhand_verdicts_total", {"attribute": name, "verdict": verdict})
            assert counted == (judged.verdicts[:, place] == code).sum()
        assert value("evenhand_flip_probability_count", {"attribute": name}) == 600
        column = judge.sensitivity.columns.attributes[name].expected_change
        total = value("evenhand_expected_change_sum", {"attribute": name})
        assert total == pytest.approx(judged.scores[:, column].sum(dtype=float), rel=1e-5)
    assert value("evenhand_actions_total", {"action": "observe"}) == judged.called.any(1).sum()


def test_exemplars_name_requests_that_are_above(judge, judged):
    metrics = ServingMetrics(CollectorRegistry(), ATTRIBUTES)
    feed(judge, judged, None, metrics, 1)
    shown = generate_latest(metrics.registry).decode()
    named = {part.split('"')[1] for part in shown.split("request_id=")[1:]}
    above = {f"r{row}" for row in np.flatnonzero((judged.verdicts == 1).any(1))}
    assert named
    assert named <= above


def test_exemplars_name_requests_as_the_log_does(judge, judged):
    metrics = ServingMetrics(CollectorRegistry(), ATTRIBUTES)
    feed(judge, judged, None, metrics, 1, shown_as="pseudonym-of-{}".format)
    shown = generate_latest(metrics.registry).decode()
    named = [part.split('"')[1] for part in shown.split("request_id=")[1:]]
    assert named
    assert all(name.startswith("pseudonym-of-r") for name in named)


def test_what_was_put_aside_is_taken_in_soon(judge, judged):
    drift = new_drift(judge)

    async def run() -> None:
        stream = Stream(judge.sensitivity.columns, drift, None, has_gradient=True, exemplars=False)
        stream.take([waiting("a", 0, 3)], judged.rows(0, 3))
        assert drift.seen == 0
        for _ in range(100):
            await asyncio.sleep(0.02)
            if drift.seen:
                break

    asyncio.run(run())
    assert drift.seen == 3


def test_a_watch_that_fails_is_counted_and_stops_nothing(judge, judged, monkeypatch, caplog):
    metrics = ServingMetrics(CollectorRegistry(), ATTRIBUTES)
    drift = new_drift(judge)

    def fails(batch):
        raise ValueError("secret")

    monkeypatch.setattr(drift, "update", fails)
    feed(judge, judged, drift, metrics, 600)
    assert metrics.registry.get_sample_value("evenhand_monitoring_faults_total") == 1
    assert "secret" not in caplog.text


def test_alarms_are_told_of_and_acknowledged(judge, judged, caplog):
    drift = Drift.start(
        judge.drift, bundle_digest="d", run_length=1e4, rng=np.random.default_rng(4)
    )
    biased = judged.scores.copy()
    biased[:, judge.sensitivity.columns.attributes["sex"].expected_change] += 100
    stream = feed(judge, type(judged)(output=judged.output, scores=biased, verdicts=judged.verdicts,
                  actions=judged.actions), drift, None, 600)  # fmt: skip
    change = Watcher("change", "sex")
    assert change in {alarm.watcher for alarm in stream.alarms}
    assert "drift alarm: change of sex" in caplog.text
    stream.acknowledge(change)
    assert change not in {alarm.watcher for alarm in stream.alarms}
    with pytest.raises(UnknownModelError, match="no such alarm"):
        stream.acknowledge(change)
