"""Stream statistics of scored predictions: metrics and the drift watch, after the response.

Batches are buffered and added by hundreds, which costs a tenth of adding them one at a time and
changes no figure.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.drift.wording import below_bound, bound_fields, description, fields
from monitor.errors import NotFoundError
from monitor.logs import without_values
from monitor.policy import Action, PolicyResult, Verdict
from monitor.scoring.baseline import SIGNALS, Signal

if TYPE_CHECKING:
    from monitor.batching import Waiting
    from monitor.drift.alarms import Alarm, Cause
    from monitor.drift.reference import DetectorId
    from monitor.drift.watch import Drift
    from monitor.metrics.serving import ServingMetrics
    from monitor.scoring.scorer import ScoringResult
    from monitor.scoring.scores import ScoreColumns

__all__ = ["Stream"]

Float = NDArray[np.floating]

_LOG = logging.getLogger(__name__)
_FLUSH_ROWS = 256
_FLUSH_SECONDS = 0.25
# Number of predictions between two comparisons of flip shares with their lower bounds.
_BOUND_EVERY = 1_000
# Number of request ids per batch that are shown as exemplars of histograms.
_MAX_EXEMPLARS = 4


class Stream:
    """Statistics of scored predictions, in the order in which they were scored.

    Attributes:
        groups: Names of the groups by protected attribute, for descriptions of alarms.
    """

    def __init__(
        self,
        columns: ScoreColumns,
        drift: Drift | None,
        metrics: ServingMetrics | None,
        *,
        has_gradient: bool,
        exemplars: bool,
        shown_as: Callable[[str], str] = str,
        groups: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._columns, self._drift, self._metrics = columns, drift, metrics
        self._exemplars = exemplars
        self._signal_names = [s for s in SIGNALS if has_gradient or s != "prediction_sensitivity"]
        self._shown_as, self.groups = shown_as, groups or {}
        self._buffer: list[ScoringResult] = []
        self._exemplar_ids: list[tuple[int, str]] = []
        self._rows = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._logged_alarms: dict[DetectorId, Cause] = {}
        self._logged_bounds: set[str] = set()
        self._compare_at = 0

    def add(self, batch: Sequence[Waiting], result: ScoringResult) -> None:
        """Add a batch whose responses have left."""
        if result.verdicts is None:
            return
        if self._exemplars and (result.verdicts == Verdict.ABOVE).any():
            self._add_exemplars(batch, result)
        self._buffer.append(result)
        self._rows += len(result)
        if self._rows >= _FLUSH_ROWS:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(_FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Add the buffered batches. It never raises: no request waits for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        results, exemplars = self._buffer, self._exemplar_ids
        self._buffer, self._exemplar_ids, self._rows = [], [], 0
        if not results:
            return
        self._try(partial(self._count, results, exemplars))
        self._try(partial(self._watch, [r.scores for r in results if r.scores is not None]))

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - serving must go on without statistics
            _LOG.error("stream statistics were not updated: %s", without_values(error))
            if self._metrics is not None:
                self._metrics.faults.inc()

    def _count(self, results: list[ScoringResult], exemplars: list[tuple[int, str]]) -> None:
        if self._metrics is None:
            return
        policy = PolicyResult(
            **{
                field.name: np.concatenate([getattr(result, field.name) for result in results])
                for field in dataclasses.fields(PolicyResult)
            }
        )
        width = self._columns.width
        scores = np.concatenate(
            [np.full((len(r), width), np.nan) if r.scores is None else r.scores for r in results]
        )
        reasons = self._columns.reasons(scores)
        self._metrics.count_scored(policy, reasons, self._signals(scores), exemplars)

    def _signals(self, scores: Float) -> dict[str, dict[Signal, Float]]:
        """Values `[n]` by attribute and signal, of attributes that have metrics."""
        assert self._metrics is not None
        return {
            name: {signal: scores[:, columns.of_signal(signal)] for signal in self._signal_names}
            for name, columns in self._columns.attributes.items()
            if name in self._metrics.attributes
        }

    def _watch(self, scores: list[NDArray[np.float32]]) -> None:
        if self._drift is None or not scores:
            return
        packed = torch.from_numpy(np.concatenate(scores))
        self._drift.update(self._columns.unpacked(packed).predictions)
        for alarm in self._drift.alarms:
            if self._logged_alarms.get(alarm.watcher) != alarm.cause:
                self._log_alarm(alarm, self._drift)
        if self._drift.seen >= self._compare_at:
            self._compare_at = self._drift.seen + _BOUND_EVERY
            self._compare_with_bounds(self._drift)

    def _log_alarm(self, alarm: Alarm, drift: Drift) -> None:
        """Log a new alarm, or the new cause of a known one."""
        name, previous = alarm.watcher.attribute, self._logged_alarms.get(alarm.watcher)
        self._logged_alarms[alarm.watcher] = alarm.cause
        _LOG.warning(
            "%s: %s of %s at prediction %d (likely cause: %s): %s",
            "drift alarm" if previous is None else "new cause of a drift alarm",
            *(alarm.watcher.kind, name or "all", alarm.at, alarm.cause),
            self.description(alarm),
            extra={
                **fields(
                    alarm,
                    None if name is None else drift.reference.shares[name].share,
                    None if name is None else drift.share(name),
                ),
                "previous_cause": previous,
            },
        )

    def _compare_with_bounds(self, drift: Drift) -> None:
        """Log every attribute once whose flip share is below its lower bound."""
        for name in drift.reference.shares:
            if name not in self._logged_bounds and drift.is_below_bound(name):
                self._logged_bounds.add(name)
                share, bound = drift.share(name), drift.share_bound(name)
                _LOG.warning(
                    "%s",
                    below_bound(name, share, bound),
                    extra=bound_fields(name, share, bound),
                )

    def is_below_bound(self, attribute: str | None) -> bool:
        """Whether the flip share of an attribute is below its lower bound; false without one."""
        return (
            self._drift is not None
            and attribute is not None
            and self._drift.is_below_bound(attribute)
        )

    def description(self, alarm: Alarm) -> str:
        """What an alarm has shown, in words."""
        return description(alarm, self.groups.get(alarm.watcher.attribute or "", ()))

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Unacknowledged alarms of the drift watch."""
        self.flush()
        return () if self._drift is None else self._drift.alarms

    def acknowledge(self, watcher: DetectorId) -> None:
        """Clear an alarm; the next of its kind is logged again.

        Raises:
            NotFoundError: There is no such alarm.
        """
        self.flush()
        if self._drift is None or watcher not in {alarm.watcher for alarm in self._drift.alarms}:
            raise NotFoundError("there is no such alarm")
        self._drift.acknowledge(watcher)
        self._logged_alarms.pop(watcher, None)
        if watcher.kind == "share":
            self._logged_bounds.discard(str(watcher.attribute))
        _LOG.warning(
            "alarm acknowledged: %s of %s",
            *(watcher.kind, watcher.attribute or "all"),
            extra={"detector": watcher.kind, "attribute": watcher.attribute},
        )

    def _add_exemplars(self, batch: Sequence[Waiting], result: ScoringResult) -> None:
        """Keep the request ids of some predictions above the baseline, as exemplars.

        None that was withheld: its exemplar would show the signals that the response masks.
        """
        assert result.verdicts is not None
        assert result.actions is not None
        above = (result.verdicts == Verdict.ABOVE).any(1) & (result.actions < Action.WITHHOLD)
        ends = np.cumsum([len(waiting.features) for waiting in batch])
        for row in np.flatnonzero(above)[:_MAX_EXEMPLARS].tolist():
            owner = batch[int(np.searchsorted(ends, row, side="right"))]
            self._exemplar_ids.append((self._rows + row, self._shown_as(owner.request_id)))
