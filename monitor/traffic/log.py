"""The two logs of a sidecar: traffic, written before answers leave, and outcomes, kept apart."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.batching import Waiting
from monitor.bundle.reader import Bundle
from monitor.errors import ConfigError, NotReadyError, OverloadedError
from monitor.judging import Judged, Judging
from monitor.logs import told_without_values
from monitor.scores import ScoreColumns
from monitor.settings import Config, OutcomesConfig, TrafficConfig
from monitor.traffic.appender import BoundedAppender
from monitor.traffic.columns import FORMAT, TrafficColumns
from monitor.traffic.ledger import Kind
from monitor.traffic.outcome import Outcome, OutcomeCheck, Refusal, Source
from monitor.traffic.outcome_records import OwnGroups, payload
from monitor.traffic.privacy import FeatureGuard, Pseudonyms, treatments
from monitor.traffic.records import TrafficEncoder
from monitor.traffic.segment import Cause
from monitor.traffic.spool import Spool
from monitor.traffic.store import Store

__all__ = ["OutcomeLog", "TrafficLog", "open_logs"]

_LOG = logging.getLogger(__name__)

# Folders of people's groups and labels are for the sidecar's user only.
OUTCOMES_MODE = 0o700
_OUTCOME_ROLL_BYTES, _OUTCOME_SYNC_SECONDS = 16 << 20, 1.0
# Messages of outcomes that may wait for the disk; more are refused.
_MOST_WAITING = 64


class OutcomeLog:
    """Records what becomes known of predictions."""

    def __init__(self, config: Config, bundle: Bundle) -> None:
        settings: OutcomesConfig = config.outcomes
        assert settings.path is not None
        self._pseudonyms = Pseudonyms.read(config.traffic.key_path)
        manifest = bundle.manifest
        self._check = OutcomeCheck.of(manifest)
        home = Store.open(settings.path, mode=OUTCOMES_MODE)
        about = {
            **_about(bundle, "outcomes", self._pseudonyms),
            "attributes": {a.name: list(a.groups) for a in manifest.protected_attributes},
        }
        self.spool = Spool(
            home,
            home if settings.store is None else Store.open(settings.store, mode=OUTCOMES_MODE),
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
        # They wait for the disk as long as it takes, and nobody else does.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="traffic-outcomes")
        seconds = config.traffic.max_write_seconds
        self._own = OwnGroups(manifest)
        self._bounded = (
            BoundedAppender(self.spool.appender, seconds) if seconds and self._own else None
        )
        self._writer = self._bounded or self.spool.appender

    async def record(
        self, read: Callable[[], Sequence[Outcome]], source: Source
    ) -> tuple[int, list[Refusal]]:
        """Record outcomes that can be: how many, and why not the others, by their places.

        Args:
            read: Gives the outcomes; large messages take a while, so it is called off the loop.
            source: Where they come from.

        Raises:
            RequestError: They cannot be read, or not be written now; nothing was recorded.
        """
        if self._waiting >= _MOST_WAITING:
            raise OverloadedError(f"{_MOST_WAITING} messages of outcomes wait already")
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
        good = [o for o, flaw in zip(outcomes, flaws, strict=True) if flaw is None]
        refusals = [(place, flaw) for place, flaw in enumerate(flaws) if flaw is not None]
        data = payload(good, self._pseudonyms, source, now)
        written = not good or self.spool.appender.write(data, len(good), can_be_sent_again=True)
        self.recorded[source] += len(good) if written else 0
        self.refused[source] += len(refusals) if written else len(outcomes)
        if not written:
            raise NotReadyError("outcomes cannot be recorded now; send them again later")
        return len(good), refusals

    def record_own(self, batch: Sequence[Waiting], features: NDArray[np.float32]) -> None:
        """Record groups that can be read from the features `[n, d]` of a batch."""
        if not self._own:
            return
        found = self._own.outcomes(batch, features)
        if found:
            now = dt.datetime.now(dt.UTC)
            data = payload(found, self._pseudonyms, "feature", now)
            if self._writer.write(data, len(found)):
                self.recorded["feature"] += len(found)

    @property
    def lost(self) -> Counter[Cause]:
        """Outcomes that were not written, by cause."""
        return self._writer.lost + self.spool.found_lost

    def lose_own(self, rows: int) -> None:
        """Count groups that could not be recorded."""
        self._writer.lose("fault", rows)

    def stop(self, seconds: float) -> None:
        """Write down what is there, and close."""
        self._thread.shutdown(wait=False)
        if self._bounded is not None:
            self._bounded.stop(seconds)
        self.spool.stop(seconds)


class TrafficLog:
    """Writes down every prediction."""

    def __init__(
        self,
        config: Config,
        bundle: Bundle,
        judging: Judging,
        scores: ScoreColumns,
        outcomes: OutcomeLog | None,
    ) -> None:
        settings: TrafficConfig = config.traffic
        assert settings.path is not None
        manifest = bundle.manifest
        pseudonyms = Pseudonyms.read(settings.key_path)
        told = treatments(manifest, settings.features)
        columns = TrafficColumns.of(manifest, {n: t.treatment for n, t in told.items()})
        self._outcomes = outcomes
        self._check_own_groups(OwnGroups(manifest))
        guard = FeatureGuard(columns, told, pseudonyms)
        self._encoder = TrafficEncoder(columns, scores, guard, pseudonyms, judging)
        home = Store.open(settings.path)
        about = {**_about(bundle, "traffic", pseudonyms), **_meaning(bundle, columns)}
        self.spool = Spool(
            home,
            home if settings.store is None else Store.open(settings.store),
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
        self._place = settings.store or str(settings.path)
        self._is_pseudonymous = not pseudonyms.kept

    def record(
        self, batch: Sequence[Waiting], features: NDArray[np.float32], judged: Judged
    ) -> None:
        """Write down a batch, whose features are `[n, d]`. It never raises: an answer waits."""
        try:
            data = self._encoder.payload(batch, features, judged)
            self._writer.write(data, len(features))
        except Exception as error:  # noqa: BLE001 - the prediction leaves, logged or not
            self._writer.lose("fault", len(features))
            _LOG.error("predictions were not logged: %s", told_without_values(error))
        try:
            if self._outcomes is not None:
                self._outcomes.record_own(batch, features)
        except Exception as error:  # noqa: BLE001 - likewise
            assert self._outcomes is not None
            self._outcomes.lose_own(len(features))
            _LOG.error("people's groups were not logged: %s", told_without_values(error))

    @property
    def lost(self) -> Counter[Cause]:
        """Rows that are not in the log, by cause."""
        return self._writer.lost + self.spool.found_lost

    @property
    def late(self) -> int:
        """Writes that took longer than answers wait."""
        return 0 if self._bounded is None else self._bounded.late

    @property
    def in_words(self) -> str:
        """Where it goes, for people."""
        names = "pseudonyms for request ids" if self._is_pseudonymous else "request ids as they are"
        left = self.spool.recovered
        return f"{self._place}, {names}" + (f"; {left} segments to recover" if left else "")

    def stop(self, seconds: float) -> None:
        """Write down what is there, and close."""
        if self._bounded is not None:
            self._bounded.stop(seconds)
        self.spool.stop(seconds)

    def _check_own_groups(self, own: OwnGroups) -> None:
        if own and self._outcomes is None:
            _LOG.warning(
                "a protected attribute is a feature; without outcomes.path it is not written down"
            )


def _warn_of_readers(folder: Path) -> None:
    """A folder that was there before may be open to others than the sidecar's user."""
    if folder.stat().st_mode & 0o077:
        _LOG.warning("outcomes.path: others than its owner may enter %s", folder)


