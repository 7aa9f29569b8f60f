"""What the traffic log adds to serving: processor time a request, and latency.

Servers and load are those of `benchmarks.serving`. Every segment becomes Parquet once its rounds
are over, and what that takes of the processor is shared out among the requests in it.

The load repeats one request, and columns of one value become Parquet sooner than people do. So
compaction of made-up people of the same width is timed as well, and the larger of both is counted.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pyarrow import parquet as pq
from rich.table import Table

from benchmarks.claims import Claim, PairedRatio, Say, Scale, print_wide
from benchmarks.kernel_subjects import LARGE, SMALL, Shape
from benchmarks.serving_load import on_cores
from benchmarks.serving_rows import Row
from benchmarks.serving_servers import Command, Fleet
from benchmarks.serving_subjects import ServedSubject, served_subject
from benchmarks.serving_timing import Timing, take_timing
from benchmarks.traffic_compaction import time_compaction
from monitor.traffic.ledger import SegmentEntry, read_ledger
from monitor.traffic.spool import ROLL_REQUEST, SEGMENTS
from monitor.traffic.store import Store

__all__ = ["measure_serving"]

_OFF, _ON = "log off", "log on"
# Beside the path.
_SETTINGS = {
    _OFF: None,
    _ON: "",
    "log on, waits for as long as it takes": "max_write_seconds: null",
    "log on, durability process": "durability: process",
    "log on, durability always": "durability: always",
}
_CLAIMED = 64
_MOST = 1.1
_ROLL_SECONDS = 60.0
# Where a segment ends by default; and what a row of it takes beside its features, about.
_SEGMENT_BYTES, _ROW_BYTES = 64 << 20, 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What became of the requests of some rounds.

    Attributes:
        rows: In the log.
        lost: Rows that are not.
        batch: Rows of a batch, on average.
        cpu_us: Processor time of compaction for a row, in microseconds.
    """

    rows: int = 0
    lost: int = 0
    batch: float = 1.0
    cpu_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTiming:
    """One load.

    Attributes:
        timing: What was measured of every server, compaction apart.
        kept: Of every server that writes a log.
        varied_us: What compaction takes for a row if no two are alike, in microseconds.
    """

    timing: Timing
    kept: Mapping[str, Kept]
    varied_us: float

    def ratios(self, name: str, *, varied: bool) -> PairedRatio:
        """Processor time with compaction, where that without a log is 1."""
        own = self.kept[name].cpu_us
        if varied and name != _OFF:
            own = max(own, self.varied_us)
        pairs = zip(self.timing.samples[name], self.timing.samples[_OFF], strict=True)
        return PairedRatio(ratios=tuple((ours.cpu_us + own) / off.cpu_us for ours, off in pairs))


def measure_serving(scale: Scale, say: Say) -> list[Claim]:
    """Load every server with both networks; print every row and return the claims."""
    cores = sorted(os.sched_getaffinity(0))
    loaded = shutil.which("h2load") is not None and len(cores) > 1
    if not loaded and scale is not Scale.SMOKE:
        raise SystemExit("this takes two cores, and h2load (Debian: nghttp2-client)")
    torch.set_num_threads(1)
    found: dict[str, dict[int, LoggedTiming]] = {}
    with on_cores(cores[:1]):
        for shape in (SMALL,) if scale.small else (SMALL, LARGE):
            with (
                tempfile.TemporaryDirectory() as folder,
                Fleet(Path(folder), starts_on=cores, stays_on=cores[-1]) as fleet,
            ):
                say(f"preparing {shape.name}")
                subject = served_subject(shape, Path(folder))
                rows = _start(fleet, subject, Path(folder))
                if not loaded:
                    print("skipped: h2load not installed; servers were started and checked only")
                    return []
                found[shape.name] = {
                    outstanding: _time(rows, shape, outstanding, Path(folder), say, scale=scale)
                    for outstanding in (1, _CLAIMED)
                }
                for row in rows.values():
                    row.check()
    print_wide(_table(found))
    return [_claim(network, by_load) for network, by_load in found.items()]


def _start(fleet: Fleet, subject: ServedSubject, folder: Path) -> dict[str, Row]:
    servers = {
        name: fleet.start(name, _command(subject, folder, place, settings))
        for place, (name, settings) in enumerate(_SETTINGS.items())
    }
    rows = {}
    for name, server in servers.items():
        server.wait()
        rows[name] = Row(server=server, subject=subject)
        rows[name].check()
    return rows


def _command(subject: ServedSubject, folder: Path, place: int, settings: str | None) -> Command:
    def command(port: int, further: int) -> Sequence[str | Path]:
        file = folder / f"{place}.yaml"
        text = f"server: {{host: 127.0.0.1, grpc_port: {port}, rest_port: {further}}}\n"
        if settings is not None:
            text += f"traffic:\n  path: {folder / f'log-{place}'}\n  {settings}\n"
        file.write_text(text)
        options = ("--bundle", subject.bundle, "--pin", subject.digest, "--config", file)
        return [sys.executable, "-m", "monitor", "serve", *options]

    return command


