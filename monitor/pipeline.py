"""The path of a request, from a transport and back to it.

admit → decode → batch → score → apply policy → log → respond → update stream statistics

`infer` is the path of one request; `_process` has the steps that the requests of a batch share. In
mode `inline` they run before the responses leave, so policy can act, and the log contains every
request that got a response. In mode `async` a response contains the classifier's prediction only,
and the steps run right after it. In mode `off` predictions are logged without scores.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from monitor.batching import Batcher, Waiting
from monitor.errors import NotFoundError, NotOfferedError, NotReadyError, OverloadedError
from monitor.logs import without_values
from monitor.request import InferRequest, InferResponse, RequestIds

if TYPE_CHECKING:
    from monitor.bundle.manifest import Model
    from monitor.codec import FeatureCodec
    from monitor.metrics.serving import ServingMetrics
    from monitor.response import ResponseBuilder
    from monitor.review import ReviewLog
    from monitor.scoring.scorer import Scorer, ScoringResult
    from monitor.settings import Config
    from monitor.stream import Stream
    from monitor.traffic.log import OutcomeLog, TrafficLog
    from monitor.traffic.outcomes import Outcome, Refusal, Source

__all__ = ["Pipeline"]

_LOG = logging.getLogger(__name__)

Features = NDArray[np.float32]


class Pipeline:
    """Processes requests of both transports. Created inside the event loop that it runs in.

    Attributes:
        model: Name and version of the served model.
        ready: Readiness as reported to probes; false before the start and while stopping.
        open: Whether requests are accepted; while stopping, for longer than `ready` is true.
        in_flight: Number of requests without a response.
        async_rows: Number of rows that wait to be scored in mode `async`.
        traffic: The traffic log, if there is one.
        outcomes: The log of outcomes, if there is one.
    """

    def __init__(
        self,
        model: Model,
        codec: FeatureCodec,
        scorer: Scorer,
        responses: ResponseBuilder,
        stream: Stream,
        config: Config,
        *,
        metrics: ServingMetrics | None = None,
        review: ReviewLog | None = None,
    ) -> None:
        self.model, self.in_flight, self.async_rows = model, 0, 0
        self.ready = self.open = False
        self.traffic: TrafficLog | None = None
        self.outcomes: OutcomeLog | None = None
        self._codec, self._scorer, self._responses = codec, scorer, responses
        self._stream, self._metrics, self._review = stream, metrics, review
        self._ids, self._max_in_flight = RequestIds(), config.server.max_in_flight
        self._max_async_rows = config.monitoring.async_rows
        before, after = {
            "inline": (self._process, self._update_statistics),
            "async": (self._predict, self._process_later),
            "off": (self._predict_and_log, self._update_statistics),
        }[config.monitoring.mode]
        self._batcher = Batcher(
            before,
            after,
            window=config.monitoring.batch_window_seconds,
            max_rows=config.monitoring.max_batch_rows,
            max_wait=config.server.max_wait_seconds,
        )

    async def infer(self, request: InferRequest) -> InferResponse:
        """Respond to a request for predictions.

        Raises:
            RequestError: The request is refused or gets no prediction; the class says why.
        """
        self._admit(request)
        self.in_flight += 1
        try:
            features, raw = self._codec.decode(request.inputs)
            request_id = self._ids.assign(request.id)
            # Of the whole batch: score, apply policy and log (`_process`) …
            share = await self._batcher.submit(
                request_id, features, raw=raw, subject=request.subject
            )
            # … and `_update_statistics` once its responses have left.
            return self._responses.build(request, request_id, share)
        finally:
            self.in_flight -= 1

    def _process(self, batch: Sequence[Waiting], features: Features) -> ScoringResult:
        """Score, apply policy and log a batch, `[n, d]`."""
        result = self._score(features)
        self._log(batch, features, result)
        return result

    def _score(self, features: Features) -> ScoringResult:
        """Score and apply policy; a fault of monitoring is counted."""
        result = self._scorer.apply_policy(self._scorer.score(features))
        if self._metrics is not None:
            self._metrics.count_added(self._scorer.added_seconds(len(features)))
            if result.fault:
                self._metrics.faults.inc()
        return result

    def _log(self, batch: Sequence[Waiting], features: Features, result: ScoringResult) -> None:
        """Write traffic records, and review records where policy asks for a review."""
        if self.traffic is not None:
            self.traffic.record(batch, features, result)
        if self._review is not None and result.actions is not None:
            try:
                self._review.record(batch, result)
            except Exception as error:  # noqa: BLE001 - withheld, whether recorded or not
                _LOG.error("review records were not written: %s", without_values(error))
                if self._metrics is not None:
                    self._metrics.faults.inc()

    def _update_statistics(self, batch: Sequence[Waiting], result: ScoringResult) -> None:
        """Count a batch and feed the drift watch, once the responses have left."""
        if self._metrics is not None:
            self._metrics.count_batch(len(result))
        self._stream.add(batch, result)

    def _predict(self, batch: Sequence[Waiting], features: Features) -> ScoringResult:
        return self._scorer.predict(features)

    def _predict_and_log(self, batch: Sequence[Waiting], features: Features) -> ScoringResult:
        result = self._scorer.predict(features)
        self._log(batch, features, result)
        return result

    def _process_later(self, batch: Sequence[Waiting], predicted: ScoringResult) -> None:
        """Mode `async`, once the responses have left: queue a batch, or log it without scores."""
        rows = len(predicted)
        if self._metrics is not None:
            self._metrics.count_batch(rows)
        if self.async_rows + rows <= self._max_async_rows:
            self.async_rows += rows
            asyncio.get_running_loop().call_soon(self._process_queued, batch, predicted)
        else:
            self._count_not_scored(rows)
            if self.traffic is not None:
                self.traffic.record(batch, _features(batch), predicted)

    def _process_queued(self, batch: Sequence[Waiting], predicted: ScoringResult) -> None:
        features, result = _features(batch), predicted
        try:
            result = self._score(features)
            self._stream.add(batch, result)
            if result.fault:
                self._count_not_scored(len(features))
        except Exception as error:  # noqa: BLE001 - no request waits for it
            _LOG.error("predictions were not scored: %s", without_values(error))
            self._count_not_scored(len(features))
        finally:
            self.async_rows -= len(features)
            self._log(batch, features, result)

    def _count_not_scored(self, rows: int) -> None:
        if self._metrics is not None:
            self._metrics.not_scored.inc(rows)

    def _admit(self, request: InferRequest) -> None:
        """Refuse a request that cannot be served, before it costs anything.

        Raises:
            RequestError: The sidecar is not ready or overloaded, or the model or an output is
                unknown.
        """
        self.check_load()
        self.check_model(request.model, request.version)
        self._responses.check(request)

    async def record_outcomes(
        self, read: Callable[[], Sequence[Outcome]], source: Source
    ) -> tuple[int, list[Refusal]]:
        """Record outcomes of predictions: number recorded, and refusals with their reasons.

        Outcomes do not count toward `max_in_flight`.

        Raises:
            RequestError: This sidecar records no outcomes, or cannot record these now.
        """
        if self.outcomes is None:
            raise NotOfferedError("this sidecar records no outcomes: outcomes.path is not set")
        if not self.open:
            raise NotReadyError("the sidecar is not ready")
        return await self.outcomes.record(read, source)

    def check_load(self) -> None:
        """Check that another request can be accepted; transports do so before reading one.

        Raises:
            NotReadyError: No requests are accepted now.
            OverloadedError: Too many requests are in flight.
        """
        if not self.open:
            raise NotReadyError("the sidecar is not ready")
        if self.in_flight >= self._max_in_flight:
            raise OverloadedError(f"{self._max_in_flight} requests are in flight already")

    def check_model(self, name: str, version: str) -> None:
        """Check that a model and version are served here; an empty version is any.

        Raises:
            NotFoundError: They are not.
        """
        if name != self.model.name:
            raise NotFoundError(f"model {name!r:.120} is not served here; {self.model.name!r} is")
        if version not in ("", self.model.version):
            raise NotFoundError(
                f"version {version!r:.120} of {name!r} is not served here; "
                f"{self.model.version!r} is"
            )


def _features(batch: Sequence[Waiting]) -> Features:
    return np.concatenate([waiting.features for waiting in batch])
