"""The state of a drift watch as bytes."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.drift.alarms import Alarm, Alarms
from monitor.drift.detector import Detectors
from monitor.drift.layout import Watcher
from monitor.drift.separation import Separation

__all__ = ["StateError", "read_state", "write_state"]

_VERSION = 1
Parts = tuple[Detectors, Separation, Alarms]


class StateError(Exception):
    """A saved state that cannot be continued; the watch catches it and starts afresh."""


def write_state(parts: Parts, *, bundle_digest: str, window: int) -> bytes:
    """As bytes, without anything of the reference, which is in the bundle."""
    _, separation, alarms = parts
    head = {
        "version": _VERSION,
        "bundle_digest": bundle_digest,
        "window": window,
        "seen": separation.seen,
        "alarms": [asdict(alarm) for alarm in alarms.latched.values()],
    }
    buffer = io.BytesIO()
    np.savez(buffer, head=np.array(json.dumps(head)), **_arrays(parts))  # type: ignore[arg-type]
    return buffer.getvalue()


def read_state(data: bytes, parts: Parts, *, bundle_digest: str, window: int) -> None:
    """Put a saved state into parts that have just been made; nothing in it is unpickled.

    Raises:
        StateError: It cannot be read, or is of another bundle or window; the parts are as before.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            head = json.loads(str(file["head"]))
            arrays = {name: file[name] for name in file.files if name != "head"}
        found = tuple(head[key] for key in ("version", "bundle_digest", "window"))
        seen, alarms = int(head["seen"]), [_alarm(saved) for saved in head["alarms"]]
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise StateError(f"the saved state cannot be read: {error}") from None
    for name, is_now, was in zip(
        ("format", "bundle", "window"), (_VERSION, bundle_digest, window), found, strict=True
    ):
        if is_now != was:
            raise StateError(f"the saved state is of another {name}: {was}, not {is_now}")
    for name, array in _arrays(parts).items():
        saved = arrays.get(name)
        if saved is None or (saved.shape, saved.dtype) != (array.shape, array.dtype):
            raise StateError(f"the saved state has no usable {name}")
        if not np.isfinite(saved).all():
            raise StateError(f"{name} of the saved state is not finite")
    _restore(parts, arrays, seen, alarms)


def _arrays(parts: Parts) -> dict[str, NDArray[Any]]:
    detectors, separation, alarms = parts
    return {
        "counts": detectors.counts,
        "based": detectors.based,
        "log_sr": detectors.log_sr,
        "log_product": detectors.log_product,
        "totals": np.array(separation.totals).reshape(-1, 3),
        "starts": separation.starts,
        "raised_for": alarms.raised_for,
    }


def _restore(parts: Parts, arrays: dict[str, NDArray[Any]], seen: int, alarms: list[Alarm]) -> None:
    detectors, separation, board = parts
    for name in ("counts", "based", "log_sr", "log_product"):
        setattr(detectors, name, arrays[name])
    separation.seen, separation.totals = seen, arrays["totals"].tolist()
    separation.starts = arrays["starts"]
    board.raised_for = arrays["raised_for"]
    board.latched = {alarm.watcher: alarm for alarm in alarms}


def _alarm(saved: dict[str, Any]) -> Alarm:
    kind, attribute = saved.pop("watcher")
    return Alarm(watcher=Watcher(kind, attribute), **saved)