def _about(bundle: Bundle, kind: Kind, pseudonyms: Pseudonyms) -> dict[str, Any]:
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


def _meaning(bundle: Bundle, columns: TrafficColumns) -> dict[str, Any]:
    """What the numbers of the traffic log stand for."""
    manifest = bundle.manifest
    return {
        "columns": columns.to_json(),
        "attributes": {a.name: list(a.groups) for a in manifest.protected_attributes},
        "class_names": list(manifest.decision.class_names),
        "favourable": manifest.decision.favourable,
        "threshold": manifest.decision.threshold,
    }


def open_logs(
    config: Config, bundle: Bundle, judging: Judging, scores: ScoreColumns
) -> tuple[TrafficLog | None, OutcomeLog | None]:
    """The logs that a config asks for.

    Raises:
        ConfigError: Both are to lie in one folder, or a setting does not fit the bundle.
        ServeError: A folder cannot be used.
    """
    traffic, outcomes = config.traffic.path, config.outcomes.path
    if traffic is not None and outcomes is not None:
        _check_apart(config)
    kept = None if outcomes is None else OutcomeLog(config, bundle)
    try:
        log = None if traffic is None else TrafficLog(config, bundle, judging, scores, kept)
    except BaseException:
        if kept is not None:
            kept.stop(config.server.drain_seconds)
        raise
    return log, kept


def _check_apart(config: Config) -> None:
    """Outcomes lie apart from the traffic, neither inside the other."""
    traffic, outcomes = (
        [_place(place) for place in (part.path, part.store) if place is not None]
        for part in (config.traffic, config.outcomes)
    )
    for kind, one in traffic:
        for other_kind, other in outcomes:
            inside = f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
            if kind == other_kind and inside:
                raise ConfigError(
                    f"outcomes.path: {other} is not apart from the traffic log in {one}"
                )


def _place(named: str | Path) -> tuple[str, str]:
    """What kind of storage, and where in it, however it is spelled."""
    store = Store.open(named)
    return store.filesystem.type_name, (
        str(Path(store.root).resolve()) if store.is_local else store.root
    )
