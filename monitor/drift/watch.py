"""The drift watch of one deployed classifier."""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from monitor.drift.alarms import HINT, Alarm, Alarms
from monitor.drift.bound import ShareBound, ShareBounds
from monitor.drift.detector import CHUNK, Detectors, Evidence
from monitor.drift.effect import Effects
from monitor.drift.reference import DetectorId, DriftReference
from monitor.drift.separation import BLOCKS, CHECKS, Separation
from monitor.drift.share import FlipShare
from monitor.drift.state import MOST_STREAMS, StateError, read_state, write_state
from monitor.scoring.scores import Predictions

__all__ = ["Drift"]

Float = NDArray[np.float64]


class Drift:
    """Watches a stream of predictions.

    Example:
        >>> drift = Drift.start(reference, bundle_digest=digest)
        >>> drift.update(batch)
        >>> drift.alarms
        ()

    Attributes:
        reference: Reference of the bundle.
        bundle_digest: Digest of the bundle's manifest.
        note: Reason why a saved state was not continued; empty otherwise.
        streams: Random names of the streams whose predictions it has counted: its own, which a
            saved state continues, and after a merge those of all replicas.
    """

    def __init__(
        self,
        reference: DriftReference,
        bundle_digest: str,
        level: float,
        run_length: float,
        window: int,
        rng: np.random.Generator,
    ) -> None:
        self.reference, self.bundle_digest, self.note = reference, bundle_digest, ""
        self.level, self.run_length, self.window = level, run_length, window
        self._layout, self._names, self._rng = reference.layout, list(reference.shares), rng
        self.streams = frozenset([secrets.token_hex(8)])
        self._report_level = min(HINT, run_length)
        self._detectors = Detectors(reference)
        self._alarms = Alarms(self._layout)
        self._effects = Effects(
            tuple(reference.shares.values()),
            tuple(self._layout.groups.values()),
            [reference.changes.get(name) for name in self._names],
            alpha=level,
        )
        self._bounds = ShareBounds(self._layout, alpha=level)
        self._separation = Separation(
            tuple(reference.shares.values()), alpha=level, run_length=run_length, window=window
        )

    @classmethod
    def start(
        cls,
        reference: DriftReference,
        *,
        bundle_digest: str,
        level: float = 0.01,
        run_length: float = 1e6,
        window: int = 10_000,
        rng: np.random.Generator | None = None,
    ) -> Self:
        """Start a new watch.

        Args:
            reference: Reference of the bundle.
            bundle_digest: Digest of the bundle's manifest; a state of another bundle is not
                continued.
            level: Level α of every band and of the alarm `share`.
            run_length: Lower bound c on the mean number of predictions to a false alarm of a
                change detector.
            window: Number of predictions of the rolling band, a multiple of 40.
            rng: Random generator that breaks ties; a new one by default.

        Raises:
            ValueError: A parameter is out of range.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; it must be between 0 and 1")
        if not 1e4 <= run_length <= 1e30:
            raise ValueError(f"run_length is {run_length:g}; it must be in [1e4, 1e30]")
        if window < 1 or window % (BLOCKS * CHECKS):
            raise ValueError(f"window is {window}; it must be a multiple of {BLOCKS * CHECKS}")
        if window > run_length:
            raise ValueError(
                f"drift.window is {window}; it must be at most drift.run_length, which is "
                f"{run_length:g}"
            )
        rng = np.random.default_rng() if rng is None else rng
        return cls(reference, bundle_digest, level, run_length, window, rng)

    def update(self, batch: Predictions) -> None:
        """Add predictions in the order of the stream; the result does not depend on batching.

        Raises:
            ValueError: They do not match the reference; nothing was added.
        """
        columns = self._layout.columns(batch)
        seen, n = self._separation.seen, columns.shape[1]
        self._bounds.add(seen, batch)
        flips = [batch.attributes[name].hard_flips.tolist() for name in self._names]
        for at, index, value in self._separation.update(flips):
            self._alarms.latch(DetectorId("share", self._names[index]), at, value)
        uniforms = self._rng.random((n, len(columns)))
        for start in range(0, n, CHUNK):
            chunk = slice(start, start + CHUNK)
            raised = self._detect(seen + start, columns[:, chunk], uniforms[chunk])
            rose = self._follow(seen + start, batch, flips, chunk)
            self._alarms.decide_causes(seen + start + 1, len(uniforms[chunk]), raised, rose)

    @property
    def seen(self) -> int:
        """Number of predictions since the start."""
        return self._separation.seen

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Unacknowledged alarms, the earliest first."""
        alarms = [
            replace(alarm, effect=self._effects.read(self._index(watcher.attribute)))
            if watcher.kind == "change"
            else alarm
            for watcher, alarm in self._alarms.latched.items()
        ]
        return tuple(sorted(alarms, key=lambda alarm: alarm.at))

    def share(self, attribute: str) -> FlipShare:
        """Flip share of an attribute, with its bands.

        Raises:
            ValueError: The attribute is unknown.
        """
        index = self._index(attribute)
        all_time, rolling = self._separation.all_time(index), self._separation.rolling(index)
        return FlipShare(
            n=int(all_time.count),
            share=all_time.share,
            band=all_time.band(self.level),
            rolling_n=int(rolling.count),
            rolling_share=rolling.share,
            rolling_band=rolling.band(self.level),
            baseline=self.reference.shares[attribute].band(self.level),
        )

    def share_bound(self, attribute: str) -> ShareBound:
        """Lower bound on the flip share of an attribute, for the predictions of its all-time band.

        Raises:
            ValueError: The attribute is unknown.
        """
        return self._bounds.read(self._index(attribute))

    def is_below_bound(self, attribute: str) -> bool:
        """Whether the all-time band of a flip share is entirely below the bound's lower end.

        Raises:
            ValueError: The attribute is unknown.
        """
        index = self._index(attribute)
        return self._bounds.exceeds(index, self._separation.all_time(index))

    @property
    def evidence(self) -> dict[DetectorId, Evidence]:
        """Evidence of every change detector."""
        log_sr, log_e_value = self._detectors.evidence()
        # A prediction without a posterior is NaN in the columns of all groups, and counts once.
        unusable = np.zeros(len(log_sr))
        np.maximum.at(unusable, self._layout.owners, self._detectors.counts[:, 0])
        return {
            watcher: Evidence(log_sr=float(sr), log_e_value=float(e), unusable=int(count))
            for watcher, sr, e, count in zip(
                self._layout.detectors, log_sr, log_e_value, unusable, strict=True
            )
        }

    def acknowledge(self, watcher: DetectorId) -> None:
        """Clear an alarm and restart its watcher; other alarms stay.

        A change detector drops its evidence and its counts: predictions from now on are its new
        reference. A flip share and its lower bound are counted again, against the same baseline: if
        the share is still above, the alarm is raised again, until the bundle gets a new baseline.

        Raises:
            ValueError: There is no such alarm.
        """
        if watcher not in self._alarms.latched:
            raise ValueError(f"there is no alarm {watcher.kind} {watcher.attribute or ''}".rstrip())
        del self._alarms.latched[watcher]
        if watcher.kind == "share":
            self._separation.restart(self._index(watcher.attribute))
            self._bounds.restart(self._index(watcher.attribute))
        else:
            self._detectors.restart(self._layout.detectors.index(watcher))
        if watcher.kind == "change":
            self._effects.restart(self._index(watcher.attribute))

    def to_npz(self) -> bytes:
        """State of the watch as bytes, without the reference."""
        return write_state(
            self._parts,
            bundle_digest=self.bundle_digest,
            window=self.window,
            streams=self.streams,
        )

    @classmethod
    def from_npz(
        cls,
        data: bytes,
        reference: DriftReference,
        *,
        bundle_digest: str,
        level: float = 0.01,
        run_length: float = 1e6,
        window: int = 10_000,
        rng: np.random.Generator | None = None,
    ) -> Self:
        """Continue from a saved state; see `start` for the parameters.

        If the state belongs to another bundle or window, is damaged or is impossible, a new watch
        starts and `note` has the reason. Level and run length may differ from those of the state,
        since only thresholds depend on them.
        """
        drift = cls.start(
            reference,
            bundle_digest=bundle_digest,
            level=level,
            run_length=run_length,
            window=window,
            rng=rng,
        )
        try:
            drift.streams = read_state(
                data, drift._parts, reference, bundle_digest=bundle_digest, window=window
            )
        except StateError as error:
            drift.note = str(error)
        return drift

    def merged(self, other: Drift) -> Drift:
        """A new watch with the predictions of two replicas of one bundle.

        Sums of shares and counts add, with the reference counted once; Shiryaev–Roberts statistics
        add, e-values are averaged, alarms are united. E[R₁ + R₂] is at most the number of all
        predictions, so P(false alarm) ≤ T/c holds at a time fixed in advance. For m replicas that
        are monitored continuously the bound is mT/c, since one of them must have reached c/m. The
        rolling band of the merged watch covers the last blocks of both and is informative only:
        merging raises alarms by all-time shares, and later also by windows that begin after it.

        Raises:
            ValueError: The replicas differ in bundle or parameters, have counted the same
                predictions, or have too many streams.
        """
        if self._parameters != other._parameters:
            raise ValueError("only replicas of the same bundle and parameters can be merged")
        if self.streams & other.streams:
            raise ValueError(
                "replicas that have counted the same predictions cannot be merged; merge each "
                "saved state once"
            )
        if len(self.streams | other.streams) > MOST_STREAMS:
            raise ValueError(f"replicas of more than {MOST_STREAMS} streams cannot be merged")
        both = Drift.from_npz(
            self.to_npz(),
            self.reference,
            bundle_digest=self.bundle_digest,
            level=self.level,
            run_length=self.run_length,
            window=self.window,
        )
        if both.note:
            raise ValueError(f"this watch cannot be merged: {both.note}")
        both.streams |= other.streams
        both._detectors.merge(other._detectors)
        both._separation.merge(other._separation)
        both._bounds.merge(other._bounds)
        taken = both._alarms.merge(other._alarms, seen=self.seen, other_seen=other.seen)
        for watcher in taken:
            if watcher.kind == "change":
                both._effects.take(self._index(watcher.attribute), other._effects)
        both._latch_merged()
        return both

    @property
    def _parts(self) -> tuple[Detectors, Separation, Alarms, Effects, ShareBounds]:
        return self._detectors, self._separation, self._alarms, self._effects, self._bounds

    def _index(self, attribute: str | None) -> int:
        if attribute is None or attribute not in self._names:
            raise ValueError(
                f"attribute {attribute!r} is unknown; known are {', '.join(self._names)}"
            )
        return self._names.index(attribute)

    @property
    def _parameters(self) -> tuple[str, float, float, int]:
        """Parameters that replicas must share."""
        return self.bundle_digest, self.level, self.run_length, self.window

    def _latch_merged(self) -> None:
        """Raise the alarms that follow from the combined evidence only."""
        for watcher, evidence in self.evidence.items():
            if evidence.log_sr >= math.log(self.run_length):
                self._alarms.latch(watcher, self.seen, evidence.log_sr)
        for at, index, value in self._separation.separated():
            self._alarms.latch(DetectorId("share", self._names[index]), at, value)

    def _detect(self, seen: int, columns: Float, uniforms: Float) -> NDArray[np.bool_] | None:
        """Add a chunk of predictions, after `seen` earlier ones.

        Returns:
            Whether a detector is above the hint level after a prediction, `[d, n]`; None if none
            is.
        """
        logs = self._detectors.update(columns, uniforms, self._report_level)
        if logs is None:
            return None
        above = logs >= math.log(self.run_length)
        for index in np.flatnonzero(above.any(1)).tolist():
            step = int(above[index].argmax())
            watcher = self._layout.detectors[index]
            self._alarms.latch(watcher, seen + step + 1, float(logs[index, step]))
        return logs >= math.log(HINT)

    def _follow(
        self, seen: int, batch: Predictions, flips: list[list[float]], chunk: slice
    ) -> dict[str, int]:
        """Add a chunk to the effects of alarms `change`, from the prediction after the alarm on.

        Returns:
            Attributes whose flip share rose since the alarm, and the number of the prediction that
            showed it, or of the chunk's first if it was shown before.
        """
        rose = {}
        for index, name in enumerate(self._names):
            alarm = self._alarms.latched.get(DetectorId("change", name))
            if alarm is None:
                continue
            if self._effects.rose[index]:
                rose[name] = seen + 1
            start = chunk.start + max(alarm.at - seen, 0)
            rows, signals = slice(start, chunk.stop), batch.attributes[name]
            step = self._effects.update(
                index,
                flips[index][rows],
                np.asarray(signals.expected_change[rows]),
                np.asarray(signals.posterior[rows]),
            )
            if step is not None:
                rose[name] = seen + start - chunk.start + step + 1
        return rose
