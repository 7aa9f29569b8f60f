"""Metrics of the sidecar itself and of the predictions that it scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Info, Metric

from monitor.metrics.histogram import BatchHistogram
from monitor.metrics.signals import WORDS, BaselineSummaries, shown
from monitor.policy import ACTION_NAMES, VERDICT_NAMES, PolicyResult
from monitor.scoring.baseline import SIGNALS, Baseline, Signal
from monitor.scoring.scores import REASON_NAMES

__all__ = ["OUTCOMES", "ModelRegistry", "ServingMetrics"]

# Outcomes of a request.
OUTCOMES = (
    *("ok", "withheld", "bad", "unknown", "too_large", "not_ready"),
    *("shed", "refused", "cancelled", "error"),
)
_TRANSPORTS = ("grpc", "rest")
# Number of buffered values at which they are added to the metrics.
_FLUSH_SIZE = 256
_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_BOUNDS: dict[Signal, tuple[float, ...]] = {
    "expected_change": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    "flip_probability": (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "prediction_sensitivity": tuple(10.0**power for power in range(-12, 1)),
}


class ModelRegistry(CollectorRegistry):
    """A registry that adds the label `model` to every series of evenhand.

    It is added at a scrape, so that no metric can lack it and counting does not pay for it.

    Args:
        model: Name of the served model.
    """

    def __init__(self, model: str) -> None:
        super().__init__()
        self._model = model

    def collect(self) -> Iterable[Metric]:
        """All metric families; those of the process itself keep their labels."""
        for family in super().collect():
            if family.name.startswith("evenhand_"):
                family.samples = [
                    sample._replace(labels={"model": self._model, **sample.labels})
                    for sample in family.samples
                ]
            yield family


class ServingMetrics:
    """Counters and histograms of a serving sidecar.

    Args:
        registry: Registry of the metrics.
        attributes: Protected attributes that have their own series.
    """

    def __init__(self, registry: CollectorRegistry, attributes: Sequence[str]) -> None:
        self.registry, self.attributes = registry, tuple(attributes)
        requests = Counter(
            "evenhand_requests",
            "Requests for predictions by outcome.",
            ("transport", "outcome"),
            registry=registry,
        )
        self._requests = {(d, o): requests.labels(d, o) for d in _TRANSPORTS for o in OUTCOMES}
        self._seconds = self._registered(
            BatchHistogram(
                "evenhand_request_duration_seconds",
                "Time from the arrival of a request to its response.",
                ("transport",),
                _SECONDS,
                series=[(transport,) for transport in _TRANSPORTS],
            )
        )
        self._predictions = Counter(
            "evenhand_predictions", "Predictions, one per row of a request.", registry=registry
        )
        verdicts = Counter(
            "evenhand_verdicts",
            "Predictions by verdict: above if the rule of the attribute is met.",
            ("attribute", "verdict"),
            registry=registry,
        )
        self._verdicts = {
            name: [verdicts.labels(name, verdict) for verdict in VERDICT_NAMES]
            for name in self.attributes
        }
        self._statements = {
            "likely_flip": self._counter_by_attribute(
                "evenhand_likely_flips",
                "Predictions whose decision likely flips for at least one other group.",
            ),
            "unusual": self._counter_by_attribute(
                "evenhand_unusual_predictions",
                "Predictions whose score is unusual compared with the baseline.",
            ),
        }
        actions = Counter(
            "evenhand_actions",
            "Predictions by what policy did with them.",
            ("action",),
            registry=registry,
        )
        self._actions = [actions.labels(action) for action in ACTION_NAMES]
        unlike = Counter(
            "evenhand_unlike_rows",
            "Rows unlike the training rows, whose verdict is unknown, by reason.",
            ("reason",),
            registry=registry,
        )
        self._unlike = [unlike.labels(name) for name in REASON_NAMES[1:]]
        self._signals = {
            signal: self._registered(
                BatchHistogram(
                    f"evenhand_{signal}",
                    f"Predictions by {WORDS[signal]}.",
                    ("attribute",),
                    bounds,
                    series=[(name,) for name in self.attributes],
                )
            )
            for signal, bounds in _BOUNDS.items()
        }
        self._batch_rows = self._registered(
            BatchHistogram(
                "evenhand_batch_rows",
                "Rows per batch; concurrent requests share a batch.",
                (),
                _ROWS,
                series=[()],
            )
        )
        self._added_seconds = self._registered(
            BatchHistogram(
                "evenhand_scoring_overhead_seconds",
                "Time that scoring a batch takes in addition to the classifier's own prediction, "
                "whose time is measured at the start of the sidecar.",
                (),
                tuple(bound / 10 for bound in _SECONDS),
                series=[()],
            )
        )
        self.faults = Counter(
            "evenhand_monitoring_faults",
            "Batches that could not be scored because of an error in the sidecar.",
            registry=registry,
        )
        self.not_scored = Counter(
            "evenhand_unscored_predictions",
            "Predictions that were returned but not scored, because too many waited for scoring or "
            "scoring failed.",
            registry=registry,
        )
        self.state_saves = Counter(
            "evenhand_drift_state_saves",
            "Attempts to save the state of the drift watch to its file.",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("ok", "failed"):
            self.state_saves.labels(outcome)
        self._waiting: dict[str, list[float]] = {transport: [] for transport in _TRANSPORTS}
        self._outcomes = dict.fromkeys(self._requests, 0)
        self._batches: list[int] = []
        self._added: list[float] = []

    def register_in_flight(self, count: Callable[[], int]) -> None:
        """Register the gauge of requests in flight."""
        gauge = Gauge(
            "evenhand_requests_in_flight",
            "Requests that have arrived and have no response yet.",
            registry=self.registry,
        )
        gauge.set_function(count)

    def register_info(self, *, bundle: dict[str, str], kernel: dict[str, str]) -> None:
        """Register the versions, the bundle and the kernel."""
        build = {name: version(name) for name in ("evenhand", "torch", "grpcio")}
        for name, words, values in (
            ("build", "Versions of evenhand and of the libraries that it runs on.", build),
            (
                "bundle",
                "The model and the bundle that are served, and when they are scored.",
                bundle,
            ),
            (
                "kernel",
                "Whether compiled code scores predictions, and for which processor.",
                kernel,
            ),
        ):
            Info(f"evenhand_{name}", words, registry=self.registry).info(values)

    def register_baseline(self, baseline: Baseline) -> None:
        """Register the baseline's distributions, to compare with the histograms of the stream."""
        self.registry.register(BaselineSummaries(baseline, self.attributes))

    def count_request(self, transport: str, outcome: str, seconds: float) -> None:
        """Count one request."""
        self._outcomes[transport, outcome] += 1
        waiting = self._waiting[transport]
        waiting.append(seconds)
        if len(waiting) >= _FLUSH_SIZE:
            self.flush()

    def count_batch(self, rows: int) -> None:
        """Count one batch."""
        self._batches.append(rows)
        if len(self._batches) >= _FLUSH_SIZE:
            self.flush()

    def count_added(self, seconds: float) -> None:
        """Count the time that scoring a batch took beyond the classifier's forward pass."""
        self._added.append(seconds)
        if len(self._added) >= _FLUSH_SIZE:
            self.flush()

    def count_scored(
        self,
        policy: PolicyResult,
        reasons: NDArray[np.int64],
        signals: dict[str, dict[Signal, NDArray[np.floating]]],
        named: Sequence[tuple[int, str]],
    ) -> None:
        """Count scored predictions.

        Args:
            policy: Verdicts and actions of n predictions.
            reasons: `Reason` of each row, `[n]`.
            signals: Values `[n]` by attribute and signal; the log of prediction sensitivity.
            named: Rows whose request ids may be shown as exemplars, and the ids.
        """
        for action, count in zip(
            self._actions, np.bincount(policy.actions, minlength=len(ACTION_NAMES)), strict=True
        ):
            action.inc(int(count))
        counts = np.bincount(reasons, minlength=len(REASON_NAMES))[1:]
        for unlike, count in zip(self._unlike, counts, strict=True):
            unlike.inc(int(count))
        for index, name in enumerate(self.attributes):
            counts = np.bincount(policy.verdicts[:, index], minlength=len(VERDICT_NAMES))
            for verdict, count in zip(self._verdicts[name], counts, strict=True):
                verdict.inc(int(count))
            for statement, counters in self._statements.items():
                counters[name].inc(int(getattr(policy, statement)[:, index].sum()))
        for name, by_signal in signals.items():
            for signal in SIGNALS:
                if signal in by_signal:
                    values = shown(signal, by_signal[signal])
                    self._signals[signal].observe(values, name, named=named)

    def _counter_by_attribute(self, name: str, words: str) -> dict[str, Counter]:
        counter = Counter(name, words, ("attribute",), registry=self.registry)
        return {attribute: counter.labels(attribute) for attribute in self.attributes}

    def flush(self) -> None:
        """Add the buffered values; one at a time they would cost as much as scoring."""
        for key, count in self._outcomes.items():
            if count:
                self._requests[key].inc(count)
                self._outcomes[key] = 0
        if self._batches:
            self._predictions.inc(sum(self._batches))
            self._batch_rows.observe(np.array(self._batches, np.float64))
            self._batches.clear()
        if self._added:
            self._added_seconds.observe(np.array(self._added))
            self._added.clear()
        for transport, waiting in self._waiting.items():
            if waiting:
                self._seconds.observe(np.array(waiting), transport)
                waiting.clear()

    def _registered(self, histogram: BatchHistogram) -> BatchHistogram:
        self.registry.register(histogram)
        return histogram
