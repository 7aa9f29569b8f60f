"""What Prometheus scrapes: counters and gauges of the sidecar, and of the stream that it watches.

Every label takes its values from the code, the config or the bundle, never from a request. Values
of people are nowhere; request ids stand beside histograms as exemplars, if the config allows it.
"""

from monitor.metrics.drift_gauges import DriftGauges
from monitor.metrics.histogram import BatchHistogram
from monitor.metrics.log_counters import LogCounters
from monitor.metrics.serving import ServingMetrics

__all__ = ["BatchHistogram", "DriftGauges", "LogCounters", "ServingMetrics"]
