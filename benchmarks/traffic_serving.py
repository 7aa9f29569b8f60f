"""Cost that the traffic log adds to serving: CPU time per request, and latency.

Servers and load are those of `benchmarks.serving`. Every segment is compacted to Parquet after its
rounds, and the CPU time of compaction is divided by the number of requests in it.

The load repeats one request, and columns of one value compact faster than real data. So compaction
of synthetic rows of the same width is timed as well, and the larger of the two times is used.
"""

from __future__ import annotations

import os
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
from benchmarks.serving_load import h2load_installed, on_cores
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
# Lines of the `traffic` section of the config besides `path`; None for no log.
_SETTINGS = {
    _OFF: None,
    _ON: "",
    "log on, no bound on a write": "max_write_seconds: null",
    "log on, durability process": "durability: process",
    "log on, durability always": "durability: always",
}
_CLAIMED = 64
_MOST = 1.1
_ROLL_SECONDS = 60.0
# Default size of a segment, and the approximate size of a row without its features.
_SEGMENT_BYTES, _ROW_BYTES = 64 << 20, 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The log after some rounds.

    Attributes:
        rows: Rows in the log.
        lost: Rows missing in the log.
        batch: Mean number of rows per batch.
        cpu_us: CPU time of compaction per row, in microseconds.
    """

    rows: int = 0
    lost: int = 0
    batch: float = 1.0
    cpu_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTiming:
    """Timing of all servers under one load.

    Attributes:
        timing: Samples of every server, without compaction.
        compacted: Log of every server.
        varied_us: CPU time of compaction per row if all rows differ, in microseconds.
    """

    timing: Timing
    compacted: Mapping[str, Compacted]
    varied_us: float

    def ratios(self, name: str, *, varied: bool) -> PairedRatio:
        """CPU time including compaction, relative to no log."""
        own = self.compacted[name].cpu_us
        if varied and name != _OFF:
            own = max(own, self.varied_us)
        pairs = zip(self.timing.samples[name], self.timing.samples[_OFF], strict=True)
        return PairedRatio(ratios=tuple((ours.cpu_us + own) / off.cpu_us for ours, off in pairs))


def measure_serving(scale: Scale, say: Say) -> list[Claim]:
    """Load every server with both networks; print every row and return the claims."""
    cores = sorted(os.sched_getaffinity(0))
    if scale is not Scale.SMOKE and (len(cores) == 1 or not h2load_installed()):
        raise SystemExit("two cores and h2load (Debian: nghttp2-client) are needed")
    torch.set_num_threads(1)
    timings: dict[str, dict[int, LoggedTiming]] = {}
    with on_cores(cores[:1]):
        for shape in (SMALL,) if scale.small else (SMALL, LARGE):
            with (
                tempfile.TemporaryDirectory() as folder,
                Fleet(Path(folder), starts_on=cores, stays_on=cores[-1]) as fleet,
            ):
                say(f"preparing {shape.name}")
                subject = served_subject(shape, Path(folder))
                rows = _start(fleet, subject, Path(folder), scale=scale)
                timings[shape.name] = {
                    outstanding: _time(rows, shape, outstanding, Path(folder), say, scale=scale)
                    for outstanding in (1, _CLAIMED)
                }
                for row in rows.values():
                    row.check()
    print_wide(_table(timings))
    return [_claim(network, by_load) for network, by_load in timings.items()]


def _start(fleet: Fleet, subject: ServedSubject, folder: Path, *, scale: Scale) -> dict[str, Row]:
    # The other settings differ in the config only.
    names = (_OFF, _ON) if scale is Scale.SMOKE else tuple(_SETTINGS)
    servers = {
        name: fleet.start(name, _command(subject, folder, index, settings))
        for index, (name, settings) in enumerate(_SETTINGS.items())
        if name in names
    }
    rows = {}
    for name, server in servers.items():
        server.wait()
        rows[name] = Row(server=server, subject=subject)
        rows[name].check()
    return rows


def _command(subject: ServedSubject, folder: Path, index: int, settings: str | None) -> Command:
    def command(port: int, rest_port: int) -> Sequence[str | Path]:
        file = folder / f"{index}.yaml"
        text = f"server: {{host: 127.0.0.1, grpc_port: {port}, rest_port: {rest_port}}}\n"
        if settings is not None:
            text += f"traffic:\n  path: {folder / f'log-{index}'}\n  {settings}\n"
        file.write_text(text)
        options = ("--bundle", subject.bundle, "--pin", subject.digest, "--config", file)
        return [sys.executable, "-m", "monitor", "serve", *options]

    return command


def _time(
    rows: Mapping[str, Row], shape: Shape, outstanding: int, folder: Path, say: Say, *, scale: Scale
) -> LoggedTiming:
    say(f"{shape.name}, {outstanding} outstanding")
    logs = {name: folder / f"log-{index}" for index, name in enumerate(_SETTINGS)}
    # Earlier requests must not count as requests of these rounds.
    for name, row in rows.items():
        _compact(row, logs[name])
    rounds, seconds, warm = scale.pick(
        full=(11, 0.7, 200), quick=(5, 0.4, 200), smoke=(1, 0.05, 10)
    )
    timing = take_timing(rows, outstanding=outstanding, rounds=rounds, seconds=seconds, warm=warm)
    compacted = {name: _compact(row, logs[name]) for name, row in rows.items()}
    say(f"{shape.name}, compaction of rows that differ")
    whole = _SEGMENT_BYTES // (4 * shape.widths[0] + _ROW_BYTES)
    n = scale.pick(full=whole, quick=20_000, smoke=500)
    batch = max(1, round(compacted[_ON].batch))
    varied = time_compaction(
        shape, n, batch, attributes=1, rounds=scale.pick(full=3, quick=3, smoke=1)
    )
    return LoggedTiming(timing=timing, compacted=compacted, varied_us=varied.cpu_us)


def _compact(row: Row, log: Path) -> Compacted:
    """Make a server compact its segment; measure the CPU time and read the ledger."""
    if not log.exists():
        return Compacted()
    store = Store.open(log)
    known = {entry.segment for entry in read_ledger(store)[0]}
    before, end = row.server.cpu_seconds, time.monotonic() + _ROLL_SECONDS
    request = log / SEGMENTS / ROLL_REQUEST
    request.touch()
    while request.exists():
        if time.monotonic() > end:
            raise SystemExit(
                f"{row.server.name}: segment not compacted after {_ROLL_SECONDS:.0f} s"
            )
        time.sleep(0.05)
    seconds = row.server.cpu_seconds - before
    entries = [entry for entry in read_ledger(store)[0] if entry.segment not in known]
    count = sum(entry.rows for entry in entries)
    return Compacted(
        rows=count,
        lost=sum(sum(entry.lost.values()) for entry in entries),
        batch=count / max(_batches(store, entries), 1),
        cpu_us=seconds / max(count, 1) * 1e6,
    )


def _batches(store: Store, entries: Sequence[SegmentEntry]) -> int:
    """Number of batches; rows have the same time if and only if they are of one batch."""
    count = 0
    for file in (file for entry in entries for file in entry.files):
        with store.open_file(file.path) as opened:
            count += len(pq.read_table(opened, columns=["time"])["time"].unique())
    return count


def _table(timings: Mapping[str, Mapping[int, LoggedTiming]]) -> Table:
    table = Table("server", title="The traffic log: one core for the server, one core for the load")
    headings = ("requests/s", "CPU µs", "compaction µs", "rows differ µs", "CPU × off", "lowest")
    for heading in (*headings, "highest", "p50 ms", "p50 × off", "rows per batch", "rows", "lost"):
        table.add_column(heading, justify="right")
    for network, by_load in timings.items():
        for outstanding, logged in by_load.items():
            table.add_section()
            table.add_row(f"[bold]{network}, {outstanding} outstanding[/bold]")
            for name in logged.timing.samples:
                table.add_row(name, *_cells(logged, name, outstanding))
    return table


def _cells(logged: LoggedTiming, name: str, outstanding: int) -> list[str]:
    """Latencies are logged with one outstanding request only."""
    timing, compacted = logged.timing, logged.compacted[name]
    ratio = logged.ratios(name, varied=True)
    latency = ["", ""]
    if outstanding == 1:
        to_off = timing.ratio(name, _OFF, "p50")
        latency = [f"{timing.median(name, 'p50'):.2f}", f"{to_off:.2f}"]
    written = [f"{compacted.batch:.1f}", f"{compacted.rows:,}", f"{compacted.lost:,}"]
    return [
        f"{timing.median(name, 'per_second'):,.0f}",
        f"{timing.median(name, 'cpu_us'):.0f}",
        *(["", ""] if name == _OFF else [f"{compacted.cpu_us:.1f}", f"{logged.varied_us:.1f}"]),
        *(f"{value:.2f}" for value in (ratio.median, min(ratio.ratios), max(ratio.ratios))),
        *latency,
        *([] if name == _OFF else written),
    ]


def _claim(network: str, by_load: Mapping[int, LoggedTiming]) -> Claim:
    logged, alone = by_load[_CLAIMED], by_load[1]
    ratio = logged.ratios(_ON, varied=True)
    return Claim(
        claim=f"CPU time per request with the log, {network}, {_CLAIMED} outstanding",
        figure=ratio.median,
        unit="× off",
        side="at most",
        bar=_MOST,
        rounds=len(ratio.ratios),
        details=ratio.details
        | {
            "without compaction": logged.timing.ratio(_ON, _OFF, "cpu_us"),
            "with compaction of the repeated row": logged.ratios(_ON, varied=False).median,
            "at 1": alone.ratios(_ON, varied=True).median,
            "p50 at 1": alone.timing.ratio(_ON, _OFF, "p50"),
            "rows per batch": logged.compacted[_ON].batch,
            "rows lost": logged.compacted[_ON].lost + alone.compacted[_ON].lost,
        },
    )
