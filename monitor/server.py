"""The sidecar: everything between a config and a process that answers, watches and stops in order.

config ─► bundle ─► judge ─► judging ─► batcher ─► pipeline ─► doors
└─► drift ─► stream ─► metrics
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from monitor.answers import Answers
from monitor.batching import Batcher, Waiting
from monitor.bundle.probe import probe_features
from monitor.bundle.reader import Bundle
from monitor.codec import FeatureCodec
from monitor.doors.grpc_door import GrpcDoor
from monitor.doors.rest_door import RestDoor
from monitor.drift import Drift
from monitor.errors import ConfigError
from monitor.judge import Judge
from monitor.judging import Judged, Judging
from monitor.logs import told_without_values
from monitor.metadata import ModelCard, server_version
from monitor.metrics import DriftGauges, LogCounters, ServingMetrics
from monitor.pipeline import Pipeline
from monitor.policy import Action, Policy
from monitor.review import ReviewLog
from monitor.settings import Config
from monitor.state_file import read_state_file, write_state_file
from monitor.stream import Stream

if TYPE_CHECKING:
    from monitor.traffic.log import OutcomeLog, TrafficLog

__all__ = ["Server"]

_LOG = logging.getLogger(__name__)

Features = NDArray[np.float32]

# Seconds that a sidecar which answers no more still refuses.
_LINGER = 0.2


class Server:
    """One sidecar. Made inside the event loop that it serves in.

    Raises:
        EvenhandError: The config, the bundle or the machine do not allow it.
    """

    def __init__(self, config: Config) -> None:
        assert config.bundle.path is not None
        torch.set_num_threads(config.compute.threads)
        self.config = config
        self.bundle = Bundle.read(
            config.bundle.path,
            manifest_sha256=config.bundle.manifest_sha256,
            max_bytes=config.bundle.max_bytes,
        )
        manifest = self.bundle.manifest
        self.judge = Judge.load(self.bundle, probe_rows=config.bundle.probe_rows)
        self.policy = Policy(config.policy, [a.name for a in manifest.protected_attributes])
        self.policy.check(self.judge.baseline)
        self._check_mode()
        self._judging = Judging(self.judge, self.policy)
        self.drift = self._started_drift() if config.drift.enabled and self._judges else None
        self._metrics = self._made_metrics() if config.metrics.enabled else None
        columns = self.judge.sensitivity.columns
        self.stream = Stream(
            columns,
            self.drift,
            self._metrics,
            has_gradient=not self.judge.sensitivity.missing,
            exemplars=config.metrics.exemplars,
            shown_as=self._request_names(),
        )
        self._review = self._opened_review()
        self._aside_rows = 0
        answers = Answers(manifest, columns, self._judging, config)
        batcher = Batcher(
            self._run,
            self._told,
            window=config.monitoring.batch_window_seconds,
            max_rows=config.monitoring.max_batch_rows,
            max_wait=config.server.max_wait_seconds,
        )
        self.pipeline = Pipeline(
            manifest.model,
            FeatureCodec(manifest, config.server),
            batcher,
            answers,
            max_in_flight=config.server.max_in_flight,
        )
        card = ModelCard.of(self.bundle, answers.cards, config.server)
        self.grpc = GrpcDoor(self.pipeline, card, self._metrics, config.server)
        self.rest = RestDoor(self.pipeline, card, self.stream, self._metrics, config.server)
        # Last, since a folder that is locked and a thread that runs would outlive a failure.
        self._traffic, self._outcomes = self._opened_logs()
        self.pipeline.outcomes = self._outcomes
        if self._metrics is not None:
            self._show(self._metrics)
        self._saving: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Warm up and open the doors."""
        warm = probe_features(self.bundle.manifest, self.config.monitoring.max_batch_rows)
        for rows in (1, 2, len(warm)):
            self._judging.judge(warm[:rows]) if self._judges else self._judging.predict(warm[:rows])
        # What was loaded stays for good: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        self.pipeline.ready = self.pipeline.open = True
        await self.rest.open()
        await self.grpc.open()
        if self.drift is not None and self.config.drift.state_path is not None:
            self._saving = asyncio.create_task(self._save_now_and_then())

    async def stop(self) -> None:
        """Say that it stops, finish what is in flight, keep what was seen, and close."""
        _LOG.info("stopping: %d requests in flight", self.pipeline.in_flight)
        self.pipeline.ready = False
        await self.grpc.say_stopping()
        loop = asyncio.get_running_loop()
        end = loop.time() + self.config.server.drain_seconds
        while self.pipeline.in_flight and loop.time() < end:
            await asyncio.sleep(0.01)
        self.pipeline.open = False
        # Calls that are on their way get our own refusal: gRPC's is one that clients do not retry.
        await asyncio.sleep(_LINGER)
        await self.grpc.close(self.config.server.max_wait_seconds)
        await self.rest.close()
        while self._aside_rows:
            await asyncio.sleep(0.01)
        self.stream.settle()
        self._stopping.set()
        if self._saving is not None:
            await self._saving
        await self._save()
        await self._stop_logs()
        _LOG.info("stopped")

    @property
    def introduction(self) -> str:
        """What listens where, which policy holds and which code runs, for people."""
        server, model = self.config.server, self.bundle.manifest.model
        host = f"[{server.host}]" if ":" in server.host else server.host
        lines = [
            f"evenhand {server_version()} serves {model.name} version {model.version}",
            f"  bundle  {self.config.bundle.path}, digest {self.bundle.manifest_sha256}",
            f"  gRPC    {host}:{self.grpc.port}  (Open Inference Protocol, health, reflection)",
            f"  REST    http://{host}:{self.rest.port}  (/v2, /v1, /metrics, /docs)",
            f"  judges  {self._mode_in_words}",
            f"  policy  {self.policy.in_words}",
            f"  log     {self._log_in_words}",
            f"  drift   {self._drift_in_words}",
        ]
        return "\n".join(lines)

    @property
    def _judges(self) -> bool:
        return self.config.monitoring.mode != "off"

    @property
    def _mode_in_words(self) -> str:
        match self.config.monitoring.mode:
            case "off":
                return "nothing: monitoring is off"
            case "aside":
                return f"after answering, so that policy cannot act, by {self.judge.code_in_words}"
            case "inline":
                return f"before answering, by {self.judge.code_in_words}"

    @property
    def _drift_in_words(self) -> str:
        if self.drift is None:
            return "not watched"
        path = self.config.drift.state_path
        kept = "its state is lost on a restart" if path is None else f"its state is kept in {path}"
        return f"watched, {self.drift.seen:,} predictions so far; {kept}"

    @property
    def _log_in_words(self) -> str:
        if self._traffic is None:
            return "none: traffic.path is not given"
        after = ", after answering" if self.config.monitoring.mode == "aside" else ""
        apart = self.config.outcomes.store or self.config.outcomes.path
        kept = "outcomes are refused" if apart is None else f"outcomes in {apart}"
        return f"{self._traffic.in_words}{after}; {kept}"

    def _run(self, batch: list[Waiting], features: Features) -> Judged:
        """Predict a batch, and judge it first where that is to be done before answering."""
        if self.config.monitoring.mode != "inline":
            predicted = self._judging.predict(features)
            if self._traffic is not None and not self._judges:
                self._traffic.record(batch, features, predicted)
            return predicted
        judged = self._judging.judge(features)
        if self._traffic is not None:
            self._traffic.record(batch, features, judged)
        if self._metrics is not None:
            self._metrics.count_added(self._judging.added_seconds(len(features)))
            if judged.fault:
                self._metrics.faults.inc()
        if self._review is not None and judged.actions is not None:
            self._send_to_review(self._review, batch, judged)
        return judged

    def _send_to_review(self, review: ReviewLog, batch: list[Waiting], judged: Judged) -> None:
        try:
            review.record(batch, judged)
        except Exception as error:  # noqa: BLE001 - it stays withheld, recorded or not
            _LOG.error("a review was not recorded: %s", told_without_values(error))
            if self._metrics is not None:
                self._metrics.faults.inc()

    def _told(self, batch: list[Waiting], judged: Judged) -> None:
        """Take in a batch whose answers have left."""
        if self._metrics is not None:
            self._metrics.count_batch(len(judged))
        if self.config.monitoring.mode != "aside":
            self.stream.take(batch, judged)
        elif self._aside_rows + len(judged) <= self.config.monitoring.aside_rows:
            self._aside_rows += len(judged)
            asyncio.get_running_loop().call_soon(self._judge_aside, batch, judged)
        else:
            self._log_unjudged(batch, judged)
            if self._metrics is not None:
                self._metrics.not_judged.inc(len(judged))

    def _log_unjudged(self, batch: Sequence[Waiting], predicted: Judged) -> None:
        if self._traffic is not None:
            features = np.concatenate([waiting.features for waiting in batch])
            self._traffic.record(batch, features, predicted)

    def _judge_aside(self, batch: Sequence[Waiting], predicted: Judged) -> None:
        features = np.concatenate([waiting.features for waiting in batch])
        judged = predicted
        try:
            judged = self._judging.judge(features)
            self.stream.take(batch, judged)
            if self._metrics is not None:
                self._metrics.count_added(self._judging.added_seconds(len(features)))
                if judged.fault:
                    self._metrics.faults.inc()
                    self._metrics.not_judged.inc(len(features))
        except Exception as error:  # noqa: BLE001 - nobody waits for it
            _LOG.error("predictions were not judged: %s", told_without_values(error))
            if self._metrics is not None:
                self._metrics.not_judged.inc(len(features))
        finally:
            if self._traffic is not None:
                self._traffic.record(batch, features, judged)
            self._aside_rows -= len(features)

    def _started_drift(self) -> Drift:
        settings = self.config.drift
        options = {
            "bundle_digest": self.bundle.manifest_sha256,
            "level": settings.level,
            "run_length": settings.run_length,
            "window": settings.window,
        }
        saved = None if settings.state_path is None else read_state_file(settings.state_path)
        if saved is None:
            return Drift.start(self.judge.drift, **options)  # type: ignore[arg-type]
        drift = Drift.from_npz(saved, self.judge.drift, **options)  # type: ignore[arg-type]
        if drift.note:
            _LOG.warning("the drift watch starts afresh: %s", drift.note)
        return drift

    def _made_metrics(self) -> ServingMetrics:
        names = [a.name for a in self.bundle.manifest.protected_attributes]
        most = self.config.metrics.max_attributes
        if len(names) > most:
            _LOG.warning("no metrics of %s: metrics.max_attributes is %d", names[most:], most)
        # When a series began is of no use here, and doubles their number.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        return ServingMetrics(CollectorRegistry(), names[:most])

    def _show(self, metrics: ServingMetrics) -> None:
        manifest, kernel = self.bundle.manifest, self.judge.kernel
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=metrics.registry)
        metrics.show_in_flight(lambda: self.pipeline.in_flight)
        metrics.show_baseline(self.judge.baseline)
        metrics.show_info(
            bundle={
                "model": manifest.model.name,
                "version": manifest.model.version,
                "manifest_sha256": self.bundle.manifest_sha256,
                "mode": self.config.monitoring.mode,
            },
            kernel={
                "code": "uncompiled" if kernel is None else "compiled",
                "level": "" if kernel is None else kernel.target.level,
            },
        )
        metrics.registry.register(LogCounters(self._traffic, self._outcomes))
        if self.drift is not None:
            metrics.registry.register(
                DriftGauges(self.drift, metrics.attributes, self.stream.settle)
            )

    def _check_mode(self) -> None:
        """Nobody shall believe that something is withheld where nothing can be."""
        acts = [n for n, rule in self.policy.rules.items() if rule.action > Action.OBSERVE]
        if not acts and self.config.policy.on_fault == "pass":
            return
        if self.config.monitoring.mode == "aside":
            raise ConfigError(
                "monitoring.mode: aside answers before it judges, so policy can only observe; "
                "policy.action or policy.on_fault asks for more"
            )
        if self.config.monitoring.mode == "off":
            _LOG.warning("monitoring is off: policy does nothing")

    def _opened_review(self) -> ReviewLog | None:
        policy = self.config.policy
        if policy.review_path is None or self.config.monitoring.mode != "inline":
            return None
        return ReviewLog(
            policy.review_path, policy.review_max_bytes, self.bundle.manifest, self._judging
        )

    def _request_names(self) -> Callable[[str], str]:
        """What requests are called where others can see it: as in the log."""
        if self.config.traffic.key_path is None:
            return str
        from monitor.traffic.privacy import Pseudonyms

        return Pseudonyms.read(self.config.traffic.key_path).of

    def _opened_logs(self) -> tuple[TrafficLog | None, OutcomeLog | None]:
        if self.config.traffic.path is None and self.config.outcomes.path is None:
            return None, None
        # It brings Parquet along, which takes a while to load.
        from monitor.traffic.log import open_logs

        columns = self.judge.sensitivity.columns
        return open_logs(self.config, self.bundle, self._judging, columns)

    async def _stop_logs(self) -> None:
        """Both at once: each may wait for its store."""
        logs = [log for log in (self._traffic, self._outcomes) if log is not None]
        seconds = self.config.server.drain_seconds
        await asyncio.gather(*(asyncio.to_thread(log.stop, seconds) for log in logs))

    async def _save_now_and_then(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self.config.drift.save_seconds)
            if not self._stopping.is_set():
                await self._save()

    async def _save(self) -> None:
        path = self.config.drift.state_path
        if self.drift is None or path is None:
            return
        self.stream.settle()
        outcome = "ok"
        try:
            await asyncio.to_thread(write_state_file, path, self.drift.to_npz())
        except Exception as error:  # noqa: BLE001 - the next try may do better
            outcome = "failed"
            _LOG.error("the drift watch's state was not saved: %s", told_without_values(error))
        if self._metrics is not None:
            self._metrics.state_saves.labels(outcome).inc()
