"""Speed of compaction to Parquet, compared with pyarrow's writing of the same rows from memory.

The peer starts with the rows in one table and does not fsync. Compaction reads the segment, checks
it, converts it to columns, hashes the file, calls fsync and writes the ledger.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq
from rich.table import Table

from benchmarks.claims import Claim, PairedRatio, Say, Scale, print_wide
from benchmarks.kernel_subjects import Shape
from benchmarks.traffic_segments import synthetic_features, synthetic_spec, write_segment
from monitor.traffic.columns import TrafficColumns, with_metadata
from monitor.traffic.compaction import compact
from monitor.traffic.records import traffic_table
from monitor.traffic.segment import read_segment
from monitor.traffic.store import Store

__all__ = ["CompactionTiming", "measure_compaction", "time_compaction"]

NARROW = Shape(widths=(20, 32, 1), numeric=4, integer=2, binary=4, one_hot=(2, 5))
WIDE = Shape(widths=(95, 32, 1), numeric=15, integer=10, binary=10, one_hot=(6, 10))
_BATCHES = (1, 16, 256)
_CLAIMED = 16
_LEAST_SPEED, _LARGEST = 0.6, 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTiming:
    """Timings of compaction and of the peer.

    Attributes:
        rows: Rows in the segment.
        ours: Seconds of wall-clock and of CPU time, per round.
        peer: The same for the peer.
        sizes: Bytes of our file and of the peer's.
    """

    rows: int
    ours: tuple[tuple[float, float], ...]
    peer: tuple[tuple[float, float], ...]
    sizes: tuple[int, int]

    @property
    def speed(self) -> PairedRatio:
        """Our speed relative to the peer's, by wall-clock time."""
        return self._speed(0)

    @property
    def cpu_speed(self) -> PairedRatio:
        """Our speed relative to the peer's, by CPU time, which excludes waiting for the disk."""
        return self._speed(1)

    @property
    def size(self) -> float:
        """Size of our file relative to the peer's."""
        return self.sizes[0] / self.sizes[1]

    @property
    def cpu_us(self) -> float:
        """Our CPU time per row, in microseconds."""
        return statistics.median(cpu for _, cpu in self.ours) / self.rows * 1e6

    def _speed(self, kind: int) -> PairedRatio:
        pairs = zip(self.ours, self.peer, strict=True)
        return PairedRatio(ratios=tuple(peer[kind] / ours[kind] for ours, peer in pairs))


def measure_compaction(scale: Scale, say: Say) -> list[Claim]:
    """Time narrow and wide segments with batches of several sizes; print all, claim some."""
    rows, rounds = scale.pick(full=(300_000, 9), quick=(60_000, 3), smoke=(600, 1))
    timings = {}
    for shape in (NARROW, WIDE):
        for batch in _BATCHES:
            say(f"compaction of {shape.widths[0]} features, batches of {batch}")
            timings[shape.widths[0], batch] = time_compaction(shape, rows, batch, rounds=rounds)
    print_wide(_table(timings, rows))
    claimed = {width: timing for (width, batch), timing in timings.items() if batch == _CLAIMED}
    return [claim for width, timing in claimed.items() for claim in _claims(width, timing)]


def time_compaction(
    shape: Shape, rows: int, batch: int, *, rounds: int, attributes: int = 2
) -> CompactionTiming:
    """Time compaction of synthetic rows, alternating with the peer.

    Args:
        shape: Shape of the features.
        rows: Number of rows.
        batch: Rows per record.
        rounds: Number of measured rounds; one more is not measured.
        attributes: Number of protected attributes.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        segment, peer_file = folder / "synthetic.segment", folder / "peer.parquet"
        spec = synthetic_spec(shape, attributes=attributes)
        features = synthetic_features(shape, rows, np.random.default_rng(1))
        table = _as_table(segment, write_segment(segment, spec, features, batch=batch))
        store = Store.open(folder / "log")

        def ours() -> None:
            compact(segment, store, folder / "draft.parquet")

        def peer() -> None:
            pq.write_table(table, peer_file, compression="zstd")

        times: dict[Callable[[], None], list[tuple[float, float]]] = {ours: [], peer: []}
        for number in range(-1, rounds):
            for side in (ours, peer) if number % 2 == 0 else (peer, ours):
                seconds = _seconds(side)
                if number >= 0:
                    times[side].append(seconds)
        (file,) = store.files(suffix=".parquet")
        _check(store, file.path, table)
        return CompactionTiming(
            rows=rows,
            ours=tuple(times[ours]),
            peer=tuple(times[peer]),
            sizes=(file.bytes, peer_file.stat().st_size),
        )


def _as_table(segment: Path, columns: TrafficColumns) -> pa.Table:
    """The segment's rows as a table of one chunk, with the metadata of the file."""
    read = read_segment(segment.read_bytes())
    table = traffic_table(read.records, columns).combine_chunks()
    return table.cast(with_metadata(columns.schema, read.about))


def _check(store: Store, path: str, table: pa.Table) -> None:
    """Fail if the compacted rows differ from those of the segment."""
    with store.open_file(path) as file:
        if not pq.read_table(file).equals(table):
            raise SystemExit(f"{path}: the rows differ from those of the segment")


def _seconds(action: Callable[[], None]) -> tuple[float, float]:
    clock, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - clock, time.process_time() - cpu


def _table(timings: dict[tuple[int, int], CompactionTiming], rows: int) -> Table:
    title = f"Compaction of {rows:,} rows, compared with pyarrow from memory"
    table = Table("features", title=title)
    headings = (
        "rows per batch",
        "s",
        "pyarrow s",
        "CPU µs per row",
        "speed ×",
        "lowest",
        "highest",
    )
    for heading in (*headings, "CPU speed ×", "MiB", "size ×"):
        table.add_column(heading, justify="right")
    for (width, batch), timing in timings.items():
        own, peer = (statistics.median(s for s, _ in side) for side in (timing.ours, timing.peer))
        spread = timing.speed.ratios
        table.add_row(
            *(str(width), str(batch), f"{own:.2f}", f"{peer:.2f}", f"{timing.cpu_us:.2f}"),
            *(f"{timing.speed.median:.2f}", f"{min(spread):.2f}", f"{max(spread):.2f}"),
            *(f"{timing.cpu_speed.median:.2f}", f"{timing.sizes[0] / 2**20:.1f}"),
            f"{timing.size:.2f}",
        )
    return table


def _claims(width: int, timing: CompactionTiming) -> list[Claim]:
    rounds = len(timing.ours)
    data = f"{timing.rows:,} rows of {width} features, {_CLAIMED} per batch"
    return [
        Claim(
            claim=f"compaction of {data}, rows per second",
            figure=timing.speed.median,
            unit="× pyarrow from memory",
            side="at least",
            bar=_LEAST_SPEED,
            rounds=rounds,
            details=timing.speed.details
            | {"by CPU time": timing.cpu_speed.median, "CPU µs per row": timing.cpu_us},
        ),
        Claim(
            claim=f"size of the file, {data}",
            figure=timing.size,
            unit="× pyarrow's",
            side="at most",
            bar=_LARGEST,
            rounds=1,
        ),
    ]
