"""The cause of an alarm is no part of its identity."""

from __future__ import annotations

import numpy as np
from prometheus_client import CollectorRegistry

from monitor import Drift
from monitor.drift.alarms import PATIENCE
from monitor.drift.reference import DetectorId
from monitor.metrics.drift_gauges import DriftGauges
from tests.monitor.drift.streams import predictions, watch

Labels = frozenset[tuple[str, str]]


def series(registry: CollectorRegistry, name: str) -> dict[Labels, float]:
    """Values of a metric by labels."""
    samples = (sample for family in registry.collect() for sample in family.samples)
    return {frozenset(s.labels.items()): s.value for s in samples if s.name == name}


def registered(drift: Drift) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(DriftGauges(drift, ["sex"], lambda: None))
    return registry


def test_a_new_cause_changes_no_series_of_the_alarm():
    drift = watch()
    registry = registered(drift)
    alarm = frozenset({"detector": "change", "attribute": "sex"}.items())
    before = series(registry, "evenhand_drift_alarm")
    assert before[alarm] == 0
    assert not series(registry, "evenhand_drift_alarm_cause_info")
    rng, causes = np.random.default_rng(3), []
    for _ in range(20):
        drift.update(predictions(rng, 100, treatment=3.0))
        alarms = series(registry, "evenhand_drift_alarm")
        assert alarms.keys() == before.keys()
        likely = series(registry, "evenhand_drift_alarm_cause_info")
        # One cause per alarm, so that a join by detector and attribute is one to one.
        by_alarm = {frozenset(kv for kv in labels if kv[0] != "cause") for labels in likely}
        assert len(by_alarm) == len(likely)
        assert by_alarm == {labels for labels, value in alarms.items() if value}
        causes += [dict(labels)["cause"] for labels in likely if alarm <= labels]
    assert set(causes) == {"unclear", "treatment"}
    assert causes == sorted(causes, key=["unclear", "treatment"].index)
    drift.acknowledge(DetectorId("change", "sex"))
    assert series(registry, "evenhand_drift_alarm")[alarm] == 0
    remaining = series(registry, "evenhand_drift_alarm_cause_info")
    assert not any(alarm <= labels for labels in remaining)


def test_a_flip_share_has_the_number_of_its_predictions():
    drift = watch()
    registry = registered(drift)
    rng = np.random.default_rng(4)
    drift.update(predictions(rng, 700, treatment=3.0))
    shares = series(registry, "evenhand_flip_share_ratio")
    counts = series(registry, "evenhand_flip_share_predictions")
    assert shares.keys() == counts.keys()
    by_window = {dict(labels)["window"]: count for labels, count in counts.items()}
    raised = next(a for a in drift.alarms if a.watcher.kind == "change")
    assert by_window == {
        "all": 700,
        "rolling": 700,
        "baseline": drift.reference.shares["sex"].count,
        "alarm": 700 - raised.at,
    }
    assert PATIENCE > 700