def _time(
    rows: Mapping[str, Row], shape: Shape, outstanding: int, folder: Path, say: Say, *, scale: Scale
) -> LoggedTiming:
    say(f"{shape.name}, {outstanding} outstanding")
    places = {name: folder / f"log-{place}" for place, name in enumerate(_SETTINGS)}
    for name, row in rows.items():
        _compacted(row, places[name])
    rounds, seconds = scale.pick(full=(11, 0.7), quick=(5, 0.4), smoke=(1, 0.05))
    timing = take_timing(rows, outstanding=outstanding, rounds=rounds, seconds=seconds)
    kept = {name: _compacted(row, places[name]) for name, row in rows.items()}
    say(f"{shape.name}, compaction of people")
    whole = _SEGMENT_BYTES // (4 * shape.widths[0] + _ROW_BYTES)
    people = scale.pick(full=whole, quick=20_000, smoke=500)
    batch = max(1, round(kept[_ON].batch))
    varied = time_compaction(shape, people, batch, attributes=1, rounds=3)
    return LoggedTiming(timing=timing, kept=kept, varied_us=varied.cpu_us)


def _compacted(row: Row, log: Path) -> Kept:
    """Have a server turn its segment into Parquet, and see what that takes and what is there."""
    if not log.exists():
        return Kept()
    store = Store.open(log)
    known = {entry.segment for entry in read_ledger(store)[0]}
    before, end = row.server.cpu_seconds, time.monotonic() + _ROLL_SECONDS
    request = log / SEGMENTS / ROLL_REQUEST
    request.touch()
    while request.exists():
        if time.monotonic() > end:
            raise SystemExit(f"{row.server.name}: no Parquet after {_ROLL_SECONDS:.0f} s")
        time.sleep(0.05)
    seconds = row.server.cpu_seconds - before
    entries = [entry for entry in read_ledger(store)[0] if entry.segment not in known]
    count = sum(entry.rows for entry in entries)
    return Kept(
        rows=count,
        lost=sum(sum(entry.lost.values()) for entry in entries),
        batch=count / max(_batches(store, entries), 1),
        cpu_us=seconds / max(count, 1) * 1e6,
    )


def _batches(store: Store, entries: Sequence[SegmentEntry]) -> int:
    """Rows of a batch were written at the same time, and no others."""
    count = 0
    for file in (file for entry in entries for file in entry.files):
        with store.open_file(file.path) as opened:
            count += len(pq.read_table(opened, columns=["time"])["time"].unique())
    return count


def _table(found: Mapping[str, Mapping[int, LoggedTiming]]) -> Table:
    table = Table("server", title="The traffic log: one core for the server, one for the load")
    headings = ("requests/s", "CPU µs", "compaction µs", "of people µs", "CPU × off", "lowest")
    for heading in (*headings, "highest", "p50 ms", "p50 × off", "rows a batch", "rows", "lost"):
        table.add_column(heading, justify="right")
    for network, by_load in found.items():
        for outstanding, logged in by_load.items():
            table.add_section()
            table.add_row(f"[bold]{network}, {outstanding} outstanding[/bold]")
            for name in logged.timing.samples:
                table.add_row(name, *_cells(logged, name, outstanding))
    return table


def _cells(logged: LoggedTiming, name: str, outstanding: int) -> list[str]:
    """Latencies are logged with one request outstanding only."""
    timing, kept = logged.timing, logged.kept[name]
    ratio = logged.ratios(name, varied=True)
    latency = ["", ""]
    if outstanding == 1:
        beside = timing.ratio(name, _OFF, "p50")
        latency = [f"{timing.median(name, 'p50'):.2f}", f"{beside:.2f}"]
    written = [f"{kept.batch:.1f}", f"{kept.rows:,}", f"{kept.lost:,}"]
    return [
        f"{timing.median(name, 'per_second'):,.0f}",
        f"{timing.median(name, 'cpu_us'):.0f}",
        *(["", ""] if name == _OFF else [f"{kept.cpu_us:.1f}", f"{logged.varied_us:.1f}"]),
        *(f"{each:.2f}" for each in (ratio.median, min(ratio.ratios), max(ratio.ratios))),
        *latency,
        *([] if name == _OFF else written),
    ]


def _claim(network: str, by_load: Mapping[int, LoggedTiming]) -> Claim:
    logged, alone = by_load[_CLAIMED], by_load[1]
    found = logged.ratios(_ON, varied=True)
    return Claim(
        claim=f"processor time a request with the log, {network}, {_CLAIMED} outstanding",
        figure=found.median,
        unit="× off",
        side="at most",
        bar=_MOST,
        rounds=len(found.ratios),
        details=found.details
        | {
            "without compaction": logged.timing.ratio(_ON, _OFF, "cpu_us"),
            "with that of the load's one row": logged.ratios(_ON, varied=False).median,
            "at 1": alone.ratios(_ON, varied=True).median,
            "p50 at 1": alone.timing.ratio(_ON, _OFF, "p50"),
            "rows a batch": logged.kept[_ON].batch,
            "rows lost": logged.kept[_ON].lost + alone.kept[_ON].lost,
        },
    )
