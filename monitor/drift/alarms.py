"""Alarms of the drift watch: they stay until acknowledged, and say what they most likely mean.

An expected change or a flip share rises because other people come (`covariates`), or because the
classifier treats the same people differently (`treatment`). The status posterior depends on
features only, so when it moves, people have changed. The margin depends on both; where people
change it tends to move first, where treatment by group changes the expected change does. Hence:

- `covariates`, as soon as a status detector stands above the hint level, or the margin's does and
  has for longer than the attribute's own change detector;
- `treatment`, once neither has happened for some time after the alarm;
- `unclear` until then.

What is once settled stays. An alarm of the margin is settled by a status detector only, one of a
status detector is `covariates` by itself. The cause is a hint to where to look first; it is not
part of any guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from monitor.drift.reference import Layout, Watcher

__all__ = ["HINT", "Alarm", "Alarms", "Cause"]

Cause = Literal["covariates", "treatment", "unclear"]
Bool = NDArray[np.bool_]
Int = NDArray[np.int64]

# Shiryaev–Roberts statistic from which a detector hints at a change.
HINT = 1e5
# Predictions after an alarm in which the other detectors may still speak.
PATIENCE = 1_000
_NEVER = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """That something has changed.

    Attributes:
        watcher: Which detector, and of which attribute.
        at: The number of the prediction, from 1 on, that raised it.
        value: The log of its evidence there.
        cause: What it most likely means.
        decides_at: The number of the prediction at which an unclear cause becomes `treatment`.
    """

    watcher: Watcher
    at: int
    value: float
    cause: Cause
    decides_at: int = field(repr=False)


class Alarms:
    """The alarms that nobody has acknowledged yet.

    Attributes:
        latched: By watcher.
        raised_for: For how many predictions each change detector has stood above the hint, `[d]`.
    """

    def __init__(self, layout: Layout) -> None:
        kinds = [detector.kind for detector in layout.detectors]
        self._margin = kinds.index("margin")
        self._status = [place for place, kind in enumerate(kinds) if kind == "status"]
        self._change = {name: place for place, name in enumerate(layout.groups)}
        self.latched: dict[Watcher, Alarm] = {}
        self.raised_for = np.zeros(len(kinds), np.int64)

    def latch(self, watcher: Watcher, at: int, value: float) -> None:
        """Raise an alarm, unless it stands already."""
        if watcher not in self.latched:
            waits = watcher.kind in ("share", "change")
            self.latched[watcher] = Alarm(
                watcher=watcher,
                at=at,
                value=value,
                cause="covariates" if watcher.kind == "status" else "unclear",
                decides_at=at + PATIENCE if waits else _NEVER,
            )

    def settle(self, first: int, n: int, raised: Bool | None) -> None:
        """Judge causes after predictions `first` to `first + n − 1`.

        Args:
            first: The number of the first prediction.
            n: How many.
            raised: Whether each detector stood above the hint after each, `[d, n]`; None where
                none did.
        """
        if raised is None:
            self.raised_for[:] = 0
            lengths = None
        else:
            lengths = _lengths(raised, self.raised_for)
            self.raised_for = lengths[:, -1]
        for watcher, alarm in self.latched.items():
            if alarm.cause == "unclear" and alarm.at < first + n:
                self.latched[watcher] = self._judged(alarm, first, first + n - 1, lengths)

    def absorb(self, other: Alarms, *, seen: int, other_seen: int) -> None:
        """Take in another replica's alarms; of two that are the same, the settled or earlier one.

        Predictions keep their numbers; what is unclear keeps its time to wait.
        """
        mine = {
            w: replace(a, decides_at=a.decides_at + other_seen) for w, a in self.latched.items()
        }
        for watcher, alarm in other.latched.items():
            waiting = replace(alarm, decides_at=alarm.decides_at + seen)
            both = [mine.get(watcher, waiting), waiting]
            mine[watcher] = min(both, key=lambda alarm: (alarm.cause == "unclear", alarm.at))
        self.latched = mine
        self.raised_for = np.maximum(self.raised_for, other.raised_for)

    def _judged(self, alarm: Alarm, first: int, last: int, lengths: Int | None) -> Alarm:
        if lengths is not None:
            told: Bool = np.logical_or.reduce(lengths[self._status] > 0)
            if alarm.watcher.attribute is not None:
                change = self._change[alarm.watcher.attribute]
                told |= lengths[self._margin] > lengths[change]
            start = max(alarm.at - first, 0)
            steps = np.flatnonzero(told[start:])
            if len(steps) and first + start + steps[0] < alarm.decides_at:
                return replace(alarm, cause="covariates")
        return replace(alarm, cause="treatment") if last >= alarm.decides_at else alarm


def _lengths(raised: Bool, before: Int) -> Int:
    """For how long each detector has been raised after each prediction, `[d, n]`."""
    steps = np.arange(1, raised.shape[1] + 1)
    fell = np.maximum.accumulate(np.where(raised, 0, steps), axis=1)
    return steps - fell + np.where(fell == 0, before[:, None], 0)
