"""Saves and restores the state of a drift watch.

A state is not authenticated: whoever can write it can set any state that a stream could have
produced. A state that no stream could have produced is rejected, so that damage is detected and
never makes the watch fail.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np

from monitor.drift.alarms import Alarm, Alarms, Cause
from monitor.drift.bound import ShareBounds
from monitor.drift.detector import LEAST_STEP, MOST_STEP, NOTHING, Detectors
from monitor.drift.effect import Effects
from monitor.drift.reference import DetectorId, DriftReference, Layout
from monitor.drift.separation import BLOCKS, Separation
from monitor.drift.share import usable_sums
from monitor.errors import ServeError
from monitor.npz import Arrays, read_npz, write_npz

__all__ = [
    "MOST_STREAMS",
    "StateError",
    "read_state",
    "read_state_file",
    "write_state",
    "write_state_file",
]

_VERSION = 3
# Number of replicas per state. Their names, at four bytes per letter, dominate a large header.
MOST_STREAMS = 10_000
_MOST_HEAD = 1 << 20
_STREAM = re.compile(r"[0-9a-f]{16}")
# Largest number of predictions that float64 counts exactly.
_MOST_SEEN = 1 << 53
_LATEST = 1 << 62
Parts = tuple[Detectors, Separation, Alarms, Effects, ShareBounds]


class StateError(Exception):
    """A saved state cannot be continued; the watch catches this and starts anew."""


def write_state(parts: Parts, *, bundle_digest: str, window: int, streams: frozenset[str]) -> bytes:
    """State as bytes, without the reference, which is in the bundle."""
    _, separation, alarms, _, _ = parts
    header = {
        "version": _VERSION,
        "bundle_digest": bundle_digest,
        "window": window,
        "streams": sorted(streams),
        "seen": separation.seen,
        "tested": separation.tested,
        "alarms": [_saved(alarm) for alarm in alarms.latched.values()],
    }
    return write_npz(header, _arrays(parts))


def read_state(
    data: bytes, parts: Parts, reference: DriftReference, *, bundle_digest: str, window: int
) -> frozenset[str]:
    """Restore a saved state into newly created parts.

    Returns:
        Names of the streams whose predictions the state counts.

    Raises:
        StateError: The state is damaged or impossible, or belongs to another bundle or window; the
            parts are unchanged.
    """
    try:
        _require(len(data) <= _MOST_HEAD + 2 * _size(_arrays(parts)), "is too large")
        header, arrays = read_npz(data)
        _check_origin(header, bundle_digest=bundle_digest, window=window)
        _check_arrays(arrays, _arrays(parts))
        seen, tested = header["seen"], header["tested"]
        _require(_is_int(seen, 0, _MOST_SEEN), "has an invalid number of predictions")
        _require(_is_int(tested, 0, BLOCKS), "has an invalid number of windows")
        streams = _streams(header["streams"])
        alarms = [_alarm(saved, reference.layout, seen) for saved in header["alarms"]]
        _check_detectors(arrays, reference, seen)
        _check_shares(arrays, seen)
        _check_effects(arrays, reference.layout, alarms, seen)
        _check_bounds(arrays, reference.layout)
        raised = arrays["raised_for"]
        _require(((raised >= 0) & (raised <= seen)).all(), "has invalid raised_for")
    except StateError:
        raise
    except Exception as error:  # noqa: BLE001 - damaged bytes can raise nearly any exception
        raise StateError(f"the saved state cannot be read: {error!r:.200}") from None
    _restore(parts, arrays, alarms, seen=seen, tested=tested)
    return streams


def _arrays(parts: Parts) -> Arrays:
    detectors, separation, alarms, effects, bounds = parts
    bounds.flush()
    return {
        "counts": detectors.counts,
        "based": detectors.based,
        "log_sr": detectors.log_sr,
        "log_product": detectors.log_product,
        "totals": np.array(separation.totals).reshape(-1, 3),
        "starts": separation.starts,
        "raised_for": alarms.raised_for,
        "effect_totals": effects.totals,
        "effect_changes": effects.changes,
        "effect_rose": effects.rose,
        "bound_sums": bounds.sums,
        "bound_guesses": bounds.guesses,
    }


def _size(arrays: Arrays) -> int:
    """Size of the arrays with their npy and zip headers, in bytes."""
    return sum(array.nbytes + 1_000 for array in arrays.values())


def _restore(parts: Parts, arrays: Arrays, alarms: list[Alarm], *, seen: int, tested: int) -> None:
    detectors, separation, board, effects, bounds = parts
    for name in ("counts", "based", "log_sr", "log_product"):
        setattr(detectors, name, arrays[name])
    separation.seen, separation.totals = seen, arrays["totals"].tolist()
    separation.starts, separation.tested = arrays["starts"], tested
    board.raised_for = arrays["raised_for"]
    board.latched = {alarm.watcher: alarm for alarm in alarms}
    for name in ("totals", "changes", "rose"):
        setattr(effects, name, arrays[f"effect_{name}"])
    bounds.sums, bounds.guesses = arrays["bound_sums"], arrays["bound_guesses"]


def _check_origin(header: dict[str, Any], *, bundle_digest: str, window: int) -> None:
    expected = {"version": _VERSION, "bundle_digest": bundle_digest, "window": window}
    for (field, now), name in zip(expected.items(), ("format", "bundle", "window"), strict=True):
        was = header[field]
        # True == 1, but is not a version.
        same = type(was) is type(now) and was == now
        _require(same, f"belongs to another {name}: {was!r:.80}, not {now!r:.80}")


def _check_arrays(arrays: Arrays, expected: Arrays) -> None:
    for name, array in expected.items():
        saved = arrays.get(name, np.empty(0))
        fits = (saved.shape, saved.dtype) == (array.shape, array.dtype)
        _require(fits and np.isfinite(saved).all(), f"has invalid {name}")


def _check_detectors(arrays: Arrays, reference: DriftReference, seen: int) -> None:
    """Check that predictions are counted once per column, and that logs are within bounds."""
    based = arrays["based"]
    counts = arrays["counts"] - based[:, None] * reference.counts
    new = counts.sum(1)
    whole = ((counts >= 0) & (counts == np.floor(counts))).all()
    # A restarted detector has counted some of the predictions, any other all of them.
    _require(whole and np.where(based, new == seen, new <= seen).all(), "has invalid counts")
    # Allow for rounding of the logs.
    for name, least in (("log_sr", NOTHING), ("log_product", LEAST_STEP * seen)):
        logs = arrays[name]
        possible = (logs >= least - 1) & (logs <= MOST_STEP * seen + 1)
        _require(possible.all(), f"has invalid {name}")


def _check_shares(arrays: Arrays, seen: int) -> None:
    """Check that sums grow from block to block by values in [0, 1]."""
    totals, starts = arrays["totals"], arrays["starts"]
    steps = np.diff(np.concatenate([starts, totals[:, None]], 1), axis=1)
    _require((totals[:, 0] <= seen).all() and usable_sums(totals).all(), "has invalid totals")
    _require(usable_sums(steps).all() and not starts[:, 0].any(), "has invalid starts")


def _check_effects(arrays: Arrays, layout: Layout, alarms: list[Alarm], seen: int) -> None:
    """Check that effects have been counted since alarms only."""
    totals, changes, rose = (arrays[f"effect_{name}"] for name in ("totals", "changes", "rose"))
    _require(usable_sums(totals).all() and (totals[:, 0] <= seen).all(), "has invalid effects")
    # Allow for rounding of the posteriors.
    weights = (changes[:, 0] >= 0) & (changes[:, 0] <= 1.001 * seen)
    _require(weights.all() and (changes[:, 1] >= 0).all(), "has invalid expected changes")
    watched = {alarm.watcher for alarm in alarms}
    followed = np.array([DetectorId("change", name) in watched for name in layout.groups])
    counted = totals.any(1) | rose
    counted |= np.logical_or.reduceat(changes.any(1), np.cumsum([0, *layout.groups.values()])[:-1])
    _require(not (counted & ~followed).any(), "has effects without an alarm")
    _require((totals[:, 0] >= rose).all(), "has effects without predictions")


def _check_bounds(arrays: Arrays, layout: Layout) -> None:
    """Check that all sums of an attribute have one count, at most that of its flip share."""
    sums, guesses = arrays["bound_sums"], arrays["bound_guesses"]
    sizes = list(layout.groups.values())
    counts = sums[np.cumsum([0, *sizes[:-1]]), 0, 0]
    same = sums[..., 0] == np.repeat(counts, sizes)[:, None]
    _require(usable_sums(sums).all() and same.all(), "has invalid bounds of flip shares")
    _require((counts <= arrays["totals"][:, 0]).all(), "has invalid bounds of flip shares")
    # Allow for rounding of the posteriors.
    _require(((guesses >= -0.001) & (guesses <= 1.001)).all(), "has invalid guesses")


def _streams(saved: Any) -> frozenset[str]:
    usable = isinstance(saved, list) and 1 <= len(saved) <= MOST_STREAMS
    _require(usable and all(_STREAM.fullmatch(name) for name in saved), "has invalid streams")
    return frozenset(saved)


def _saved(alarm: Alarm) -> dict[str, Any]:
    fields = asdict(alarm)
    # Derived from the sums of the state.
    del fields["effect"]
    return fields


def _alarm(saved: dict[str, Any], layout: Layout, seen: int) -> Alarm:
    kind, attribute = saved.pop("watcher")
    alarm = Alarm(watcher=DetectorId(kind, attribute), **saved)
    usable = (
        alarm.watcher in layout.watchers
        and _is_int(alarm.at, 1, seen)
        and _is_int(alarm.decides_at, alarm.at, _LATEST)
        and type(saved["value"]) is float
        and math.isfinite(alarm.value)
        and alarm.cause in get_args(Cause)
    )
    _require(usable, "has an impossible alarm")
    return alarm


def _is_int(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _require(holds: Any, otherwise: str) -> None:
    if not holds:
        raise StateError(f"the saved state {otherwise}")


def read_state_file(path: Path) -> bytes | None:
    """Read the saved state; None if there is none yet.

    Raises:
        ServeError: The file cannot be read, or its directory is not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(13, "its directory is not writable")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServeError(f"drift.state_path: {path}: {error.strerror or error}") from None


def write_state_file(path: Path, data: bytes) -> None:
    """Replace the saved state atomically.

    Raises:
        OSError: The file cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
