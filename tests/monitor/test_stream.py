"""Counts and drift of the stream do not depend on batching."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest

from monitor import Bundle, Drift, Judge
from monitor.batching import Waiting
from monitor.drift.alarms import Alarm
from monitor.drift.reference import DetectorId
from monitor.drift.wording import fields
from monitor.errors import NotFoundError
from monitor.metrics.serving import ServingMetrics
from monitor.policy import Policy, Verdict
from monitor.scoring.scorer import Scorer
from monitor.settings import PolicyConfig
from monitor.stream import Stream
from tests.serving import ATTRIBUTES, PEOPLE

ROWS = PEOPLE.features[:600].copy()


@pytest.fixture(scope="module")
def judge(lending) -> Judge:
    return Judge.load(Bundle.read(lending), warn=False)


@pytest.fixture(scope="module")
def result(judge):
    scorer = Scorer(judge, Policy(PolicyConfig(alpha=0.1), ATTRIBUTES))
    return scorer.apply_policy(scorer.score(ROWS))


def waiting(name: str, start: int, stop: int) -> Waiting:
    return Waiting(name, 0, ROWS[start:stop], 0.0, asyncio.get_running_loop().create_future())


def new_drift(judge: Judge) -> Drift:
    return Drift.start(judge.drift, bundle_digest="d", rng=np.random.default_rng(4))


def feed(judge: Judge, result, drift, metrics, size: int, *, flush=True, shown_as=str) -> Stream:
    async def run() -> Stream:
        columns = judge.sensitivity.columns
        stream = Stream(
            columns, drift, metrics, has_gradient=True, exemplars=True, shown_as=shown_as
        )
        for start in range(0, 600, size):
            stop = min(start + size, 600)
            stream.add([waiting(f"r{start}", start, stop)], result.rows(start, stop))
        if flush:
            stream.flush()
        return stream

    return asyncio.run(run())


@pytest.mark.parametrize("size", [1, 7, 600])
def test_results_do_not_depend_on_the_batch_size(judge, result, size):
    metrics = ServingMetrics(CollectorRegistry(), ATTRIBUTES)
    drift, direct = new_drift(judge), new_drift(judge)
    feed(judge, result, drift, metrics, size)
    direct.update(judge.scores(torch.from_numpy(ROWS)).predictions)
    assert drift.seen == 600
    share, expected = drift.share("sex"), direct.share("sex")
    # The order of additions differs, and so may the last bits of sums.
    for field in ("share", "band", "rolling_share", "rolling_band", "baseline"):
        assert getattr(share, field) == pytest.approx(getattr(expected, field), rel=1e-12)
    value = metrics.registry.get_sample_value
    for index, name in enumerate(ATTRIBUTES):
        for code, verdict in enumerate(("within", "unknown", "above")):
            counted = value("evenhand_verdicts_total", {"attribute": name, "verdict": verdict})
            assert counted == (result.verdicts[:, index] == code).sum()
        known = int((result.verdicts[:, index] != Verdict.UNKNOWN).sum())
        for metric, holds in (
            ("evenhand_likely_flips_total", result.likely_flip),
            ("evenhand_unusual_predictions_total", result.unusual),
        ):
            assert value(metric, {"attribute": name}) == holds[:, index].sum() > 0
        assert value("evenhand_flip_probability_count", {"attribute": name}) == known
        column = judge.sensitivity.columns.attributes[name].expected_change
        total = value("evenhand_expected_change_sum", {"attribute": name})
        assert total == pytest.approx(np.nansum(result.scores[:, column], dtype=float), rel=1e-5)
    assert value("evenhand_actions_total", {"action": "observe"}) == (
        (result.verdicts == Verdict.ABOVE).any(1).sum()
    )


def test_exemplars_are_ids_of_requests_above_the_baseline(judge, result):
    metrics = ServingMetrics(CollectorRegistry(), ATTRIBUTES)
    feed(judge, result, None, metrics, 1)
    exported = generate_latest(metrics.registry).decode()
    ids = {part.split('"')[1] for part in exported.split("request_id=")[1:]}
    above = {f"r{row}" for row in np.flatnonzero((result.verdicts == Verdict.ABOVE).any(1))}
    assert ids
    assert ids <= above


def test_exemplars_have_the_pseudonyms_of_the_log(judge, result):
    metrics = ServingMetrics(CollectorRegistry(), ATTRIBUTES)
    feed(judge, result, None, metrics, 1, shown_as="pseudonym-of-{}".format)
    exported = generate_latest(metrics.registry).decode()
    ids = [part.split('"')[1] for part in exported.split("request_id=")[1:]]
    assert ids
    assert all(name.startswith("pseudonym-of-r") for name in ids)


def test_a_partial_buffer_is_flushed_after_a_delay(judge, result):
    drift = new_drift(judge)

    async def run() -> None:
        stream = Stream(judge.sensitivity.columns, drift, None, has_gradient=True, exemplars=False)
        stream.add([waiting("a", 0, 3)], result.rows(0, 3))
        assert drift.seen == 0
        for _ in range(100):
            await asyncio.sleep(0.02)
            if drift.seen:
                break

    asyncio.run(run())
    assert drift.seen == 3


def test_a_fault_of_the_drift_watch_is_counted_and_does_not_raise(
    judge, result, monkeypatch, caplog
):
    metrics = ServingMetrics(CollectorRegistry(), ATTRIBUTES)
    drift = new_drift(judge)

    def fails(batch):
        raise ValueError("secret")

    monkeypatch.setattr(drift, "update", fails)
    feed(judge, result, drift, metrics, 600)
    assert metrics.registry.get_sample_value("evenhand_monitoring_faults_total") == 1
    assert "secret" not in caplog.text


def test_a_share_below_its_bound_is_logged_once_without_values_of_people(judge, result, caplog):
    """Without flips, and with decisions that depend on the likely group."""
    columns, drift = judge.sensitivity.columns.attributes["sex"], new_drift(judge)
    scores = result.scores.copy()
    scores[:, columns.hard_flips] = 0.0
    scores[:, columns.posterior] = np.eye(2)[(scores[:, 1] >= 0).astype(int)]
    wrong = type(result)(output=result.output, scores=scores, verdicts=result.verdicts,
                         actions=result.actions)  # fmt: skip
    stream = feed(judge, wrong, drift, None, 600)
    assert stream.is_below_bound("sex")
    assert not stream.is_below_bound("ethnicity")
    assert not stream.is_below_bound(None)
    for _ in range(4):
        stream._watch([scores])
    lines = [r.getMessage() for r in caplog.records if "not established" in r.getMessage()]
    assert len(lines) == 1
    assert "the flip share of sex is not established: 0.0% of decisions" in lines[0]
    assert "at least 100.0% would (at least " in lines[0]
    (record,) = (r for r in caplog.records if "not established" in r.getMessage())
    assert (record.attribute, record.flip_share) == ("sex", 0)
    assert record.flip_share_high < record.lower_bound_low < record.lower_bound == 1


def test_alarms_are_logged_and_acknowledged(judge, result, caplog):
    drift = Drift.start(
        judge.drift, bundle_digest="d", run_length=1e4, rng=np.random.default_rng(4)
    )
    biased = result.scores.copy()
    biased[:, judge.sensitivity.columns.attributes["sex"].expected_change] += 100
    stream = feed(judge, type(result)(output=result.output, scores=biased, verdicts=result.verdicts,
                  actions=result.actions), drift, None, 600)  # fmt: skip
    change = DetectorId("change", "sex")
    assert change in {alarm.watcher for alarm in stream.alarms}
    assert "drift alarm: change of sex" in caplog.text
    (line,) = (record for record in caplog.records if "change of sex" in record.getMessage())
    alarm = next(alarm for alarm in stream.alarms if alarm.watcher == change)
    assert alarm.effect is not None
    expected = {
        "detector": "change",
        "attribute": "sex",
        "signal": "expected_change",
        "prediction": alarm.at,
        "pages": False,
        "previous_cause": None,
        "baseline_flip_share": round(alarm.effect.baseline, 4),
        "flip_share_window": "alarm",
        "flip_share_predictions": alarm.effect.n,
        "flip_share": round(alarm.effect.share or 0, 4),
    }
    assert expected.items() <= vars(line).items()
    assert line.flip_share_low <= line.flip_share <= line.flip_share_high
    assert line.cause in ("unclear", "model", "treatment", "covariates")
    assert f"(likely cause: {line.cause})" in line.getMessage()
    stream.acknowledge(change)
    assert change not in {alarm.watcher for alarm in stream.alarms}
    with pytest.raises(NotFoundError, match="no such alarm"):
        stream.acknowledge(change)


def test_a_new_cause_is_logged_as_the_new_cause_of_the_same_alarm(judge, result, caplog):
    drift = Drift.start(
        judge.drift, bundle_digest="d", run_length=1e4, rng=np.random.default_rng(4)
    )
    columns = judge.sensitivity.columns.attributes["sex"]
    biased = result.scores.copy()
    biased[:, columns.expected_change] += 100
    biased[:, columns.hard_flips] = 1

    async def run() -> None:
        stream = Stream(judge.sensitivity.columns, drift, None, has_gradient=True, exemplars=False)
        for start in range(0, 600, 50):
            stream._watch([biased[start : start + 50]])

    asyncio.run(run())
    records = [r for r in caplog.records if getattr(r, "signal", "") == "expected_change"]
    first, second = (r for r in records if r.attribute == "sex")
    assert (first.cause, first.previous_cause) == ("unclear", None)
    assert (second.cause, second.previous_cause, second.pages) == ("treatment", "unclear", True)
    assert first.prediction == second.prediction
    assert second.getMessage().startswith("new cause of a drift alarm: change of sex at prediction")
    assert second.baseline_flip_share < second.flip_share == 1


@pytest.mark.parametrize("n", [5, 10])
def test_shares_of_few_predictions_are_not_logged(judge, result, n):
    drift = new_drift(judge)
    drift.update(judge.scores(torch.from_numpy(ROWS[:n])).predictions)
    alarm = Alarm(
        watcher=DetectorId("status", "sex"), at=n, value=9.0, cause="covariates", decides_at=n
    )
    shown = fields(alarm, 0.1, drift.share("sex"))
    assert (shown["flip_share_window"], shown["flip_share_predictions"]) == ("all", n)
    shares = [shown[f"flip_share{end}"] for end in ("", "_low", "_high")]
    assert (shares == [None] * 3) == (n < 10)
    margin = Alarm(
        watcher=DetectorId("margin", None), at=n, value=9.0, cause="unclear", decides_at=n
    )
    assert "flip_share" not in fields(margin, None, None)
