"""The drift watch as metrics, read when they are scraped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import Metric
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from monitor.drift.reference import DetectorId

if TYPE_CHECKING:
    from monitor.drift.watch import Drift

__all__ = ["DriftGauges"]


class DriftGauges(Collector):
    """Shares, evidence and alarms of a drift watch.

    The label `attribute` is empty for a detector that belongs to no attribute. The cause of an
    alarm may change, so it is no label of the alarm but has a series of its own.
    """

    def __init__(self, drift: Drift, attributes: Sequence[str], flush: Callable[[], None]) -> None:
        self._drift, self._attributes, self._flush = drift, attributes, flush

    def collect(self) -> Iterable[Metric]:
        """All metric families, after a flush of the stream statistics."""
        self._flush()
        yield from self._shares()
        yield from self._bounds()
        yield from self._evidence()
        yield from self._alarms()
        yield CounterMetricFamily(
            "evenhand_drift_predictions",
            "Predictions that the drift watch has counted, including those before a restart whose "
            "state was saved.",
            self._drift.seen,
        )

    def _shares(self) -> Iterable[Metric]:
        labels = ("attribute", "window")
        share = GaugeMetricFamily(
            "evenhand_flip_share_ratio",
            "Estimated share of decisions that would change for the same person in at least one "
            "other group: of all predictions, of the rolling window, since an alarm, and in the "
            "baseline.",
            labels=labels,
        )
        predictions = GaugeMetricFamily(
            "evenhand_flip_share_predictions",
            "Number of predictions that a flip share is computed from.",
            labels=labels,
        )
        low, high = (
            GaugeMetricFamily(
                f"evenhand_flip_share_{end}_ratio",
                f"{words} end of the confidence band of the flip share.",
                labels=labels,
            )
            for end, words in (("low", "Lower"), ("high", "Upper"))
        )
        for name in self._attributes:
            flip_share = self._drift.share(name)
            sums = self._drift.reference.shares[name]
            for window, n, mean, band in (
                ("all", flip_share.n, flip_share.share, flip_share.band),
                (
                    "rolling",
                    flip_share.rolling_n,
                    flip_share.rolling_share,
                    flip_share.rolling_band,
                ),
                ("baseline", sums.count, sums.share, flip_share.baseline),
            ):
                predictions.add_metric((name, window), n)
                if mean is not None:
                    share.add_metric((name, window), mean)
                low.add_metric((name, window), band.low)
                high.add_metric((name, window), band.high)
        for raised in self._drift.alarms:
            effect, labels_of = raised.effect, (raised.watcher.attribute or "", "alarm")
            if effect is None or effect.share is None or labels_of[0] not in self._attributes:
                continue
            predictions.add_metric(labels_of, effect.n)
            share.add_metric(labels_of, effect.share)
            low.add_metric(labels_of, effect.band.low)
            high.add_metric(labels_of, effect.band.high)
        yield from (share, predictions, low, high)

    def _bounds(self) -> Iterable[Metric]:
        bound = GaugeMetricFamily(
            "evenhand_flip_share_lower_bound_ratio",
            "Estimated share of decisions that at least must flip, given the rates of decisions by "
            "likely group.",
            labels=("attribute", "window"),
        )
        low = GaugeMetricFamily(
            "evenhand_flip_share_lower_bound_low_ratio",
            "Lower end of the confidence band of the lower bound on the flip share.",
            labels=("attribute", "window"),
        )
        below = GaugeMetricFamily(
            "evenhand_flip_share_below_bound",
            "1 if the flip share contradicts the rates of decisions: its band is entirely below "
            "its lower bound.",
            labels=("attribute",),
        )
        for name in self._attributes:
            share_bound = self._drift.share_bound(name)
            if share_bound.share is not None:
                bound.add_metric((name, "all"), share_bound.share)
            low.add_metric((name, "all"), share_bound.low)
            below.add_metric((name,), float(self._drift.is_below_bound(name)))
        yield from (bound, low, below)

    def _evidence(self) -> Iterable[Metric]:
        labels = ("detector", "attribute")
        log_sr = GaugeMetricFamily(
            "evenhand_drift_log_sr",
            "Evidence that scores have changed, on a log scale: the log of the Shiryaev-Roberts "
            "statistic.",
            labels=labels,
        )
        log_e = GaugeMetricFamily(
            "evenhand_drift_log_e_value",
            "Log of a detector's e-value against no change since its start.",
            labels=labels,
        )
        unusable = CounterMetricFamily(
            "evenhand_drift_unusable_predictions",
            "Predictions that a detector ignored because their score is not a number.",
            labels=labels,
        )
        for watcher, evidence in self._drift.evidence.items():
            if (labels_of := self._labels(watcher)) is not None:
                log_sr.add_metric(labels_of, evidence.log_sr)
                log_e.add_metric(labels_of, evidence.log_e_value)
                unusable.add_metric(labels_of, evidence.unusable)
        yield from (log_sr, log_e, unusable)
        yield GaugeMetricFamily(
            "evenhand_drift_log_sr_bound",
            "Value of evenhand_drift_log_sr at which a detector raises an alarm.",
            math.log(self._drift.run_length),
        )

    def _alarms(self) -> Iterable[Metric]:
        alarm = GaugeMetricFamily(
            "evenhand_drift_alarm",
            "1 while a detector has an unacknowledged alarm. An alarm shows a change, which need "
            "not be unfair; evenhand_drift_page shows that more decisions depend on a group.",
            labels=("detector", "attribute"),
        )
        likely = InfoMetricFamily(
            "evenhand_drift_alarm_cause",
            "Likely cause of an unacknowledged alarm, which may change while the alarm stays.",
            labels=("detector", "attribute"),
        )
        page = GaugeMetricFamily(
            "evenhand_drift_page",
            "1 while an unacknowledged alarm shows that more decisions depend on the group than in "
            "the baseline.",
            labels=("attribute",),
        )
        latched = {raised.watcher: raised for raised in self._drift.alarms}
        watchers = [DetectorId("share", name) for name in self._drift.reference.shares]
        for watcher in (*watchers, *self._drift.evidence):
            if (labels_of := self._labels(watcher)) is not None:
                alarm.add_metric(labels_of, float(watcher in latched))
                if watcher in latched:
                    likely.add_metric(labels_of, {"cause": latched[watcher].cause})
        paging = {raised.watcher.attribute for raised in latched.values() if raised.pages}
        for name in self._attributes:
            page.add_metric((name,), float(name in paging))
        yield from (alarm, likely, page)

    def _labels(self, watcher: DetectorId) -> tuple[str, str] | None:
        """Labels of a watcher; None if its attribute has no series."""
        if watcher.attribute is not None and watcher.attribute not in self._attributes:
            return None
        return watcher.kind, watcher.attribute or ""
