"""The server process: composes the parts of the sidecar, starts them and stops them in order.

config ─► bundle ─► judge ─► scorer ─► pipeline ─► transports
                      └─► drift ─► stream ─► metrics
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import torch
from prometheus_client import (
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from monitor.bundle.classifier import probe_features
from monitor.bundle.reader import Bundle
from monitor.codec import FeatureCodec
from monitor.drift.state import read_state_file, write_state_file
from monitor.drift.watch import Drift
from monitor.errors import ConfigError
from monitor.logs import without_values
from monitor.metadata import ModelCard, server_version
from monitor.metrics.drift_gauges import DriftGauges
from monitor.metrics.log_counters import LogCounters
from monitor.metrics.serving import ModelRegistry, ServingMetrics
from monitor.pipeline import Pipeline
from monitor.policy import Action, Policy
from monitor.response import ResponseBuilder
from monitor.review import ReviewLog
from monitor.scoring.judge import Judge
from monitor.scoring.scorer import Scorer
from monitor.settings import Config
from monitor.stream import Stream
from monitor.transport.grpc_server import GrpcTransport
from monitor.transport.rest_server import RestTransport

if TYPE_CHECKING:
    from monitor.traffic.log import OutcomeLog, TrafficLog

__all__ = ["Server"]

_LOG = logging.getLogger(__name__)

# Seconds for which requests are still refused before the transports close.
_LINGER = 0.2


class Server:
    """One sidecar. Created inside the event loop that it serves in.

    Raises:
        EvenhandError: The config or the bundle is invalid, or a port or folder is not available.
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
        self._scorer = Scorer(self.judge, self.policy)
        self.drift = self._started_drift() if config.drift.enabled and self._monitors else None
        self._metrics = self._made_metrics() if config.metrics.enabled else None
        columns = self.judge.sensitivity.columns
        self.stream = Stream(
            columns,
            self.drift,
            self._metrics,
            has_gradient=not self.judge.sensitivity.missing,
            exemplars=config.metrics.exemplars,
            shown_as=self._request_names(),
            groups={a.name: a.groups for a in manifest.protected_attributes},
        )
        responses = ResponseBuilder(manifest, columns, self._scorer, config)
        self.pipeline = Pipeline(
            manifest.model,
            FeatureCodec(manifest, config.server),
            self._scorer,
            responses,
            self.stream,
            config,
            metrics=self._metrics,
            review=self._opened_review(),
        )
        card = ModelCard.of(self.bundle, responses.cards, config.server)
        self.grpc = GrpcTransport(self.pipeline, card, self._metrics, config.server)
        self.rest = RestTransport(self.pipeline, card, self.stream, self._metrics, config.server)
        # Last: the logs lock folders and start threads, which would outlive a failure above.
        self._traffic, self._outcomes = self._opened_logs()
        self.pipeline.traffic, self.pipeline.outcomes = self._traffic, self._outcomes
        if self._metrics is not None:
            self._show(self._metrics)
        self._saving: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Warm up and open the transports."""
        warm = probe_features(self.bundle.manifest, self.config.monitoring.max_batch_rows)
        for rows in (1, 2, len(warm)):
            if self._monitors:
                self._scorer.apply_policy(self._scorer.score(warm[:rows]))
            else:
                self._scorer.predict(warm[:rows])
        # Everything loaded so far lives as long as the process: exclude it from garbage collection.
        gc.collect()
        gc.freeze()
        self.pipeline.ready = self.pipeline.open = True
        await self.rest.open()
        await self.grpc.open()
        if self.drift is not None and self.config.drift.state_path is not None:
            self._saving = asyncio.create_task(self._save_periodically())

    async def stop(self) -> None:
        """Report NOT_SERVING, finish the requests in flight, save the state and close."""
        _LOG.info("stopping: %d requests in flight", self.pipeline.in_flight)
        self.pipeline.ready = False
        await self.grpc.report_stopping()
        loop = asyncio.get_running_loop()
        end = loop.time() + self.config.server.drain_seconds
        while self.pipeline.in_flight and loop.time() < end:
            await asyncio.sleep(0.01)
        self.pipeline.open = False
        # Late requests get UNAVAILABLE, which clients retry; gRPC's own refusal they do not.
        await asyncio.sleep(_LINGER)
        await self.grpc.close(self.config.server.max_wait_seconds)
        await self.rest.close()
        while self.pipeline.async_rows:
            await asyncio.sleep(0.01)
        self.stream.flush()
        self._stopping.set()
        if self._saving is not None:
            await self._saving
        await self._save()
        await self._stop_logs()
        _LOG.info("stopped")

    @property
    def introduction(self) -> str:
        """Addresses, bundle, mode, policy, logs and drift watch, as printed at the start."""
        server, model = self.config.server, self.bundle.manifest.model
        host = f"[{server.host}]" if ":" in server.host else server.host
        lines = [
            f"evenhand {server_version()} serving {model.name} version {model.version}",
            f"  bundle  {self.config.bundle.path}, digest {self.bundle.manifest_sha256}",
            f"  gRPC    {host}:{self.grpc.port}  (Open Inference Protocol, health, reflection)",
            f"  REST    http://{host}:{self.rest.port}  (/v2, /v1, /metrics, /docs)",
            f"  scoring {self._mode_in_words}",
            f"  policy  {self.policy.in_words}",
            f"  log     {self._log_in_words}",
            f"  drift   {self._drift_in_words}",
        ]
        return "\n".join(lines)

    @property
    def _monitors(self) -> bool:
        return self.config.monitoring.mode != "off"

    @property
    def _mode_in_words(self) -> str:
        match self.config.monitoring.mode:
            case "off":
                return "off: predictions are served without scores or verdicts"
            case "async":
                return f"async, after the response (policy cannot act), {self.judge.code_in_words}"
            case "inline":
                return f"inline, before the response, {self.judge.code_in_words}"

    @property
    def _drift_in_words(self) -> str:
        if self.drift is None:
            return "disabled"
        path = self.config.drift.state_path
        state_note = "state is lost on restart" if path is None else f"state saved in {path}"
        return f"enabled, {self.drift.seen:,} predictions so far; {state_note}"

    @property
    def _log_in_words(self) -> str:
        if self._traffic is None:
            return "none: traffic.path is not set"
        after = ", after the response" if self.config.monitoring.mode == "async" else ""
        outcomes_location = self.config.outcomes.store or self.config.outcomes.path
        outcomes_note = (
            "outcomes are not recorded"
            if outcomes_location is None
            else f"outcomes in {outcomes_location}"
        )
        return f"{self._traffic.in_words}{after}; {outcomes_note}"

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
            _LOG.warning("the drift watch starts from scratch: %s", drift.note)
        return drift

    def _made_metrics(self) -> ServingMetrics:
        names = [a.name for a in self.bundle.manifest.protected_attributes]
        most = self.config.metrics.max_attributes
        if len(names) > most:
            _LOG.warning("no metrics for %s: metrics.max_attributes is %d", names[most:], most)
        # Series of creation times are not used here, and double the number of series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = ModelRegistry(self.bundle.manifest.model.name)
        return ServingMetrics(registry, names[:most])

    def _show(self, metrics: ServingMetrics) -> None:
        manifest, kernel = self.bundle.manifest, self.judge.kernel
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=metrics.registry)
        metrics.register_in_flight(lambda: self.pipeline.in_flight)
        metrics.register_baseline(self.judge.baseline)
        metrics.register_info(
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
                DriftGauges(self.drift, metrics.attributes, self.stream.flush)
            )

    def _check_mode(self) -> None:
        """Refuse a policy that cannot act in the configured mode.

        Raises:
            ConfigError: The mode is async and policy does more than observe.
        """
        acts = [n for n, rule in self.policy.rules.items() if rule.action > Action.OBSERVE]
        if not acts and self.config.policy.on_fault == "pass":
            return
        if self.config.monitoring.mode == "async":
            raise ConfigError(
                "monitoring.mode: async responds before it scores, so policy can only observe; "
                "policy.action or policy.on_fault asks for more"
            )
        if self.config.monitoring.mode == "off":
            _LOG.warning("monitoring.mode is off: policy has no effect")

    def _opened_review(self) -> ReviewLog | None:
        policy = self.config.policy
        if policy.review_path is None or self.config.monitoring.mode != "inline":
            return None
        return ReviewLog(
            policy.review_path, policy.review_max_bytes, self.bundle.manifest, self._scorer
        )

    def _request_names(self) -> Callable[[str], str]:
        """Ids of requests as shown in metrics: pseudonyms if the log holds pseudonyms."""
        if self.config.traffic.key_path is None:
            return str
        from monitor.traffic.privacy import Pseudonyms

        return Pseudonyms.read(self.config.traffic.key_path).of

    def _opened_logs(self) -> tuple[TrafficLog | None, OutcomeLog | None]:
        if self.config.traffic.path is None and self.config.outcomes.path is None:
            return None, None
        # Imported here, since loading Parquet takes a while.
        from monitor.traffic.log import open_logs

        columns = self.judge.sensitivity.columns
        return open_logs(self.config, self.bundle, self._scorer, columns)

    async def _stop_logs(self) -> None:
        """Stop both logs at once: either may wait for its store."""
        logs = [log for log in (self._traffic, self._outcomes) if log is not None]
        seconds = self.config.server.drain_seconds
        await asyncio.gather(*(asyncio.to_thread(log.stop, seconds) for log in logs))

    async def _save_periodically(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self.config.drift.save_seconds)
            if not self._stopping.is_set():
                await self._save()

    async def _save(self) -> None:
        path = self.config.drift.state_path
        if self.drift is None or path is None:
            return
        self.stream.flush()
        outcome = "ok"
        try:
            await asyncio.to_thread(write_state_file, path, self.drift.to_npz())
        except Exception as error:  # noqa: BLE001 - the next attempt may succeed
            outcome = "failed"
            _LOG.error("the state of the drift watch was not saved: %s", without_values(error))
        if self._metrics is not None:
            self._metrics.state_saves.labels(outcome).inc()
