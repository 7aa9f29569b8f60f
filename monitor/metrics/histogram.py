"""A histogram that observes a batch of values at the cost of one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Metric
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

__all__ = ["BatchHistogram"]

Float = NDArray[np.floating]


class _Series:
    def __init__(self, buckets: int) -> None:
        self.counts = np.zeros(buckets, np.int64)
        self.total = 0.0
        self.exemplars: dict[int, Exemplar] = {}


class BatchHistogram(Collector):
    """Like the histogram of prometheus_client, which observes one value at a time under a lock.

    Args:
        name: Name of the metric.
        documentation: Help string.
        labels: Names of the labels.
        bounds: Upper bounds of the buckets, ascending.
        series: Values of the labels of series that exist before their first value.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        bounds: Sequence[float],
        *,
        series: Iterable[tuple[str, ...]] = (),
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, tuple(labels)
        self._bounds = np.array(bounds)
        self._series = {values: _Series(len(bounds) + 1) for values in series}

    def observe(self, values: Float, *labels: str, named: Sequence[tuple[int, str]] = ()) -> None:
        """Observe values; NaN is ignored.

        Args:
            values: Values `[n]`.
            labels: Values of the labels.
            named: Indices of values, and their request ids, shown as exemplars.
        """
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _Series(len(self._bounds) + 1)
        buckets_of = np.searchsorted(self._bounds, values, side="left")
        usable = ~np.isnan(values)
        series.counts += np.bincount(buckets_of[usable], minlength=len(series.counts))
        series.total += float(values.sum(where=usable, dtype=np.float64))
        for index, request_id in named:
            if usable[index]:
                series.exemplars[int(buckets_of[index])] = Exemplar(
                    {"request_id": request_id}, float(values[index]), time.time()
                )

    def collect(self) -> Iterable[Metric]:
        """The metric family, for a scrape."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        for labels, series in self._series.items():
            counts = np.cumsum(series.counts).tolist()
            buckets = [
                (bound, count, series.exemplars[index])
                if index in series.exemplars
                else (bound, count)
                for index, (bound, count) in enumerate(zip(bounds, counts, strict=True))
            ]
            family.add_metric(labels, buckets, series.total)
        yield family
