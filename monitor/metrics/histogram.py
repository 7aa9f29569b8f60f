"""A histogram that takes in a batch of values at the price of one."""

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
    """As prometheus_client's histogram, which takes one value at a time and a lock for each."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, tuple(labels)
        self._bounds = np.array(bounds)
        self._series: dict[tuple[str, ...], _Series] = {}

    def observe(self, values: Float, *labels: str, named: Sequence[tuple[int, str]] = ()) -> None:
        """Count values; NaN is passed over.

        Args:
            values: `[n]`.
            labels: Values of the labels.
            named: Places of values, and the request ids to show beside their buckets.
        """
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _Series(len(self._bounds) + 1)
        places = np.searchsorted(self._bounds, values, side="left")
        usable = ~np.isnan(values)
        series.counts += np.bincount(places[usable], minlength=len(series.counts))
        series.total += float(values.sum(where=usable, dtype=np.float64))
        for place, request_id in named:
            if usable[place]:
                series.exemplars[int(places[place])] = Exemplar(
                    {"request_id": request_id}, float(values[place]), time.time()
                )

    def collect(self) -> Iterable[Metric]:
        """The family as it stands, for a scrape."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        for labels, series in self._series.items():
            counts = np.cumsum(series.counts).tolist()
            buckets = [
                (bound, count, series.exemplars[place])
                if place in series.exemplars
                else (bound, count)
                for place, (bound, count) in enumerate(zip(bounds, counts, strict=True))
            ]
            family.add_metric(labels, buckets, series.total)
        yield family
