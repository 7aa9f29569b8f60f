"""How fast a segment becomes Parquet, beside pyarrow's writing of the same rows from memory.

The peer has the rows as one table before it starts, and does not wait for the disk. Ours reads the
segment, checks it, makes columns of it, hashes the file, makes sure of the disk and writes the
ledger.
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
from benchmarks.traffic_segments import made_up_features, made_up_spec, write_segment
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
    """Ours and the peer's, a round each; seconds are of the clock, and of the processor.

    Attributes:
        rows: Of the segment.
        ours: Seconds of both kinds.
        peer: Likewise.
        sizes: Bytes of our file and of the peer's.
    """

    rows: int
    ours: tuple[tuple[float, float], ...]
    peer: tuple[tuple[float, float], ...]
    sizes: tuple[int, int]

    @property
    def speed(self) -> PairedRatio:
        """Of ours, where the peer's is 1, by the clock."""
        return self._speed(0)

    @property
    def processor_speed(self) -> PairedRatio:
        """Likewise by the processor's time, which waiting for the disk does not add to."""
        return self._speed(1)

    @property
    def size(self) -> float:
        """Of our file, where the peer's is 1."""
        return self.sizes[0] / self.sizes[1]

    @property
    def cpu_us(self) -> float:
        """Our processor time for a row, in microseconds."""
        return statistics.median(cpu for _, cpu in self.ours) / self.rows * 1e6

    def _speed(self, kind: int) -> PairedRatio:
        pairs = zip(self.ours, self.peer, strict=True)
        return PairedRatio(ratios=tuple(peer[kind] / ours[kind] for ours, peer in pairs))


def measure_compaction(scale: Scale, say: Say) -> list[Claim]:
    """Time narrow and wide segments of batches of several sizes; print all, claim some."""
    rows, rounds = scale.pick(full=(300_000, 9), quick=(60_000, 3), smoke=(600, 1))
    found = {}
    for shape in (NARROW, WIDE):
        for batch in _BATCHES:
            say(f"compaction of {shape.widths[0]} features, batches of {batch}")
            found[shape.widths[0], batch] = time_compaction(shape, rows, batch, rounds=rounds)
    print_wide(_table(found, rows))
    claimed = {width: timing for (width, batch), timing in found.items() if batch == _CLAIMED}
    return [claim for width, timing in claimed.items() for claim in _claims(width, timing)]


def time_compaction(
    shape: Shape, rows: int, batch: int, *, rounds: int, attributes: int = 2
) -> CompactionTiming:
    """Time a segment of made-up rows, in turns with the peer.

    Args:
        shape: Of the features.
        rows: How many.
        batch: Rows of a record.
        rounds: How many of each, after one of each unmeasured.
        attributes: Protected attributes beside the features.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        segment, peers = folder / "made-up.segment", folder / "peer.parquet"
        spec = made_up_spec(shape, attributes=attributes)
        features = made_up_features(shape, rows, np.random.default_rng(1))
        table = _as_table(segment, write_segment(segment, spec, features, batch=batch))
        store = Store.open(folder / "log")

        def ours() -> None:
            compact(segment, store, folder / "draft.parquet")

        def peer() -> None:
            pq.write_table(table, peers, compression="zstd")

        times: dict[Callable[[], None], list[tuple[float, float]]] = {ours: [], peer: []}
        for number in range(-1, rounds):
            for side in (ours, peer) if number % 2 == 0 else (peer, ours):
                taken = _seconds(side)
                if number >= 0:
                    times[side].append(taken)
        (file,) = store.files(suffix=".parquet")
        _check(store, file.path, table)
        return CompactionTiming(
            rows=rows,
            ours=tuple(times[ours]),
            peer=tuple(times[peer]),
            sizes=(file.bytes, peers.stat().st_size),
        )


def _as_table(segment: Path, columns: TrafficColumns) -> pa.Table:
    """The segment's rows as a table in one piece, with the file's metadata."""
    read = read_segment(segment.read_bytes())
    table = traffic_table(read.records, columns).combine_chunks()
    return table.cast(with_metadata(columns.schema, read.about))


def _check(store: Store, path: str, table: pa.Table) -> None:
    """Nothing was measured if the rows are others."""
    with store.open_file(path) as file:
        if not pq.read_table(file).equals(table):
            raise SystemExit(f"{path} does not hold the rows of its segment")


def _seconds(action: Callable[[], None]) -> tuple[float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - clock, time.process_time() - processor


def _table(found: dict[tuple[int, int], CompactionTiming], rows: int) -> Table:
    title = f"A segment of {rows:,} rows to Parquet, beside pyarrow from memory"
    table = Table("features", title=title)
    headings = ("rows a batch", "s", "pyarrow s", "CPU µs a row", "speed ×", "lowest", "highest")
    for heading in (*headings, "CPU speed ×", "MiB", "size ×"):
        table.add_column(heading, justify="right")
    for (width, batch), timing in found.items():
        own, peers = (statistics.median(s for s, _ in side) for side in (timing.ours, timing.peer))
        spread = timing.speed.ratios
        table.add_row(
            *(str(width), str(batch), f"{own:.2f}", f"{peers:.2f}", f"{timing.cpu_us:.2f}"),
            *(f"{timing.speed.median:.2f}", f"{min(spread):.2f}", f"{max(spread):.2f}"),
            *(f"{timing.processor_speed.median:.2f}", f"{timing.sizes[0] / 2**20:.1f}"),
            f"{timing.size:.2f}",
        )
    return table


def _claims(width: int, timing: CompactionTiming) -> list[Claim]:
    rounds = len(timing.ours)
    words = f"{timing.rows:,} rows of {width} features, {_CLAIMED} a batch"
    return [
        Claim(
            claim=f"compaction of {words}, rows a second",
            figure=timing.speed.median,
            unit="× pyarrow from memory",
            side="at least",
            bar=_LEAST_SPEED,
            rounds=rounds,
            details=timing.speed.details
            | {"by processor time": timing.processor_speed.median, "CPU µs a row": timing.cpu_us},
        ),
        Claim(
            claim=f"size of the same, {words}",
            figure=timing.size,
            unit="× pyarrow's",
            side="at most",
            bar=_LARGEST,
            rounds=1,
        ),
    ]
