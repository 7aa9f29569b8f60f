"""The stream of judged predictions, once their answers have left: metrics and the drift watch.

What a batch adds is put aside and taken in by hundreds, which costs a tenth of one at a time and
makes no difference to any figure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from monitor.baseline import Signal
from monitor.batching import Waiting
from monitor.drift import Alarm, Drift, Predictions, Signals, Watcher
from monitor.errors import UnknownModelError
from monitor.judging import Judged
from monitor.logs import told_without_values
from monitor.metrics import ServingMetrics
from monitor.policy import Action, VerdictCode
from monitor.scores import AttributeColumns, ScoreColumns

__all__ = ["Stream", "watched_columns"]

Float = NDArray[np.floating]

_LOG = logging.getLogger(__name__)
_AT_ONCE = 256
_SOON = 0.25
# Of one batch, beside the histograms.
_MOST_NAMED = 4


class Stream:
    """Takes in judged predictions in the order in which they were judged."""

    def __init__(
        self,
        columns: ScoreColumns,
        drift: Drift | None,
        metrics: ServingMetrics | None,
        *,
        has_gradient: bool,
        exemplars: bool,
        shown_as: Callable[[str], str] = str,
    ) -> None:
        self._columns, self._drift, self._metrics = columns, drift, metrics
        self._has_gradient, self._exemplars = has_gradient, exemplars
        self._shown_as = shown_as
        self._aside: list[Judged] = []
        self._named: list[tuple[int, str]] = []
        self._rows = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._told_of: set[Watcher] = set()

    def take(self, batch: Sequence[Waiting], judged: Judged) -> None:
        """A batch whose answers have left."""
        if judged.verdicts is None:
            return
        if self._exemplars and (judged.verdicts == VerdictCode.ABOVE).any():
            self._name(batch, judged)
        self._aside.append(judged)
        self._rows += len(judged)
        if self._rows >= _AT_ONCE:
            self.settle()
        elif self._timer is None:
            self._timer = self._loop.call_later(_SOON, self.settle)

    def settle(self) -> None:
        """Take in what was put aside. It never raises: nobody waits for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lot, named = self._aside, self._named
        self._aside, self._named, self._rows = [], [], 0
        if not lot:
            return
        self._try(partial(self._count, lot, named))
        self._try(partial(self._watch, [j.scores for j in lot if j.scores is not None]))

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the sidecar must outlive its watch
            _LOG.error("the stream was not taken in: %s", told_without_values(error))
            if self._metrics is not None:
                self._metrics.faults.inc()

    def _count(self, lot: list[Judged], named: list[tuple[int, str]]) -> None:
        if self._metrics is None:
            return
        verdicts = np.concatenate([j.verdicts for j in lot if j.verdicts is not None])
        actions = np.concatenate([j.actions for j in lot if j.actions is not None])
        width = self._columns.width
        scores = np.concatenate(
            [np.full((len(j), width), np.nan) if j.scores is None else j.scores for j in lot]
        )
        self._metrics.count_judged(verdicts, actions, self._signals(scores), named)

    def _signals(self, scores: Float) -> dict[str, dict[Signal, Float]]:
        assert self._metrics is not None
        shown = self._metrics.attributes
        return {
            name: _signals(scores, columns, has_gradient=self._has_gradient)
            for name, columns in self._columns.attributes.items()
            if name in shown
        }

    def _watch(self, scores: list[NDArray[np.float32]]) -> None:
        if self._drift is None or not scores:
            return
        self._drift.update(watched_columns(np.concatenate(scores), self._columns))
        for alarm in self._drift.alarms:
            if alarm.watcher not in self._told_of:
                self._told_of.add(alarm.watcher)
                _LOG.warning(
                    "drift alarm: %s of %s at prediction %d, likely %s",
                    *(alarm.watcher.kind, alarm.watcher.attribute or "all", alarm.at, alarm.cause),
                )

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms of the drift watch that nobody has acknowledged."""
        self.settle()
        return () if self._drift is None else self._drift.alarms

    def acknowledge(self, watcher: Watcher) -> None:
        """Take an alarm down; the next of its kind is told of again.

        Raises:
            UnknownModelError: There is no such alarm.
        """
        self.settle()
        if self._drift is None or watcher not in {alarm.watcher for alarm in self._drift.alarms}:
            raise UnknownModelError("there is no such alarm")
        self._drift.acknowledge(watcher)
        self._told_of.discard(watcher)
        _LOG.warning("alarm acknowledged: %s of %s", watcher.kind, watcher.attribute or "all")

    def _name(self, batch: Sequence[Waiting], judged: Judged) -> None:
        """Note the request ids of some predictions above the baseline.

        Of none that was withheld: beside its id its signals would stand, which the answer masks.
        """
        assert judged.verdicts is not None
        assert judged.actions is not None
        above = (judged.verdicts == VerdictCode.ABOVE).any(1) & (judged.actions < Action.WITHHOLD)
        ends = np.cumsum([len(waiting.features) for waiting in batch])
        for place in np.flatnonzero(above)[:_MOST_NAMED].tolist():
            owner = batch[int(np.searchsorted(ends, place, side="right"))]
            self._named.append((self._rows + place, self._shown_as(owner.request_id)))


def _signals(
    scores: Float, columns: AttributeColumns, *, has_gradient: bool
) -> dict[Signal, Float]:
    found: dict[Signal, Float] = {
        "expected_change": scores[:, columns.expected_change],
        "flip_probability": scores[:, columns.flip_probability],
    }
    if has_gradient:
        found["prediction_sensitivity"] = scores[:, columns.log_prediction_sensitivity]
    return found


def watched_columns(scores: NDArray[np.float32], columns: ScoreColumns) -> Predictions:
    """What the drift watch follows, out of the columns of the joint pass, `[n, w]`."""
    wide = scores.astype(np.float64)
    attributes: Mapping[str, AttributeColumns] = columns.attributes
    return Predictions(
        margin=wide[:, columns.signed_margin],
        attributes={
            name: Signals(
                hard_flips=wide[:, places.hard_flips],
                expected_change=wide[:, places.expected_change],
                posterior=wide[:, places.posterior],
            )
            for name, places in attributes.items()
        },
    )
