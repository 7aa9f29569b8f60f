"""The two logs of a sidecar: traffic, written before the response is sent, and outcomes."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monitor.bundle.encoding import Encoding
from monitor.errors import ConfigError, NotReadyError, OverloadedError
from monitor.logs import without_values
from monitor.traffic.appender import BoundedAppender
from monitor.traffic.columns import FORMAT, TrafficColumns
from monitor.traffic.outcomes import (
    Outcome,
    OutcomeCheck,
    ProtectedFeatures,
    Refusal,
    Source,
    payload,
    with_subjects,
)
from monitor.traffic.privacy import FeatureGuard, Pseudonyms, treatments
from monitor.traffic.records import TrafficEncoder
from monitor.traffic.spool import Spool
from monitor.traffic.store import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from monitor.batching import Waiting
    from monitor.bundle.reader import Bundle
    from monitor.scoring.scorer import Scorer, ScoringResult
    from monitor.scoring.scores import ScoreColumns
    from monitor.settings import Config
    from monitor.traffic.ledger import Kind
    from monitor.traffic.segment import Cause
    from monitor.traffic.settings import OutcomesConfig, TrafficConfig

__all__ = ["OutcomeLog", "TrafficLog", "open_logs"]

_LOG = logging.getLogger(__name__)

# Groups and labels are readable by the sidecar's user only.
OUTCOMES_MODE = 0o700
_OUTCOME_ROLL_BYTES, _OUTCOME_SYNC_SECONDS = 16 << 20, 1.0
# Most outcome requests that wait for the disk; further ones are rejected.
_MAX_WAITING = 64


class OutcomeLog:
    """Records outcomes: true labels and protected groups."""

    def __init__(self, config: Config, bundle: Bundle) -> None:
        settings: OutcomesConfig = config.outcomes
        assert settings.path is not None
        self._pseudonyms = Pseudonyms.read(config.traffic.key_path)
        manifest = bundle.manifest
        self._check = OutcomeCheck.of(manifest)
        local_store = Store.open(settings.path, mode=OUTCOMES_MODE)
        about = {
            **_file_metadata(bundle, "outcomes", self._pseudonyms),
            "attributes": {a.name: list(a.recorded_groups) for a in manifest.protected_attributes},
            "subjects": settings.subjects,
        }
        self._subjects = settings.subjects
        self.spool = Spool(
            local_store,
            local_store
            if settings.store is None
            else Store.open(settings.store, mode=OUTCOMES_MODE),
            about,
            roll_bytes=_OUTCOME_ROLL_BYTES,
            roll_seconds=config.traffic.roll_seconds,
            max_bytes=settings.max_bytes,
            when_full="stop",
            durability="always" if config.traffic.durability == "always" else "interval",
            sync_seconds=_OUTCOME_SYNC_SECONDS,
        )
        _warn_of_readers(settings.path)
        self.recorded: Counter[Source] = Counter()
        self.refused: Counter[Source] = Counter()
        self._waiting = 0
        # Outcomes wait for the disk without a time limit, in their own thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="traffic-outcomes")
        seconds = config.traffic.max_write_seconds
        self._protected_features = ProtectedFeatures(manifest)
        self._bounded = (
            BoundedAppender(self.spool.appender, seconds)
            if seconds and (self._protected_features or self._subjects)
            else None
        )
        self._writer = self._bounded or self.spool.appender

    async def record(
        self, read: Callable[[], Sequence[Outcome]], source: Source
    ) -> tuple[int, list[Refusal]]:
        """Record the valid outcomes of a request.

        Args:
            read: Function that decodes the outcomes; called outside of the event loop.
            source: Source of the outcomes.

        Returns:
            The number of recorded outcomes, and the index and reason of every rejected one.

        Raises:
            RequestError: They cannot be decoded or written; nothing was recorded.
        """
        if self._waiting >= _MAX_WAITING:
            raise OverloadedError(
                f"{_MAX_WAITING} requests with outcomes are already waiting; send it again later"
            )
        self._waiting += 1
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._record, read, source)
        finally:
            self._waiting -= 1

    def _record(
        self, read: Callable[[], Sequence[Outcome]], source: Source
    ) -> tuple[int, list[Refusal]]:
        outcomes = read()
        now = dt.datetime.now(dt.UTC)
        flaws = [self._check.flaw(outcome, now) for outcome in outcomes]
        valid = [o for o, flaw in zip(outcomes, flaws, strict=True) if flaw is None]
        refusals = [(index, flaw) for index, flaw in enumerate(flaws) if flaw is not None]
        data = payload(valid, self._pseudonyms, source, now)
        written = not valid or self.spool.appender.write(data, len(valid), can_be_sent_again=True)
        self.recorded[source] += len(valid) if written else 0
        self.refused[source] += len(refusals) if written else len(outcomes)
        if not written:
            raise NotReadyError("outcomes cannot be recorded now; send them again later")
        return len(valid), refusals

    def record_requests(self, batch: Sequence[Waiting], features: NDArray[np.float32]) -> None:
        """Record the groups that are features `[n, d]`, and the subjects, of a batch."""
        outcomes: list[Outcome] = []
        if self._protected_features:
            outcomes = self._protected_features.outcomes(batch, features)
        if self._subjects:
            outcomes = with_subjects(outcomes, batch)
        if outcomes:
            now = dt.datetime.now(dt.UTC)
            data = payload(outcomes, self._pseudonyms, "feature", now)
            if self._writer.write(data, len(outcomes)):
                self.recorded["feature"] += len(outcomes)

    @property
    def lost(self) -> Counter[Cause]:
        """Number of lost outcomes, by cause."""
        return self._writer.lost + self.spool.found_lost

    def lose_requests(self, rows: int) -> None:
        """Count groups and subjects that could not be recorded as lost."""
        self._writer.lose("fault", rows)

    def stop(self, seconds: float) -> None:
        """Convert segments to Parquet within a time limit, and close the log."""
        self._thread.shutdown(wait=False)
        if self._bounded is not None:
            self._bounded.stop(seconds)
        self.spool.stop(seconds)


class TrafficLog:
    """Records every prediction."""

    def __init__(
        self,
        config: Config,
        bundle: Bundle,
        scorer: Scorer,
        scores: ScoreColumns,
        outcomes: OutcomeLog | None,
    ) -> None:
        settings: TrafficConfig = config.traffic
        assert settings.path is not None
        manifest = bundle.manifest
        pseudonyms = Pseudonyms.read(settings.key_path)
        treated = treatments(manifest, settings.features)
        columns = TrafficColumns.of(manifest, {n: t.treatment for n, t in treated.items()})
        self._outcomes = outcomes
        self._warn_if_not_recorded(ProtectedFeatures(manifest))
        guard = FeatureGuard(columns, treated, pseudonyms)
        encoding = Encoding.of(manifest)
        empty = None if encoding is None else encoding.empty_row
        self._encoder = TrafficEncoder(columns, scores, guard, pseudonyms, scorer, empty)
        local_store = Store.open(settings.path)
        about = {
            **_file_metadata(bundle, "traffic", pseudonyms),
            **_column_metadata(bundle, columns),
        }
        self.spool = Spool(
            local_store,
            local_store if settings.store is None else Store.open(settings.store),
            about,
            roll_bytes=settings.roll_bytes,
            roll_seconds=settings.roll_seconds,
            max_bytes=settings.max_bytes,
            when_full=settings.when_full,
            durability=settings.durability,
            sync_seconds=settings.sync_seconds,
        )
        seconds = settings.max_write_seconds
        self._bounded = None if seconds is None else BoundedAppender(self.spool.appender, seconds)
        self._writer = self._bounded or self.spool.appender
        self._location = settings.store or str(settings.path)
        self._is_pseudonymous = pseudonyms.enabled

    def record(
        self, batch: Sequence[Waiting], features: NDArray[np.float32], result: ScoringResult
    ) -> None:
        """Record a batch with features `[n, d]`. Never raises, since responses wait for it."""
        try:
            data = self._encoder.payload(batch, features, result)
            self._writer.write(data, len(features))
        except Exception as error:  # noqa: BLE001 - the response is sent in any case
            self._writer.lose("fault", len(features))
            _LOG.error("predictions were not logged: %s", without_values(error))
        try:
            if self._outcomes is not None:
                self._outcomes.record_requests(batch, features)
        except Exception as error:  # noqa: BLE001 - the response is sent in any case
            assert self._outcomes is not None
            self._outcomes.lose_requests(len(features))
            _LOG.error("protected groups or subjects were not logged: %s", without_values(error))

    @property
    def lost(self) -> Counter[Cause]:
        """Number of lost rows, by cause."""
        return self._writer.lost + self.spool.found_lost

    @property
    def late(self) -> int:
        """Number of writes that took longer than responses wait."""
        return 0 if self._bounded is None else self._bounded.late

    @property
    def in_words(self) -> str:
        """Location of the log and kind of ids, for the start-up message."""
        names = "with pseudonyms of request ids" if self._is_pseudonymous else "with request ids"
        segments = self.spool.recovered
        return f"{self._location} {names}" + (
            f"; {segments} segments to recover" if segments else ""
        )

    def stop(self, seconds: float) -> None:
        """Convert segments to Parquet within a time limit, and close the log."""
        if self._bounded is not None:
            self._bounded.stop(seconds)
        self.spool.stop(seconds)

    def _warn_if_not_recorded(self, protected: ProtectedFeatures) -> None:
        if protected and self._outcomes is None:
            _LOG.warning(
                "a protected attribute is a feature, but is not recorded: outcomes.path is unset"
            )


def _warn_of_readers(folder: Path) -> None:
    """Warn if an existing directory is readable by others than the sidecar's user."""
    if folder.stat().st_mode & 0o077:
        _LOG.warning("outcomes.path: %s is accessible to other users; use mode 0700", folder)


