"""Spools for tests, and their contents: a log of one feature, `x`, which is also the logit."""

from __future__ import annotations

import datetime as dt
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from monitor.scoring.scores import ScoreColumns
from monitor.traffic.columns import FeatureColumn, TrafficColumns
from monitor.traffic.ledger import SegmentEntry, read_ledger
from monitor.traffic.privacy import FeatureGuard, Pseudonyms
from monitor.traffic.records import TrafficEncoder
from monitor.traffic.segment import Records
from monitor.traffic.spool import SEGMENTS, Spool
from monitor.traffic.store import Store

__all__ = [
    "ABOUT",
    "COLUMNS",
    "LoggedRequest",
    "Row",
    "encoder",
    "entries",
    "hidden_files",
    "join_records",
    "logged",
    "lost_counts",
    "moment",
    "open_spool",
    "payload",
    "scored_batch",
    "segments",
    "spooling",
]

# A row of the log: request id, row of the request, value.
Row = tuple[str, int, float]

COLUMNS = TrafficColumns(
    features=(FeatureColumn(name="x", feature="x", index=0, kind="numeric", treatment="keep"),),
    attributes=("sex",),
)
ABOUT: dict[str, Any] = {
    "format": 1,
    "kind": "traffic",
    "model": "lending",
    "version": "1",
    "attributes": {"sex": ["female", "male"]},
    "columns": COLUMNS.to_json(),
}
# Columns of the scores of one attribute.
SCORES = ScoreColumns.of({"sex": 2})
_NO_SCORER: Any = None


class LoggedRequest(NamedTuple):
    """The fields of a request that are logged."""

    request_id: str
    first_row: int
    features: NDArray[np.float32]


def join_records(*records: tuple[int, int, bytes]) -> Records:
    """Records of time, rows and payload, as if read from one segment."""
    joined = Records(data=b"".join(data for _, _, data in records))
    start = 0
    for time, rows, data in records:
        joined.append(time, rows, start, start := start + len(data))
    return joined


def encoder(columns: TrafficColumns = COLUMNS, scorer: Any = _NO_SCORER) -> TrafficEncoder:
    """Encoder of a log without pseudonyms."""
    names = Pseudonyms(None)
    return TrafficEncoder(columns, SCORES, FeatureGuard(columns, {}, names), names, scorer)


def scored_batch(logits: NDArray[np.float32], **parts: Any) -> Any:
    """Scoring result of a batch with these logits."""
    n = len(logits)
    scores = np.zeros((n, SCORES.width), np.float32)
    scores[:, 0] = scores[:, 1] = logits
    fields = {
        "output": logits,
        "scores": scores,
        "p_values": np.full((n, 1), 0.5),
        "likely_flip": np.zeros((n, 1), bool),
        "unusual": np.zeros((n, 1), bool),
        "verdicts": np.zeros((n, 1), np.int8),
        "actions": np.ones(n, np.int8),
    }
    return SimpleNamespace(**(fields | parts))


_ENCODER = encoder()


def payload(*requests: tuple[str, Sequence[float]]) -> bytes:
    """A record of requests, each an id and the values of its rows."""
    batch: Any = [
        LoggedRequest(name, 0, np.array(values, np.float32).reshape(-1, 1))
        for name, values in requests
    ]
    features = np.concatenate([request.features for request in batch])
    return _ENCODER.payload(batch, features, scored_batch(features[:, 0]))


def open_spool(home: Path | Store, target: Store | None = None, **options: Any) -> Spool:
    """A spool that compacts when it stops, unless `options` change that."""
    store = home if isinstance(home, Store) else Store.open(home)
    settings: dict[str, Any] = {
        "roll_bytes": 1 << 20,
        "roll_seconds": 3600.0,
        "max_bytes": 1 << 30,
        "when_full": "drop_oldest",
        "durability": "process",
        "sync_seconds": 1.0,
    }
    about = options.pop("about", ABOUT)
    return Spool(store, store if target is None else target, about, **(settings | options))


@contextmanager
def spooling(home: Path | Store, target: Store | None = None, **options: Any) -> Iterator[Spool]:
    """A spool as of `open_spool`, stopped normally at the end."""
    spool = open_spool(home, target, **options)
    try:
        yield spool
    finally:
        spool.stop(30)


def logged(location: Path | Store) -> list[Row]:
    """All rows of the Parquet files of a log, in order."""
    store = location if isinstance(location, Store) else Store.open(location)
    rows: list[Row] = []
    for file in store.files(suffix=".parquet"):
        table = pq.read_table(io.BytesIO(store.read(file.path)), page_checksum_verification=True)
        columns = (table[name].to_pylist() for name in ("request_id", "row", "logit"))
        rows += zip(*columns, strict=True)
    return rows


def segments(home: Path) -> list[Path]:
    """Remaining segments of a directory."""
    return sorted((home / SEGMENTS).glob("*.segment"))


def hidden_files(home: Path) -> list[str]:
    """Remaining temporary files of a directory."""
    files = (Path(folder) / name for folder, _, names in os.walk(home) for name in names)
    return sorted(str(file.relative_to(home)) for file in files if file.name.startswith("."))


def entries(location: Path | Store) -> list[SegmentEntry]:
    """Ledger entries of a log; fails if one is unreadable."""
    readable, unreadable = read_ledger(
        location if isinstance(location, Store) else Store.open(location)
    )
    assert unreadable == []
    return readable


def lost_counts(location: Path | Store) -> dict[str, int]:
    """Lost rows in the ledger of a log, by cause; causes without lost rows are left out."""
    total: Counter[str] = Counter()
    for entry in entries(location):
        total.update(entry.lost)
    return dict(+total)


def moment(year: int, month: int, day: int, *clock: int) -> int:
    """Nanoseconds since 1970 of a time in UTC."""
    time = dt.datetime(year, month, day, tzinfo=dt.UTC)
    hours, minutes, seconds = (*clock, 0, 0, 0)[:3]
    time += dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return int(time.timestamp()) * 10**9
