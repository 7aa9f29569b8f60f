"""Every series names its model, and the baseline is exported as summaries."""

from __future__ import annotations

import math

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Info, generate_latest

from monitor.metrics.histogram import BatchHistogram
from monitor.metrics.serving import ModelRegistry, ServingMetrics
from monitor.scoring.baseline import Baseline


def test_every_series_of_evenhand_has_the_label_model_and_no_other_series_has():
    registry = ModelRegistry("loans")
    Counter("evenhand_rows", "Rows.", registry=registry).inc(3)
    Counter("evenhand_requests", "Requests.", ("outcome",), registry=registry).labels("ok").inc()
    Info("evenhand_bundle", "Bundle.", registry=registry).info({"model": "loans", "version": "2"})
    Counter("process_cpu_seconds", "Of the process.", registry=registry)
    histogram = BatchHistogram("evenhand_seconds", "Time.", (), (1.0,), series=[()])
    registry.register(histogram)
    histogram.observe(np.array([0.5]))
    first, second = generate_latest(registry).decode(), generate_latest(registry).decode()
    assert first == second
    samples = [line for line in first.splitlines() if not line.startswith("#")]
    ours = [line for line in samples if line.startswith("evenhand_")]
    assert {line.partition("{")[0] for line in ours} >= {
        *("evenhand_rows_total", "evenhand_requests_total", "evenhand_bundle_info"),
        *("evenhand_seconds_bucket", "evenhand_seconds_count", "evenhand_seconds_sum"),
    }
    assert all(line.count('model="loans"') == 1 for line in ours)
    assert not any("model=" in line for line in samples if line not in ours)
    assert registry.get_sample_value("evenhand_rows_total", {"model": "loans"}) == 3


def test_the_baseline_is_one_summary_per_signal():
    rng = np.random.default_rng(0)
    changes, flips, logs = rng.gamma(1, 1, 500), rng.random(500), rng.normal(-3, 2, 500)
    logs[:3] = -math.inf
    baseline = Baseline.from_scores(
        {
            "sex": {
                "expected_change": changes,
                "flip_probability": flips,
                "prediction_sensitivity": logs,
            }
        },
        {"sex": (flips > 0.5).astype(float)},
    )
    registry = CollectorRegistry()
    ServingMetrics(registry, ["sex"]).register_baseline(baseline)
    for signal, values in (
        ("expected_change", changes),
        ("flip_probability", flips),
        ("prediction_sensitivity", np.exp(logs)),
    ):
        name = f"evenhand_baseline_{signal}"
        labels = {"attribute": "sex"}
        assert registry.get_sample_value(f"{name}_count", labels) == 500
        total = registry.get_sample_value(f"{name}_sum", labels)
        assert total is not None
        assert math.isclose(total, values.sum())
        for quantile in (0.01, 0.5, 0.99):
            shown = registry.get_sample_value(name, {**labels, "quantile": f"{quantile:g}"})
            assert shown == np.quantile(values, quantile, method="higher")


def test_series_exist_before_their_first_value():
    registry = CollectorRegistry()
    ServingMetrics(registry, ["sex"])
    for name, labels in (
        ("evenhand_requests_total", {"transport": "rest", "outcome": "shed"}),
        ("evenhand_request_duration_seconds_count", {"transport": "rest"}),
        ("evenhand_flip_probability_count", {"attribute": "sex"}),
        ("evenhand_batch_rows_count", {}),
        ("evenhand_scoring_overhead_seconds_count", {}),
    ):
        assert registry.get_sample_value(name, labels) == 0
