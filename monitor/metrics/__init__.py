"""Prometheus metrics of the sidecar and of the stream that it monitors.

Labels take their values from the code, the config or the bundle, never from a request. No metric
holds values of a person; request ids are shown as exemplars of histograms if the config allows it.
"""

from monitor.metrics.drift_gauges import DriftGauges
from monitor.metrics.histogram import BatchHistogram
from monitor.metrics.log_counters import LogCounters
from monitor.metrics.serving import ServingMetrics

__all__ = ["BatchHistogram", "DriftGauges", "LogCounters", "ServingMetrics"]
