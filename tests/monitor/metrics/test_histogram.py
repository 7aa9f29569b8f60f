"""A batch is counted like single values."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics

from monitor.metrics.histogram import BatchHistogram

BOUNDS = (0.0, 0.5, 1.0, 2.0)


def registered() -> tuple[CollectorRegistry, BatchHistogram]:
    registry = CollectorRegistry()
    histogram = BatchHistogram("flips", "Of some.", ("attribute",), BOUNDS)
    registry.register(histogram)
    return registry, histogram


@given(st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.3, 0.5, 1.5, 2.0, 9.0])), max_size=5))
def test_batches_are_counted_like_single_values_by_prometheus(batches):
    registry, ours = registered()
    slow = CollectorRegistry()
    theirs = Histogram("flips", "Of some.", ("attribute",), buckets=BOUNDS, registry=slow)
    for batch in batches:
        ours.observe(np.array(batch), "sex")
        theirs.labels("sex")
        for value in batch:
            theirs.labels("sex").observe(value)

    def samples(registry: CollectorRegistry) -> dict[Any, float]:
        return {
            (s.name, s.labels.get("le")): round(s.value, 9)
            for family in registry.collect()
            for s in family.samples
            if not s.name.endswith("_created")
        }

    def by_number(counts: dict[Any, float]) -> dict[Any, float]:
        return {(n, le and float(le)): value for (n, le), value in counts.items()}

    assert by_number(samples(registry)) == by_number(samples(slow))


def test_nan_is_ignored():
    registry, histogram = registered()
    histogram.observe(np.array([np.nan, 1.0, np.nan]), "sex")
    assert b'flips_count{attribute="sex"} 1.0' in generate_latest(registry)
    assert b'flips_sum{attribute="sex"} 1.0' in generate_latest(registry)


def test_exemplars_are_in_the_buckets_of_their_values():
    registry, histogram = registered()
    histogram.observe(np.array([0.1, 1.7]), "sex", named=[(1, "loan-7")])
    shown = open_metrics(registry).decode()
    line = next(line for line in shown.splitlines() if 'le="2"' in line)
    assert '# {request_id="loan-7"} 1.7' in line
    assert "request_id" not in generate_latest(registry).decode()