def _file_metadata(bundle: Bundle, kind: Kind, pseudonyms: Pseudonyms) -> dict[str, Any]:
    model = bundle.manifest.model
    return {
        "format": FORMAT,
        "kind": kind,
        "model": model.name,
        "version": model.version,
        "bundle": bundle.manifest_sha256,
        "pseudonyms": pseudonyms.fingerprint,
        "evenhand": version("evenhand"),
    }


def _column_metadata(bundle: Bundle, columns: TrafficColumns) -> dict[str, Any]:
    """Description of the traffic log's values, for the metadata of its files."""
    manifest = bundle.manifest
    return {
        "columns": columns.to_json(),
        "attributes": {a.name: list(a.groups) for a in manifest.protected_attributes},
        "class_names": list(manifest.decision.class_names),
        "favourable": manifest.decision.favourable,
        "threshold": manifest.decision.threshold,
    }


def open_logs(
    config: Config, bundle: Bundle, scorer: Scorer, scores: ScoreColumns
) -> tuple[TrafficLog | None, OutcomeLog | None]:
    """Open the logs that the config enables.

    Raises:
        ConfigError: Both logs are in one directory, or a setting does not match the bundle.
        ServeError: A directory cannot be used.
    """
    traffic, outcomes = config.traffic.path, config.outcomes.path
    if traffic is not None and outcomes is not None:
        _check_apart(config)
    outcome_log = None if outcomes is None else OutcomeLog(config, bundle)
    try:
        log = None if traffic is None else TrafficLog(config, bundle, scorer, scores, outcome_log)
    except BaseException:
        if outcome_log is not None:
            outcome_log.stop(config.server.drain_seconds)
        raise
    return log, outcome_log


def _check_apart(config: Config) -> None:
    """Neither log may be in a directory of the other."""
    traffic, outcomes = (
        [_location(path) for path in (part.path, part.store) if path is not None]
        for part in (config.traffic, config.outcomes)
    )
    for kind, one in traffic:
        for other_kind, other in outcomes:
            inside = f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
            if kind == other_kind and inside:
                raise ConfigError(
                    f"outcomes.path: {other} and the traffic log in {one} overlap; use separate "
                    "directories"
                )


def _location(address: str | Path) -> tuple[str, str]:
    """Kind of storage, and the resolved path in it."""
    store = Store.open(address)
    return store.filesystem.type_name, (
        str(Path(store.root).resolve()) if store.is_local else store.root
    )
