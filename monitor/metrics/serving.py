"""Metrics of the sidecar itself and of the predictions that it judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Info

from monitor.baseline import SIGNALS, Baseline, Signal
from monitor.metrics.histogram import BatchHistogram
from monitor.policy import Action, VerdictCode

__all__ = ["OUTCOMES", "ServingMetrics"]

# What becomes of a request.
OUTCOMES = (
    *("ok", "withheld", "bad", "unknown", "too_large", "not_ready"),
    *("shed", "refused", "cancelled", "error"),
)
_DOORS = ("grpc", "rest")
# What is put aside before it is counted.
_AT_ONCE = 256
_SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_BOUNDS: dict[Signal, tuple[float, ...]] = {
    "expected_change": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
    "flip_probability": (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "prediction_sensitivity": tuple(10.0**power for power in range(-12, 1)),
}
_WORDS: dict[Signal, str] = {
    "expected_change": "Expected change of the classifier's logit for another group.",
    "flip_probability": "Chance that a decision flips for another group.",
    "prediction_sensitivity": "Prediction sensitivity, the paper's score.",
}
_QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)


class ServingMetrics:
    """Everything that is counted while the sidecar serves.

    Args:
        registry: Where it is registered.
        attributes: Protected attributes that get series of their own.
    """

    def __init__(self, registry: CollectorRegistry, attributes: Sequence[str]) -> None:
        self.registry, self.attributes = registry, tuple(attributes)
        requests = Counter(
            "evenhand_requests",
            "Requests for predictions, by what became of them.",
            ("door", "outcome"),
            registry=registry,
        )
        self._requests = {(d, o): requests.labels(d, o) for d in _DOORS for o in OUTCOMES}
        self._seconds = self._registered(
            BatchHistogram(
                "evenhand_request_seconds",
                "Time from a request's arrival at a door to its answer.",
                ("door",),
                _SECONDS,
            )
        )
        self._predictions = Counter(
            "evenhand_predictions", "Rows that were predicted.", registry=registry
        )
        verdicts = Counter(
            "evenhand_verdicts",
            "Predictions by how they compare with the baseline.",
            ("attribute", "verdict"),
            registry=registry,
        )
        self._verdicts = {
            name: [verdicts.labels(name, code.name.lower()) for code in VerdictCode]
            for name in self.attributes
        }
        actions = Counter(
            "evenhand_actions",
            "Predictions by what policy did about them.",
            ("action",),
            registry=registry,
        )
        self._actions = [actions.labels(action.name.lower()) for action in Action]
        self._signals = {
            signal: self._registered(
                BatchHistogram(f"evenhand_{signal}", _WORDS[signal], ("attribute",), bounds)
            )
            for signal, bounds in _BOUNDS.items()
        }
        self._batch_rows = self._registered(
            BatchHistogram("evenhand_batch_rows", "Rows that shared one pass.", (), _ROWS)
        )
        self._added_seconds = self._registered(
            BatchHistogram(
                "evenhand_added_seconds",
                "What judging a batch took beyond the bare prediction, whose time was measured "
                "when the sidecar started.",
                (),
                tuple(bound / 10 for bound in _SECONDS),
            )
        )
        self.faults = Counter(
            "evenhand_monitoring_faults",
            "Batches that monitoring failed on; policy.on_fault says what became of them.",
            registry=registry,
        )
        self.not_judged = Counter(
            "evenhand_not_judged",
            "Rows that were answered and never judged, for want of room or by a fault.",
            registry=registry,
        )
        self.state_saves = Counter(
            "evenhand_drift_state_saves",
            "Attempts to save the drift watch's state.",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("ok", "failed"):
            self.state_saves.labels(outcome)
        self._waiting: dict[str, list[float]] = {door: [] for door in _DOORS}
        self._outcomes = dict.fromkeys(self._requests, 0)
        self._batches: list[int] = []
        self._added: list[float] = []

    def show_in_flight(self, count: Callable[[], int]) -> None:
        """Read the number of requests in flight from there."""
        gauge = Gauge(
            "evenhand_requests_in_flight", "Requests without an answer.", registry=self.registry
        )
        gauge.set_function(count)

    def show_info(self, *, bundle: dict[str, str], kernel: dict[str, str]) -> None:
        """Say what runs."""
        build = {name: version(name) for name in ("evenhand", "torch", "grpcio")}
        for name, words, values in (
            ("build", "Versions that run.", build),
            ("bundle", "The bundle that is served.", bundle),
            ("kernel", "Which code judges predictions.", kernel),
        ):
            Info(f"evenhand_{name}", words, registry=self.registry).info(values)

    def show_baseline(self, baseline: Baseline) -> None:
        """The baseline's quantiles, to stand beside the histograms of the stream."""
        gauge = Gauge(
            "evenhand_baseline_quantile",
            "Quantiles of the signals when the baseline was taken.",
            ("attribute", "signal", "quantile"),
            registry=self.registry,
        )
        for name in self.attributes:
            for signal, scores in baseline.scores[name].items():
                for quantile, value in zip(_QUANTILES, _quantiles(scores), strict=True):
                    shown = np.exp(value) if signal == "prediction_sensitivity" else value
                    gauge.labels(name, signal, f"{quantile:g}").set(float(shown))

    def count_request(self, door: str, outcome: str, seconds: float) -> None:
        """One request, answered or refused."""
        self._outcomes[door, outcome] += 1
        waiting = self._waiting[door]
        waiting.append(seconds)
        if len(waiting) >= _AT_ONCE:
            self.settle()

    def count_batch(self, rows: int) -> None:
        """One batch, predicted."""
        self._batches.append(rows)
        if len(self._batches) >= _AT_ONCE:
            self.settle()

    def count_added(self, seconds: float) -> None:
        """What judging a batch took beyond the bare prediction."""
        self._added.append(seconds)
        if len(self._added) >= _AT_ONCE:
            self.settle()

    def count_judged(
        self,
        verdicts: NDArray[np.int8],
        actions: NDArray[np.int8],
        signals: dict[str, dict[Signal, NDArray[np.floating]]],
        named: Sequence[tuple[int, str]],
    ) -> None:
        """Judged predictions.

        Args:
            verdicts: Codes, `[n, a]`.
            actions: Codes, `[n]`.
            signals: By attribute and signal, `[n]` each; prediction sensitivity in logs.
            named: Places of predictions whose request ids may be shown, and these.
        """
        for action, count in zip(self._actions, np.bincount(actions, minlength=5), strict=True):
            action.inc(int(count))
        for place, name in enumerate(self.attributes):
            counts = np.bincount(verdicts[:, place], minlength=3)
            for verdict, count in zip(self._verdicts[name], counts, strict=True):
                verdict.inc(int(count))
        for name, found in signals.items():
            for signal in SIGNALS:
                if signal in found:
                    values = found[signal]
                    if signal == "prediction_sensitivity":
                        values = np.exp(values.astype(np.float64))
                    self._signals[signal].observe(values, name, named=named)

    def settle(self) -> None:
        """Count what was put aside: one at a time it would cost as much as judging does."""
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
        for door, waiting in self._waiting.items():
            if waiting:
                self._seconds.observe(np.array(waiting), door)
                waiting.clear()

    def _registered(self, histogram: BatchHistogram) -> BatchHistogram:
        self.registry.register(histogram)
        return histogram


def _quantiles(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    # Of sorted scores, without interpolation: some logs are −∞.
    places = np.minimum((np.array(_QUANTILES) * len(scores)).astype(int), len(scores) - 1)
    found: NDArray[np.float64] = scores[places]
    return found
