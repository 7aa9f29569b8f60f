"""Alarms of the drift watch: each stays until acknowledged, and has a likely cause.

An expected change or a flip share rises either because the population of requests has changed
(`covariates`) or because the classifier treats the same people differently (`treatment`). The
status posterior depends on features only, so a change of it means `covariates`. The margin depends
on both: if the population changes the margin tends to move first, if the treatment by group changes
the expected change does. Hence the cause is

- `covariates` as soon as the statistic of a status detector is above the hint level, or that of the
  margin detector is, and has been for longer than that of the attribute's own change detector;
- `treatment` if neither has happened within `PATIENCE` predictions after the alarm;
- `unclear` until then.

A cause that is not `unclear` is final. An alarm of the margin gets a cause from status detectors
only; an alarm of a status detector is `covariates`. The cause is a hint where to look first; no
guarantee covers it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from monitor.drift.reference import DetectorId, Layout

__all__ = ["HINT", "Alarm", "Alarms", "Cause"]

Cause = Literal["covariates", "treatment", "unclear"]
Bool = NDArray[np.bool_]
Int = NDArray[np.int64]

# Shiryaev–Roberts statistic from which a detector hints at a change.
HINT = 1e5
# Number of predictions after an alarm in which other detectors can still decide its cause.
PATIENCE = 1_000
_NEVER = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A detected change.

    Attributes:
        watcher: Detector that raised it, and its attribute.
        at: Number of the prediction that raised it, counted from 1.
        value: Log of the evidence at that prediction.
        cause: Likely cause.
        decides_at: Number of the prediction at which an unclear cause becomes `treatment`.
    """

    watcher: DetectorId
    at: int
    value: float
    cause: Cause
    decides_at: int = field(repr=False)


class Alarms:
    """Unacknowledged alarms.

    Attributes:
        latched: Alarms by watcher.
        raised_for: Number of predictions for which every change detector has been above the hint
            level, `[d]`.
    """

    def __init__(self, layout: Layout) -> None:
        kinds = [detector.kind for detector in layout.detectors]
        self._margin = kinds.index("margin")
        self._status = [index for index, kind in enumerate(kinds) if kind == "status"]
        self._change = {name: index for index, name in enumerate(layout.groups)}
        self.latched: dict[DetectorId, Alarm] = {}
        self.raised_for = np.zeros(len(kinds), np.int64)

    def latch(self, watcher: DetectorId, at: int, value: float) -> None:
        """Raise an alarm, unless there is one of the same watcher."""
        if watcher not in self.latched:
            waits = watcher.kind in ("share", "change")
            self.latched[watcher] = Alarm(
                watcher=watcher,
                at=at,
                value=value,
                cause="covariates" if watcher.kind == "status" else "unclear",
                decides_at=at + PATIENCE if waits else _NEVER,
            )

    def decide_causes(self, first: int, n: int, raised: Bool | None) -> None:
        """Decide causes after predictions `first` to `first + n − 1`.

        Args:
            first: Number of the first prediction.
            n: Number of predictions.
            raised: Whether a detector was above the hint level after a prediction, `[d, n]`; None
                if none was.
        """
        if raised is None:
            self.raised_for[:] = 0
            lengths = None
        else:
            lengths = _lengths(raised, self.raised_for)
            self.raised_for = lengths[:, -1]
        for watcher, alarm in self.latched.items():
            if alarm.cause == "unclear" and alarm.at < first + n:
                self.latched[watcher] = self._decided(alarm, first, first + n - 1, lengths)

    def merge(self, other: Alarms, *, seen: int, other_seen: int) -> None:
        """Add another replica's alarms; of two by one watcher, the decided or else earlier one.

        Numbers of predictions stay; an unclear cause keeps its remaining time.
        """
        merged = {
            w: replace(a, decides_at=a.decides_at + other_seen) for w, a in self.latched.items()
        }
        for watcher, alarm in other.latched.items():
            waiting = replace(alarm, decides_at=alarm.decides_at + seen)
            both = [merged.get(watcher, waiting), waiting]
            merged[watcher] = min(both, key=lambda alarm: (alarm.cause == "unclear", alarm.at))
        self.latched = merged
        self.raised_for = np.maximum(self.raised_for, other.raised_for)

    def _decided(self, alarm: Alarm, first: int, last: int, lengths: Int | None) -> Alarm:
        if lengths is not None:
            covariates: Bool = np.logical_or.reduce(lengths[self._status] > 0)
            if alarm.watcher.attribute is not None:
                change = self._change[alarm.watcher.attribute]
                covariates |= lengths[self._margin] > lengths[change]
            start = max(alarm.at - first, 0)
            steps = np.flatnonzero(covariates[start:])
            if len(steps) and first + start + steps[0] < alarm.decides_at:
                return replace(alarm, cause="covariates")
        return replace(alarm, cause="treatment") if last >= alarm.decides_at else alarm


def _lengths(raised: Bool, before: Int) -> Int:
    """Run length of `raised` per detector after every prediction, `[d, n]`."""
    steps = np.arange(1, raised.shape[1] + 1)
    fell = np.maximum.accumulate(np.where(raised, 0, steps), axis=1)
    return steps - fell + np.where(fell == 0, before[:, None], 0)
