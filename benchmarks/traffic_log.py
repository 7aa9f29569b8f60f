"""The large log of `benchmarks.traffic` on disk: made once, cached in `.cache/traffic`."""

from __future__ import annotations

import datetime as dt
import hashlib
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.claims import Say
from benchmarks.traffic_rows import (
    COLUMNS,
    GROUPS,
    ROWS_AN_HOUR,
    SPEC,
    hour_of_outcomes,
    hour_of_traffic,
    moment,
)
from benchmarks.traffic_segments import about_traffic
from monitor.traffic.columns import with_metadata
from monitor.traffic.compaction import write_table
from monitor.traffic.ledger import Kind, SegmentEntry, write_entry
from monitor.traffic.store import Store

__all__ = ["LargeLog", "large_log", "write_hour"]

_ROOT = Path(__file__).parents[1]
_CACHE = _ROOT / ".cache" / "traffic"
# Files that determine the contents of a log.
_SOURCES = (
    "benchmarks/traffic_log.py",
    "benchmarks/traffic_rows.py",
    "benchmarks/traffic_segments.py",
    "monitor/traffic/columns.py",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeLog:
    """A log on disk.

    Attributes:
        rows: Number of predictions.
        home: Directory of the log.
        model: Name of the model.
        version: Version of the model.
        since: Start of the first hour.
        until: End of the last hour.
    """

    rows: int
    home: Path
    model: str
    version: str
    since: dt.datetime
    until: dt.datetime

    @property
    def traffic(self) -> Path:
        """Directory of the predictions."""
        return self.home / "traffic"

    @property
    def outcomes(self) -> Path:
        """Directory of the outcomes."""
        return self.home / "outcomes"

    @property
    def gib(self) -> float:
        """Total size of the Parquet files."""
        return sum(f.stat().st_size for f in self.home.rglob("*.parquet")) / 2**30


def large_log(rows: int, say: Say) -> LargeLog:
    """A log with this number of predictions, from the cache or newly made."""
    hours = -(-rows // ROWS_AN_HOUR)
    an_hour = min(rows, ROWS_AN_HOUR)
    home = _CACHE / f"{rows}-{_key()}"
    if not home.exists():
        _make(home, rows, hours, an_hour, say)
    model = SPEC.model
    return LargeLog(
        rows=hours * an_hour,
        home=home,
        model=model.name,
        version=model.version,
        since=moment(0),
        until=moment(hours),
    )


def write_hour(home: Path, rows: int, hour: int) -> int:
    """Write the predictions and outcomes of one hour; return the number of predictions."""
    when = moment(hour)
    model, name = SPEC.model, f"{when:%Y%m%dT%H%M%SZ}-synthetic"
    about = about_traffic(SPEC, COLUMNS, segment=name)
    folder = f"model={model.name}/version={model.version}/date={when:%Y-%m-%d}/hour={when:%H}"
    _write(home / "traffic", folder, hour_of_traffic(hour, rows), "time", about)
    common = {key: about[key] for key in ("format", "model", "version", "pseudonyms", "evenhand")}
    common |= {"kind": "outcomes", "attributes": {a: list(names) for a, names in GROUPS.items()}}
    for days, outcomes in enumerate(hour_of_outcomes(hour, rows), start=1):
        folder = f"model={model.name}/date={when + dt.timedelta(days=days):%Y-%m-%d}"
        about = {**common, "segment": f"{name}-{days}"}
        _write(home / "outcomes", folder, outcomes, "received_at", about)
    return rows


def _write(root: Path, folder: str, table: pa.Table, clock: str, about: dict[str, Any]) -> None:
    store, name = Store.open(root), about["segment"]
    kind: Kind = about["kind"]
    root.mkdir(parents=True, exist_ok=True)
    table = table.cast(with_metadata(table.schema, about))
    file = write_table(store, f"{folder}/{name}.parquet", table, root / f".{name}.draft")
    since, until = (table[clock][index].as_py() for index in (0, -1))
    entry = SegmentEntry(
        segment=name,
        kind=kind,
        model=about["model"],
        version=about["version"],
        since=since,
        until=until,
        rows=len(table),
        files=(file,),
    )
    write_entry(store, entry)


def _make(home: Path, rows: int, hours: int, an_hour: int, say: Say) -> None:
    """Write to a temporary directory and rename it, so that a partial log is never used."""
    for old in _CACHE.glob(f"{rows}-*"):
        shutil.rmtree(old)
    draft = home.with_name(f".{home.name}.{os.getpid()}")
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
            done = 0
            for written in pool.map(partial(write_hour, draft, an_hour), range(hours)):
                done += written
                say(f"making a log for the cache: {done:,} of {hours * an_hour:,} rows")
        draft.replace(home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _key() -> str:
    digest = hashlib.sha256(pa.__version__.encode())
    for file in _SOURCES:
        digest.update((_ROOT / file).read_bytes())
    return digest.hexdigest()[:12]
