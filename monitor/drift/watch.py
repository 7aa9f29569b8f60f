"""The drift watch of one deployed classifier."""

from __future__ import annotations

import math
import secrets
from typing import Self

import numpy as np
from numpy.typing import NDArray

from monitor.drift.alarms import HINT, Alarm, Alarms
from monitor.drift.detector import CHUNK, Detectors, Evidence
from monitor.drift.reference import DriftReference, Watcher
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
        reference: Of the bundle.
        bundle_digest: The digest of its manifest.
        note: Why the watch started afresh where a saved state was given; empty otherwise.
        streams: Random names of the streams whose predictions it has counted: one of its own, of
            which a saved state goes on, and of replicas the names of all.
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
        self._telling = min(HINT, run_length)
        self._detectors = Detectors(reference)
        self._alarms = Alarms(self._layout)
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
        """Begin to watch.

        Args:
            reference: From the bundle.
            bundle_digest: Which bundle it is: a saved state of another is not continued.
            level: α, of every band and of the separation of bands.
            run_length: c, predictions to a false alarm of a change detector, at least.
            window: Predictions of the rolling band, a multiple of 40.
            rng: For the ranks of ties; a new one by default.

        Raises:
            ValueError: A parameter cannot be used.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}; it must lie between 0 and 1")
        if not 1e4 <= run_length <= 1e30:
            raise ValueError(f"run_length is {run_length:g}; it must lie in [1e4, 1e30]")
        if window < 1 or window % (BLOCKS * CHECKS):
            raise ValueError(f"window is {window}; it must be a multiple of {BLOCKS * CHECKS}")
        if window > run_length:
            raise ValueError(f"window is {window}; it must not exceed the run length")
        rng = np.random.default_rng() if rng is None else rng
        return cls(reference, bundle_digest, level, run_length, window, rng)

    def update(self, batch: Predictions) -> None:
        """Take in predictions, any number, in their order.

        How they are batched makes no difference.

        Raises:
            ValueError: They do not fit the reference; nothing was taken in.
        """
        columns = self._layout.columns(batch)
        seen, n = self._separation.seen, columns.shape[1]
        flips = [batch.attributes[name].hard_flips.tolist() for name in self._names]
        for at, place, value in self._separation.update(flips):
            self._alarms.latch(Watcher("share", self._names[place]), at, value)
        uniforms = self._rng.random((n, len(columns)))
        for start in range(0, n, CHUNK):
            chunk = slice(start, start + CHUNK)
            self._detect(seen + start, columns[:, chunk], uniforms[chunk])

    @property
    def seen(self) -> int:
        """Predictions since the start."""
        return self._separation.seen

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms that were not acknowledged, the earliest first."""
        return tuple(sorted(self._alarms.latched.values(), key=lambda alarm: alarm.at))

    def share(self, attribute: str) -> FlipShare:
        """The flip share of an attribute and its bands.

        Raises:
            ValueError: That attribute is not watched.
        """
        if attribute not in self._names:
            raise ValueError(f"{attribute!r} is not watched; {', '.join(self._names)} is")
        place = self._names.index(attribute)
        all_time, rolling = self._separation.all_time(place), self._separation.rolling(place)
        return FlipShare(
            n=int(all_time.count),
            share=all_time.share,
            band=all_time.band(self.level),
            rolling_n=int(rolling.count),
            rolling_share=rolling.share,
            rolling_band=rolling.band(self.level),
            baseline=self.reference.shares[attribute].band(self.level),
        )

    @property
    def evidence(self) -> dict[Watcher, Evidence]:
        """The evidence of each change detector."""
        log_sr, log_e_value = self._detectors.evidence()
        # A prediction without a posterior is missing in the columns of all groups, and is one.
        unusable = np.zeros(len(log_sr))
        np.maximum.at(unusable, self._layout.owners, self._detectors.counts[:, 0])
        return {
            watcher: Evidence(log_sr=float(sr), log_e_value=float(e), unusable=int(lost))
            for watcher, sr, e, lost in zip(
                self._layout.detectors, log_sr, log_e_value, unusable, strict=True
            )
        }

    def acknowledge(self, watcher: Watcher) -> None:
        """Take an alarm down and restart what raised it; other alarms stay as they are.

        A change detector forgets its evidence and all it has counted: what comes from now on is its
        new normal. A flip share is counted anew, against the same baseline: if it is still above,
        the alarm will come again, until the bundle gets a new baseline.

        Raises:
            ValueError: There is no such alarm.
        """
        if watcher not in self._alarms.latched:
            raise ValueError(f"no alarm of {watcher.kind} {watcher.attribute or ''}".rstrip())
        del self._alarms.latched[watcher]
        if watcher.kind == "share":
            self._separation.restart(self._names.index(str(watcher.attribute)))
        else:
            self._detectors.restart(self._layout.detectors.index(watcher))

    def to_npz(self) -> bytes:
        """The state as bytes; the reference is not in it."""
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
        """Go on from a saved state.

        Where that is of another bundle or window, cannot be read, or holds what no stream could
        have shown, the watch starts afresh and `note` says why. Level and run length may differ:
        they only place the bars.
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
        """What two replicas of one bundle have seen together, as a new watch.

        Sums of shares and counts add, the reference counted once; Shiryaev–Roberts statistics add,
        e-values are averaged, alarms unite. E[R₁ + R₂] is at most the number of all predictions, so
        an alarm at a moment fixed beforehand keeps P ≤ T/c; of m replicas, watched all the time, at
        most mT/c, as one of them must then have reached c/m. The rolling band is that of the last
        blocks of both, and is shown only: an alarm of merging is by all-time shares, and later ones
        also by windows that begin after it.

        Raises:
            ValueError: They are not of the same bundle and parameters, have counted the same
                predictions, or are of too many streams.
        """
        if self._terms != other._terms:
            raise ValueError("only replicas of the same bundle and parameters can be merged")
        if self.streams & other.streams:
            raise ValueError("replicas that have counted the same predictions cannot be merged")
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
        both._detectors.absorb(other._detectors)
        both._separation.absorb(other._separation)
        both._alarms.absorb(other._alarms, seen=self.seen, other_seen=other.seen)
        both._latch_merged()
        return both

    @property
    def _parts(self) -> tuple[Detectors, Separation, Alarms]:
        return self._detectors, self._separation, self._alarms

    @property
    def _terms(self) -> tuple[str, float, float, int]:
        """What replicas have to agree in."""
        return self.bundle_digest, self.level, self.run_length, self.window

    def _latch_merged(self) -> None:
        """Alarms that only the replicas' evidence together raises."""
        for watcher, evidence in self.evidence.items():
            if evidence.log_sr >= math.log(self.run_length):
                self._alarms.latch(watcher, self.seen, evidence.log_sr)
        for at, place, value in self._separation.separated():
            self._alarms.latch(Watcher("share", self._names[place]), at, value)

    def _detect(self, seen: int, columns: Float, uniforms: Float) -> None:
        """Take in a chunk that follows on so many predictions."""
        logs = self._detectors.update(columns, uniforms, self._telling)
        if logs is not None:
            above = logs >= math.log(self.run_length)
            for place in np.flatnonzero(above.any(1)).tolist():
                step = int(above[place].argmax())
                watcher = self._layout.detectors[place]
                self._alarms.latch(watcher, seen + step + 1, float(logs[place, step]))
        raised = None if logs is None else logs >= math.log(HINT)
        self._alarms.settle(seen + 1, columns.shape[1], raised)
