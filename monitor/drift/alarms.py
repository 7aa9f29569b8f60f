"""Alarms of the drift watch: each stays until acknowledged, and has a likely cause.

An expected change rises because the population of requests has changed (`covariates`), because the
classifier has changed (`model`), or because it treats groups otherwise than before (`treatment`).
The status posterior depends on features only, so a change of it means `covariates`. The margin
depends on both: if the population changes the margin tends to move first, if the treatment by group
changes the expected change does. Whether groups are treated otherwise is a question for the flip
share since the alarm (`monitor.drift.effect`). Hence the cause of an alarm `change` is

- `covariates` as soon as the statistic of a status detector is above the hint level, or that of the
  margin detector is, and has been for longer than that of the attribute's own change detector;
- `treatment` if the flip share since the alarm is shown to be above the baseline's, at the earliest
  `SETTLE` predictions after the alarm, in which the population can still turn out to be the cause;
- `model` if neither has happened within `PATIENCE` predictions after the alarm. It becomes
  `treatment` if the flip share is shown to have risen later;
- `unclear` until then.

An alarm `share` shows by itself that the flip share rose: its cause is `covariates` by the same
rule, otherwise `treatment` after `PATIENCE` predictions. An alarm of the margin gets a cause from
status detectors only; an alarm of a status detector is `covariates`. `covariates` and `treatment`
are final. Whether the flip share rose is tested at the level of the watch; no guarantee covers the
distinction between population and classifier.

An alarm calls for a person at once (`pages`) if it is a `share`, or a `change` whose cause is
`treatment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from monitor.drift.effect import Effect
    from monitor.drift.reference import DetectorId, Layout

__all__ = ["HINT", "PATIENCE", "SETTLE", "Alarm", "Alarms", "Cause"]

Cause = Literal["covariates", "model", "treatment", "unclear"]
Bool = NDArray[np.bool_]
Int = NDArray[np.int64]

# Shiryaev–Roberts statistic from which a detector hints at a change.
HINT = 1e5
# Number of predictions after an alarm in which other detectors can still decide its cause.
PATIENCE = 1_000
# Number of predictions after an alarm `change` before it can be attributed to treatment.
SETTLE = 200
_NEVER = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A detected change.

    Attributes:
        watcher: Detector that raised it, and its attribute.
        at: Number of the prediction that raised it, counted from 1.
        value: Log of the evidence at that prediction.
        cause: Likely cause.
        decides_at: Number of the prediction at which an unclear cause becomes `model`, or
            `treatment` for an alarm `share`.
        effect: What happened to people since an alarm `change`; None for other alarms.
    """

    watcher: DetectorId
    at: int
    value: float
    cause: Cause
    decides_at: int = field(repr=False)
    effect: Effect | None = None

    @property
    def pages(self) -> bool:
        """Whether the alarm shows that more decisions depend on a group than in the baseline."""
        kind, cause = self.watcher.kind, self.cause
        return kind == "share" or (kind == "change" and cause == "treatment")

    @property
    def settles_at(self) -> int:
        """Number of the first prediction at which a `change` can be attributed to treatment."""
        return self.decides_at - PATIENCE + SETTLE


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

    def decide_causes(
        self, first: int, n: int, raised: Bool | None, rose: Mapping[str, int] | None = None
    ) -> None:
        """Decide causes after predictions `first` to `first + n − 1`.

        Args:
            first: Number of the first prediction.
            n: Number of predictions.
            raised: Whether a detector was above the hint level after a prediction, `[d, n]`; None
                if none was.
            rose: Attributes whose flip share since the alarm `change` is shown to be above the
                baseline's, and the number of the prediction that showed it.
        """
        if raised is None:
            self.raised_for[:] = 0
            lengths = None
        else:
            lengths = _lengths(raised, self.raised_for)
            self.raised_for = lengths[:, -1]
        for watcher, alarm in self.latched.items():
            risen = (rose or {}).get(watcher.attribute or "") if watcher.kind == "change" else None
            if alarm.cause == "unclear" and alarm.at < first + n:
                alarm = self._decided(alarm, first, first + n - 1, lengths, risen)
            if alarm.cause == "model" and risen is not None:
                alarm = replace(alarm, cause="treatment")
            self.latched[watcher] = alarm

    def merge(self, other: Alarms, *, seen: int, other_seen: int) -> list[DetectorId]:
        """Add another replica's alarms; of two by one watcher, the one that is farther decided.

        An alarm `change` with the cause `treatment` comes before other causes, a decided cause
        before an unclear one, and the earlier alarm before the later. Numbers of predictions stay;
        an unclear cause keeps its remaining time.

        Returns:
            Watchers whose alarm is the other replica's.
        """
        merged = {
            w: replace(a, decides_at=a.decides_at + other_seen) for w, a in self.latched.items()
        }
        taken = []
        for watcher, alarm in other.latched.items():
            if watcher not in merged or _precedence(alarm) < _precedence(merged[watcher]):
                merged[watcher] = replace(alarm, decides_at=alarm.decides_at + seen)
                taken.append(watcher)
        self.latched = merged
        self.raised_for = np.maximum(self.raised_for, other.raised_for)
        return taken

    def _decided(
        self, alarm: Alarm, first: int, last: int, lengths: Int | None, risen: int | None
    ) -> Alarm:
        """The alarm with its cause, if predictions `first` to `last` decide it."""
        attributed = _NEVER if risen is None else max(risen, alarm.settles_at)
        if lengths is not None:
            covariates: Bool = np.logical_or.reduce(lengths[self._status] > 0)
            if alarm.watcher.attribute is not None:
                change = self._change[alarm.watcher.attribute]
                covariates |= lengths[self._margin] > lengths[change]
            start = max(alarm.at - first, 0)
            steps = np.flatnonzero(covariates[start:])
            step = first + start + int(steps[0]) if len(steps) else _NEVER
            if step < alarm.decides_at and step <= attributed:
                return replace(alarm, cause="covariates")
        if attributed <= last:
            return replace(alarm, cause="treatment")
        if last < alarm.decides_at:
            return alarm
        return replace(alarm, cause="model" if alarm.watcher.kind == "change" else "treatment")


def _precedence(alarm: Alarm) -> tuple[bool, bool, int]:
    return alarm.watcher.kind == "change" and not alarm.pages, alarm.cause == "unclear", alarm.at


def _lengths(raised: Bool, before: Int) -> Int:
    """Run length of `raised` per detector after every prediction, `[d, n]`."""
    steps = np.arange(1, raised.shape[1] + 1)
    fell = np.maximum.accumulate(np.where(raised, 0, steps), axis=1)
    return steps - fell + np.where(fell == 0, before[:, None], 0)
