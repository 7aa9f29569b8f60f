"""The traffic log and the outcomes as counters, read when they are scraped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from monitor.traffic.outcomes import Source
from monitor.traffic.segment import Cause

if TYPE_CHECKING:
    from monitor.traffic.log import OutcomeLog, TrafficLog
    from monitor.traffic.spool import Spool

__all__ = ["LogCounters"]


class LogCounters(Collector):
    """Rows written, lost and waiting in the logs of a sidecar."""

    def __init__(self, traffic: TrafficLog | None, outcomes: OutcomeLog | None) -> None:
        self._traffic, self._outcomes = traffic, outcomes

    def collect(self) -> Iterable[Metric]:
        """All metric families of the enabled logs."""
        if self._traffic is not None:
            spool = self._traffic.spool
            yield _counter("traffic_rows", "Rows written to the traffic log.", spool.appender.rows)
            yield _lost(
                "traffic", "Rows that are missing from the traffic log.", self._traffic.lost
            )
            yield _counter(
                "traffic_late_writes",
                "Writes to the traffic log that took longer than traffic.max_write_seconds; "
                "responses did not wait for them.",
                self._traffic.late,
            )
            yield _counter(
                "traffic_removed_rows",
                "Rows in the oldest files of the traffic log, removed to keep the disk quota.",
                spool.removed_rows,
            )
            yield from _storage_metrics("traffic", spool)
        if self._outcomes is not None:
            yield self._recorded(self._outcomes)
            yield _lost(
                "outcomes", "Outcomes that are missing from their log.", self._outcomes.lost
            )
            yield from _storage_metrics("outcomes", self._outcomes.spool)

    @staticmethod
    def _recorded(outcomes: OutcomeLog) -> Metric:
        family = CounterMetricFamily(
            "evenhand_outcomes",
            "Outcomes of predictions that were sent to the sidecar, by source and result.",
            labels=("source", "result"),
        )
        for source in get_args(Source):
            family.add_metric((source, "recorded"), outcomes.recorded[source])
            family.add_metric((source, "refused"), outcomes.refused[source])
        return family


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(f"evenhand_{name}", words, value)


def _lost(log: str, words: str, lost: Counter[Cause]) -> Metric:
    family = CounterMetricFamily(f"evenhand_{log}_lost_rows", words, labels=("cause",))
    for cause in get_args(Cause):
        family.add_metric((cause,), lost[cause])
    return family


def _storage_metrics(log: str, spool: Spool) -> Iterable[Metric]:
    words = {"traffic": "the traffic log", "outcomes": "the log of outcomes"}[log]
    yield GaugeMetricFamily(
        f"evenhand_{log}_bytes",
        f"Bytes in the local folder of {words}.",
        spool.appender.used,
    )
    yield GaugeMetricFamily(
        f"evenhand_{log}_max_bytes",
        f"Disk quota of the local folder of {words}.",
        spool.max_bytes,
    )
    yield GaugeMetricFamily(
        f"evenhand_{log}_segments_waiting",
        f"Closed segments of {words} that wait to be converted to Parquet.",
        spool.waiting,
    )
    compactions = CounterMetricFamily(
        f"evenhand_{log}_compactions",
        f"Attempts to convert a segment of {words} to Parquet.",
        labels=("outcome",),
    )
    compactions.add_metric(("ok",), spool.compacted)
    compactions.add_metric(("failed",), spool.failed)
    yield compactions
    yield _counter(
        f"{log}_sync_failures",
        f"Failed attempts to write {words} through to the disk (fsync).",
        spool.appender.sync_failures,
    )
